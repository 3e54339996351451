"""The values of the paper, in paper.csv, and what is known about them."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from susd.report.labels import base

SOURCES = {  # what applies to all values of one table or figure of the paper
    "Factor decoding error (table)": "The original's script reports the least validation error over epochs and sizes, of "
    "one policy; the paper's text describes an error on test states. The paper compares 20, 14 or 6 dimensions of SUSD "
    "with 2 of its rivals.",
    "Accidental completions in 10,000 steps (table)": "Eight repetitions of one policy, mean and standard deviation.",
    "Tasks (main figure)": "The three seeds of Multi-Particle are three layouts with one policy, so sequential scores come "
    "in thirds of the bound. Those of Kitchen are means over the whole run.",
    "Tasks on the way (main figure)": "Ours is smoothed in the same way, over the last 2,500 episodes.",
    "PoS and PoT in Kitchen (appendix)": "Means over the whole run.",
    "Ablation (appendix)": "The paper's variant without factors is its METRA run with a skill of two dimensions; ours "
    "removes the weight and the factors and nothing else.",
    "20 factors instead of 10 (appendix)": "",
    "Skills as large as SUSD's (appendix)": "",
    "Discrete skills (appendix)": "",
    "Number of factors (appendix)": "",
    "Coverage and zero-shot goals (text and figures without numbers)": "Only orderings can be compared.",
    "Not in the paper: images of the released repository": "For context.",
}
WRONG_REWARD = "The original very likely scores DUSDi wrongly: its reward reads other entries than the distances it needs."
WRONG_ORDER = "In the original the skills get the observation in another order than in training."
TOO_FAST = "In the original's script the agent moves 3.3 times too fast."


@dataclass(frozen=True)
class Row:
    """One value of the paper."""

    source: str
    environment: str
    quantity: str  # decoding, completions, downstream, coverage or zero_shot
    subject: str
    label: str
    episode: str  # of training; empty: at the end
    paper: str  # a value, or the words of the text
    spread: str
    printed: str  # yes, or no where it is only in the released repository
    note: str

    @property
    def digits(self) -> int:
        """The decimals that its values are shown with."""
        return 3 if self.quantity == "decoding" else 2 if self.subject.startswith("cells") else 1


def paper_values() -> list[Row]:
    """The values of the paper."""
    with open(Path(__file__).with_name("paper.csv"), newline="", encoding="utf-8") as file:
        return [Row(**entry) for entry in csv.DictReader(file)]


def known_faults(row: Row) -> tuple[str, ...]:
    """What is known about the original value, and what is wrong with it."""
    found = [row.note] if row.note else []
    if (row.environment, row.quantity, row.label) == ("multi_particle", "downstream", "dusdi"):
        found.append(WRONG_REWARD)
    if (row.environment, row.quantity) == ("gunner", "downstream") and base(row.label) != "dusdi":
        found.append(WRONG_ORDER)
    if (row.environment, row.quantity) == ("gunner", "decoding"):
        found.append(TOO_FAST)
    return tuple(found)

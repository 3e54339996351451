"""Our results compared with the paper's: each value, the protocol, and what differs in a sentence."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from susd.envs.registry import environments
from susd.experiments.metrics_store import Fact
from susd.experiments.statistics import Estimate, estimate
from susd.report.aggregate import Score, Setting, Tasks, over_seeds, per_seed
from susd.report.labels import OURS, base, is_rival, pretrained, title_of
from susd.report.protocol import Reasons

EPISODES = 10_000  # of training a task in the paper
SMOOTHING = 2500  # episodes: its curves are means of the last ten evaluations, one every 250 episodes
LAYOUTS = {"multi_particle": ("1", "2", "3"), "gunner": ("0", "1", "3")}
HARD_LAYOUTS = ("1", "2", "22")  # of seq-hard
WHOLE = ("kitchen",)  # where the paper prints the mean of the whole training

SOURCES = {  # what applies to all values of one table or figure of the paper
    "Factor decoding error (table)": "The original reports the least validation error over epochs and sizes, of one "
    "policy; ours is the error on held-out states. The paper compares 20, 14 or 6 dimensions of SUSD with 2 of its rivals.",
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
CLAIMS = {  # quantity -> phase, subject, metric ("": the subject of the row) and a note on our value
    "coverage": (
        "coverage",
        "trained, sampled actions",
        "",
        "Sampled actions, 20,000 steps; action noise saturates this count.",
    ),
    "zero_shot": ("zero-shot", "goal", "reward", "Reward of 20,000 steps, mean over eight environment seeds."),
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


@dataclass(frozen=True)
class Line:
    """One value of the paper and ours."""

    row: Row
    ours: Estimate | None  # None: not run
    same: str  # "yes", "no" or, where nothing was run, empty
    result: str
    notes: tuple[str, ...]  # sentences on what differs


def paper() -> list[Row]:
    """The values of the paper."""
    with open(Path(__file__).with_name("paper.csv"), newline="", encoding="utf-8") as file:
        return [Row(**entry) for entry in csv.DictReader(file)]


def compare(facts: Sequence[Fact], scores: Mapping[Setting, Tasks], protocols: Mapping[str, Reasons]) -> list[Line]:
    """Every value of the paper with ours; `protocols` says of runs and jobs what distinguishes them from the paper's."""
    known = {(fact.environment, fact.phase, fact.label) for fact in facts}

    def comparable(fact: Fact) -> bool:
        """Pretrained in one layout as in the paper, or on random ones where nothing else was run."""
        return pretrained(fact.label) == "fixed" or (fact.environment, fact.phase, base(fact.label)) not in known

    fixed = [fact for fact in facts if fact.phase != "downstream" and comparable(fact)]
    steps: dict[str, int] = {}
    for fact in facts:
        if fact.phase == "train":
            steps[fact.run] = max(steps.get(fact.run, 0), fact.step)
    return [_line(row, fixed, scores, steps, protocols) for row in paper()]


def _line(
    row: Row, facts: list[Fact], scores: Mapping[Setting, Tasks], steps: Mapping[str, int], protocols: Mapping[str, Reasons]
) -> Line:
    if row.quantity == "downstream":
        ours, reasons, used = _task(row, scores)
    elif row.quantity in CLAIMS:
        return _claim(row, facts)
    else:
        ours, reasons, used = _measured(row, facts)
    if ours is None:
        return _absent(row)
    budget, done = environments()[row.environment].paper_steps, {steps[run] for run in used if run in steps}
    if done and min(done) < 0.99 * budget:
        reasons.append(f"pretrained for {min(done):,} of {budget:,} steps")
    reasons += dict.fromkeys(reason for name in used for reason in protocols.get(name, ()))
    notes = ["Ours: " + ", ".join(reasons) + "."] if reasons else []
    return Line(row, ours, "no" if reasons else "yes", _verdict(float(row.paper), ours), (*notes, *_notes(row)))


def _absent(row: Row) -> Line:
    return Line(row, None, "", "not run", _notes(row))


def _task(row: Row, scores: Mapping[Setting, Tasks]) -> tuple[Estimate | None, list[str], list[str]]:
    """Our scores, what differs, and the runs and jobs: on the paper's layouts if all were tested, else on those that were.

    Tasks without fixed layouts are tested on random ones.
    """
    wanted = HARD_LAYOUTS if row.subject == "seq-hard" else LAYOUTS.get(row.environment, ())
    tested = "fixed" if wanted else "random"
    ways = {way: scores.get(Setting(row.environment, way, tested), {}) for way in ("fixed", "random")}
    by_way = {way: tasks.get(row.subject, {}).get(row.label, []) for way, tasks in ways.items()}
    found = by_way["fixed"] or by_way["random"]
    if wanted and set(wanted) <= {score.layout for score in found}:
        found = [score for score in found if score.layout in wanted]
    known = [(score, value) for score in found if (value := _value(row, score)) is not None]
    if not known:
        return None, [], []
    found = [score for score, _ in known]
    reasons = [] if by_way["fixed"] else ["pretrained on random layouts"]
    last = max(max(score.curve, default=0) for score in found)
    if not row.episode and last < 0.97 * EPISODES:  # the paper's last evaluation is that of episode 9,750
        reasons.append(f"{last:,} of {EPISODES:,} episodes")
    layouts = sorted({score.layout for score in found}, key=lambda layout: (len(layout), layout))
    if wanted and set(layouts) != set(wanted):
        reasons.append(f"layouts {', '.join(layouts)} instead of {', '.join(wanted)}")
    if (policies := len({score.run for score in found})) > 1:
        reasons.append(f"{policies} pretrained policies instead of one")
    used = list(dict.fromkeys(name for score in found for name in (score.run, score.job)))
    return estimate([np.array([value for _, value in known])], groups=[[score.group for score in found]]), reasons, used


def _value(row: Row, score: Score) -> float | None:
    """The part of a curve that the paper prints: in the Kitchen the mean of all of it, else its end, or one episode."""
    if row.environment in WHOLE and score.curve:
        return float(np.mean(list(score.curve.values())))
    return _at(score, int(row.episode)) if row.episode else score.value


def _at(score: Score, episode: int) -> float | None:
    """The curve at an episode, smoothed as in the paper; None if training was shorter."""
    if max(score.curve, default=0) < episode:
        return None
    return float(np.mean([value for at, value in score.curve.items() if episode - SMOOTHING < at <= episode]))


def _measured(row: Row, facts: list[Fact]) -> tuple[Estimate | None, list[str], list[str]]:
    metric = {"decoding": "error", "completions": "mean"}.get(row.quantity, "")
    mine = [f for f in facts if (f.phase, f.environment, f.metric) == (row.quantity, row.environment, metric)]
    mine = [f for f in mine if row.subject in (f.subject, f.subject.partition("-")[2])]
    values = per_seed(mine).get(row.label)
    if values is None:
        return None, [], []
    reasons = ["error on held-out states"] if row.quantity == "decoding" else []
    reasons += [f"{len(values)} policies instead of one"] if len(values) > 1 else []
    return over_seeds(values), reasons, list(dict.fromkeys(f.run for f in mine if base(f.label) == row.label))


def _claim(row: Row, facts: list[Fact]) -> Line:
    """An ordering: SUSD against the best of its rivals, by the paper's protocol."""
    phase, subject, metric, note = CLAIMS[row.quantity]
    mine = [f for f in facts if (f.phase, f.environment, f.step) == (phase, row.environment, 20_000)]
    values = per_seed(mine, subject=subject, metric=metric or row.subject)
    rivals = {label: over_seeds(of) for label, of in values.items() if is_rival(label)}
    if OURS not in values or not rivals:
        return _absent(row)
    ours, best = over_seeds(values[OURS]), max(rivals, key=lambda label: rivals[label].value)
    digits = 2 if row.subject.startswith("cells") else 0
    decided = ours.known and rivals[best].known
    result = (
        "one seed" if not decided else "SUSD highest" if ours.value > rivals[best].value else f"{title_of(best)} highest"
    )
    theirs = f"The best rival, {title_of(best)}, has {rivals[best].value:.{digits}f}."
    return Line(row, ours, "no", result, (theirs, note))


def _notes(row: Row) -> tuple[str, ...]:
    """What is known about the original value, and what is wrong with it."""
    found = [row.note] if row.note else []
    if (row.environment, row.quantity, row.label) == ("multi_particle", "downstream", "dusdi"):
        found.append(WRONG_REWARD)
    if (row.environment, row.quantity) == ("gunner", "downstream") and base(row.label) != "dusdi":
        found.append(WRONG_ORDER)
    if (row.environment, row.quantity) == ("gunner", "decoding"):
        found.append(TOO_FAST)
    return tuple(found)


def _verdict(theirs: float, ours: Estimate) -> str:
    if ours.known and ours.low <= theirs <= ours.high:
        return "paper's is inside our interval"
    side = "ours is higher" if ours.value > theirs else "ours is lower" if ours.value < theirs else "equal"
    return side if ours.known or side == "equal" else f"{side}, one seed"


def to_csv(lines: Sequence[Line]) -> str:
    """The comparison as a table for programs."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    head = ("source", "environment", "quantity", "subject", "method", "episode", "paper", "paper_spread", "in_paper")
    writer.writerow([*head, "ours", "low", "high", "scores", "seeds", "same_protocol", "result", "note"])
    for line in lines:
        row, ours = line.row, line.ours
        numbers = [""] * 5 if ours is None else [f"{ours.value:.6g}", *_ends(ours), str(ours.count), str(ours.seeds)]
        first = [
            row.source,
            row.environment,
            row.quantity,
            row.subject,
            row.label,
            row.episode,
            row.paper,
            row.spread,
            row.printed,
        ]
        writer.writerow([*first, *numbers, line.same, line.result, " ".join([SOURCES[row.source], *line.notes]).strip()])
    return out.getvalue()


def _ends(found: Estimate) -> list[str]:
    """The interval; empty where nothing repeats."""
    return [f"{end:.6g}" for end in (found.low, found.high)] if found.known else ["", ""]

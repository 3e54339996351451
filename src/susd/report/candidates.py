"""Which of our results is compared with a value of the paper, and what distinguishes it from the paper's protocol.

A value may have several: of the preset `paper` and of another one, pretrained in one layout or on random ones. One with
the paper's protocol is taken if there is one; else, of those with comparable budgets, the one with more seeds, then scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from susd.envs.registry import environments
from susd.experiments.extract import RANDOM
from susd.experiments.metrics_store import Fact
from susd.experiments.statistics import Estimate, estimate
from susd.report.aggregate import Score, Setting, over_seeds, per_seed
from susd.report.labels import OURS, base, paper_label, title_of
from susd.report.load import ReportData
from susd.report.paper import Row
from susd.report.protocol import units, widths

EPISODES = 10_000  # of training a task in the paper
SMOOTHING = 2500  # episodes: its curves are means of the last ten evaluations, one every 250 episodes
LAYOUTS = {"multi_particle": ("1", "2", "3"), "gunner": ("0", "1", "3")}
HARD_LAYOUTS = ("1", "2", "22")  # of seq-hard
WHOLE = ("kitchen",)  # where the paper prints the mean of the whole training
RELEASED = "error_as_released"  # the least validation error over epochs and sizes, which the original prints
MEASURED = {"decoding": (100_000, "states"), "completions": (10_000, "steps")}  # how long the paper measures
CLAIMS = {  # quantity -> phase, subject, metric ("": the subject of the row), the paper's rivals, and a note on our value
    "coverage": (
        "coverage",
        "trained, sampled actions",
        "",
        ("metra", "lsd", "csd", "diayn", "dusdi"),
        "Sampled actions, 20,000 steps; action noise saturates this count.",
    ),
    "zero_shot": (
        "zero-shot",
        "goal",
        "reward",
        ("metra", "lsd", "csd"),
        "Reward of 20,000 steps, mean over eight environment seeds.",
    ),
}
CLAIMED_STEPS = 20_000


@dataclass(frozen=True)
class Found:
    """One of our results for a value of the paper."""

    ours: Estimate
    reasons: tuple[str, ...]  # what distinguishes it from the paper's
    steps: int  # of pretraining; 0: not recorded
    episodes: int = 0  # of the task
    result: str = ""  # of a claim
    notes: tuple[str, ...] = ()

    @property
    def same(self) -> str:
        """Whether the protocol is the paper's: yes, yes with the size of the networks, or no."""
        if len(widths(self.reasons)) < len(self.reasons):
            return "no"
        return f"yes, {units(self.reasons)}" if self.reasons else "yes"


def best(found: Sequence[Found]) -> Found | None:
    """The one to show; budgets are comparable within a factor of two."""
    steps, episodes = (max((getattr(one, name) for one in found), default=0) for name in ("steps", "episodes"))
    near = [one for one in found if 2 * one.steps >= steps and 2 * one.episodes >= episodes]
    same = [one for one in found if one.same != "no"]
    return max(same or near or found, key=lambda one: (one.same == "yes", one.ours.seeds, one.ours.count), default=None)


def candidates(row: Row, data: ReportData) -> list[Found]:
    """All our results for a value, pretrained as in the paper first."""
    of = {"downstream": _task, **dict.fromkeys(CLAIMS, _claim)}.get(row.quantity, _measured)
    found = (of(row, data, way, paper) for way, paper in product(("fixed", "random"), (True, False)))
    return [one for one in found if one is not None]


def _label(label: str, paper: bool) -> str:
    return paper_label(label) if paper else label


def _made(row: Row, data: ReportData, way: str, ours: Estimate, reasons: list[str], used: Sequence[str]) -> Found:
    """With what all results have: how runs were pretrained, how long, and the options of runs and tasks."""
    wanted = environments()[row.environment].paper_steps
    done = [data.steps.get(name, 0) for name in used if "@" not in name]
    steps = min(done, default=0)
    if way == "random":
        reasons.insert(0, "pretrained on random layouts")
    if steps < 0.99 * wanted:
        reasons.append(f"pretrained for {steps:,} of {wanted:,} steps" if steps else "length of pretraining not recorded")
    reasons += dict.fromkeys(reason for name in used for reason in data.protocols.get(name, ()))
    return Found(ours, tuple(dict.fromkeys(reasons)), steps)


def _task(row: Row, data: ReportData, way: str, paper: bool) -> Found | None:
    """Scores on the paper's layouts if all were tested, else on those that were; without fixed layouts, on random ones."""
    wanted = HARD_LAYOUTS if row.subject == "seq-hard" else LAYOUTS.get(row.environment, ())
    tasks = data.scores.get(Setting(row.environment, way, "fixed" if wanted else "random"), {})
    scores = tasks.get(row.subject, {}).get(_label(row.label, paper), [])
    if wanted and set(wanted) <= {score.layout for score in scores}:
        scores = [score for score in scores if score.layout in wanted]
    known = [(score, value) for score in scores if (value := _value(row, score)) is not None]
    if not known:
        return None
    scores = [score for score, _ in known]
    reasons, last = [], max(max(score.curve, default=0) for score in scores)
    if not row.episode and last < 0.97 * EPISODES:  # the paper's last evaluation is that of episode 9,750
        reasons.append(f"{last:,} of {EPISODES:,} episodes")
    layouts = sorted({score.layout for score in scores}, key=lambda layout: (len(layout), layout))
    if wanted and set(layouts) != set(wanted):
        reasons.append(f"layouts {', '.join(layouts)} instead of {', '.join(wanted)}")
    reasons += _policies(len({score.run for score in scores}))
    used = list(dict.fromkeys(name for score in scores for name in (score.run, score.job)))
    ours = estimate([np.array([value for _, value in known])], groups=[[score.group for score in scores]])
    made = _made(row, data, way, ours, reasons, used)
    return Found(made.ours, made.reasons, made.steps, last)


def _policies(count: int) -> list[str]:
    return [f"{count} pretrained policies instead of one"] if count > 1 else []


def _value(row: Row, score: Score) -> float | None:
    """The part of a curve that the paper prints: in the Kitchen the mean of all of it, else its end, or one episode."""
    if row.environment in WHOLE and score.curve:
        return float(np.mean(list(score.curve.values())))
    return at_episode(score, int(row.episode)) if row.episode else score.value


def at_episode(score: Score, episode: int) -> float | None:
    """The curve at an episode, smoothed as in the paper; None if training was shorter."""
    if max(score.curve, default=0) < episode:
        return None
    return float(np.mean([value for at, value in score.curve.items() if episode - SMOOTHING < at <= episode]))


def _of_label(data: ReportData, environment: str, phase: str, label: str, way: str) -> list[Fact]:
    """The facts of a label that was pretrained in this way."""
    wanted = label + (RANDOM if way == "random" else "")
    return [f for f in data.facts if (f.environment, f.phase, f.label) == (environment, phase, wanted)]


def _measured(row: Row, data: ReportData, way: str, paper: bool) -> Found | None:
    """The values of an evaluation; a decoding error as the original computes it, where that is recorded."""
    facts = _of_label(data, row.environment, row.quantity, _label(row.label, paper), way)
    facts = [f for f in facts if row.subject in (f.subject, f.subject.partition("-")[2])]
    metrics = (RELEASED, "error") if row.quantity == "decoding" else ("mean",)
    metric = next((name for name in metrics if any(f.metric == name for f in facts)), "")
    facts = [f for f in facts if f.metric == metric]
    if not facts:
        return None
    reasons = ["error on held-out trajectories instead of the least validation error"] if metric == "error" else []
    length, what = MEASURED[row.quantity]
    if (shortest := min(f.step for f in facts)) < length:
        reasons.append(f"{shortest:,} of {length:,} {what}")
    (values,) = per_seed(facts).values()
    return _made(row, data, way, over_seeds(values), reasons + _policies(len(values)), list({f.run: 0 for f in facts}))


def _claim(row: Row, data: ReportData, way: str, paper: bool) -> Found | None:
    """An ordering: SUSD against the best of the paper's rivals."""
    phase, subject, metric, rivals, note = CLAIMS[row.quantity]
    facts = [
        f
        for name in (OURS, *rivals)
        for f in _of_label(data, row.environment, phase, _label(name, paper), way)
        if (f.subject, f.metric, f.step) == (subject, metric or row.subject, CLAIMED_STEPS)
    ]
    values = {label: over_seeds(of) for label, of in per_seed(facts).items()}
    ours = values.pop(_label(OURS, paper), None)
    if ours is None or not values:
        return None
    top = max(values, key=lambda label: values[label].value)
    missing = [title_of(name) for name in rivals if _label(name, paper) not in values]
    reasons = [f"without {', '.join(missing)}"] if missing else []
    used = list(dict.fromkeys(fact.run for fact in facts))
    made = _made(row, data, way, ours, reasons + _policies(ours.seeds), used)
    decided = ours.known and values[top].known
    result = "SUSD highest" if ours.value > values[top].value else f"{title_of(base(top))} highest"
    digits = 2 if row.subject.startswith("cells") else 0
    theirs = f"The best rival, {title_of(top)}, has {values[top].value:.{digits}f}."
    return Found(ours, made.reasons, made.steps, result=result if decided else "one seed", notes=(theirs, note))

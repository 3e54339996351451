"""The facts of a suite, arranged for comparison: scores by setting, task and method, and numbers by method and seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from susd.experiments.metrics_store import Fact
from susd.experiments.statistics import Estimate, estimate, estimate_improvement, iqm
from susd.tasks import TASKS

ENVIRONMENTS = {
    "gunner": "2D-Gunner",
    "multi_particle": "Multi-Particle",
    "kitchen": "Kitchen",
    "ant": "Ant",
    "half_cheetah": "HalfCheetah",
}
METHODS = {  # label -> what a reader calls it, in the order of all tables and figures
    "susd": "SUSD",
    "metra": "METRA",
    "lsd": "LSD",
    "csd": "CSD",
    "diayn": "DIAYN",
    "dusdi": "DUSDi",
    "flat": "no skills",
}
CONTROLS = {
    "susd-w": "SUSD-w",
    "susd-wf": "SUSD-wf",
    "metra-same-size": "METRA (same size)",
    "csd-same-size": "CSD (same size)",
}
NAMES = METHODS | CONTROLS
OURS = "susd"
RANDOM = "-random"  # ending of a label that was pretrained on random layouts
SCORE = "last_quarter_discounted"
CURVE_RESAMPLES = 1000  # per point of a curve; a band needs less precision than a number

PerSeed = dict[int, float]


@dataclass(frozen=True, order=True)
class Setting:
    """Where scores may be compared: one environment, one way to pretrain, one kind of test."""

    environment: str
    pretrained: str  # on "fixed" or "random" layouts
    tested: str  # on "fixed" or "random" layouts


@dataclass(frozen=True)
class Score:
    """What one seed of a method came to on one layout of a task."""

    seed: int
    layout: str
    value: float  # mean discounted return over the last quarter of training
    references: Mapping[str, float]  # discounted returns of bound, expert and do_nothing
    curve: Mapping[int, float]  # discounted return by training episode

    @property
    def normalised(self) -> float | None:
        """0 for doing nothing, 1 for the expert, or for the bound where there is none; None if unknown or equal."""
        low, high = self.references.get("do_nothing"), self.references.get("expert", self.references.get("bound"))
        return None if low is None or high is None or high == low else (self.value - low) / (high - low)


Tasks = dict[str, dict[str, list[Score]]]  # task -> label without its ending -> scores


def base(label: str) -> str:
    """A label without the ending that says how it was pretrained."""
    return label.removesuffix(RANDOM)


def pretrained(label: str) -> str:
    """The layouts that a label was pretrained on."""
    return "random" if label.endswith(RANDOM) else "fixed"


def name_of(label: str) -> str:
    """What a reader calls the method."""
    return NAMES.get(label, label)


def in_order(labels: Iterable[str]) -> list[str]:
    """Known methods first, then the others by name."""
    known = list(NAMES)
    return sorted(set(labels), key=lambda label: (known.index(label) if label in known else len(known), label))


def is_rival(label: str) -> bool:
    """Whether SUSD is to be held against it: everything but SUSD and what was cut out of it."""
    return label.split("-")[0] != OURS


def task_order(task: str) -> tuple[int, str]:
    """The order of the package's own tasks, then by name."""
    known = [full.partition("-")[2] for full in TASKS]
    return (known.index(task) if task in known else len(known), task)


def downstream(facts: Sequence[Fact]) -> dict[Setting, Tasks]:
    """All scores. Without skills nothing is pretrained, so those scores stand beside each way to pretrain."""
    blocks: dict[tuple[str, str, int, str], list[Fact]] = {}
    for fact in facts:
        if fact.phase == "downstream" and "@" in fact.subject:
            blocks.setdefault((fact.environment, fact.label, fact.seed, fact.subject), []).append(fact)
    found: dict[Setting, Tasks] = {}
    for (environment, label, seed, subject), block in sorted(blocks.items(), key=_without_skills_last):
        task, _, layout = subject.rpartition("@")
        tested = "random" if layout == "random" else "fixed"
        places = [Setting(environment, pretrained(label), tested)]
        if base(label) == "flat":
            places = [place for place in found if (place.environment, place.tested) == (environment, tested)] or places
        if score := _score(seed, layout, block):
            for place in places:
                found.setdefault(place, {}).setdefault(task, {}).setdefault(base(label), []).append(score)
    return {
        setting: {
            task: {label: found[setting][task][label] for label in in_order(found[setting][task])}
            for task in sorted(found[setting], key=task_order)
        }
        for setting in sorted(found)
    }


def _without_skills_last(item: tuple[tuple[str, str, int, str], object]) -> tuple[bool, tuple[str, str, int, str]]:
    return base(item[0][1]) == "flat", item[0]


def _score(seed: int, layout: str, block: Sequence[Fact]) -> Score | None:
    metrics = {fact.metric: fact.value for fact in block}
    if SCORE not in metrics:
        return None
    curve = {fact.step: fact.value for fact in block if fact.metric == "discounted"}
    known = {name: metrics.get(f"{name}_discounted") for name in ("bound", "expert", "do_nothing")}
    references = {name: value for name, value in known.items() if value is not None}
    return Score(seed, layout, metrics[SCORE], references, dict(sorted(curve.items())))


def labels_of(tasks: Tasks) -> list[str]:
    """All methods that have a score in some task."""
    return in_order(label for scores in tasks.values() for label in scores)


def mean_of(scores: Sequence[Score]) -> Estimate:
    """The mean score with its interval."""
    return over_values(tuple(score.value for score in scores))


@cache
def over_values(values: tuple[float, ...]) -> Estimate:
    """The mean of some numbers with its interval; asked for in tables, figures and sentences alike."""
    return estimate([np.array(values)])


def normalised(tasks: Tasks, label: str) -> dict[str, np.ndarray]:
    """Normalised scores of a method by task; tasks without one are left out."""
    found = {task: [score.normalised for score in scores.get(label, ())] for task, scores in tasks.items()}
    arrays = {task: np.array([value for value in values if value is not None], float) for task, values in found.items()}
    return {task: values for task, values in arrays.items() if len(values)}


def aggregate(tasks: Tasks) -> dict[str, Estimate]:
    """The interquartile mean of normalised scores, stratified by task, of every method that has all tasks."""
    strata = {label: normalised(tasks, label) for label in labels_of(tasks)}
    most = max(map(len, strata.values()), default=0)
    return {label: estimate(list(by.values()), iqm) for label, by in strata.items() if by and len(by) == most}


def improvements(tasks: Tasks, ours: str = OURS) -> dict[str, Estimate]:
    """The probability that a score of ours is above one of each other method, over the tasks that both have."""
    mine, result = normalised(tasks, ours), {}
    for label in labels_of(tasks):
        theirs = normalised(tasks, label)
        if label != ours and (shared := [task for task in mine if task in theirs]):
            result[label] = estimate_improvement([mine[task] for task in shared], [theirs[task] for task in shared])
    return result


def repeated(tasks: Tasks, label: str) -> bool:
    """Whether some task has several scores of a method; a bootstrap within tasks says nothing where none has."""
    return any(len(values) > 1 for values in normalised(tasks, label).values())


def band(scores: Sequence[Score]) -> list[tuple[int, Estimate]]:
    """The mean curve with its interval, at the episodes that all scores were evaluated at."""
    shared = sorted(set.intersection(*(set(score.curve) for score in scores)))
    return [(e, estimate([np.array([s.curve[e] for s in scores])], resamples=CURVE_RESAMPLES)) for e in shared]


def per_seed(facts: Iterable[Fact], **fields: str | int) -> dict[str, PerSeed]:
    """One number per label and seed of the facts with these fields, in the order of methods."""
    found: dict[str, PerSeed] = {}
    for fact in facts:
        if all(getattr(fact, field) == value for field, value in fields.items()):
            found.setdefault(base(fact.label), {})[fact.seed] = fact.value
    return {label: dict(sorted(found[label].items())) for label in in_order(found)}


def over_seeds(values: PerSeed) -> Estimate:
    """The mean over seeds with its interval."""
    return over_values(tuple(values.values()))


def worlds(facts: Iterable[Fact], phase: str) -> dict[tuple[str, str], list[Fact]]:
    """The facts of a phase by environment and by the layouts pretrained on."""
    found: dict[tuple[str, str], list[Fact]] = {}
    for fact in facts:
        if fact.phase == phase:
            found.setdefault((fact.environment, pretrained(fact.label)), []).append(fact)
    return dict(sorted(found.items()))

"""Facts arranged for comparison: scores by setting, task and label, and values by label and seed."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from susd.experiments.extract import FLAT
from susd.experiments.metrics_store import Fact
from susd.experiments.statistics import (
    Estimate,
    estimate,
    estimate_difference,
    estimate_improvement,
    iqm,
    profile,
    variance_components,
)
from susd.report.labels import base, in_order, pretrained, split_way
from susd.tasks.registry import tasks as registered_tasks

SCORE = "last_quarter_discounted"
CURVE_RESAMPLES = 500  # per point of a curve; a band needs less precision than a value in a table

PerSeed = dict[int, float]


@dataclass(frozen=True, order=True)
class Setting:
    """Where scores may be compared: one environment, one way to pretrain, one kind of test."""

    environment: str
    pretrained: str  # on "fixed" or "random" layouts
    tested: str  # on "fixed" or "random" layouts


@dataclass(frozen=True)
class Score:
    """The result of one seed of a method on one layout of a task."""

    seed: int
    layout: str
    value: float  # mean discounted return over the last quarter of training
    references: Mapping[str, float]  # discounted returns of bound, expert and do_nothing
    curve: Mapping[int, float]  # discounted return by training episode
    run: str = ""  # of the skills: ENVIRONMENT/LABEL-sSEED
    job: str = ""

    @property
    def group(self) -> Hashable:
        """What repeats: scores over one set of skills are not independent; without skills every score is."""
        name = self.run.rpartition("-s")[0]
        return (self.seed, self.layout) if name.rpartition("/")[2] in ("", FLAT) else self.run

    @property
    def square(self) -> tuple[str, int, str]:
        """Its cell of the Latin square: skill seed, number of the high-level seed, layout."""
        skill_seed = self.run.rpartition("-s")[2]
        return skill_seed, self.seed - int(skill_seed or 0), self.layout

    @property
    def normalised(self) -> float | None:
        """0 for doing nothing, 1 for the expert, or for the bound where there is none; None if unknown or equal."""
        low, high = self.references.get("do_nothing"), self.references.get("expert", self.references.get("bound"))
        return None if low is None or high is None or high == low else (self.value - low) / (high - low)


class Sample(NamedTuple):
    """Normalised scores of a method in one task, and the seed of each."""

    values: np.ndarray
    groups: list[Hashable]


Tasks = dict[str, dict[str, list[Score]]]  # task -> label without its ending -> scores
_Block = tuple[str, str, int, str, str]  # environment, label, seed, subject, run


def task_order(task: str) -> tuple[int, str]:
    """The order in which tasks are registered, then by name."""
    known = [entry.short for entry in registered_tasks().values()]
    return (known.index(task) if task in known else len(known), task)


def downstream(facts: Sequence[Fact]) -> dict[Setting, Tasks]:
    """All scores. A policy without skills is not pretrained, so its scores are in the settings of both ways to pretrain."""
    blocks: dict[_Block, list[Fact]] = {}
    for fact in facts:
        if fact.phase == "downstream" and "@" in fact.subject:
            blocks.setdefault((fact.environment, fact.label, fact.seed, fact.subject, fact.run), []).append(fact)
    found: dict[Setting, Tasks] = {}
    for (environment, label, seed, subject, _), block in sorted(blocks.items(), key=_without_skills_last):
        task, _, layout = subject.rpartition("@")
        tested = "random" if layout == "random" else "fixed"
        settings = [Setting(environment, pretrained(label), tested)]
        if base(label) == FLAT:
            settings = [known for known in found if (known.environment, known.tested) == (environment, tested)] or settings
        if score := _score(seed, layout, block):
            for setting in settings:
                found.setdefault(setting, {}).setdefault(task, {}).setdefault(base(label), []).append(score)
    return {
        setting: {
            task: {label: found[setting][task][label] for label in in_order(found[setting][task])}
            for task in sorted(found[setting], key=task_order)
        }
        for setting in sorted(found)
    }


def _without_skills_last(item: tuple[_Block, object]) -> tuple[bool, _Block]:
    return base(item[0][1]) == FLAT, item[0]


def _score(seed: int, layout: str, block: Sequence[Fact]) -> Score | None:
    metrics = {fact.metric: fact.value for fact in block}
    if SCORE not in metrics:
        return None
    curve = {fact.step: fact.value for fact in block if fact.metric == "discounted"}
    known = {name: metrics.get(f"{name}_discounted") for name in ("bound", "expert", "do_nothing")}
    references = {name: value for name, value in known.items() if value is not None}
    return Score(seed, layout, metrics[SCORE], references, dict(sorted(curve.items())), block[0].run, block[0].job)


def labels_of(tasks: Tasks) -> list[str]:
    """All labels that have a score in some task."""
    return in_order(label for scores in tasks.values() for label in scores)


def by_way(tasks: Tasks) -> dict[tuple[str, ...], Tasks]:
    """The scores by how skills are used, with plain labels; a policy without skills is compared with each of them."""
    ways = {split_way(label)[1] for label in labels_of(tasks) if label != FLAT}
    found: dict[tuple[str, ...], Tasks] = {}
    for way in sorted(ways, key=lambda way: (len(way), way)):
        for task, by_label in tasks.items():
            mine = [label for label in by_label if label == FLAT or split_way(label)[1] == way]
            found.setdefault(way, {})[task] = {split_way(label)[0]: by_label[label] for label in mine}
    return found


def mean_of(scores: Sequence[Score]) -> Estimate:
    """The mean score with its interval, which resamples seeds of skills."""
    return over_values(tuple(score.value for score in scores), tuple(score.group for score in scores))


@cache
def over_values(values: tuple[float, ...], groups: tuple[Hashable, ...] | None = None) -> Estimate:
    """The mean of some values with its interval; cached, because tables, figures and sentences all need it."""
    return estimate([np.array(values)], groups=None if groups is None else [groups])


def normalised(tasks: Tasks, label: str) -> dict[str, Sample]:
    """Normalised scores of a method by task; tasks without one are left out."""
    found = {task: [s for s in scores.get(label, ()) if s.normalised is not None] for task, scores in tasks.items()}
    return {
        task: Sample(np.array([score.normalised for score in scores], float), [score.group for score in scores])
        for task, scores in found.items()
        if scores
    }


def interquartile_means(tasks: Tasks) -> dict[str, Estimate]:
    """The interquartile mean of normalised scores of every label that has all tasks."""
    samples = {label: normalised(tasks, label) for label in labels_of(tasks)}
    most = max(map(len, samples.values()), default=0)
    return {
        label: estimate([of.values for of in by.values()], iqm, [of.groups for of in by.values()])
        for label, by in samples.items()
        if by and len(by) == most
    }


def improvements(tasks: Tasks, ours: str) -> dict[str, Estimate]:
    """The probability that a score of ours is above one of each other label, over the tasks that both have."""
    found = {label: improvement_over(tasks, ours, label) for label in labels_of(tasks) if label != ours}
    return {label: of for label, of in found.items() if of is not None}


def improvement_over(tasks: Tasks, ours: str, other: str) -> Estimate | None:
    """The probability that a score of one label is above one of another; None if they share no task."""
    one, two = _both(tasks, ours, other)
    if not one:
        return None
    groups = [of.groups for of in one], [of.groups for of in two]
    return estimate_improvement([of.values for of in one], [of.values for of in two], groups)


def difference_over(tasks: Tasks, ours: str, other: str) -> Estimate | None:
    """How much higher the interquartile mean of one label is than that of another; None if they share no task."""
    one, two = _both(tasks, ours, other)
    if not one:
        return None
    groups = [of.groups for of in one], [of.groups for of in two]
    return estimate_difference([of.values for of in one], [of.values for of in two], iqm, groups)


def differences(tasks: Tasks, ours: str) -> dict[str, Estimate]:
    """How much higher the interquartile mean of ours is than that of each other label, over the tasks that both have."""
    found = {label: difference_over(tasks, ours, label) for label in labels_of(tasks) if label != ours}
    return {label: of for label, of in found.items() if of is not None}


def _both(tasks: Tasks, ours: str, other: str) -> tuple[list[Sample], list[Sample]]:
    """The normalised scores of two labels in the tasks that both have."""
    mine, theirs = normalised(tasks, ours), normalised(tasks, other)
    shared = [task for task in mine if task in theirs]
    return [mine[task] for task in shared], [theirs[task] for task in shared]


def profiles(tasks: Tasks, thresholds: Sequence[float]) -> dict[str, list[Estimate]]:
    """The share of normalised scores above each threshold, of every label that has all tasks."""
    samples = {label: list(normalised(tasks, label).values()) for label in labels_of(tasks)}
    most = max(map(len, samples.values()), default=0)
    return {
        label: profile([of.values for of in by], thresholds, [of.groups for of in by])
        for label, by in samples.items()
        if by and len(by) == most
    }


def components(scores: Sequence[Score]) -> tuple[float, float, float, float] | None:
    """The variance of normalised scores due to skill seed, high-level seed and layout, and the rest; None if incomplete."""
    cells = {score.square: score.normalised for score in scores if score.run and score.normalised is not None}
    return variance_components({key: value for key, value in cells.items() if value is not None})


def repeated(tasks: Tasks, label: str) -> bool:
    """Whether all tasks of a label have scores of several seeds; with one seed a bootstrap has no information."""
    return all(len(set(of.groups)) > 1 for of in normalised(tasks, label).values())


def band(scores: Sequence[Score]) -> list[tuple[int, Estimate]]:
    """The mean curve with its interval, at the episodes that all scores were evaluated at."""
    shared = sorted(set.intersection(*(set(score.curve) for score in scores)))
    groups = [[score.group for score in scores]]
    return [
        (e, estimate([np.array([s.curve[e] for s in scores])], groups=groups, resamples=CURVE_RESAMPLES)) for e in shared
    ]


def per_seed(facts: Iterable[Fact], **fields: str | int) -> dict[str, PerSeed]:
    """One value per label and seed of the facts with these fields, in the order of labels."""
    found: dict[str, PerSeed] = {}
    for fact in facts:
        if all(getattr(fact, field) == value for field, value in fields.items()):
            found.setdefault(base(fact.label), {})[fact.seed] = fact.value
    return {label: dict(sorted(found[label].items())) for label in in_order(found)}


def over_seeds(values: PerSeed) -> Estimate:
    """The mean over seeds with its interval, which is not below 0 unless a seed is: measurements are counts and sizes."""
    found = over_values(tuple(values.values()))
    return found.within(0.0 if min(values.values()) >= 0 else -math.inf, math.inf)


def by_environment(facts: Iterable[Fact], phase: str) -> dict[tuple[str, str], list[Fact]]:
    """The facts of a phase by environment and by the layouts that were pretrained on."""
    found: dict[tuple[str, str], list[Fact]] = {}
    for fact in facts:
        if fact.phase == phase:
            found.setdefault((fact.environment, pretrained(fact.label)), []).append(fact)
    return dict(sorted(found.items()))

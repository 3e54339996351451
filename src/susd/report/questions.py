"""Questions that results answer: comparisons of labels over tasks, the answer in a sentence that the data choose.

A comparison counts only where both sides have scores of two seeds of skills or more. The cells that it needs are declared
here, so that an answer can say how much of the data is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from susd.experiments.statistics import Estimate, estimate
from susd.report.aggregate import Setting, Tasks, components, difference_over, improvement_over, interquartile_means
from susd.report.claims import format_estimate
from susd.report.labels import environment_title, title_of

GUNNER = ("unlim", "lim")
PARTICLES = ("fp-difficult", "fp-medium", "seq-medium")  # of the main table: ten agents, half of them, and a sequence
FIXED, RANDOM = Setting("multi_particle", "random", "fixed"), Setting("multi_particle", "random", "random")
ONE_LAYOUT, SHOOTING = Setting("multi_particle", "fixed", "fixed"), Setting("gunner", "fixed", "fixed")
SOURCES = ("seed of the skills", "seed of the high-level policy", "layout", "rest")
Scores = Mapping[Setting, Tasks]


@dataclass(frozen=True)
class Pair:
    """Two labels that are compared in the tasks of one setting."""

    setting: Setting
    ours: str
    rival: str
    tasks: tuple[str, ...]

    @property
    def where(self) -> str:
        """Environment, and layouts that are not the usual ones."""
        ending = ", random layouts" if self.setting.tested == "random" else ", skills of one layout"
        usual = self.setting in (FIXED, SHOOTING)
        return environment_title(self.setting.environment) + ("" if usual else ending)

    @property
    def title(self) -> str:
        """Both labels."""
        return f"{title_of(self.ours)} / {title_of(self.rival)}"


@dataclass(frozen=True)
class Compared:
    """A pair with its results."""

    pair: Pair
    better: Estimate | None  # the probability that a score of ours is higher; None without a shared task
    iqm: tuple[Estimate | None, Estimate | None]
    difference: Estimate | None  # of the interquartile means
    cells: int  # of both labels, with two seeds or more
    wanted: int


@dataclass(frozen=True)
class Answer:
    """A question with what the data say."""

    key: str
    title: str
    sentence: str
    rows: tuple[tuple[str, ...], ...]  # of the table, with its head first
    intervals: tuple[tuple[str, Estimate], ...]  # of the figure
    axis: str
    ends: tuple[float, float]  # of the axis
    command: str


@dataclass(frozen=True)
class Question:
    """A question that pairs answer."""

    key: str
    title: str
    yes: str  # what a difference above zero means
    no: str
    pairs: tuple[Pair, ...]
    only: str  # the runs of the suite `2d` that it needs
    scale: str = "main"  # the scale that has all of its cells


def _both(ours: str, rivals: Sequence[str]) -> tuple[Pair, ...]:
    """A comparison with every rival, in both environments."""
    return tuple(
        Pair(setting, ours, rival, tasks) for rival in rivals for setting, tasks in ((SHOOTING, GUNNER), (FIXED, PARTICLES))
    )


GOALS = (
    Pair(SHOOTING, "susd-paced-goal-factored", "metra-same-size-goal", GUNNER),
    Pair(FIXED, "susd-paced-goal-entity", "metra-same-size-goal", PARTICLES),
    Pair(RANDOM, "susd-paced-goal-entity", "metra-same-size-goal", PARTICLES),
)
QUESTIONS = (
    Question(
        "equal-size",
        "Does SUSD beat its rivals at equal skill dimension?",
        "SUSD scores higher than rivals with as many skill dimensions",
        "SUSD scores lower than rivals with as many skill dimensions",
        _both("susd", ("metra-same-size", "csd-same-size")),
        "*/susd-s* */metra-s* */csd-same-size-s*",
    ),
    Question(
        "dusdi",
        "Does SUSD beat a correct DUSDi?",
        "SUSD scores higher than DUSDi",
        "SUSD scores lower than DUSDi",
        (
            *_both("susd", ("dusdi", "dusdi-filtered")),
            Pair(ONE_LAYOUT, "susd", "dusdi", PARTICLES),
            Pair(SHOOTING, "susd-paced-goal-factored", "dusdi-factored", GUNNER),
            Pair(FIXED, "susd-paced-goal-entity", "dusdi-entity", PARTICLES),
        ),
        "*/susd-s* */susd-paced-s* */susd-one-layout-s* */dusdi*",
        "weekend",
    ),
    Question(
        "curiosity",
        "Does the curiosity weight matter?",
        "SUSD scores higher with the curiosity weight than without",
        "SUSD scores lower with the curiosity weight than without",
        _both("susd", ("susd-w",)),
        "*/susd-s* */susd-w-s*",
        "weekend",
    ),
    Question(
        "constraint",
        "Joint or per-factor constraint?",
        "SUSD scores higher with one constraint per factor than with a joint one",
        "SUSD scores lower with one constraint per factor than with a joint one",
        _both("susd", ("susd-joint",)),
        "*/susd-s* */susd-joint-s*",
        "weekend",
    ),
    Question(
        "factors",
        "Do factors matter once actions are goals?",
        "with goal actions, factored skills score higher than one embedding of the same size",
        "with goal actions, factored skills score lower than one embedding of the same size",
        GOALS,
        "*/susd-paced-s* */metra-s*",
        "weekend",
    ),
)


def answers(scores: Scores) -> list[Answer]:
    """All questions, each with its answer."""
    return [*(_answer(question, scores) for question in QUESTIONS), _variance(scores)]


def _compare(pair: Pair, scores: Scores) -> Compared:
    tasks = {task: of for task, of in scores.get(pair.setting, {}).items() if task in pair.tasks}
    known = [
        (task, label)
        for task, by_label in tasks.items()
        for label in (pair.ours, pair.rival)
        if len({score.group for score in by_label.get(label, ())}) > 1
    ]
    both = {task: of for task, of in tasks.items() if pair.ours in of and pair.rival in of}
    both = {task: of for task, of in both.items() if {(task, pair.ours), (task, pair.rival)} <= set(known)} or both
    iqm = interquartile_means({t: {label: of[label] for label in (pair.ours, pair.rival)} for t, of in both.items()})
    better = improvement_over(both, pair.ours, pair.rival)
    means = iqm.get(pair.ours), iqm.get(pair.rival)
    difference = difference_over(both, pair.ours, pair.rival)
    return Compared(pair, better, means, difference, len(known), 2 * len(pair.tasks))


def _answer(question: Question, scores: Scores) -> Answer:
    compared = [_compare(pair, scores) for pair in question.pairs]
    head = (
        "where",
        "comparison",
        "interquartile mean",
        "of the rival",
        "difference",
        "probability of a higher score",
        "cells",
    )
    rows = [
        (
            found.pair.where,
            found.pair.title,
            *(_shown(part, 2) for part in (*found.iqm, found.difference, found.better)),
            f"{found.cells} of {found.wanted}",
        )
        for found in compared
    ]
    named = tuple((f"{found.pair.where}: {found.pair.title}", found.difference) for found in compared)
    return Answer(
        question.key,
        question.title,
        _sentence(question, compared),
        (head, *rows),
        tuple((name, of) for name, of in named if of is not None),
        "difference of the interquartile means; 0: neither is higher",
        (-1.0, 1.0),
        _command(question.only, question.scale),
    )


def _sentence(question: Question, compared: Sequence[Compared]) -> str:
    cells, wanted = sum(found.cells for found in compared), sum(found.wanted for found in compared)
    known = [(found, of) for found in compared if (of := found.difference) is not None and of.known]
    if not known:
        return f"Not enough data: {cells} of {wanted} cells have two seeds or more, and no comparison is complete."
    parts = []
    for words, group in (
        (question.yes, [(found, of) for found, of in known if of.low > 0]),
        (question.no, [(found, of) for found, of in known if of.high < 0]),
        ("undecided", [(found, of) for found, of in known if of.low <= 0 <= of.high]),
    ):
        if group:
            each = (f"{f.pair.where} against {title_of(f.pair.rival)}, difference {_shown(of, 2)}" for f, of in group)
            parts.append(f"{words} ({'; '.join(each)})")
    text = "; ".join(parts)
    partial = f" So far {cells} of {wanted} cells have two seeds or more." if cells < wanted else ""
    return f"{text[0].upper()}{text[1:]}.{partial}"


def _variance(scores: Scores) -> Answer:
    """The share of the variance of normalised scores that each source has, over all complete Latin squares."""
    shares: list[np.ndarray] = []
    cells: list[str] = []
    partial = 0
    for setting, tasks in scores.items():
        for task, by_label in tasks.items():
            for label, of_label in by_label.items():
                known = components(of_label) if setting.tested == "fixed" else None
                partial += known is None and len(of_label) > 1
                if known is not None and sum(known) > 0:
                    shares.append(np.array(known) / sum(known))
                    cells.append(f"{setting.environment}-{label}-{task}")
    title = "How much do seeds, layouts and high-level seeds matter?"
    command = _command("", "main")
    if not shares:
        text = f"Not enough data: 0 of {partial} cells with several scores have a complete square of nine."
        return Answer("variance", title, text, (("source", "share of the variance"),), (), "", (0.0, 1.0), command)
    columns = np.stack(shares)
    found = [(name, estimate([columns[:, i]]).within(0.0, 1.0)) for i, name in enumerate(SOURCES)]
    order = sorted(found, key=lambda item: -item[1].value)
    words = "; ".join(f"{name} {_shown(of, 0, 100)} %" for name, of in order)
    text = f"Of the variance between scores of one method in one task, on average over {len(shares)} cells: {words}."
    rows = (("source", "share of the variance (%)"), *((name, _shown(of, 0, 100)) for name, of in found))
    return Answer("variance", title, text, rows, tuple(found), "share of the variance", (0.0, 1.0), command)


def _shown(found: Estimate | None, digits: int, scale: float = 1.0) -> str:
    if found is None:
        return "not run"
    return format_estimate(found, digits, scale) + ("" if found.known else " (n\u00a0=\u00a01)")


def _command(only: str, scale: str) -> str:
    parts = "".join(f" --only '{pattern}/*'" for pattern in only.split())
    return f"susd suite run 2d --scale {scale} --runs runs/use --results results/use{parts}\nsusd report results"

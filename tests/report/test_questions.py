"""Questions: answers that known scores choose, and figures of intervals."""

import re

import pytest

from susd.experiments.statistics import Estimate, estimate
from susd.report import svg
from susd.report.aggregate import Score, Tasks
from susd.report.questions import FIXED, ONE_LAYOUT, QUESTIONS, RANDOM, SHOOTING, Scores, answers

REFERENCES = {"do_nothing": 0.0, "expert": 10.0}


def cell(label: str, level: float, seeds: int = 3, env: str = "gunner") -> list[Score]:
    """A Latin square of scores: skill seeds differ by one, high-level seeds and layouts not at all."""
    return [
        Score(seed + number, str((seed + number) % 3), level + seed, REFERENCES, {0: 0.0}, f"{env}/{label}-s{seed}")
        for seed in range(seeds)
        for number in range(3)
    ]


def answer_of(key: str, scores: Scores) -> str:
    (found,) = (answer.sentence for answer in answers(scores) if answer.key == key)
    return found


def curiosity(ours: float, other: float, seeds: int = 3) -> str:
    tasks: Tasks = {task: {"susd": cell("susd", ours, seeds), "susd-w": cell("susd-w", other)} for task in ("unlim", "lim")}
    return answer_of("curiosity", {SHOOTING: tasks})


@pytest.mark.parametrize(
    ("ours", "other", "text"),
    [
        (
            7.0,
            1.0,
            "SUSD scores higher with the curiosity weight than without (2D-Gunner against SUSD-w, difference 0.60 [0.3",
        ),
        (
            1.0,
            7.0,
            "SUSD scores lower with the curiosity weight than without (2D-Gunner against SUSD-w, difference -0.60 [-0.8",
        ),
        (4.0, 4.0, "Undecided (2D-Gunner against SUSD-w, difference 0.00 [-0."),
    ],
)
def test_the_data_choose_the_answer(ours: float, other: float, text: str) -> None:
    sentence = curiosity(ours, other)
    assert sentence.startswith(text)
    assert sentence.endswith("So far 4 of 10 cells have two seeds or more.")


def test_no_answer_without_seeds() -> None:
    assert curiosity(9.0, 1.0, seeds=1) == (
        "Not enough data: 2 of 10 cells have two seeds or more, and no comparison is complete."
    )
    assert all(answer.sentence.startswith("Not enough data: 0 of") for answer in answers({}))


def test_sources_of_variance() -> None:
    """All variance of these scores is between seeds of the skills."""
    text = answer_of("variance", {SHOOTING: {"lim": {"susd": cell("susd", 2.0), "metra": cell("metra", 4.0)}}})
    assert text.startswith("Of the variance between scores of one method in one task, on average over 2 cells: ")
    assert "cells: seed of the skills 100 [100, 100] %;" in text
    assert "layout 0 [0, 0] %" in text


def test_labels_of_questions_are_in_the_suite() -> None:
    """As `susd report` names the results of the suite `2d`."""
    from susd.experiments import suite
    from susd.report.labels import base, pretrained
    from susd.report.protocol import canonical

    jobs = [job for job in suite.load("2d").jobs if job.phase == "downstream" and job.trained is not None]
    named = {
        (job.environment, canonical(job.label, job.environment, job.trained.changes()))
        for job in jobs
        if job.trained is not None
    }
    labels = {(environment, pretrained(label), base(label)) for environment, label in named}
    pairs = [pair for question in QUESTIONS for pair in question.pairs]
    wanted = {(p.setting.environment, p.setting.pretrained, label) for p in pairs for label in (p.ours, p.rival)}
    assert wanted <= labels
    assert FIXED.environment == "multi_particle"


def test_pairs_name_layouts_that_are_not_the_usual_ones() -> None:
    named = {pair.setting: pair.where for question in QUESTIONS for pair in question.pairs}
    assert named[FIXED] == "Multi-Particle"
    assert named[ONE_LAYOUT] == "Multi-Particle, skills of one layout"
    assert named[RANDOM] == "Multi-Particle, random layouts"


def test_figure_of_intervals() -> None:
    rows = [("here: a < b", Estimate(0.8, 0.6, 0.9, 9, 3)), ("there: c", estimate([[0.3]]))]  # type: ignore[list-item]
    drawn = svg.intervals(rows, "axis")
    assert drawn == svg.intervals(rows, "axis")
    assert "a &lt; b" in drawn
    assert drawn.count('class="one"') == 1  # what has no interval is a ring
    assert drawn.count("<circle") == 2
    assert "prefers-color-scheme:dark" in drawn
    long = svg.intervals([(f"here: {'word ' * 30}", rows[0][1])], "axis")
    assert all(len(text) <= svg.LONGEST for text in re.findall(r"<text[^>]*>([^<]*)<", long))
    assert long.count("word") == 30 + 30  # in lines, and once for screen readers


def test_tasks_with_one_seed_do_not_enter() -> None:
    """A comparison is over the tasks that both sides have repeated."""
    tasks: Tasks = {
        "unlim": {"susd": cell("susd", 7.0), "susd-w": cell("susd-w", 1.0)},
        "lim": {"susd": cell("susd", 1.0, seeds=1), "susd-w": cell("susd-w", 7.0)},
    }
    text = answer_of("curiosity", {SHOOTING: tasks})
    assert "2D-Gunner against SUSD-w, difference 0.60 [" in text
    assert text.endswith("So far 3 of 10 cells have two seeds or more.")

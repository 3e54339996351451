"""Tables of the Kitchen, Ant and HalfCheetah, and of trials: means over seeds, intervals only where seeds repeat."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.report.facts import Numbers, job

from susd.experiments import metrics_store
from susd.experiments.metrics_store import Fact
from susd.report.body_tables import completions, control, kitchen_options, kitchen_tasks, locomotion, moved
from susd.report.trials import trial

FACTORS = ("robot", "pot")


def facts(path: Path, env: str, phase: str, by_seed: list[list[tuple[str, int, str, float]]]) -> dict[str, list[Fact]]:
    for seed, numbers in enumerate(by_seed):
        found: Numbers = iter(numbers)
        job(path, env, "susd", seed, phase, phase, found)
    return {"susd": metrics_store.load(path)}


def matrix(own: float, other: float) -> list[tuple[str, int, str, float]]:
    changes = [(f"{a}>{b}", 0, "change", own if a == b else other) for a in FACTORS for b in FACTORS]
    return [*changes, *((name, 0, "spread", 2.0) for name in FACTORS)]


@pytest.mark.parametrize("seeds", [1, 2])
def test_control_of_seeds(tmp_path: Path, seeds: int) -> None:
    found = facts(tmp_path / "facts.jsonl", "kitchen", "control", [matrix(0.8, 0.2), matrix(0.6, 0.4)][:seeds])
    head, rows = control(found)
    assert head == ("method", "", *FACTORS)
    assert rows[1][2] == ("0.80" if seeds == 1 else "0.70 [0.00, 1.62]")  # two seeds say little
    assert rows[2][3] == ("0.20" if seeds == 1 else "0.30 [0.00, 1.22]")


def test_factor_that_hardly_moved_has_no_share(tmp_path: Path) -> None:
    numbers = [row for row in matrix(0.8, 0.2) if not row[0].endswith(">pot")]
    _, rows = control(facts(tmp_path / "facts.jsonl", "kitchen", "control", [numbers]))
    assert [row[2:] for row in rows[1:]] == [("0.80", "-"), ("0.20", "-")]


@pytest.mark.parametrize(("share", "ratio"), [(0.4, "4.0"), (0.0, "-")])
def test_body_that_no_skill_moved_has_no_ratio(tmp_path: Path, share: float, ratio: str) -> None:
    """However many times larger one tiny change is than another."""
    path, policy = tmp_path / "facts.jsonl", "trained, mean actions"
    facts(path, "kitchen", "control", [matrix(0.8, 0.2)])
    facts(path, "kitchen", "coverage", [[(f"{policy}>pot", 20_000, "moved", share)]])
    head, (row,) = kitchen_options(metrics_store.load(path))
    found = dict(zip(head, row, strict=True))
    assert (found["own / other: robot"], found["own / other: pot"]) == ("4.0", ratio)
    assert found["pot moved"] == f"{100 * share:.0f} %"


def test_moved_and_completed(tmp_path: Path) -> None:
    policies = ("trained, mean actions", "trained, sampled actions", "untrained, mean actions", "random actions")
    shares = [[(f"{policy}>pot", 20_000, "moved", share) for policy in policies] for share in (0.5, 0.7)]
    measured = facts(tmp_path / "moved.jsonl", "kitchen", "coverage", shares)
    head, rows = moved(measured)
    assert moved(measured | {"metra": []}) == (head, rows)  # of which nothing was measured
    assert head == ("method", "policy", "pot moved")
    assert rows[0] == ("SUSD", policies[0], "60 % [0, 100]")
    assert rows[-1][0] == "-"  # random actions are of no method
    counts = [[("kitchen-pos", 10_000, "mean", mean), ("kitchen-pos", 10_000, "std", 3.0)] for mean in (10.0, 20.0)]
    found = facts(tmp_path / "completed.jsonl", "kitchen", "completions", counts)
    _, rows = completions(found, {("pos", "susd"): "20.5 (std 18)"})
    assert [row[2] for row in rows] == ["15.0 [0.0, 60.8] ± 3.0", "20.5 (std 18)"]


def test_tasks_over_several_sets_of_skills(tmp_path: Path) -> None:
    curves = [
        [
            *(("pos@random", 100 * i, "discounted", value) for i, value in enumerate((0.0, best, last))),
            ("pos@random", 200, "last_quarter_discounted", last),
            ("pos@random", 200, "last_quarter_success", (best - 4) / 5 * 0.5 + 0.15),
            ("pos@random", 200, "bound_discounted", 39.0),
            ("pos@random", 0, "env_steps", 5000.0),
        ]
        for best, last in ((9.0, 2.0), (5.0, 4.0))
    ]
    found = facts(tmp_path / "facts.jsonl", "kitchen", "downstream", curves)
    (row,) = kitchen_tasks(found, {("pos", "susd"): "0.61"})[1]
    scores = ("2", "3.3 [0.3, 6.4]", "3.0 [0.0, 12.2]", "7.0 [0.0, 25.3]", "45 % [0, 100]")
    assert row == ("SUSD", "`kitchen-pos`", "5,000", *scores, "39.0", "0.61")
    # High-level seeds of one set of skills count once: the second seed over the first skills has the results of the first.
    first = [fact for fact in found["susd"] if fact.seed == 0]
    again = [replace(fact, job=f"{fact.job}-s1", seed=1) for fact in first]
    (row,) = kitchen_tasks({"susd": [*found["susd"], *again]}, {("pos", "susd"): "0.61"})[1]
    assert row[3:-2] == ("3", *scores[1:])


@pytest.mark.parametrize(("seeds", "expected"), [(1, "100 [90, 110]"), (2, "150 [0, 608]")])
def test_reward_over_environment_seeds_or_skills(tmp_path: Path, seeds: int, expected: str) -> None:
    policies = ("trained, mean actions", "trained, sampled actions", "untrained, mean actions", "random actions")
    path = tmp_path / "facts.jsonl"
    for seed in range(seeds):
        mean = 100.0 * (1 + seed)
        given = [
            ("goal", 20_000, name, mean + gap) for name, gap in (("reward", 0), ("reward_low", -10), ("reward_high", 10))
        ]
        reached = [(f"{policy}>torso", 20_000, "reach", 7.0) for policy in policies]
        cells = [(policy, 20_000, "cells_average", 0.02) for policy in policies]
        job(path, "ant", "susd", seed, "train", "train", iter([("", 1_920_000, "train_seconds", 60.0)]))
        job(path, "ant", "susd", seed, "zero-shot", "zero-shot", iter(given))
        job(path, "ant", "susd", seed, "coverage", "coverage", iter([*reached, *cells]))
    head, (row,) = locomotion({"susd": metrics_store.load(path)}, 2500)
    assert head[-1] == "goal"
    assert row[1] == "1.92 M"
    assert row[-1] == expected


def test_trials_have_one_row_per_setting(tmp_path: Path) -> None:
    path = tmp_path / "benchmarks" / "results" / "trials" / "epochs" / "facts.jsonl"
    path.parent.mkdir(parents=True)
    for label, level in (("short", 100.0), ("long", 120.0)):
        for seed in (10, 11):
            score = ("unlim@0", 800, "last_quarter_discounted", level + seed)
            job(path, "gunner", f"{label}-goal-factored", seed, "unlim@0", "downstream", iter([score]))
            job(path, "gunner", label, seed, "control", "control", iter([("", 0, "ratio", 3.0)]))
    head, rows = trial(tmp_path, "epochs")
    assert head == ("", "2D-Gunner: `unlim`", "2D-Gunner: control ratio")
    assert [row[0] for row in rows] == ["`short`", "`long`"]
    assert rows[1][1:] == ("130.5 [125.9, 135.1]", "3.00 [3.00, 3.00]")

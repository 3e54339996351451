"""Folders of results together: labels by what was trained, and one version of each cell."""

from pathlib import Path

from report.facts import job, suite_job
from susd.experiments.extract import RANDOM
from susd.report import tables
from susd.report.load import load_results
from susd.report.protocol import canonical


def test_folders_that_disagree(tmp_path: Path) -> None:
    """The first one has the cell, all seeds of it, and the page says so; a job that two folders have counts once."""
    rows = [("", 10, "coverage_worst", 1.0)]
    for folder, config in (("a", "1"), ("b", "2"), ("c", "1")):
        for seed in (0, 1) if folder == "b" else (0,):
            job(tmp_path / folder / "facts.jsonl", "gunner", "susd", seed, "train", "train", iter(rows), config)
    data = load_results([tmp_path / "a", tmp_path / "b"], tmp_path)
    assert [(fact.config_hash, fact.seed) for fact in data.facts] == [("1", 0)]
    assert data.left_out == ["2 jobs of b are left out: a has them with other options."]
    same = load_results([tmp_path / "a", tmp_path / "c"], tmp_path)
    assert len(same.facts) == 1
    assert same.left_out == []
    assert same.seconds == {"gunner": 90.0}


def test_labels_say_what_was_trained(tmp_path: Path) -> None:
    """Not what a suite calls it: `metra` with as many dimensions as SUSD, and runs on random layouts."""
    assert canonical("metra", "gunner", {"method": "metra", "skill_dim": 6}) == "metra-same-size"
    assert canonical("metra-2", "gunner", {"method": "metra"}) == "metra"
    assert canonical("metra-goal", "gunner", {"method": "metra", "skill_dim": 6}) == "metra-same-size-goal"
    random = {"method": "susd-paced", "env_options": {"layout": "random"}}
    assert canonical("susd-paced-goal-entity", "multi_particle", random) == "susd-paced-goal-entity-random"
    assert canonical("susd-one-layout", "multi_particle", {"method": "susd", "env_options": {"layout": "0"}}) == "susd"
    data = load_results([tables.ROOT / "results" / "use"], tmp_path)
    labels = {fact.label for fact in data.facts if fact.environment == "multi_particle"}
    assert {label for label in labels if not label.endswith(RANDOM)} == {"flat", "susd", "dusdi"}  # the two in one layout
    assert {fact.job.partition("/")[0] for fact in data.facts} <= {"gunner", "multi_particle"}


def test_one_name_for_two_runs(tmp_path: Path) -> None:
    """What was recorded last has its cells; what only the earlier run has is reported with that run's steps and options."""
    earlier = {"method": "susd", "env": "kitchen", "discount": 0.5}
    later, run = {"method": "susd", "env": "kitchen"}, ("kitchen", "susd", 0)
    for name, trained, steps, date in (("a", earlier, 2000, "2026-01-01"), ("b", later, 1000, "2026-02-01")):
        suite_job(tmp_path / name, run, "train", iter([("", steps, "accuracy", 0.0)]), trained, date)
        suite_job(tmp_path / name, run, "control", iter([("", 0, "ratio", steps / 1000)]), trained, date)
    suite_job(tmp_path / "a", run, "completions", iter([("kitchen-bip", 10_000, "mean", 3.0)]), earlier, "2026-01-01")
    for folders in (["a", "b"], ["b", "a"]):
        data = load_results([tmp_path / name for name in folders], tmp_path)
        values = {(fact.phase, fact.metric): (fact.value, data.steps[fact.run]) for fact in data.facts}
        assert values["control", "ratio"] == (1.0, 1000)
        assert values["completions", "mean"] == (3.0, 2000)
        assert data.left_out == ["2 jobs of a are left out: b has them with other options."]
        assert len({fact.run for fact in data.facts}) == 2


def test_seeds_of_other_options_are_not_repetitions(tmp_path: Path) -> None:
    """Two seeds with other options in two folders share no job, and are no two seeds of one method."""
    for seed, discount in ((0, 0.5), (1, 0.6), (2, 0.6)):
        trained = {"method": "susd", "discount": discount}
        suite_job(
            tmp_path / str(seed), ("gunner", "susd", seed), "control", iter([("", 0, "ratio", 1.0)]), trained, str(seed)
        )
    data = load_results([tmp_path / str(seed) for seed in range(3)], tmp_path)
    assert {fact.seed for fact in data.facts} == {1, 2}


def test_random_layouts_are_cells_of_their_own(tmp_path: Path) -> None:
    """Scores on random layouts that were recorded later do not replace those on fixed ones."""
    for name, layout, discount in (("a", "1", 0.5), ("b", "random", 0.6)):
        score = (f"seq-easy@{layout}", 0, "last_quarter_discounted", discount)
        trained = {"method": "susd", "discount": discount}
        suite_job(tmp_path / name, ("multi_particle", "susd", 0), "downstream", iter([score]), trained, f"2026-01-0{name}")
    data = load_results([tmp_path / "a", tmp_path / "b"], tmp_path)
    assert {fact.subject for fact in data.facts} == {"seq-easy@1", "seq-easy@random"}

"""Any run folder becomes facts: training, evaluations and tasks, of every seed."""

import json
from pathlib import Path

import pytest

from experiments.run_folders import META, make_run, task_result, write
from susd.errors import UserError
from susd.experiments import metrics_store
from susd.experiments.extract import facts_of_run, task_label
from susd.experiments.metrics_store import select
from susd.experiments.record import labels, record


def test_facts_of_a_run(tmp_path: Path) -> None:
    facts = facts_of_run(make_run(tmp_path / "run"))
    assert {fact.job for fact in facts} == {
        *(f"gunner/susd-s{seed}/{what}" for seed in (0, 1) for what in ("train", "control")),
        *("gunner/susd-s0/lim@0", "gunner/susd-s0/lim@0-s1"),  # two high-level policies over the skills of seed 0
    }
    curve = select(facts, metric="coverage_worst", seed=1)
    assert [(fact.step, fact.value) for fact in curve] == [(100, 11.0), (200, 21.0)]
    assert [fact.value for fact in select(facts, metric="ratio")] == [3.0, 4.0]
    assert [fact.value for fact in select(facts, metric="last_quarter_discounted")] == [1.0, 2.0]
    assert {(fact.versions, fact.commit, fact.environment, fact.method) for fact in facts} == {
        ("jax=1", "abc", "gunner", "susd")
    }


def test_success_of_a_task(tmp_path: Path) -> None:
    """It has no bound and no reference."""
    run = make_run(tmp_path / "run")
    result = task_result(json.loads((run / "config.json").read_text()), [0, 1])
    result["curve"]["success"] = [[0.0, 0.5], [0.25, 1.0]]
    result["last_quarter"]["success"] = [0.5, 0.75]
    write(run / "downstream" / "lim-0-s0-1" / "result.json", result)
    facts = facts_of_run(run)
    assert [(fact.step, fact.value) for fact in select(facts, metric="success", seed=1)] == [(0, 0.25), (100, 1.0)]
    assert [fact.value for fact in select(facts, metric="last_quarter_success")] == [0.5, 0.75]
    assert {fact.metric for fact in facts if "success" in fact.metric} == {"success", "last_quarter_success"}


def test_evaluation_that_is_not_installed(tmp_path: Path) -> None:
    """All its numbers are facts."""
    run = make_run(tmp_path / "run")
    results = [{"seed": 0, "epoch": 2, "walls": {"hits": 3}}]
    write(run / "evaluation" / "bumps.json", {"evaluation": "bumps.py:X", "results": results, "meta": META})
    (fact,) = select(facts_of_run(run), phase="bumps")
    assert (fact.subject, fact.metric, fact.value) == ("walls", "hits", 3.0)


def test_task_without_skills(tmp_path: Path) -> None:
    write(tmp_path / "flat" / "config.json", {"task": "gunner-lim"})
    write(tmp_path / "flat" / "result.json", task_result(None, [3]))
    facts = facts_of_run(tmp_path / "flat")
    assert {(fact.job, fact.label) for fact in facts} == {("gunner/flat-s3/lim@0", "flat")}


def test_ways_to_use_the_skills(tmp_path: Path) -> None:
    """Another interface or policy is another job with another label, of the same run."""
    for random, ending in ((False, ""), (True, "-random")):
        run = make_run(tmp_path / f"run{ending}", env_options={"layout": "random"} if random else {})
        config = json.loads((run / "config.json").read_text())
        for way in ({"interface": "goal", "policy": "joint"}, {"interface": "goal", "policy": "entity"}):
            name = f"lim-0-{way['interface']}-{way['policy']}-s0"
            write(run / "downstream" / name / "result.json", task_result(config, [0], **way))
        write(run / "downstream" / "flat" / "result.json", task_result(None, [0], interface="flat", policy="joint"))
        facts = select(facts_of_run(run), phase="downstream", metric="last_quarter_discounted", seed=0)
        assert {(fact.job, fact.run, fact.label) for fact in facts} == {
            *(
                (f"gunner/susd{ending}-s0/lim@0{way}", f"gunner/susd{ending}-s0", f"susd{way}{ending}")
                for way in ("", "-goal", "-goal-entity")
            ),
            ("gunner/flat-s0/lim@0", "gunner/flat-s0", "flat"),
        }
    assert task_label("susd-goal", "goal", "entity") == "susd-goal-entity"  # what a suite has named already is not repeated


def test_labels_distinguish_runs(tmp_path: Path) -> None:
    """By the folder's name, where runs of one method differ in more than the seed."""
    runs = [make_run(tmp_path / name, **changes) for name, changes in (
        ("a", {}), ("b", {"seed": 2}), ("c", {"method": "metra"}), ("d", {"env_options": {"layout": "random"}}),
    )]  # fmt: skip
    assert labels(runs) == ["susd", "susd", "metra", "susd-random"]
    wide = make_run(tmp_path / "wide", hidden=512)
    assert labels([*runs, wide]) == ["susd-a", "susd-b", "metra", "susd-random", "susd-wide"]


def test_record_is_traceable_and_repeatable(tmp_path: Path) -> None:
    run, out = make_run(tmp_path / "run"), tmp_path / "out"
    record([run], out)
    first = (out / "facts.jsonl").read_bytes()
    record([run], out)
    assert (out / "facts.jsonl").read_bytes() == first
    facts, configs = metrics_store.load(out / "facts.jsonl"), json.loads((out / "configs.json").read_text())
    assert {fact.config_hash for fact in facts} == set(configs)
    (trained,) = {fact.config_hash for fact in select(facts, phase="train")}
    assert configs[trained]["config"]["config"]["preset"] == "quick"
    assert {configs[fact.config_hash]["config"]["trained"] for fact in select(facts, phase="control")} == {trained}
    with open(run / "metrics.jsonl", "a") as file:  # the run continues
        file.write(json.dumps({"epoch": 3, "seed": 0, "env_steps": 300, "coverage_worst": 40.0}) + "\n")
    record([run], out)
    values = [fact.value for fact in select(metrics_store.load(out / "facts.jsonl"), metric="coverage_worst", seed=0)]
    assert values == [10.0, 20.0, 40.0]


def test_empty_run_is_refused(tmp_path: Path) -> None:
    config = {"env": "gunner", "method": "susd", "preset": "quick", "seed": 0, "seeds": 1, "epochs": 1, "env_options": {}}
    write(tmp_path / "config.json", config)
    write(tmp_path / "meta.json", META)
    with pytest.raises(UserError, match="has nothing to record"):
        record([tmp_path], tmp_path / "out")

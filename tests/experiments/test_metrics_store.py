"""Results as facts: one line per job, appended by any number of processes."""

import dataclasses
import json
import multiprocessing
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from susd.errors import UserError
from susd.experiments import metrics_store
from susd.experiments.metrics_store import Fact


def facts(job: str, count: int = 3, config_hash: str = "aa", offset: float = 0.0) -> list[Fact]:
    common = {
        "job": job,
        "run": "env/susd-s0",
        "label": "susd",
        "method": "susd",
        "environment": "env",
        "seed": 0,
        "phase": "coverage",
        "versions": "jax=1",
        "commit": "c",
        "config_hash": config_hash,
    }
    return [Fact(**common, subject="s", step=i, metric="m", value=i + offset) for i in range(count)]


def test_append_and_load(tmp_path: Path) -> None:
    path = tmp_path / "new" / "facts.jsonl"
    assert metrics_store.load(path) == []
    assert metrics_store.append(path, facts("a"))
    assert metrics_store.append(path, facts("b"))
    assert metrics_store.load(path) == facts("a") + facts("b")
    assert metrics_store.finished(metrics_store.load(path)) == {("a", "aa"), ("b", "aa")}
    row = json.loads(path.read_text().splitlines()[0])
    for column in ("run", "method", "environment", "seed", "phase", "versions", "commit", "config_hash"):
        assert column in row
    assert row["facts"][1] == ["s", 1, "m", 1.0]


def test_job_is_added_once(tmp_path: Path) -> None:
    path = tmp_path / "facts.jsonl"
    assert metrics_store.append(path, facts("a"))
    assert not metrics_store.append(path, facts("a", offset=7.0))
    assert metrics_store.load(path) == facts("a")


def test_new_config_replaces_job(tmp_path: Path) -> None:
    """Nothing is deleted from the file; the later facts count."""
    path = tmp_path / "facts.jsonl"
    metrics_store.append(path, facts("a"))
    before = path.read_bytes()
    assert metrics_store.append(path, facts("a", config_hash="bb", offset=1.0))
    assert path.read_bytes().startswith(before)
    assert metrics_store.load(path) == facts("a", config_hash="bb", offset=1.0)


@given(cut=st.integers(0, 1500), jobs=st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_truncated_file_loses_whole_jobs(tmp_path_factory: pytest.TempPathFactory, cut: int, jobs: int) -> None:
    """And can be appended to."""
    path = tmp_path_factory.mktemp("cut") / "facts.jsonl"
    all_facts = [facts(f"job{i}", offset=i) for i in range(jobs)]
    for block in all_facts:
        metrics_store.append(path, block)
    path.write_bytes(path.read_bytes()[:cut])
    kept = metrics_store.load(path)
    assert kept == [fact for block in all_facts[: len(kept) // 3] for fact in block]
    for block in all_facts:
        metrics_store.append(path, block)
    assert metrics_store.load(path) == [fact for block in all_facts for fact in block]


def _write(path: str, worker: int) -> None:
    order = list(range(12))
    random.Random(worker).shuffle(order)
    for number in order:
        metrics_store.append(Path(path), facts(f"job{number}", offset=number))
        metrics_store.append_configs(Path(path).with_name("configs.json"), {f"hash{number}": {"config": number}})


def test_concurrent_writers(tmp_path: Path) -> None:
    path = tmp_path / "facts.jsonl"
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_write, args=(str(path), worker)) for worker in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(path.read_text().splitlines()) == 12
    assert {fact.job for fact in metrics_store.load(path)} == {f"job{i}" for i in range(12)}
    configs = json.loads((tmp_path / "configs.json").read_text())
    assert configs == {f"hash{i}": {"config": i} for i in range(12)}


def test_configs_hold_no_command(tmp_path: Path) -> None:
    """A command holds paths of the machine, and results are shared."""
    path, config = tmp_path / "configs.json", {"hidden": 8}
    meta = {"command": "/home/me/bin/susd train gunner", "cpus": 2}
    metrics_store.append_configs(path, {"a": {"config": config, "meta": meta}, "b": {"config": config}})
    assert json.loads(path.read_text()) == {"a": {"config": config, "meta": {"cpus": 2}}, "b": {"config": config}}


def test_select() -> None:
    rows = facts("a")
    assert metrics_store.select(rows, metric="m", step=1) == [rows[1]]
    assert metrics_store.select(rows, lambda fact: fact.value > 1, metric="m") == [rows[2]]


def test_bad_facts_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "facts.jsonl"
    with pytest.raises(ValueError, match="finite"):
        dataclasses.replace(facts("a")[0], value=float("nan"))
    with pytest.raises(ValueError, match="job by job"):
        metrics_store.append(path, facts("a") + facts("b"))
    with pytest.raises(ValueError, match="at least one"):
        metrics_store.append(path, [])


def test_bad_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "facts.jsonl"
    path.write_text('{"some": "other file"}\n')
    with pytest.raises(
        UserError, match=r"facts\.jsonl does not hold results: line 1 does not have exactly the columns job"
    ):
        metrics_store.load(path)
    metrics_store.append(good := tmp_path / "good.jsonl", facts("a"))
    row = json.loads(good.read_text())
    path.write_text(json.dumps(row | {"seed": "zero"}) + "\n")
    with pytest.raises(UserError, match="line 1 has the seed 'zero'"):
        metrics_store.load(path)
    path.write_text(json.dumps(row | {"facts": [["s", 1, "m"]]}) + "\n")
    with pytest.raises(UserError, match=r"line 1 has the fact \['s', 1, 'm'\]; a fact is \[subject, step, metric, value\]"):
        metrics_store.load(path)

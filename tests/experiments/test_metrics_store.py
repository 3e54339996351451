"""Results in long form: one fact per line, whole jobs or nothing, by any number of processes."""

import dataclasses
import json
import multiprocessing
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from susd.errors import UserError
from susd.experiments import metrics_store as store
from susd.experiments.metrics_store import Fact


def facts(job: str, count: int = 3, config_hash: str = "aa", offset: float = 0.0) -> list[Fact]:
    common = {
        "job": job,
        "run": "world/susd-s0",
        "label": "susd",
        "method": "susd",
        "environment": "world",
        "seed": 0,
        "phase": "coverage",
        "versions": "jax=1",
        "commit": "c",
        "config_hash": config_hash,
    }
    rows = [Fact(**common, subject="s", step=i, metric="m", value=i + offset) for i in range(count)]
    return [*rows, Fact(**common, subject="", step=0, metric=store.LAST, value=1.5)]


def test_what_is_added_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "facts.jsonl"
    assert store.load(path) == []
    assert store.append(path, facts("a"))
    assert store.append(path, facts("b"))
    assert store.load(path) == facts("a") + facts("b")
    assert store.finished(store.load(path)) == {("a", "aa"), ("b", "aa")}
    row = json.loads(path.read_text().splitlines()[0])
    for column in ("run", "method", "environment", "seed", "phase", "step", "metric", "value", "versions", "commit"):
        assert column in row


def test_a_job_is_added_once(tmp_path: Path) -> None:
    path = tmp_path / "facts.jsonl"
    assert store.append(path, facts("a"))
    assert not store.append(path, facts("a", offset=7.0))
    assert store.load(path) == facts("a")


def test_a_job_with_new_options_takes_the_place_of_the_old_and_nothing_is_erased(tmp_path: Path) -> None:
    path = tmp_path / "facts.jsonl"
    store.append(path, facts("a"))
    before = path.read_bytes()
    assert store.append(path, facts("a", config_hash="bb", offset=1.0))
    assert path.read_bytes().startswith(before)
    assert store.load(path) == facts("a", config_hash="bb", offset=1.0)


@given(cut=st.integers(0, 2000), jobs=st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_a_file_cut_anywhere_loses_whole_jobs_only_and_can_be_continued(
    tmp_path_factory: pytest.TempPathFactory, cut: int, jobs: int
) -> None:
    path = tmp_path_factory.mktemp("cut") / "facts.jsonl"
    all_facts = [facts(f"job{i}", offset=i) for i in range(jobs)]
    for block in all_facts:
        store.append(path, block)
    path.write_bytes(path.read_bytes()[:cut])
    kept = store.load(path)
    assert kept == [fact for block in all_facts[: len(kept) // 4] for fact in block]
    for block in all_facts:
        store.append(path, block)
    assert store.load(path) == [fact for block in all_facts for fact in block]


def _write(path: str, worker: int) -> None:
    order = list(range(12))
    random.Random(worker).shuffle(order)
    for number in order:
        store.append(Path(path), facts(f"job{number}", offset=number))


def test_several_processes_write_every_job_once(tmp_path: Path) -> None:
    path = tmp_path / "facts.jsonl"
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_write, args=(str(path), worker)) for worker in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(path.read_text().splitlines()) == 12 * 4
    assert {fact.job for fact in store.load(path)} == {f"job{i}" for i in range(12)}


def test_select() -> None:
    rows = facts("a")
    assert store.select(rows, metric="m", step=1) == [rows[1]]
    assert store.select(rows, lambda fact: fact.value > 1, metric="m") == [rows[2]]


def test_bad_facts_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "facts.jsonl"
    with pytest.raises(ValueError, match="finite"):
        dataclasses.replace(facts("a")[0], value=float("nan"))
    with pytest.raises(ValueError, match="job by job"):
        store.append(path, facts("a") + facts("b"))
    with pytest.raises(ValueError, match="job by job"):
        store.append(path, facts("a")[:-1])
    path.write_text('{"some": "other file"}\n')
    with pytest.raises(UserError, match=r"facts\.jsonl is not a file of results: line 1 has not the columns job, run"):
        store.load(path)
    path.write_text(json.dumps(dataclasses.asdict(facts("a")[0]) | {"seed": "zero"}) + "\n")
    with pytest.raises(UserError, match="line 1 has the seed 'zero'"):
        store.load(path)

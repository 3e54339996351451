"""Jobs on machines that do not see the folders: files and results arrive complete, or not at all."""

import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import susd
from experiments.suites import TINY, declare
from susd.errors import UserError
from susd.experiments import metrics_store, transfer
from susd.experiments.job import is_trained, run_job
from susd.experiments.metrics_store import CONFIGS, FACTS
from susd.experiments.suite import Job, Suite, load
from susd.experiments.transfer import Order, Results, Store, do_job
from susd.runs import checkpoint
from susd.runs.header import weights_only

RUN = "gunner/susd-s0"


class Process:
    """A job in this process; `steps` are called before it ends, each in a wait that times out."""

    def __init__(self, work: Callable[[], None], *steps: Callable[[], None]) -> None:
        self.work, self.steps = work, list(steps)

    def wait(self, seconds: float) -> int:
        if self.steps:
            self.steps.pop(0)()
            raise subprocess.TimeoutExpired("job", seconds)
        self.work()
        return 0


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Suite:
    """A suite of one run and one evaluation, whose jobs run in this process."""
    text = "evaluations = {control = {}}\n" + TINY.replace("[0, 1]", "[0]").replace(
        "[train]", "[train]\ncheckpoint_every = 1"
    )
    found = load(declare(tmp_path, text))
    jobs = {job.name: job for job in found.jobs}
    monkeypatch.setattr(
        transfer, "start_process", lambda job, _, runs, results, *more: Process(lambda: run_job(jobs[job], runs, results))
    )
    monkeypatch.setattr("susd.experiments.job.keep_figure", lambda *_: None)
    return found


def order(job: Job, **changes: Any) -> Order:
    return Order(job.name, job.run, job.phase, job.hash, "", **changes)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "runs"), str(tmp_path / "results"))


@pytest.mark.slow
def test_jobs_without_the_folders(tiny: Suite, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training, then an evaluation elsewhere: the weights travel there and back, the replay buffer does not."""
    monkeypatch.setattr(transfer, "CHUNK", 1000)  # many chunks
    train, control = tiny.jobs
    for number, job in enumerate(tiny.jobs):
        assert do_job(order(job), store, tmp_path / f"node{number}") == ""
        assert not (tmp_path / f"node{number}").exists()
    runs, results = tmp_path / "runs", tmp_path / "results"
    assert metrics_store.finished(metrics_store.load(results / FACTS)) == {(job.name, job.hash) for job in tiny.jobs}
    assert set(metrics_store.read_object(results / CONFIGS)) == {train.hash, control.hash}
    (newest,) = checkpoint.checkpoints(runs / RUN / "checkpoints")
    assert weights_only(newest)
    assert is_trained(train, runs)
    assert susd.load(runs / RUN).epoch == 2
    assert {path.name for path in (runs / RUN).iterdir()} >= {"config.json", "meta.json", "metrics.jsonl", "evaluation"}
    store.close()
    assert not list((runs / ".jobs").glob(".*"))
    (results / FACTS).unlink()
    run_job(train, runs, results)  # its weights are there: nothing is trained again, which would be refused
    assert metrics_store.finished(metrics_store.load(results / FACTS)) == {(train.name, train.hash)}


@pytest.mark.slow
def test_training_resumes_elsewhere(tiny: Suite, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node is lost after the first epoch: with whole checkpoints another one resumes."""
    train = tiny.jobs[0]
    assert train.trained is not None
    node = tmp_path / "lost"

    def first_epoch() -> None:
        run = node / "runs" / RUN
        susd.train(train.trained, run=run, quiet=True)
        for path in checkpoint.checkpoints(run / "checkpoints")[:1]:
            path.unlink()  # as if it had been stopped before

    def lost() -> None:
        raise ConnectionError

    monkeypatch.setattr(transfer, "start_process", lambda *_: Process(lambda: None, first_epoch, lost))
    with pytest.raises(ConnectionError):
        do_job(order(train, replay=True), store, node)
    (arrived,) = checkpoint.checkpoints(tmp_path / "runs" / RUN / "checkpoints")
    assert checkpoint.epoch_of(arrived) == 1

    started: list[int] = []

    def rest() -> None:
        runs = tmp_path / "other" / "runs"
        started.extend(checkpoint.epoch_of(path) for path in checkpoint.checkpoints(runs / RUN / "checkpoints"))
        run_job(train, runs, tmp_path / "other" / "results")

    monkeypatch.setattr(transfer, "start_process", lambda *_: Process(rest))
    assert do_job(order(train, replay=True), store, tmp_path / "other") == ""
    assert started == [1]
    alone = susd.train(train.trained, run=tmp_path / "alone", quiet=True)
    ends = [checkpoint.checkpoints(run / "checkpoints")[0] for run in (alone, tmp_path / "runs" / RUN)]
    assert checkpoint.digest_of(ends[0]) == checkpoint.digest_of(ends[1])


def put(store: Store, name: str, data: bytes, run: str = RUN, checksum: str = "") -> None:
    store.write(run, name, name, data, checksum or hashlib.blake2b(data).hexdigest())


@pytest.mark.parametrize(
    "name",
    ["../x", "/etc/x", "a/../../x", ".hidden", "a//b", "", "a\\b", "a\nb", "b" * 300, "/".join("abcdefghi"), "link/x"],
)
def test_names_that_are_refused(name: str, store: Store, tmp_path: Path) -> None:
    run = tmp_path / "runs" / RUN
    run.mkdir(parents=True)
    (run / "link").symlink_to(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match=r"cannot be the path of a file that arrives|leads out of the folder"):
        put(store, name, b"x")
    with pytest.raises(UserError, match=r"cannot be the path of a file that arrives"):
        put(store, "x", b"x", run=f"../{name}")
    assert sorted(tmp_path.rglob("*")) == before


def test_damaged_and_large_files(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="arrived damaged"):
        put(store, "a.json", b"x", checksum="0" * 128)
    monkeypatch.setattr(transfer, "MAX_FILE", 10)
    store.write(RUN, "a.json", "1", b"x" * 9, "")
    with pytest.raises(UserError, match=r"a\.json of gunner/susd-s0 has 18 bytes or more, which is too much"):
        store.write(RUN, "a.json", "1", b"x" * 9, "")
    assert not (tmp_path / "runs" / RUN).exists()
    store.close()
    assert not list((tmp_path / "runs" / ".jobs").iterdir())


def test_results_of_another_job(tiny: Suite, store: Store, tmp_path: Path) -> None:
    train, control = tiny.jobs
    columns = (train.name, train.run, train.label, train.method, train.environment, train.seed, train.phase)
    facts = tmp_path / "facts.jsonl"
    metrics_store.append(facts, [metrics_store.Fact(*columns, "", 0, "seconds", 1.0, "", "", train.hash)])
    with pytest.raises(UserError, match=f"the results of {control.name} are not those of this job"):
        store.record(order(control), Results(facts.read_bytes(), b"{}", {}))
    with pytest.raises(UserError, match="cannot be the name of a file that arrives"):
        store.record(order(train), Results(facts.read_bytes(), b"{}", {"../x.png": b""}))
    assert not (tmp_path / "results").exists()


def test_log_of_a_failed_job(tiny: Suite, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failed:
        def wait(self, seconds: float) -> int:
            log = tmp_path / "node" / "runs" / ".jobs" / "gunner~susd-s0~train.log"
            log.parent.mkdir(parents=True)
            log.write_text("susd: error: no luck\n")
            return 1

    monkeypatch.setattr(transfer, "start_process", lambda *_: Failed())
    kept = tmp_path / "runs" / ".jobs" / "gunner~susd-s0~train.log"
    why = do_job(order(tiny.jobs[0]), store, tmp_path / "node")
    assert why == f"susd: error: no luck (exit code 1, log {kept})"
    assert kept.read_text() == "susd: error: no luck\n"

"""The jobs of a suite: forecast, failures, and suites that are killed, interrupted and resumed."""

import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import Command, refused
from experiments.suites import TINY, declare
from susd.errors import UserError
from susd.experiments import metrics_store, scheduler, suite
from susd.experiments.job import run_job
from susd.experiments.metrics_store import SECONDS, Fact
from susd.experiments.suite import Job
from susd.runs import checkpoint


def test_forecast_from_finished_jobs(tmp_path: Path) -> None:
    loaded = suite.load(declare(tmp_path, TINY))
    one, other = loaded.jobs
    facts = [_ended(one, 50.0)]
    assert scheduler.forecast([other], loaded, facts) == ({other.name: 50.0}, 1)
    assert scheduler.forecast([other], loaded.only([other.name]), facts) == ({other.name: 50.0}, 1)
    assert scheduler.forecast([other], loaded, [])[1] == 0


def _ended(job: Job, seconds: float) -> Fact:
    columns = (job.name, job.run, job.label, job.method, job.environment, job.seed, job.phase)
    return Fact(*columns, "", 0, SECONDS, seconds, "", "", job.hash)


class Fake:
    """An engine whose jobs end at once; some of them fail."""

    slots, note = 2, ""

    def __init__(self, failures: dict[str, int]) -> None:
        self.failures, self.started = dict(failures), []

    def start(self, job: Job, declared: str) -> str:
        self.started.append(job.name)
        return job.name

    def ended(self, handles, seconds):  # type: ignore[no-untyped-def]
        outcomes = []
        for name in handles:
            bad = self.failures.get(name, 0) > 0
            self.failures[name] = self.failures.get(name, 0) - 1
            outcomes.append((name, "out of memory" if bad else ""))
        return outcomes

    def close(self) -> None:
        pass


def test_failed_job_is_repeated_once(tmp_path: Path) -> None:
    """Then it is reported, and the other jobs are not lost."""
    loaded = suite.load(declare(tmp_path, "evaluations = {control = {}}\n" + TINY))
    first, second = "gunner/susd-s0", "gunner/susd-s1"
    once = Fake({f"{first}/train": 1})
    summary = scheduler.run(loaded, once, tmp_path / "runs", tmp_path / "results", quiet=True)
    assert (summary.done, summary.failed) == (4, [])
    assert once.started.count(f"{first}/train") == 2
    twice = Fake({f"{first}/train": 2})
    summary = scheduler.run(loaded, twice, tmp_path / "runs", tmp_path / "results", quiet=True)
    assert twice.started.count(f"{first}/train") == 2
    assert {outcome.job.name: outcome.reason for outcome in summary.failed} == {
        f"{first}/train": "out of memory",
        f"{first}/control": f"{first}/train failed",
    }
    assert {f"{second}/train", f"{second}/control"} <= set(twice.started)


def test_results_without_their_runs(tmp_path: Path) -> None:
    """Training is repeated where a job needs it, and only there."""
    loaded = suite.load(declare(tmp_path, "evaluations = {control = {}}\n" + TINY))
    runs, results = tmp_path / "runs", tmp_path / "results"
    done = [job for job in loaded.jobs if job.name != "gunner/susd-s1/control"]
    for job in done:
        metrics_store.append(results / "facts.jsonl", [_ended(job, 1.0)])
    fake = Fake({})
    summary = scheduler.run(loaded, fake, runs, results, quiet=True)
    assert fake.started == ["gunner/susd-s1/train", "gunner/susd-s1/control"]
    assert (summary.done, summary.skipped) == (2, 2)
    there = runs / "gunner" / "susd-s1" / "checkpoints" / "step-00000002.ckpt"
    there.parent.mkdir(parents=True)
    there.touch()
    again = Fake({})
    scheduler.run(loaded, again, runs, results, quiet=True)
    assert again.started == ["gunner/susd-s1/control"]


def test_reason_of_a_failure(tmp_path: Path) -> None:
    """The last line that the process of a job wrote."""
    loaded = suite.load(declare(tmp_path, TINY.replace("[0, 1]", "[0]")))
    runs, results = tmp_path / "runs", tmp_path / "results"
    run = runs / "gunner" / "susd-s0"
    for folder in (run, results):
        folder.mkdir(parents=True)
    (results / "suite.toml").write_text("seeds = []")  # of another suite with the same results
    (run / "config.json").write_text("no json")
    (run / "meta.json").write_text("{}")
    local = scheduler.Local(1, runs, results)
    name = local.start(loaded.jobs[0], loaded.text)
    assert local.ended([name], 0.0) == []
    ((ended, reason),) = local.ended([name], 120.0)
    local.close()
    assert ended == name
    assert reason.startswith("susd: error: ")
    assert "is not valid JSON" in reason


@pytest.mark.slow
def test_killed_suite_resumes(susd: Command) -> None:
    """Killed at a random moment: its jobs end too, and the resumed suite has the facts of an uninterrupted one."""
    path = declare(susd.folder, "evaluations = {control = {}}\n" + TINY.replace("[0, 1]", "[0]"))
    with susd.start("suite", "run", path, "--quiet", start_new_session=True) as child:
        deadline = time.monotonic() + 200
        while not _running(susd.folder / "results" / "mine"):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(random.uniform(1.0, 8.0))
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()
    assert _all_end(susd.folder / "results" / "mine"), "jobs outlive the suite that was killed"
    result = susd("suite", "run", path)
    assert "forecast: " in result.stderr
    results, reference = susd.folder / "results" / "mine", susd.folder / "reference"
    for job in suite.load(path).jobs:  # one after another in this process, which has the compiler flags of the others
        run_job(job, susd.folder / "alone", reference)
    assert _values(results) == _values(reference)
    assert (results / "trajectories" / "gunner-susd.png").stat().st_size > 1000
    configs = json.loads((results / "configs.json").read_text())
    assert {fact.config_hash for fact in metrics_store.load(results / "facts.jsonl")} <= set(configs)
    again = scheduler.run(suite.load(path), Fake({}), susd.folder / "runs" / "mine", results, quiet=True)
    assert (again.done, again.skipped) == (0, 2)
    status = scheduler.status(suite.load(path), results, None)
    assert (status["finished"], len(status["jobs"]), status["seconds_left"]) == (2, 2, 0)
    assert "2 of 2 jobs are finished" in scheduler.format_status(status)


def test_status_is_short_for_many_jobs() -> None:
    """One line per run: how much is finished, the time of the rest, and the first few names."""
    jobs = [{"job": f"gunner/susd-s0/lim@{i}", "finished": i < 3, "seconds": None if i < 3 else 60.0} for i in range(40)]
    jobs.append({"job": "gunner/flat-s0/lim@0", "finished": True, "seconds": None})
    status = {"suite": "mine", "jobs": jobs, "finished": 4, "workers": 2, "seconds_left": 1110.0}
    head, first, second, tail = scheduler.format_status(status).splitlines()
    assert head.startswith("suite mine: 4 of 41 jobs are finished")
    assert " ".join(first.split()) == "gunner/susd-s0 3 of 40 0:37:00 left lim@3 lim@4 lim@5 lim@6 .. 33 more"
    assert " ".join(second.split()) == "gunner/flat-s0 1 of 1 finished"
    assert tail.startswith("forecast: 0:18:30 with 2 jobs")


# A job without training, which is killed at a moment of writing its results.
DYING = """
import io, os, signal, sys
from susd.experiments import job, metrics_store
moment = sys.argv.pop(1)
meta = {"versions": {}, "commit": ""}
job._train = lambda *_: ([("", step, "coverage_worst", step / 7) for step in range(100)], meta)
job.is_trained, job.keep_figure = (lambda *_: True), (lambda *_: None)

def die():
    os.kill(os.getpid(), signal.SIGKILL)

class Dying(io.FileIO):
    def write(self, content):
        super().write(content[: len(content) // 2] if moment == "in a line" else content)
        die()

def replace(source, target, replace=os.replace):
    if str(target).endswith("configs.json") and moment == "before the rename":
        die()
    replace(source, target)

os.replace = replace
if moment in ("in a line", "after a line"):
    metrics_store.open = lambda path, mode: Dying(path, "a+") if mode == "a+b" else open(path, mode)
job.main()
"""


class Dying(scheduler.Local):
    """The first attempt at every job is killed while its results are written."""

    moments = ("in a line", "before the rename", "after a line")

    def start(self, job: Job, declared: str) -> str:
        log = scheduler.log_path(job.name, self._runs)
        log.parent.mkdir(parents=True, exist_ok=True)
        moment = "never" if log.exists() else self.moments[job.seed]
        command = [sys.executable, "-c", DYING, moment, str(self._results / "suite.toml"), job.name]
        command += ["--runs", str(self._runs), "--results", str(self._results)]
        with open(log, "wb") as file:
            self._processes[job.name] = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=file)
        return job.name


@pytest.mark.slow
def test_killed_while_facts_are_written(tmp_path: Path) -> None:
    """Nothing is lost, nothing is there twice, and the results can be read at any time."""
    loaded = suite.load(declare(tmp_path, TINY.replace("[0, 1]", "[0, 1, 2]")))
    runs, results = tmp_path / "runs", tmp_path / "results"
    summary = scheduler.run(loaded, Dying(3, runs, results), runs, results, quiet=True)
    assert (summary.done, summary.failed) == (3, [])
    facts = [fact for fact in metrics_store.load(results / "facts.jsonl") if fact.metric != SECONDS]
    assert sorted((fact.seed, fact.step, fact.value) for fact in facts) == sorted(
        (seed, step, round(step / 7, 6)) for seed in range(3) for step in range(100)
    )
    lines = (results / "facts.jsonl").read_bytes().splitlines()
    assert len(lines) == 4  # that of the first job was cut, and stays
    assert {fact.config_hash for fact in facts} == set(json.loads((results / "configs.json").read_text()))
    again = scheduler.run(loaded, Fake({}), runs, results, quiet=True)
    assert (again.done, again.skipped) == (0, 3)


@pytest.mark.parametrize("option", ["--runs", "--results"])
def test_impossible_folders_leave_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = declare(tmp_path, TINY)
    for target in ("/etc/passwd", "/etc/passwd/below"):
        message = refused(capsys, "suite", "run", path, option, target)
        assert message == f"cannot make folder {target}: /etc/passwd is not a folder"
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine.toml"]


def _values(results: Path) -> list[Fact]:
    """All facts but times; the source tree may be edited while a test runs."""
    everything = metrics_store.load(results / "facts.jsonl")
    facts = [dataclasses.replace(fact, commit="") for fact in everything if not fact.metric.endswith("seconds")]
    assert facts
    return sorted(facts, key=lambda fact: (fact.job, fact.subject, fact.metric, fact.step))


@pytest.mark.slow
def test_interrupted_suite_stops_its_jobs(susd: Command) -> None:
    """The signal reaches the suite alone, as from a batch system; training saves a checkpoint."""
    text = TINY.replace("[0, 1]", "[0]").replace("epochs = 2", "epochs = 100000\neval_every = 100000")
    path = declare(susd.folder, text)
    results, run = susd.folder / "results" / "mine", susd.folder / "runs" / "mine" / "gunner" / "susd-s0"
    with susd.start("suite", "run", path, "--workers", 1, start_new_session=True) as child:
        deadline = time.monotonic() + 200
        while not (run / "metrics.jsonl").exists():
            assert time.monotonic() < deadline
            assert child.poll() is None
            time.sleep(0.1)
        os.kill(child.pid, signal.SIGTERM)
        _, errors = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "susd: interrupted" in errors
    assert _all_end(results)
    assert checkpoint.epoch_of(checkpoint.checkpoints(run / "checkpoints")[0]) > 0
    assert metrics_store.load(results / "facts.jsonl") == []


def _all_end(folder: Path) -> bool:
    """Whether no job of these results runs any more after a minute."""
    deadline = time.monotonic() + 60
    while _running(folder) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not _running(folder)


def _running(folder: Path) -> list[int]:
    """Processes that run a job of these results."""
    found = subprocess.run(["pgrep", "-f", f"susd.experiments.job .*--results {folder}"], capture_output=True, text=True)
    return [int(pid) for pid in found.stdout.split()]


def test_address_needs_ray(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--address is 'x', but it is for --engine ray"):
        scheduler.engine_of("local", "x", None, tmp_path, tmp_path)


COUNT_THREADS = """
import jax, pathlib
x = jax.numpy.ones((512, 512))
jax.jit(lambda x: x @ x)(x).block_until_ready()
names = [(task / "comm").read_text() for task in pathlib.Path("/proc/self/task").glob("*")]
print(sum(name.startswith("tf_XLAEigen") for name in names))
"""


def test_each_of_several_jobs_has_one_thread_for_its_products() -> None:
    """With threads for all cores in every process, jobs of a suite hold each other up."""
    env = scheduler.job_environment(one_thread=True)
    done = subprocess.run([sys.executable, "-c", COUNT_THREADS], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ("1" if Path("/proc/self/task").exists() else "0")

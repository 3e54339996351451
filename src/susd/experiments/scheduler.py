"""`susd suite run NAME`: run the jobs of a suite, on this machine or on a Ray cluster; finished jobs are skipped."""

from __future__ import annotations

import hashlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from susd.errors import UserError, shown
from susd.evaluation.registry import evaluation
from susd.experiments import metrics_store
from susd.experiments.declared import Job
from susd.experiments.job import check_tasks, is_trained
from susd.experiments.metrics_store import FACTS, SECONDS, Fact
from susd.experiments.preflight import check_runs
from susd.experiments.suite import Suite
from susd.runs.atomic import write_text
from susd.runs.folder import check_writable, make_folder
from susd.runs.progress import Progress, duration

ATTEMPTS = 2  # a job that dies is repeated once
FLOPS = 3e10  # of one core in small matmuls; only for the first forecast, before any job of a kind has finished
START_SECONDS = 10.0  # of a process: imports and compilation
STOP_SECONDS = 20.0  # for a job to save its state
SHOWN = 4  # names of unfinished jobs of a run in the table of `susd suite show`


@dataclass(frozen=True)
class Outcome:
    """How a job ended; the reason is empty if it succeeded."""

    job: Job
    reason: str


@dataclass(frozen=True)
class Summary:
    """The outcome of a suite."""

    done: int
    skipped: int
    failed: list[Outcome]
    results: Path


class Engine(Protocol):
    """Where jobs run."""

    slots: int  # jobs at the same time
    note: str  # what the user should know about it, or ""

    def start(self, job: Job, declared: str) -> Any:
        """Start a job of the suite whose file has the text `declared`; the handle is for `ended`."""

    def ended(self, handles: Iterable[Any], seconds: float) -> list[tuple[Any, str]]:
        """The handles of jobs that have ended, with the reason of a failure or ""; waits for at most `seconds`."""

    def close(self) -> None:
        """Stop the jobs that still run."""


def start_process(
    job: str, declared: str, runs: Path, results: Path, one_thread: bool, gpus: float = 0.0
) -> subprocess.Popen[bytes]:
    """One job in a process of its own, which dies with this one: the other end of its standard input is here.

    It reads the text of the suite from a file that no other text is written to: results may be those of several suites.
    """
    log = log_path(job, runs)
    make_folder(log.parent)
    suite = log.parent / f"{hashlib.blake2b(declared.encode(), digest_size=8).hexdigest()}.toml"
    write_text(suite, declared)
    command = [sys.executable, "-m", "susd.experiments.job", str(suite), job]
    command += ["--runs", str(runs), "--results", str(results)]
    streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL}
    with open(log, "wb") as file:
        return subprocess.Popen(command, stderr=file, env=job_environment(one_thread, gpus), **streams)


def failure(job: str, runs: Path, code: int, kept: str = "") -> str:
    """Why a job failed, or ""; `kept` is where its log is if it was copied."""
    if code == 0:
        return ""
    log = log_path(job, runs)
    lines = log.read_text(errors="replace").strip().splitlines()
    return f"{lines[-1] if lines else 'no message'} (exit code {code}, log {kept or log})"


def log_path(job: str, runs: Path) -> Path:
    """Where the process of a job writes what it has to say."""
    return runs / ".jobs" / f"{job.replace('/', '~')}.log"


def job_environment(one_thread: bool, gpus: float = 0.0) -> dict[str, str]:
    """Environment variables: parallel jobs are fastest with one thread each, and on one GPU they share its memory."""
    env = dict(os.environ)
    if 0 < gpus < 1:
        env.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", f"{0.9 * gpus:.3f}")
    if one_thread:
        flags = f"{env.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false"
        # XLA sizes its thread pools by NPROC. Without it every job has threads for all cores, which hold each other up.
        env |= {"OMP_NUM_THREADS": "1", "NPROC": "1", "XLA_FLAGS": flags.strip()}
    return env


class Local:
    """Processes of this machine."""

    note = ""

    def __init__(self, workers: int, runs: Path, results: Path) -> None:
        self.slots, self._runs, self._results = workers, runs, results
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, job: Job, declared: str) -> str:
        """The handle is the job's name."""
        self._processes[job.name] = start_process(job.name, declared, self._runs, self._results, self.slots > 1)
        return job.name

    def ended(self, handles: Iterable[str], seconds: float) -> list[tuple[str, str]]:
        """The jobs that have ended."""
        deadline = time.monotonic() + seconds
        while not (done := [name for name in handles if self._processes[name].poll() is not None]):
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        return [(name, failure(name, self._runs, self._code(name))) for name in done]

    def _code(self, name: str) -> int:
        """The exit code of a process that has ended; its standard input is closed."""
        with self._processes.pop(name) as process:
            return process.returncode

    def close(self) -> None:
        """Ask running jobs to stop, on which training saves a checkpoint, and kill them if that takes too long."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(timeout=STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def forecast(jobs: Sequence[Job], suite: Suite, facts: Sequence[Fact]) -> tuple[dict[str, float], int]:
    """The seconds of every job, and how many of these are measured, on finished jobs of the same kind."""
    kinds = {job.name: job.kind for job in suite.declared}
    known: dict[str, list[float]] = {}
    for fact in facts:
        if fact.metric == SECONDS and fact.job in kinds:
            known.setdefault(kinds[fact.job], []).append(fact.value)
    seconds = {job.name: statistics.median(known[job.kind]) if job.kind in known else _guess(job) for job in jobs}
    return seconds, sum(job.kind in known for job in jobs)


def _guess(job: Job) -> float:
    """A rough guess from the multiplications of gradient steps: three networks, forward and backward."""
    if job.evaluation:
        return START_SECONDS + evaluation(job.evaluation).seconds
    c = job.config
    steps = c["gradient_steps"] * c["epochs" if job.phase == "train" else "episodes"]
    weights = c["hidden"] * (100 + c["hidden"] * (c["layers"] - 1))
    return START_SECONDS + steps * c["batch_size"] * weights * 30 / FLOPS


def run(suite: Suite, engine: Engine, runs: Path, results: Path, quiet: bool = False) -> Summary:
    """Run all jobs that are not finished, each after the one it needs; progress and forecast go to standard error."""
    facts = metrics_store.load(results / FACTS)
    finished = _finished(suite, facts)
    waiting = [job for job in suite.jobs if job.name not in finished]
    needed = {job.needs for job in waiting if job.needs in finished and not is_trained(job, runs)}
    waiting = [job for job in suite.jobs if job.name not in finished or job.name in needed]
    finished -= needed
    skipped = len(suite.jobs) - len(waiting)
    check_tasks(waiting)
    check_runs(waiting, runs)
    for folder in (runs, results):
        make_folder(folder)
    write_text(results / "suite.toml", suite.text)
    times, measured = forecast(waiting, suite, facts)
    if not quiet:
        _announce(suite, waiting, skipped, times, measured, engine.slots)
        if engine.note:
            print(engine.note, file=sys.stderr, flush=True)
    failed: list[Outcome] = []
    attempts: dict[str, int] = {}
    running: dict[Any, Job] = {}
    done, began = 0, time.monotonic()
    with Progress(len(waiting), quiet=quiet) as progress:
        try:
            while waiting or running:
                for job in [j for j in waiting if j.needs is None or j.needs in finished][: engine.slots - len(running)]:
                    waiting.remove(job)
                    attempts[job.name] = attempts.get(job.name, 0) + 1
                    running[engine.start(job, suite.text)] = job
                if not running:  # the rest needs a job that failed
                    failed += [Outcome(job, f"{job.needs} failed") for job in waiting]
                    break
                for handle, why in engine.ended(list(running), 1.0):
                    job = running.pop(handle)
                    if not why:
                        finished.add(job.name)
                        done += 1
                    elif attempts[job.name] < ATTEMPTS:
                        progress.message(f"failed, starting again: {job.name}: {why}")
                        waiting.insert(0, job)
                    else:
                        progress.message(f"failed: {job.name}: {why}")
                        failed.append(Outcome(job, why))
                left = _left(times, waiting, running.values(), finished, engine.slots, time.monotonic() - began)
                now = ", ".join(f"{job.run.partition('/')[2]} {job.name.rpartition('/')[2]}" for job in running.values())
                progress.update(done, {"failed": str(len(failed)), "now": now or "-"}, left)
        finally:
            engine.close()
    return Summary(done, skipped, failed, results)


def _finished(suite: Suite, facts: Iterable[Fact]) -> set[str]:
    """The names of the jobs that are finished with the options that they have in the suite now."""
    keys = metrics_store.finished(facts)
    return {job.name for job in suite.jobs if (job.name, job.hash) in keys}


def unfinished(suite: Suite, results: Path) -> list[Job]:
    """The jobs that no result exists for."""
    finished = _finished(suite, metrics_store.load(results / FACTS))
    return [job for job in suite.jobs if job.name not in finished]


def status(suite: Suite, results: Path, workers: int | None) -> dict[str, Any]:
    """The jobs, which of them are finished, and how long the others will take."""
    facts = metrics_store.load(results / FACTS)
    finished = _finished(suite, facts)
    waiting = [job for job in suite.jobs if job.name not in finished]
    times, measured = forecast(waiting, suite, facts)
    slots = workers or os.cpu_count() or 1
    return {
        "suite": suite.name,
        "about": " ".join(suite.about.split()),
        "jobs": [{"job": j.name, "finished": j.name in finished, "seconds": times.get(j.name)} for j in suite.jobs],
        "finished": len(finished),
        "workers": slots,
        "seconds_left": sum(times.values()) / slots,
        "measured": measured,
    }


def format_status(status: dict[str, Any]) -> str:
    """A status as text: one line per run, with how much of it is finished, the time of the rest, and what is next."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for job in status["jobs"]:
        runs.setdefault(job["job"].rpartition("/")[0], []).append(job)
    width = max(len(run) for run in runs)
    rows = [f"  {run:{width}}  {_of_run(jobs)}" for run, jobs in runs.items()]
    head = f"suite {status['suite']}: {status['finished']} of {len(status['jobs'])} jobs are finished; what is next:"
    tail = f"forecast: {duration(status['seconds_left'])} with {status['workers']} jobs in parallel; --json lists every job"
    return "\n".join([head, *rows, tail])


def _of_run(jobs: Sequence[dict[str, Any]]) -> str:
    left = [job for job in jobs if not job["finished"]]
    done = f"{len(jobs) - len(left):3} of {len(jobs):3}"
    if not left:
        return f"{done}  finished"
    names = [job["job"].rpartition("/")[2] for job in left]
    more = f" .. {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{done}  {duration(sum(job['seconds'] or 0.0 for job in left)):>8} left  {' '.join(names[:SHOWN])}{more}"


def _left(
    times: dict[str, float], waiting: Iterable[Job], running: Iterable[Job], finished: set[str], slots: int, passed: float
) -> float:
    """The remaining seconds, corrected by how accurate the forecast has been so far."""
    half = 0.5 * sum(times[job.name] for job in running)  # of what is running, on average
    past = sum(seconds for name, seconds in times.items() if name in finished)
    ahead = half + sum(times[job.name] for job in waiting)
    pace = passed * slots / (past + half) if past > 60 else 1.0
    return ahead / slots * pace


def _announce(
    suite: Suite, waiting: Sequence[Job], skipped: int, times: dict[str, float], measured: int, slots: int
) -> None:
    total = sum(times.values())
    basis = f"measured for {measured} jobs" if measured else "a rough guess until the first jobs have finished"
    lines = [
        f"suite {suite.name}: {len(suite.jobs)} jobs, {skipped} already finished, {len(waiting)} to run",
        f"forecast: {duration(total / slots)} with {slots} jobs in parallel ({basis})",
    ]
    print("\n".join(lines), file=sys.stderr, flush=True)


def folders(suite: Suite, runs: Path | None, results: Path | None) -> tuple[Path, Path]:
    """The folders of runs and results; by default runs/NAME and results/NAME."""
    return (runs or Path("runs") / suite.name).resolve(), (results or Path("results") / suite.name).resolve()


def engine_of(
    name: str,
    address: str | None,
    workers: int | None,
    runs: Path,
    results: Path,
    gpus_per_job: float = 0.0,
    with_replay: bool = False,
) -> Engine:
    """The engine of that name; refuses folders that cannot be written to, before any of them is made."""
    if not 0 <= gpus_per_job <= 64 or (gpus_per_job > 1 and gpus_per_job != int(gpus_per_job)):
        raise UserError(f"--gpus-per-job is {gpus_per_job:g}; it must be from 0 to 1, or an integer up to 64")
    for folder in (runs, results):
        check_writable(folder, "folder")
    if name == "ray":
        from susd.experiments.ray import Ray

        return Ray(address, workers, runs, results, gpus_per_job, with_replay)
    for flag, value in (("--address", address), ("--gpus-per-job", gpus_per_job), ("--with-replay", with_replay)):
        if value not in (None, 0):
            raise UserError(f"{flag} is {'on' if value is True else shown(value)}, but it is for --engine ray")
    count = workers or os.cpu_count() or 1
    return Local(count, runs, results)

"""`susd suite slurm NAME`: a script for `sbatch` that runs a suite as an array with one task per run.

All jobs of a run are in one task, so that no task waits for another. Every task writes results of its own, which `merge`
joins: nothing depends on how a network file system locks files.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from susd.errors import UserError, shown
from susd.experiments import metrics_store
from susd.experiments.declared import Job
from susd.experiments.job import copy_figure
from susd.experiments.metrics_store import CONFIGS, FACTS
from susd.experiments.scheduler import unfinished
from susd.experiments.suite import SHIPPED, Suite
from susd.paths import user_path
from susd.runs.atomic import replace_file
from susd.runs.untrusted import read_object

PARTS = ".slurm"  # the folder of the tasks' results and logs inside that of the runs
TIME = r"\d{1,6}|\d{1,4}:\d\d|\d{1,4}:\d\d:\d\d|\d{1,3}-\d{1,2}(:\d\d){0,2}"
PARTITION = r"[A-Za-z0-9_.-]{1,64}(,[A-Za-z0-9_.-]{1,64}){0,15}"
MOST = {"cpus": (1, 1024), "gpus": (0, 64), "max-parallel": (0, 10_000)}  # the limits of the numbers


@dataclass(frozen=True)
class Request:
    """What every task asks SLURM for."""

    time: str | None = None  # None: the limit of the partition
    partition: str | None = None  # None: that of the cluster
    cpus: int = 1
    gpus: int = 0
    max_parallel: int = 0  # tasks at the same time; 0: no limit

    def __post_init__(self) -> None:
        for name, (low, high) in MOST.items():
            if not low <= (value := getattr(self, name.replace("-", "_"))) <= high:
                raise UserError(f"--{name} is {value}; it must be from {low} to {high}")
        if self.time is not None and not re.fullmatch(TIME, self.time):
            raise UserError(f"--time is {shown(self.time)}; it must be like 90 (minutes), 12:00:00 or 2-12:00:00")
        if self.partition is not None and not re.fullmatch(PARTITION, self.partition):
            raise UserError(f"--partition is {shown(self.partition)}; it must be a name, or several joined by commas")

    def lines(self, name: str, tasks: int) -> list[str]:
        """The directives. Text that has a free form is in the body instead, where the shell has rules for quotes."""
        limit = f"%{self.max_parallel}" if self.max_parallel else ""
        asked = {
            "job-name": f"susd-{re.sub(r'[^A-Za-z0-9_.+-]+', '_', name)}",
            "array": f"0-{tasks - 1}{limit}",
            "time": self.time,
            "partition": self.partition,
            "cpus-per-task": str(self.cpus),
            "gres": f"gpu:{self.gpus}" if self.gpus else "",
            "signal": "B:TERM@60",  # a minute before the time is over: jobs save their state
            "output": "/dev/null",  # the body has the log
        }
        return [f"#SBATCH --{option}={value}" for option, value in asked.items() if value]


def script(suite: Suite, source: str, runs: Path, results: Path, request: Request) -> str:
    """The script of all runs that have unfinished jobs; `source` is the suite as it was named."""
    tasks = _tasks(suite, results)
    if not tasks:
        raise UserError(f"all {len(suite.jobs)} jobs of {suite.name} are finished")
    name = source if (SHIPPED / f"{source}.toml").is_file() else str(user_path("the suite", source).resolve())
    for path in (name, runs, results, os.getcwd(), sys.executable):
        if not str(path).isprintable():
            raise UserError(f"the path {shown(str(path))} has characters that cannot be printed; a script cannot hold it")
    cases = [
        f"  {index}) part={shlex.quote(_part(jobs[0].run))}; only=({' '.join(_patterns(suite, jobs))}) ;;"
        for index, jobs in enumerate(tasks)
    ]
    command = [sys.executable, "-m", "susd.cli.main", "suite", "run", name, "--runs", str(runs)]
    workers = 1 if request.gpus else request.cpus  # jobs that share a GPU would share its memory
    lines = [
        "#!/bin/bash",
        *request.lines(suite.name, len(tasks)),
        "set -eu",
        f"cd -- {shlex.quote(os.getcwd())}",
        f"parts={shlex.quote(str(runs / PARTS))}",
        'case "$SLURM_ARRAY_TASK_ID" in',
        *cases,
        '  *) echo "there is no task $SLURM_ARRAY_TASK_ID" >&2; exit 2 ;;',
        "esac",
        'mkdir -p -- "$parts/$part"',
        'exec >>"$parts/$part/log.txt" 2>&1',
        f'exec {shlex.join(command)} --results "$parts/$part" --workers {workers} --quiet "${{only[@]}}"',
    ]
    return "\n".join(lines) + "\n"


def _tasks(suite: Suite, results: Path) -> list[list[Job]]:
    """The unfinished jobs, run by run."""
    tasks: dict[str, list[Job]] = {}
    for job in unfinished(suite, results):
        tasks.setdefault(job.run, []).append(job)
    return list(tasks.values())


def _patterns(suite: Suite, jobs: list[Job]) -> list[str]:
    """The options that choose the jobs of a task; names of jobs have no characters that patterns give a meaning."""
    everything = sum(job.run == jobs[0].run for job in suite.declared) == len(jobs)
    names = [f"{jobs[0].run}/*"] if everything else [job.name for job in jobs]
    return [f"--only {shlex.quote(name)}" for name in names]


def _part(run: str) -> str:
    return run.replace("/", "~")


def write(path: Path, text: str) -> None:
    """Write a script that its owner can execute."""
    with replace_file(path) as temporary:
        temporary.write_text(text)
        temporary.chmod(0o755)


@dataclass(frozen=True)
class Merged:
    """What was merged."""

    parts: int
    jobs: int  # new in the results
    other: int  # jobs with options that the suite does not have now; they are left where they are


def merge(suite: Suite, runs: Path, results: Path) -> Merged:
    """Add the results of all tasks to those of the suite; it may be repeated, also while tasks run."""
    wanted = {(job.name, job.hash) for job in suite.declared}
    parts = sorted(path.parent for path in (runs / PARTS).glob(f"*/{FACTS}"))
    if not parts:
        raise UserError(f"there are no results of tasks in {runs / PARTS}")
    new = other = 0
    for part in parts:
        facts = metrics_store.load(part / FACTS)
        done = metrics_store.finished(facts)
        other += len(done - wanted)
        configs, hashes = read_object(part / CONFIGS), {key for _, key in done & wanted}
        metrics_store.append_configs(results / CONFIGS, {key: value for key, value in configs.items() if key in hashes})
        for name, key in sorted(done & wanted):
            new += metrics_store.append(results / FACTS, metrics_store.select(facts, job=name, config_hash=key))
        for figure in sorted((part / "trajectories").glob("*.png")):
            copy_figure(figure, results / "trajectories" / figure.name)
    return Merged(len(parts), new, other)

"""`susd suite list|run|show|slurm|merge`: sets of runs, evaluations and tasks that a file declares."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from susd.cli.common import Commands, integer, number, path
from susd.errors import UserError


def add(commands: Commands) -> None:
    """The commands and their options."""
    command = commands.add_parser("suite", help="run sets of runs, evaluations and tasks that a file declares")
    verbs = command.add_subparsers(title="commands", metavar="VERB", required=True)
    verb = verbs.add_parser("list", help="list the suites of the package")
    verb.set_defaults(command=run_list)
    verb = _verb(verbs, "run", "run all jobs that are not finished", run_run)
    _add_workers(verb)
    verb.add_argument("--engine", choices=("local", "ray"), default="local", help="this machine, or a Ray cluster")
    verb.add_argument("--address", metavar="HOST:PORT", help="of the Ray cluster; default: one started here")
    verb.add_argument(
        "--gpus-per-job", type=number, default=0.0, metavar="X", help="GPUs of a job on Ray, such as 0.25; default: 0"
    )
    verb.add_argument(
        "--with-replay",
        action="store_true",
        help="bring whole checkpoints from nodes without a shared folder, not only the weights",
    )
    verb.add_argument("--quiet", action="store_true", help="print neither progress nor summary")
    verb = _verb(verbs, "show", "show the jobs, which are finished, and the forecast", run_show)
    _add_workers(verb)
    verb.add_argument("--json", action="store_true", help="print JSON")
    verb = _verb(verbs, "slurm", "write a script for sbatch: an array with one task per run", run_slurm)
    verb.add_argument("--out", type=path, metavar="FILE", help="the script; default: NAME.sbatch")
    verb.add_argument("--time", metavar="LIMIT", help="of a task, such as 12:00:00; default: the partition's")
    verb.add_argument("--partition", metavar="NAME", help="default: that of the cluster")
    verb.add_argument("--cpus", type=integer, default=1, metavar="N", help="processors of a task; default: 1")
    verb.add_argument("--gpus", type=integer, default=0, metavar="N", help="GPUs of a task; default: 0")
    verb.add_argument(
        "--max-parallel", type=integer, default=0, metavar="N", help="tasks at the same time; default: no limit"
    )
    _verb(verbs, "merge", "add the results of all SLURM tasks to those of the suite", run_merge, only=False)


def _verb(verbs: Any, name: str, text: str, command: Callable[..., int], only: bool = True) -> argparse.ArgumentParser:
    """A command about one suite and its folders."""
    verb: argparse.ArgumentParser = verbs.add_parser(name, help=text)
    verb.add_argument("suite", metavar="NAME", help="a suite of the package, or the path of your own .toml file")
    verb.add_argument("--scale", default="", metavar="SCALE", help="how much of it, for a suite with several scales")
    verb.add_argument("--runs", type=path, metavar="DIR", help="folder of the runs; default: runs/NAME")
    verb.add_argument("--results", type=path, metavar="DIR", help="folder of the results; default: results/NAME")
    if only:
        verb.add_argument(
            "--only",
            action="append",
            metavar="PATTERN",
            help="jobs with matching names and the jobs that they need, e.g. 'gunner/*'; may be repeated",
        )
    verb.set_defaults(command=command)
    return verb


def _add_workers(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--workers", type=integer, metavar="N", help="jobs in parallel; default: one per core")


def run_list(options: argparse.Namespace) -> int:
    """List the suites of the package."""
    from susd.experiments import suite

    for name in suite.names():
        loaded = suite.load(name)
        scale = f" in scale {loaded.scale} of {', '.join(loaded.scales)}" if loaded.scale else ""
        print(f"{name}: {len(loaded.jobs)} jobs{scale}. {' '.join(loaded.about.split())}")
    return 0


def run_run(options: argparse.Namespace) -> int:
    """Run all jobs of a suite that are not finished; the exit code is 1 if one failed."""
    from susd.experiments import scheduler

    loaded = _suite(options)
    runs, results = scheduler.folders(loaded, options.runs, options.results)
    ray = options.gpus_per_job, options.with_replay
    engine = scheduler.engine_of(options.engine, options.address, options.workers, runs, results, *ray)
    summary = scheduler.run(loaded, engine, runs, results, options.quiet)
    if not options.quiet:
        print(f"{summary.done} jobs done, {summary.skipped} already finished, {len(summary.failed)} failed")
    for outcome in summary.failed:
        print(f"  failed: {outcome.job.name}: {outcome.reason}")
    print(summary.results / scheduler.FACTS)
    return 1 if summary.failed else 0


def run_show(options: argparse.Namespace) -> int:
    """Show which jobs of a suite are finished."""
    from susd.experiments import scheduler

    loaded = _suite(options)
    _, results = scheduler.folders(loaded, options.runs, options.results)
    status = scheduler.status(loaded, results, options.workers)
    print(json.dumps(status) if options.json else scheduler.format_status(status))
    return 0


def run_slurm(options: argparse.Namespace) -> int:
    """Write the script of an array of SLURM; what is finished is left out."""
    from susd.experiments import scheduler, slurm
    from susd.runs.folder import check_writable

    request = slurm.Request(options.time, options.partition, options.cpus, options.gpus, options.max_parallel)
    loaded = _suite(options)
    runs, results = scheduler.folders(loaded, options.runs, options.results)
    for folder in (runs, results):
        check_writable(folder, "folder")
    out = options.out or Path(f"{loaded.name}.sbatch")
    slurm.write(out, slurm.script(loaded, options.suite, runs, results, request))
    print(out)
    return 0


def run_merge(options: argparse.Namespace) -> int:
    """Add the results of SLURM tasks to those of the suite."""
    from susd.experiments import scheduler, slurm, suite

    loaded = suite.load(options.suite, options.scale)
    runs, results = scheduler.folders(loaded, options.runs, options.results)
    found = slurm.merge(loaded, runs, results)
    other = f", {found.other} jobs with other options left out" if found.other else ""
    print(f"{found.jobs} new jobs from {found.parts} tasks{other}")
    print(results / scheduler.FACTS)
    return 0


def _suite(options: argparse.Namespace) -> Any:
    from susd.experiments import suite

    workers = getattr(options, "workers", None)
    if workers is not None and not 1 <= workers <= 4096:
        raise UserError(f"--workers is {workers}; it must be from 1 to 4096")
    loaded = suite.load(options.suite, options.scale)
    return loaded.only(options.only) if options.only else loaded

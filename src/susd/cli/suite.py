"""`susd suite list|run|show`: sets of runs, evaluations and tasks that a file declares."""

from __future__ import annotations

import argparse
import json
from typing import Any

from susd.cli.common import Commands, integer, path
from susd.errors import UserError


def add(commands: Commands) -> None:
    """The commands and their options."""
    command = commands.add_parser("suite", help="run sets of runs, evaluations and tasks that a file declares")
    verbs = command.add_subparsers(title="commands", metavar="VERB", required=True)
    verb = verbs.add_parser("list", help="list the suites of the package")
    verb.set_defaults(command=run_list)
    for name, text in (
        ("run", "run all jobs that are not finished"),
        ("show", "show the jobs, which are finished, and the forecast"),
    ):
        verb = verbs.add_parser(name, help=text)
        verb.add_argument("suite", metavar="NAME", help="a suite of the package, or the path of your own .toml file")
        verb.add_argument("--runs", type=path, metavar="DIR", help="folder of the runs; default: runs/NAME")
        verb.add_argument("--results", type=path, metavar="DIR", help="folder of the results; default: results/NAME")
        verb.add_argument("--workers", type=integer, metavar="N", help="jobs in parallel; default: one per core")
        verb.add_argument(
            "--only",
            action="append",
            metavar="PATTERN",
            help="jobs with matching names and the jobs that they need, e.g. 'gunner/*'; may be repeated",
        )
        if name == "run":
            verb.add_argument("--engine", choices=("local", "ray"), default="local", help="this machine, or a Ray cluster")
            verb.add_argument("--address", metavar="HOST:PORT", help="of the Ray cluster; default: one started here")
            verb.add_argument("--quiet", action="store_true", help="print neither progress nor summary")
        else:
            verb.add_argument("--json", action="store_true", help="print JSON")
        verb.set_defaults(command=run_run if name == "run" else run_show)


def run_list(options: argparse.Namespace) -> int:
    """List the suites of the package."""
    from susd.experiments import suite

    for name in suite.names():
        loaded = suite.load(name)
        print(f"{name}: {len(loaded.jobs)} jobs. {' '.join(loaded.about.split())}")
    return 0


def run_run(options: argparse.Namespace) -> int:
    """Run all jobs of a suite that are not finished; the exit code is 1 if one failed."""
    from susd.experiments import scheduler

    loaded = _suite(options)
    runs, results = scheduler.folders(loaded, options.runs, options.results)
    engine = scheduler.engine_of(options.engine, options.address, options.workers, runs, results)
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


def _suite(options: argparse.Namespace) -> Any:
    from susd.experiments import suite

    if options.workers is not None and not 1 <= options.workers <= 4096:
        raise UserError(f"--workers is {options.workers}; it must be from 1 to 4096")
    loaded = suite.load(options.suite)
    return loaded.only(options.only) if options.only else loaded

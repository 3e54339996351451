"""What each command of `susd` does: it calls the public API and prints. JAX is imported only by those that need it."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
from pathlib import Path
from typing import Any

from susd.config import Config, configure
from susd.downstream.config import DownstreamConfig
from susd.envs import check_name, choices
from susd.errors import UserError

NON_FINITE, INTERRUPTED = 3, 130  # exit codes
OWN_FLAGS = ("env", "env_options")  # of a Config, which the command line has in forms of its own


def given(options: argparse.Namespace) -> dict[str, Any]:
    """The config options that were given."""
    names = {spec.name for spec in dataclasses.fields(Config)} - set(OWN_FLAGS)
    changes = {name: value for name, value in vars(options).items() if name in names}
    env_options: dict[str, Any] = {}
    for text in options.env_option:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UserError(f"--env-option {text!r} is not of the form NAME=VALUE")
        env_options[name] = _scalar(value)
    return {**changes, **({"env_options": env_options} if env_options else {})}


def _scalar(text: str) -> Any:
    """A number, true or false where the text is one, else the text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)) else text


def run_train(options: argparse.Namespace) -> int:
    """Train, then evaluate and draw."""
    if options.env is None and not options.resume:
        raise UserError(f"name an environment: {choices()}")
    changes = given(options)
    if not options.resume:  # before JAX is imported, so that a mistake is answered at once
        check_name(options.env)
        configure(options.env, **changes)
    from susd.training.train import Interrupted, NonFiniteError, train

    try:
        run = train(
            options.env,
            run=options.run,
            resume=options.resume,
            quiet=options.quiet,
            tensorboard=options.tensorboard,
            wandb=options.wandb,
            **changes,
        )
    except NonFiniteError as error:
        print(f"susd: {error}", file=sys.stderr)
        return NON_FINITE
    except Interrupted as error:
        print(f"susd: {error}", file=sys.stderr)
        return INTERRUPTED
    if not options.no_report:
        from susd.cli.tables import report

        report(run, quiet=options.quiet)
    else:
        print(run)
    return 0


def run_check(options: argparse.Namespace) -> int:
    """Try an environment; the exit code is 1 if it breaks the contract."""
    check_name(options.env)
    config = configure(options.env, **given(options))
    from susd.tools import check

    result = check.check(config, options.steps)
    print(json.dumps(result) if options.json else check.table(result))
    return 0 if result["ok"] else 1


def run_methods(options: argparse.Namespace) -> int:
    """List the methods, or compare two."""
    from susd.methods import describe

    if not options.diff:
        if options.env:
            raise UserError(f"--env is {options.env!r}, but the list is the same everywhere; it goes with `diff A B`")
        print(json.dumps(describe.listing()) if options.json else describe.table())
        return 0
    if options.diff[0] != "diff" or len(options.diff) != 3:
        raise UserError(f"susd methods takes nothing or `diff A B`, not {' '.join(options.diff)!r}")
    _, first, second = options.diff
    difference = describe.difference(first, second, options.env or "gunner")
    print(json.dumps(difference) if options.json else describe.difference_table(difference))
    return 0


def run_evaluate(options: argparse.Namespace) -> int:
    """Measure a run."""
    from susd.cli.tables import print_evaluation
    from susd.evaluation.evaluate import evaluate

    result = evaluate(options.run, options.what, options.seed, options.steps)
    if options.json:
        print(json.dumps(result))
    else:
        print_evaluation(options.run, result)
    return 0


def run_zero_shot(options: argparse.Namespace) -> int:
    """Send the skills of a run to goals."""
    from susd.cli.tables import print_evaluation
    from susd.evaluation.zero_shot import zero_shot

    result = zero_shot(options.run, options.seed)
    if options.json:
        print(json.dumps(result))
    else:
        print_evaluation(options.run, result)
    return 0


def run_downstream(options: argparse.Namespace) -> int:
    """Learn a task over the skills of a run."""
    from susd.downstream.config import configure_downstream, folder_of, run_downstream, table

    names = {spec.name for spec in dataclasses.fields(DownstreamConfig)} - {"run", "task"}
    changes = {name: value for name, value in vars(options).items() if name in names}
    config = configure_downstream(options.run, options.task, **changes)
    place = options.out or folder_of(config)
    from susd.training.train import NonFiniteError

    try:
        result = run_downstream(config, place, options.force, options.quiet)
    except NonFiniteError as error:
        print(f"susd: {error}", file=sys.stderr)
        return NON_FINITE
    if options.json:
        print(json.dumps(result))
    else:
        print(place if options.quiet else table(result, place))
    return 0


def run_suite_list(options: argparse.Namespace) -> int:
    """The suites that come with the package."""
    from susd.experiments import suite

    for name in suite.names():
        loaded = suite.load(name)
        print(f"{name}: {len(loaded.jobs)} jobs. {' '.join(loaded.about.split())}")
    return 0


def run_suite_run(options: argparse.Namespace) -> int:
    """Do all jobs of a suite that are not finished; the exit code is 1 if one failed."""
    from susd.experiments import scheduler as engine

    loaded = _suite(options)
    runs, results = engine.folders(loaded, options.runs, options.results)
    where = engine.engine_of(options.engine, options.address, options.workers, runs, results)
    summary = engine.run(loaded, where, runs, results, options.quiet)
    if not options.quiet:
        print(f"{summary.done} jobs done, {summary.skipped} finished before, {len(summary.failed)} failed")
    for outcome in summary.failed:
        print(f"  failed: {outcome.job.name}: {outcome.reason}")
    print(summary.results / engine.FACTS)
    return 1 if summary.failed else 0


def run_suite_show(options: argparse.Namespace) -> int:
    """What is finished of a suite."""
    from susd.experiments import scheduler as engine

    loaded = _suite(options)
    _, results = engine.folders(loaded, options.runs, options.results)
    status = engine.status(loaded, results, options.workers)
    print(json.dumps(status) if options.json else engine.table(status))
    return 0


def _suite(options: argparse.Namespace) -> Any:
    from susd.experiments import suite

    if options.workers is not None and not 1 <= options.workers <= 4096:
        raise UserError(f"--workers is {options.workers}; it must be from 1 to 4096")
    loaded = suite.load(options.suite)
    return loaded.only(options.only) if options.only else loaded


def run_report(options: argparse.Namespace) -> int:
    """Build the page from results."""
    from susd.report import build as report

    folders = options.results or sorted(path.parent for path in Path("results").glob("*/facts.jsonl"))
    if not folders:
        raise UserError("there are no results in results/; name folders, or make some with `susd suite run NAME`")
    print(report.build(folders, options.out or (folders[0] if options.results else Path("results"))))
    return 0


def run_show(options: argparse.Namespace) -> int:
    """Where a run stands."""
    from susd.cli.tables import print_show, show

    status = show(options.run)
    if options.json:
        print(json.dumps(status))
    else:
        print_show(status)
    return 0


def run_replay(options: argparse.Namespace) -> int:
    """Replay a recording; the exit code is 1 if it disagrees."""
    from susd.tools import golden as recordings

    result = recordings.replay(options.file, options.as_name)
    print(json.dumps(result))
    return 0 if recordings.ok(result) else 1


def run_bench(options: argparse.Namespace) -> int:
    """Measure the speed of this machine."""
    check_name(options.env)
    config = configure(options.env, **given(options))
    from susd.tools import bench

    result = bench.run(options.what, config, options.seconds, options.worlds)
    print(json.dumps(result) if options.json else bench.table(result))
    return 0


def run_doctor(options: argparse.Namespace) -> int:
    """Examine this machine."""
    check_name(options.env)
    config = configure(options.env, **given(options))
    from susd.tools import doctor

    result = doctor.examine(config)
    print(json.dumps(result) if options.json else doctor.table(result))
    return 0

"""The command line. It reads arguments, calls the public API and prints; JAX is imported only by commands that need it."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from susd.config import Config, configure
from susd.envs import ENVIRONMENTS, check_name, choices
from susd.errors import UserError
from susd.evaluation import EVALUATIONS
from susd.transfer import DownstreamConfig

USER_ERROR, NON_FINITE, INTERRUPTED = 2, 3, 130
_OWN_FLAGS = ("env", "env_options")


class _Parser(argparse.ArgumentParser):
    """A parser that answers a mistake with one sentence instead of a screen of usage."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where the help is."""
        self.exit(USER_ERROR, f"susd: error: {message}; see {self.prog} --help\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; bad input prints one sentence and exits with 2."""
    options = parser().parse_args(arguments)
    try:
        sys.exit(options.command(options))
    except UserError as error:
        print(f"susd: error: {error}", file=sys.stderr)
        sys.exit(USER_ERROR)
    except KeyboardInterrupt:
        print("susd: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # the reader, `head` for instance, has seen enough
        sys.stderr.close()
        sys.exit(1)


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    top = _Parser(prog="susd", description="Factored unsupervised skill discovery.")
    top.add_argument("--version", action="store_true", help="print the version and exit")
    top.set_defaults(command=_version_or_help(top))
    commands = top.add_subparsers(title="commands", metavar="COMMAND")

    command = commands.add_parser("train", help="discover skills in an environment", usage="susd train ENV [options]")
    command.add_argument("env", nargs="?", metavar="ENV", help=f"one of {choices()}")
    command.add_argument("--run", type=Path, help="run folder; default: a new one below runs/")
    command.add_argument("--resume", action="store_true", help="go on with the run in --run from its last good checkpoint")
    command.add_argument("--quiet", action="store_true", help="no progress bar and no table")
    command.add_argument("--no-report", action="store_true", help="no evaluation, figures and video at the end")
    command.add_argument("--tensorboard", action="store_true", help="also log for TensorBoard")
    command.add_argument("--wandb", action="store_true", help="also log to Weights & Biases")
    _add_config_flags(command)
    command.set_defaults(command=_train)

    command = commands.add_parser("check", help="whether an environment keeps the contract, and what to improve")
    command.add_argument("env", metavar="ENV", help=f"one of {choices()}")
    command.add_argument("--steps", type=_whole, metavar="N", default=1000, help="random steps [1000]")
    command.add_argument("--factors", default=argparse.SUPPRESS, metavar="NAME=0:6,..", help="factorization to check")
    command.add_argument("--json", action="store_true", help="print JSON")
    _add_env_option(command)
    command.set_defaults(command=_check)

    command = commands.add_parser(
        "methods", help="the methods, or how two of them differ", usage="susd methods [diff A B] [options]"
    )
    command.add_argument("diff", nargs="*", metavar="diff A B", help="compare two methods, e.g. diff metra susd")
    command.add_argument("--env", default="gunner", choices=tuple(ENVIRONMENTS), metavar="ENV", help="whose defaults")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(command=_methods)

    command = commands.add_parser("evaluate", help="measure a trained run; writes JSON and a figure into its folder")
    command.add_argument("run", type=Path, metavar="RUN")
    command.add_argument("what", choices=EVALUATIONS, metavar="WHAT", help=", ".join(EVALUATIONS))
    command.add_argument("--seed", type=_whole, metavar="N", default=0, help="seed of the evaluation's skills")
    command.add_argument("--steps", type=_whole, metavar="N", help="coverage, decoding: steps, a multiple of 200")
    command.add_argument("--json", action="store_true", help="print the JSON instead of a table")
    command.set_defaults(command=_evaluate)

    command = commands.add_parser("zero-shot", help="send the skills of a run to goals (ant, half_cheetah)")
    command.add_argument("run", type=Path, metavar="RUN")
    command.add_argument("--seed", type=_whole, metavar="N", default=0, help="first of the eight environment seeds")
    command.add_argument("--json", action="store_true", help="print the JSON instead of a table")
    command.set_defaults(command=_zero_shot)

    command = commands.add_parser(
        "downstream", help="learn a task over the skills of a run", usage="susd downstream RUN --task TASK [options]"
    )
    command.add_argument("run", nargs="?", type=Path, metavar="RUN", help="a trained run; none is needed with --flat")
    command.add_argument("--out", type=Path, metavar="DIR", help="folder of the result; default: one below RUN/downstream")
    command.add_argument("--force", action="store_true", help="replace a finished result")
    command.add_argument("--quiet", action="store_true", help="no progress bar and no table")
    command.add_argument("--json", action="store_true", help="print the result as JSON instead of a table")
    for spec in dataclasses.fields(DownstreamConfig):
        if spec.name != "run":
            kind, text = type(spec.default), spec.metadata["help"]
            text += f" ({' | '.join(spec.metadata['choices'])})" if spec.metadata["choices"] else ""
            text += f" [{spec.default}]" if kind in (int, float) and "default" not in text else ""
            given = {"action": "store_true"} if kind is bool else dict(zip(("type", "metavar"), _KINDS[kind], strict=True))
            flag = "--" + spec.name.replace("_", "-")
            command.add_argument(flag, default=argparse.SUPPRESS, help=text, required=spec.name == "task", **given)
    command.set_defaults(command=_downstream)

    command = commands.add_parser("suite", help="run declared sets of runs, evaluations and tasks")
    verbs = command.add_subparsers(title="commands", metavar="VERB", required=True)
    verb = verbs.add_parser("list", help="the suites that come with the package")
    verb.set_defaults(command=_suite_list)
    for name, text in (("run", "do all jobs that are not finished"), ("show", "the jobs, what is finished, the forecast")):
        verb = verbs.add_parser(name, help=text)
        verb.add_argument("suite", metavar="NAME", help="a suite of the package, or the path of one's own .toml file")
        verb.add_argument("--runs", type=Path, metavar="DIR", help="folder of the runs; default: runs/NAME")
        verb.add_argument("--results", type=Path, metavar="DIR", help="folder of the results; default: results/NAME")
        verb.add_argument("--workers", type=_whole, metavar="N", help="jobs at a time; default: one per core")
        verb.add_argument(
            "--only",
            action="append",
            metavar="PATTERN",
            help="jobs of such names and their needs, e.g. 'gunner/*'; may be repeated",
        )
        if name == "run":
            verb.add_argument("--engine", choices=("local", "ray"), default="local", help="this machine, or a Ray cluster")
            verb.add_argument("--address", metavar="HOST:PORT", help="of the Ray cluster; default: one started here")
            verb.add_argument("--quiet", action="store_true", help="no progress display and no table")
        else:
            verb.add_argument("--json", action="store_true", help="print JSON")
        verb.set_defaults(command=_suite_run if name == "run" else _suite_show)

    command = commands.add_parser("report", help="build the page, the figures and the parity table from results")
    command.add_argument("results", nargs="*", type=Path, metavar="RESULTS", help="folders; default: all in results/")
    command.add_argument("--out", type=Path, metavar="DIR", help="default: the folder named first, or results/")
    command.set_defaults(command=_report)

    command = commands.add_parser("show", help="where a run stands")
    command.add_argument("run", type=Path, metavar="RUN")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(command=_show)

    command = commands.add_parser("replay", help="replay a recording of the original environments and compare")
    command.add_argument("file", type=Path, metavar="FILE.npz")
    command.add_argument("--as", dest="as_name", metavar="NAME", help="environment or task; default: from the file's name")
    command.set_defaults(command=_replay)

    command = commands.add_parser("bench", help="measure the speed of this machine", usage="susd bench WHAT ENV [options]")
    command.add_argument(
        "what", choices=("env", "update", "epoch", "methods"), metavar="WHAT", help="env, update, epoch or methods"
    )
    command.add_argument("env", metavar="ENV", help=f"one of {choices()}")
    command.add_argument("--seconds", type=_number, metavar="X", default=10.0, help="time spent measuring")
    command.add_argument("--worlds", type=_whole, metavar="N", default=1024, help="env: worlds stepped together")
    command.add_argument("--json", action="store_true", help="print JSON")
    _add_config_flags(command)
    command.set_defaults(command=_bench)

    command = commands.add_parser(
        "doctor", help="device, versions, memory and a short speed probe", usage="susd doctor [ENV] [options]"
    )
    command.add_argument(
        "env", nargs="?", default="gunner", metavar="ENV", help=f"whose replay is sized: one of {choices()}"
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    _add_config_flags(command)
    command.set_defaults(command=_doctor)
    return top


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number")
    return value


_KINDS: dict[type, tuple[Callable[[str], Any], str]] = {int: (_whole, "N"), float: (_number, "X"), str: (str, "NAME")}


def _add_env_option(where: argparse._ActionsContainer) -> None:
    where.add_argument(
        "--env-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="option of the environment, e.g. layout=random, start=0; of one of your own also its keyword arguments, "
        "horizon=N and parallel=threads|processes|none; may be repeated",
    )


def _add_config_flags(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("options of the run (default: the preset's)")
    _add_env_option(group)
    for spec in dataclasses.fields(Config):
        if spec.name in _OWN_FLAGS:
            continue
        flag, rule = "--" + spec.name.replace("_", "-"), spec.metadata
        kind = type(spec.default)
        text = rule["help"] + (f" ({' | '.join(rule['choices'])})" if rule["choices"] else "")
        extra: dict[str, Any] = {"action": argparse.BooleanOptionalAction}
        if kind is not bool:
            extra = dict(zip(("type", "metavar"), _KINDS[kind], strict=True))
        group.add_argument(flag, default=argparse.SUPPRESS, help=text, **extra)


def _changes(options: argparse.Namespace) -> dict[str, Any]:
    """The config options that were given."""
    names = {spec.name for spec in dataclasses.fields(Config)} - set(_OWN_FLAGS)
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


def _version_or_help(top: argparse.ArgumentParser) -> Any:
    def run(options: argparse.Namespace) -> int:
        if options.version:
            from susd import __version__

            print(__version__)
            return 0
        top.print_help()
        return USER_ERROR

    return run


def _train(options: argparse.Namespace) -> int:
    if options.env is None and not options.resume:
        raise UserError(f"name an environment: {choices()}")
    changes = _changes(options)
    if not options.resume:  # before JAX is imported, so that a mistake is answered at once
        check_name(options.env)
        configure(options.env, **changes)
    from susd.loop import Interrupted, NonFiniteError, train

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
        from susd.summary import report

        report(run, quiet=options.quiet)
    else:
        print(run)
    return 0


def _check(options: argparse.Namespace) -> int:
    check_name(options.env)
    config = configure(options.env, **_changes(options))
    from susd import check

    result = check.check(config, options.steps)
    print(json.dumps(result) if options.json else check.table(result))
    return 0 if result["ok"] else 1


def _methods(options: argparse.Namespace) -> int:
    from susd.methods import describe

    if not options.diff:
        print(json.dumps(describe.listing()) if options.json else describe.table())
        return 0
    if options.diff[0] != "diff" or len(options.diff) != 3:
        raise UserError(f"susd methods takes nothing or `diff A B`, not {' '.join(options.diff)!r}")
    _, first, second = options.diff
    difference = describe.difference(first, second, options.env)
    print(json.dumps(difference) if options.json else describe.difference_table(difference))
    return 0


def _evaluate(options: argparse.Namespace) -> int:
    from susd.evaluation.evaluate import evaluate
    from susd.summary import print_evaluation

    result = evaluate(options.run, options.what, options.seed, options.steps)
    if options.json:
        print(json.dumps(result))
    else:
        print_evaluation(options.run, result)
    return 0


def _zero_shot(options: argparse.Namespace) -> int:
    from susd.evaluation.zero_shot import zero_shot
    from susd.summary import print_evaluation

    result = zero_shot(options.run, options.seed)
    if options.json:
        print(json.dumps(result))
    else:
        print_evaluation(options.run, result)
    return 0


def _downstream(options: argparse.Namespace) -> int:
    from susd.transfer import configure_downstream, folder_of, run_downstream, table

    names = {spec.name for spec in dataclasses.fields(DownstreamConfig)} - {"run", "task"}
    changes = {name: value for name, value in vars(options).items() if name in names}
    config = configure_downstream(options.run, options.task, **changes)
    place = options.out or folder_of(config)
    from susd.loop import NonFiniteError

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


def _suite_list(options: argparse.Namespace) -> int:
    from susd.experiments import suite

    for name in suite.names():
        loaded = suite.load(name)
        print(f"{name}: {len(loaded.jobs)} jobs. {' '.join(loaded.about.split())}")
    return 0


def _suite_run(options: argparse.Namespace) -> int:
    from susd.experiments import engine

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


def _suite_show(options: argparse.Namespace) -> int:
    from susd.experiments import engine

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


def _report(options: argparse.Namespace) -> int:
    from susd.experiments import report

    folders = options.results or sorted(path.parent for path in Path("results").glob("*/facts.jsonl"))
    if not folders:
        raise UserError("there are no results in results/; name folders, or make some with `susd suite run NAME`")
    print(report.build(folders, options.out or (folders[0] if options.results else Path("results"))))
    return 0


def _show(options: argparse.Namespace) -> int:
    from susd.summary import print_show, show

    status = show(options.run)
    if options.json:
        print(json.dumps(status))
    else:
        print_show(status)
    return 0


def _replay(options: argparse.Namespace) -> int:
    from susd import recordings

    result = recordings.replay(options.file, options.as_name)
    print(json.dumps(result))
    return 0 if recordings.ok(result) else 1


def _bench(options: argparse.Namespace) -> int:
    check_name(options.env)
    config = configure(options.env, **_changes(options))
    from susd import bench

    result = bench.run(options.what, config, options.seconds, options.worlds)
    print(json.dumps(result) if options.json else bench.table(result))
    return 0


def _doctor(options: argparse.Namespace) -> int:
    check_name(options.env)
    config = configure(options.env, **_changes(options))
    from susd import doctor

    result = doctor.examine(config)
    print(json.dumps(result) if options.json else doctor.table(result))
    return 0


if __name__ == "__main__":
    main()

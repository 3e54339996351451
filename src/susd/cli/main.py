"""The command line: all commands, their flags and their help. What they do is in `susd.cli.commands`."""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from susd.cli.commands import (
    INTERRUPTED,
    OWN_FLAGS,
    run_bench,
    run_check,
    run_doctor,
    run_downstream,
    run_evaluate,
    run_methods,
    run_replay,
    run_report,
    run_show,
    run_suite_list,
    run_suite_run,
    run_suite_show,
    run_train,
    run_zero_shot,
)
from susd.config import Config
from susd.downstream.config import DownstreamConfig
from susd.envs import ENVIRONMENTS, choices
from susd.errors import UserError
from susd.evaluation import EVALUATIONS

USER_ERROR = 2


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
    command.set_defaults(command=run_train)

    command = commands.add_parser("check", help="whether an environment keeps the contract, and what to improve")
    command.add_argument("env", metavar="ENV", help=f"one of {choices()}")
    command.add_argument("--steps", type=_whole, metavar="N", default=1000, help="random steps, at least an episode [1000]")
    command.add_argument("--factors", default=argparse.SUPPRESS, metavar="NAME=0:6,..", help="factorization to check")
    command.add_argument("--json", action="store_true", help="print JSON")
    _add_env_option(command)
    command.set_defaults(command=run_check)

    command = commands.add_parser(
        "methods", help="the methods, or how two of them differ", usage="susd methods [diff A B] [options]"
    )
    command.add_argument("diff", nargs="*", metavar="diff A B", help="compare two methods, e.g. diff metra susd")
    command.add_argument("--env", choices=tuple(ENVIRONMENTS), metavar="ENV", help="with diff: whose defaults [gunner]")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(command=run_methods)

    command = commands.add_parser("evaluate", help="measure a trained run; writes JSON and a figure into its folder")
    command.add_argument("run", type=Path, metavar="RUN")
    command.add_argument("what", choices=EVALUATIONS, metavar="WHAT", help=", ".join(EVALUATIONS))
    command.add_argument("--seed", type=_whole, metavar="N", default=0, help="seed of the evaluation's skills")
    command.add_argument("--steps", type=_whole, metavar="N", help="coverage, decoding: steps, a multiple of 200")
    command.add_argument("--json", action="store_true", help="print the JSON instead of a table")
    command.set_defaults(command=run_evaluate)

    command = commands.add_parser("zero-shot", help="send the skills of a run to goals (ant, half_cheetah)")
    command.add_argument("run", type=Path, metavar="RUN")
    command.add_argument("--seed", type=_whole, metavar="N", default=0, help="first of the eight environment seeds")
    command.add_argument("--json", action="store_true", help="print the JSON instead of a table")
    command.set_defaults(command=run_zero_shot)

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
    command.set_defaults(command=run_downstream)

    command = commands.add_parser("suite", help="run declared sets of runs, evaluations and tasks")
    verbs = command.add_subparsers(title="commands", metavar="VERB", required=True)
    verb = verbs.add_parser("list", help="the suites that come with the package")
    verb.set_defaults(command=run_suite_list)
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
        verb.set_defaults(command=run_suite_run if name == "run" else run_suite_show)

    command = commands.add_parser("report", help="build the page, the figures and the parity table from results")
    command.add_argument("results", nargs="*", type=Path, metavar="RESULTS", help="folders; default: all in results/")
    command.add_argument("--out", type=Path, metavar="DIR", help="default: the folder named first, or results/")
    command.set_defaults(command=run_report)

    command = commands.add_parser("show", help="where a run stands")
    command.add_argument("run", type=Path, metavar="RUN")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(command=run_show)

    command = commands.add_parser("replay", help="replay a recording of the original environments and compare")
    command.add_argument("file", type=Path, metavar="FILE.npz")
    command.add_argument("--as", dest="as_name", metavar="NAME", help="environment or task; default: from the file's name")
    command.set_defaults(command=run_replay)

    command = commands.add_parser("bench", help="measure the speed of this machine", usage="susd bench WHAT ENV [options]")
    command.add_argument(
        "what", choices=("env", "update", "epoch", "methods"), metavar="WHAT", help="env, update, epoch or methods"
    )
    command.add_argument("env", metavar="ENV", help=f"one of {choices()}")
    command.add_argument("--seconds", type=_number, metavar="X", default=10.0, help="time spent measuring")
    command.add_argument(
        "--worlds",
        type=_whole,
        metavar="N",
        help="env: worlds stepped together [1024; outside JAX as many as a run has]",
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    _add_config_flags(command)
    command.set_defaults(command=run_bench)

    command = commands.add_parser(
        "doctor", help="device, versions, memory and a short speed probe", usage="susd doctor [ENV] [options]"
    )
    command.add_argument(
        "env", nargs="?", default="gunner", metavar="ENV", help=f"whose replay is sized: one of {choices()}"
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    _add_config_flags(command)
    command.set_defaults(command=run_doctor)
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
        if spec.name in OWN_FLAGS:
            continue
        flag, rule = "--" + spec.name.replace("_", "-"), spec.metadata
        kind = type(spec.default)
        text = rule["help"] + (f" ({' | '.join(rule['choices'])})" if rule["choices"] else "")
        extra: dict[str, Any] = {"action": argparse.BooleanOptionalAction}
        if kind is not bool:
            extra = dict(zip(("type", "metavar"), _KINDS[kind], strict=True))
        group.add_argument(flag, default=argparse.SUPPRESS, help=text, **extra)


def _version_or_help(top: argparse.ArgumentParser) -> Any:
    def run(options: argparse.Namespace) -> int:
        if options.version:
            from susd import __version__

            print(__version__)
            return 0
        top.print_help()
        return USER_ERROR

    return run


if __name__ == "__main__":
    main()

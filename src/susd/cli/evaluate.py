"""`susd evaluate RUN NAME`: evaluate a trained run."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from susd.cli.common import RUN_HELP, Commands, Parser, add_trust, integer, number, path
from susd.evaluation.registry import evaluation, names

if TYPE_CHECKING:
    from susd.evaluation.registry import Evaluation

TYPES: dict[type, tuple[Any, str]] = {int: (integer, "N"), float: (number, "X"), str: (str, "TEXT")}


class _Help(argparse.Action):
    """`--help` after the name of an evaluation shows the options of that evaluation."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: Any) -> None:
        name = getattr(namespace, "name", None)
        (parser if name is None else _parser(evaluation(name))).print_help()
        parser.exit()


def add(commands: Commands) -> None:
    """The command; the options of the evaluation are parsed in a second step, when its name is known."""
    command = commands.add_parser(
        "evaluate",
        help="evaluate a trained run",
        usage="susd evaluate RUN NAME [--seed N] [--json] [--trust] [options of the evaluation]",
        epilog="`susd evaluate RUN NAME --help` shows the options of an evaluation.",
        add_help=False,
    )
    command.add_argument("run", type=path, metavar="RUN", help=RUN_HELP)
    command.add_argument("name", metavar="NAME", help=f"one of {', '.join(names())}, or FILE.py:NAME")
    command.add_argument("--seed", type=integer, default=0, metavar="N", help="random seed of the evaluation")
    command.add_argument("--json", action="store_true", help="print JSON instead of tables")
    add_trust(command)
    command.add_argument("-h", "--help", action=_Help, nargs=0, help="show this help, or that of the evaluation, and exit")
    command.set_defaults(command=run, rest=[])


def run(options: argparse.Namespace) -> int:
    """Evaluate a run."""
    given = vars(_parser(evaluation(options.name)).parse_args(options.rest))

    from susd.cli.tables import print_evaluation
    from susd.evaluation.evaluate import evaluate
    from susd.runs.find import results_path

    report = evaluate(options.run, options.name, options.seed, trust=options.trust, **given)
    if options.json:
        print(json.dumps(report))
    else:
        print_evaluation(results_path(options.run), report)
    return 0


def _parser(found: Evaluation) -> argparse.ArgumentParser:
    """The second step: the options of one evaluation."""
    parser = Parser(
        prog=f"susd evaluate RUN {found.name}",
        usage=f"susd evaluate RUN {found.name} [--seed N] [--json] [--trust] [options]",
        description=f"{found.title}: {found.summary}. Takes about {found.seconds:.0f} s on one core.",
        add_help=False,
    )
    for option in found.options:
        kind, metavar = TYPES[type(option.default)]
        text = f"{option.help}; default: {option.default}"
        flag = f"--{option.name.replace('_', '-')}"
        parser.add_argument(flag, type=kind, metavar=metavar, default=argparse.SUPPRESS, help=text)
    return parser

"""`susd evaluate RUN NAME`: evaluate a trained run."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from susd.cli.common import Commands, integer
from susd.evaluation import EVALUATIONS, ZERO_SHOT


def add(commands: Commands) -> None:
    """The command and its options."""
    command = commands.add_parser("evaluate", help="evaluate a trained run; writes JSON and a figure into its folder")
    command.add_argument("run", type=Path, metavar="RUN")
    command.add_argument(
        "what", choices=(*EVALUATIONS, ZERO_SHOT), metavar="NAME", help=", ".join((*EVALUATIONS, ZERO_SHOT))
    )
    command.add_argument("--seed", type=integer, metavar="N", default=0, help="seed of the evaluation's skills")
    command.add_argument("--steps", type=integer, metavar="N", help="coverage, decoding: steps, a multiple of 200")
    command.add_argument("--json", action="store_true", help="print the JSON instead of a table")
    command.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Evaluate a run."""
    from susd.cli.tables import print_evaluation
    from susd.evaluation.evaluate import evaluate
    from susd.evaluation.zero_shot import zero_shot

    if options.what == ZERO_SHOT:
        result = zero_shot(options.run, options.seed)
    else:
        result = evaluate(options.run, options.what, options.seed, options.steps)
    if options.json:
        print(json.dumps(result))
    else:
        print_evaluation(options.run, result)
    return 0

"""`susd downstream RUN --task TASK`: learn a task over the skills of a run."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys

from susd.cli.common import INTERRUPTED, NON_FINITE, RUN_HELP, Commands, add_options, add_trust, path
from susd.downstream.config import FROM_RUN, DownstreamConfig


def add(commands: Commands) -> None:
    """The command and its options."""
    command = commands.add_parser(
        "downstream", help="learn a task over the skills of a run", usage="susd downstream RUN --task TASK [options]"
    )
    command.add_argument(
        "run",
        nargs="?",
        type=path,
        metavar="RUN",
        help=f"{RUN_HELP}; with --interface flat only needed if the task names no environment",
    )
    command.add_argument("--out", type=path, metavar="DIR", help="folder of the result; default: one below RUN/downstream")
    command.add_argument("--force", action="store_true", help="replace a finished result")
    command.add_argument("--resume", action="store_true", help="continue an interrupted task from its last checkpoint")
    command.add_argument("--quiet", action="store_true", help="no progress bar and no table")
    command.add_argument("--json", action="store_true", help="print the result as JSON instead of a table")
    add_trust(command)
    add_options(command, (f for f in dataclasses.fields(DownstreamConfig) if f.name not in FROM_RUN), required=("task",))
    command.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Learn a task over the skills of a run."""
    from susd.downstream.config import configure_downstream, folder_of
    from susd.downstream.result import format_result

    names = {field.name for field in dataclasses.fields(DownstreamConfig)} - {*FROM_RUN, "task"}
    changes = {name: value for name, value in vars(options).items() if name in names}
    config = configure_downstream(options.run, options.task, **changes)
    folder = options.out or folder_of(config)
    from susd.downstream.train import run_downstream
    from susd.training.session import Interrupted, NonFiniteError

    try:
        result = run_downstream(config, folder, options.force, options.quiet, trust=options.trust, resume=options.resume)
    except NonFiniteError as error:
        print(f"susd: {error}", file=sys.stderr)
        return NON_FINITE
    except Interrupted as error:
        print(f"susd: {error}", file=sys.stderr)
        return INTERRUPTED
    if options.json:
        print(json.dumps(result))
    else:
        print(folder if options.quiet else format_result(result, folder))
    return 0

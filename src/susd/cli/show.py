"""`susd show RUN`: the state of a run."""

from __future__ import annotations

import argparse
import json

from susd.cli.common import RUN_HELP, Commands, path


def add(commands: Commands) -> None:
    """The command and its options."""
    command = commands.add_parser("show", help="the state of a run")
    command.add_argument("run", type=path, metavar="RUN", help=RUN_HELP)
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """The state of a run."""
    from susd.cli.tables import print_status
    from susd.runs.status import status

    found = status(options.run)
    if options.json:
        print(json.dumps(found))
    else:
        print_status(found)
    return 0

"""`susd methods`: list the methods, or compare two."""

from __future__ import annotations

import argparse
import json

from susd.cli.common import Commands
from susd.envs import ENVIRONMENTS
from susd.errors import UserError


def add(commands: Commands) -> None:
    """The command and its options."""
    command = commands.add_parser(
        "methods", help="list the methods, or compare two of them", usage="susd methods [diff A B] [options]"
    )
    command.add_argument("diff", nargs="*", metavar="diff A B", help="compare two methods, e.g. diff metra susd")
    command.add_argument("--env", choices=tuple(ENVIRONMENTS), metavar="ENV", help="with diff: whose defaults [gunner]")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """List the methods, or compare two."""
    from susd.methods import describe

    if not options.diff:
        if options.env:
            raise UserError(
                f"--env is {options.env!r}, but the list is the same in every environment; use it with `diff A B`"
            )
        print(json.dumps(describe.listing()) if options.json else describe.table())
        return 0
    if options.diff[0] != "diff" or len(options.diff) != 3:
        raise UserError(f"susd methods takes nothing or `diff A B`, not {' '.join(options.diff)!r}")
    _, first, second = options.diff
    difference = describe.difference(first, second, options.env or "gunner")
    print(json.dumps(difference) if options.json else describe.difference_table(difference))
    return 0

"""`susd report`: one page from recorded results."""

from __future__ import annotations

import argparse
from pathlib import Path

from susd.cli.common import Commands
from susd.errors import UserError


def add(commands: Commands) -> None:
    """The command and its options."""
    command = commands.add_parser("report", help="build the page, the figures and the parity table from results")
    command.add_argument("results", nargs="*", type=Path, metavar="RESULTS", help="folders; default: all in results/")
    command.add_argument("--out", type=Path, metavar="DIR", help="default: the folder named first, or results/")
    command.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Build the page from results."""
    from susd.report import build

    folders = options.results or sorted(path.parent for path in Path("results").glob("*/facts.jsonl"))
    if not folders:
        raise UserError("there are no results in results/; name folders, or make some with `susd suite run NAME`")
    print(build.build(folders, options.out or (folders[0] if options.results else Path("results"))))
    return 0

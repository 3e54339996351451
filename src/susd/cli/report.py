"""`susd report`: one page from run folders or recorded results."""

from __future__ import annotations

import argparse
from pathlib import Path

from susd.cli.common import Commands, add_trust, path
from susd.errors import UserError

RESULTS = Path("results")


def add(commands: Commands) -> None:
    """The command and its options."""
    command = commands.add_parser("report", help="build one page from runs or recorded results")
    command.add_argument(
        "paths",
        nargs="*",
        type=path,
        metavar="PATH",
        help="runs, folders of results, or folders that contain them; default: all results in results/",
    )
    command.add_argument(
        "--out",
        type=path,
        metavar="DIR",
        help="default: the first folder of results; RUN/report for one run; results/RUN+RUN for several",
    )
    add_trust(command)
    command.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Build the page."""
    from susd.report.build import report

    paths, out = options.paths, options.out
    if not paths:
        paths, out = sorted(path.parent for path in RESULTS.glob("*/facts.jsonl")), out or RESULTS
    if not paths:
        raise UserError("there are no results in results/; name a run folder, or make results with `susd suite run NAME`")
    print(report(paths, out, options.trust))
    return 0

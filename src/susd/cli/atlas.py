"""`susd atlas RUN`: the page of `susd explore` as one file that opens from disk."""

from __future__ import annotations

import argparse
from pathlib import Path

from susd.cli.common import RUN_HELP, Commands, add_trust, integer, path


def add(commands: Commands) -> None:
    """The command and its options."""
    command = commands.add_parser("atlas", help="write the page of `susd explore` as one file that opens from disk")
    command.add_argument("run", type=path, metavar="RUN", help=RUN_HELP)
    command.add_argument(
        "--beside", type=path, metavar="RUN", help="a second run, shown beside the first with the same skills"
    )
    command.add_argument("--out", type=path, default=Path("atlas.html"), metavar="FILE", help="default: atlas.html")
    command.add_argument("--seed", type=integer, metavar="N", help="which of the run's seeds; default: the first")
    add_trust(command)
    command.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Write the page."""
    from susd.explorer.atlas import atlas

    runs = [options.run] if options.beside is None else [options.run, options.beside]
    page = atlas(runs, options.out, options.seed, quiet=False, trust=options.trust)
    print(f"{page}  ({page.stat().st_size / 1e6:.2f} MB)")
    return 0

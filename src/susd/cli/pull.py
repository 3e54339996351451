"""`susd pull URL_OR_FOLDER`: fetch skills that somebody shares."""

from __future__ import annotations

import argparse

from susd.cli.common import Commands, path


def add(commands: Commands) -> None:
    """The command and its options."""
    command = commands.add_parser("pull", help="fetch skills from an address or a folder")
    command.add_argument("source", metavar="URL_OR_FOLDER", help="where `susd push` put them, or a copy of it")
    command.add_argument("--out", type=path, metavar="DIR", help="folder to make; default: runs/NAME")
    command.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Fetch and check."""
    from susd.share.pull import pull

    print(pull(options.source, options.out))
    return 0

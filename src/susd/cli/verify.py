"""`susd verify FILE.npz`: replay a recording of the original environments and compare."""

from __future__ import annotations

import argparse
import json

from susd.cli.common import Commands, path


def add(commands: Commands) -> None:
    """The command and its options."""
    command = commands.add_parser("verify", help="replay a recording of the original environments and compare")
    command.add_argument("file", type=path, metavar="FILE.npz")
    command.add_argument("--as", dest="as_name", metavar="NAME", help="environment or task; default: from the file's name")
    command.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Replay a recording; the exit code is 1 if it disagrees."""
    from susd.tools import golden

    result = golden.verify(options.file, options.as_name)
    print(json.dumps(result))
    return 0 if golden.agrees(result) else 1

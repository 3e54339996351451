"""`susd skills`: the skills that come with the package."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from susd.cli.common import Commands

if TYPE_CHECKING:
    from susd.share.manifest import Manifest


def add(commands: Commands) -> None:
    """The command and its options."""
    command = commands.add_parser("skills", help="list the skills that come with susd")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """List the skills."""
    from susd.runs.find import shipped
    from susd.runs.tables import Table, format_table
    from susd.share.manifest import read_manifest

    manifests = [read_manifest(folder) for folder in shipped().values()]
    if options.json:
        print(json.dumps([{"name": found.name, **found.about, "bytes": found.size} for found in manifests]))
        return 0
    columns = ("name", "environment", "method", "skill", "cells visited", "control ratio", "steps", "size")
    print(format_table(Table("Skills that come with susd", columns, [_row(found) for found in manifests])))
    print("\nUse a name wherever a RUN is expected:\n  susd evaluate gunner control\n  susd downstream gunner --task unlim")
    print('and in Python: susd.load("gunner")\nResults go to runs/NAME; a folder of yours with that name comes first.')
    return 0


def _row(found: Manifest) -> tuple[str, ...]:
    about = found.about
    return (
        found.name,
        about["env"],
        about["method"],
        f"{len(about['parts'])} x {about['dim']} {about['prior']}",
        f"{100 * about['coverage']:.0f}%" if "coverage" in about else "-",
        f"{about['control_ratio']:.2f}" if "control_ratio" in about else "-",
        f"{about['steps']}",
        f"{found.size / 1000:.0f} kB",
    )

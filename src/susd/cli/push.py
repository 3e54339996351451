"""`susd push RUN FOLDER`: write the skills of a run as a folder to share."""

from __future__ import annotations

import argparse

from susd.cli.common import RUN_HELP, Commands, add_trust, path


def add(commands: Commands) -> None:
    """The command and its options."""
    command = commands.add_parser("push", help="write the skills of a run as a small folder to share")
    command.add_argument("run", type=path, metavar="RUN", help=RUN_HELP)
    command.add_argument("folder", type=path, metavar="FOLDER", help="folder to make; its name is that of the skills")
    command.add_argument("--force", action="store_true", help="replace a skill folder that exists")
    add_trust(command)
    command.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Write the folder, and print its files."""
    from susd.share.manifest import read_manifest
    from susd.share.push import push

    folder = push(options.run, options.folder, options.force, trust=options.trust)
    manifest = read_manifest(folder)
    width = max(len(name) for name in manifest.files)
    print(folder)
    for name, file in manifest.files.items():
        print(f"  {name:{width}}  {file.size / 1000:8.1f} kB")
    print(f"  {'total':{width}}  {manifest.size / 1000:8.1f} kB")
    return 0

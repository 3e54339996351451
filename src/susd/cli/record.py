"""`susd record RUN --episodes N`: episodes of a run's skills as a dataset."""

from __future__ import annotations

import argparse

from susd.cli.common import RUN_HELP, Commands, add_trust, integer, path


def add(commands: Commands) -> None:
    """The command and its options."""
    command = commands.add_parser("record", help="record episodes of a run's skills as a dataset")
    command.add_argument("run", type=path, metavar="RUN", help=RUN_HELP)
    command.add_argument("--episodes", type=integer, required=True, metavar="N", help="episodes, each with a random skill")
    command.add_argument("--format", default="npz", metavar="NAME", help="npz (in the layout of OGBench) or minari [npz]")
    text = "npz: the file, default RUN/dataset.npz; minari: the id of the dataset, default susd/RUN-v0"
    command.add_argument("--out", metavar="NAME", help=text)
    command.add_argument("--seed", type=integer, default=0, metavar="N", help="random seed [0]")
    command.add_argument("--steps", type=integer, default=0, metavar="N", help="steps of an episode; 0: as in training")
    command.add_argument("--mean", action="store_true", help="mean actions; default: sampled ones, as in training")
    command.add_argument("--force", action="store_true", help="replace a dataset that exists")
    add_trust(command)
    command.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Record, and print the path or id."""
    from susd.share.dataset import record

    names = ("episodes", "format", "out", "seed", "steps", "mean", "force", "trust")
    print(record(options.run, **{name: getattr(options, name) for name in names}))
    return 0

"""`susd export RUN`: the policy and phi of a run without JAX."""

from __future__ import annotations

import argparse

from susd.cli.common import RUN_HELP, Commands, add_trust, integer, path


def add(commands: Commands) -> None:
    """The command and its options."""
    command = commands.add_parser("export", help="write the policy of a run as files that need no JAX")
    command.add_argument("run", type=path, metavar="RUN", help=RUN_HELP)
    text = "numpy: policy.npz with a short loader, policy.py; onnx: policy.onnx and phi.onnx [numpy]"
    command.add_argument("--format", default="numpy", metavar="NAME", help=text)
    command.add_argument("--out", type=path, metavar="DIR", help="folder of the files; default: RUN/export")
    command.add_argument("--seed", type=integer, metavar="N", help="which seed of the run; default: its first")
    add_trust(command)
    command.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Write the files, and print their paths."""
    from susd.share.export import export

    print("\n".join(map(str, export(options.run, options.format, options.out, options.seed, trust=options.trust))))
    return 0

"""`susd bench WHAT ENV`: measure the speed of this machine."""

from __future__ import annotations

import argparse
import json

from susd.cli.common import Commands, add_config_options, given, integer, number
from susd.config import configure
from susd.envs import check_name, choices


def add(commands: Commands) -> None:
    """The command and its options."""
    command = commands.add_parser("bench", help="measure the speed of this machine", usage="susd bench WHAT ENV [options]")
    command.add_argument(
        "what", choices=("env", "update", "epoch", "methods"), metavar="WHAT", help="env, update, epoch or methods"
    )
    command.add_argument("env", metavar="ENV", help=f"one of {choices()}")
    command.add_argument("--seconds", type=number, metavar="X", default=10.0, help="time spent measuring")
    command.add_argument(
        "--num-envs",
        type=integer,
        metavar="N",
        help="env: parallel environments [1024; outside JAX: --episodes]",
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    add_config_options(command)
    command.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Measure the speed of this machine."""
    check_name(options.env)
    config = configure(options.env, **given(options))
    from susd.tools import bench

    result = bench.run(options.what, config, options.seconds, options.num_envs)
    print(json.dumps(result) if options.json else bench.format_bench(result))
    return 0

"""`susd check ENV`: whether an environment satisfies its contract."""

from __future__ import annotations

import argparse
import dataclasses
import json

from susd.cli.common import Commands, add_env_option, add_options, given, integer
from susd.config import Config, configure
from susd.envs import check_name, choices
from susd.envs.registry import BUILT_IN

OF_ENV = ("factors", "positions", "landmarks", "horizon")  # options of a run that describe its environment


def add(commands: Commands) -> None:
    """The command and its options."""
    command = commands.add_parser("check", help="check that an environment satisfies its contract")
    command.add_argument("env", metavar="ENV", help=f"one of {choices()}")
    command.add_argument(
        "--steps", type=integer, metavar="N", default=1000, help="random steps, at least one episode [1000]"
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    add_env_option(command)
    add_options(command, (field for field in dataclasses.fields(Config) if field.name in OF_ENV))
    command.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Check an environment; the exit code is 1 if it violates the contract."""
    check_name(options.env)
    config = configure(options.env, **given(options))
    from susd.tools.check import check, format_check
    from susd.tools.isolated import check_isolated

    result = (check if options.env in BUILT_IN else check_isolated)(config, options.steps)
    print(json.dumps(result) if options.json else format_check(result))
    return 0 if result["ok"] else 1

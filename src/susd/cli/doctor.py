"""`susd doctor [ENV]`: examine this machine."""

from __future__ import annotations

import argparse
import json

from susd.cli.common import Commands, add_config_options, add_devices, given
from susd.config import configure
from susd.envs import check_name, choices


def add(commands: Commands) -> None:
    """The command and its options."""
    command = commands.add_parser(
        "doctor", help="device, versions, memory and a short benchmark", usage="susd doctor [ENV] [options]"
    )
    command.add_argument(
        "env", nargs="?", default="gunner", metavar="ENV", help=f"environment of the run to size: one of {choices()}"
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    add_devices(command)
    add_config_options(command)
    command.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Examine this machine."""
    check_name(options.env)
    config = configure(options.env, **given(options))
    from susd.tools import doctor
    from susd.training.devices import find_devices

    result = doctor.examine(config, find_devices(options.devices))
    print(json.dumps(result) if options.json else doctor.format_doctor(result))
    return 0

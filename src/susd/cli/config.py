"""`susd config ENV`: every option that a run will use, its value, the layer that decides it, and its meaning."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping

from susd.cli.common import Commands, add_config_options, flag_of, format_value, given
from susd.config import GROUPS, Setting, resolve
from susd.envs import check_name, choices


def add(commands: Commands) -> None:
    """The command and its options."""
    command = commands.add_parser(
        "config", help="print every option of a run and where its value comes from", usage="susd config ENV [options]"
    )
    command.add_argument("env", metavar="ENV", help=f"one of {choices()}")
    command.add_argument("--json", action="store_true", help="print JSON")
    add_config_options(command)
    command.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Print the options of a run."""
    check_name(options.env)
    settings = resolve(options.env, **given(options))
    used = {name: setting for name, setting in settings.items() if setting.used}
    if options.json:
        print(json.dumps({name: {"value": s.value, "layer": s.layer, "help": s.help} for name, s in used.items()}))
    else:
        print(format_settings(used))
    return 0


def format_settings(settings: Mapping[str, Setting]) -> str:
    """The settings in groups, one per line: option, value, layer, meaning."""
    values = {name: format_value(setting.value) for name, setting in settings.items()}
    width = max(map(len, values.values()))
    lines: list[str] = []
    for name, setting in settings.items():
        if name in GROUPS:
            lines += ["", GROUPS[name]]
        lines.append(f"  {flag_of(name):20}  {values[name]:{width}}  {setting.layer:11}  {setting.help}")
    return "\n".join(lines[1:])

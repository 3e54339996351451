"""What the commands share: the parser, options generated from config dataclasses, formatting, exit codes."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

from susd.config import Config
from susd.errors import UserError, shown
from susd.paths import user_path

USER_ERROR, NON_FINITE, INTERRUPTED = 2, 3, 130  # exit codes
MOST_MESSAGE = 400  # characters of what a parser says, which repeats what was typed
SPECIAL = {"env": "ENV", "env_options": "--env-option"}  # options of a Config that have another form on the command line

RUN_HELP = "a run folder, or a name of `susd skills`"

Commands = Any  # the type of argparse's subparsers is private


class Parser(argparse.ArgumentParser):
    """A parser that reports a mistake in one sentence, without the usage text."""

    def error(self, message: str) -> NoReturn:
        """Print the mistake and how to get help, and exit."""
        message = " ".join(message.split())
        message = message if len(message) <= MOST_MESSAGE else f"{message[:MOST_MESSAGE]} .."
        self.exit(USER_ERROR, f"susd: error: {message}; see {self.prog} --help\n")


def integer(text: str) -> int:
    """The type of options that are integers."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not an integer, or has too many digits") from None


def number(text: str) -> float:
    """The type of options that are finite numbers."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a finite number")
    return value


def path(text: str) -> Path:
    """The type of options that are folders or files."""
    try:
        return user_path("the path", text)
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


_TYPES: dict[type, tuple[Callable[[str], Any], str]] = {int: (integer, "N"), float: (number, "X"), str: (str, "NAME")}


def add_options(
    group: argparse._ActionsContainer, fields: Iterable[dataclasses.Field[Any]], required: tuple[str, ...] = ()
) -> None:
    """One flag for each field of a config dataclass; flags that are not given are absent from the namespace."""
    for field in fields:
        kind, rule = type(field.default), field.metadata
        text = rule["help"] + (f" ({' | '.join(rule['choices'])})" if rule["choices"] else "")
        extra: dict[str, Any] = {"action": argparse.BooleanOptionalAction}
        if kind is not bool:
            extra = dict(zip(("type", "metavar"), _TYPES[kind], strict=True))
        group.add_argument(
            flag_of(field.name), default=argparse.SUPPRESS, help=text, required=field.name in required, **extra
        )


def add_trust(command: argparse.ArgumentParser) -> None:
    """The flag `--trust`."""
    command.add_argument(
        "--trust", action="store_true", help="allow to run the code that the run names (FILE.py:NAME, gymnasium:MODULE:ID)"
    )


def add_devices(command: argparse.ArgumentParser) -> None:
    """The flag `--devices`."""
    command.add_argument(
        "--devices", metavar="N", help="devices that the seeds or the batches of the run are split over: a number, or all"
    )


def add_env_option(group: argparse._ActionsContainer) -> None:
    """The flag `--env-option NAME=VALUE`."""
    group.add_argument(
        "--env-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="option of the environment, e.g. layout=random or start=0; of your own environment: its keyword arguments and "
        "parallel=threads|processes|none; may be repeated",
    )


def add_config_options(command: argparse.ArgumentParser) -> None:
    """A flag for every option of a run."""
    group = command.add_argument_group("options of the run (default: the preset's)")
    add_env_option(group)
    add_options(group, (field for field in dataclasses.fields(Config) if field.name not in SPECIAL))


def given(options: argparse.Namespace) -> dict[str, Any]:
    """The options of a run that were given on the command line."""
    names = {field.name for field in dataclasses.fields(Config)} - SPECIAL.keys()
    changes = {name: value for name, value in vars(options).items() if name in names}
    env_options: dict[str, Any] = {}
    for text in options.env_option:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UserError(f"--env-option {shown(text)} is not of the form NAME=VALUE")
        env_options[name] = _scalar(value)
    return {**changes, **({"env_options": env_options} if env_options else {})}


def flag_of(name: str) -> str:
    """An option of a run as it is written on the command line."""
    return SPECIAL.get(name, "--" + name.replace("_", "-"))


def format_value(value: Any) -> str:
    """The value of an option for a table; None stands for an option that has no effect."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return " ".join(f"{name}={item}" for name, item in value.items()) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value) or '""'


def _scalar(text: str) -> Any:
    """The number or boolean that the text stands for, otherwise the text itself."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)) else text

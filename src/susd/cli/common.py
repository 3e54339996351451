"""What the commands share: the parser, options made from config dataclasses, exit codes."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from susd.config import Config
from susd.errors import UserError

USER_ERROR, NON_FINITE, INTERRUPTED = 2, 3, 130  # exit codes
SPECIAL = ("env", "env_options")  # options of a Config that the command line writes in another form

Commands = Any  # argparse's private type of a set of subparsers


class Parser(argparse.ArgumentParser):
    """A parser that answers a mistake with one sentence instead of a screen of usage."""

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and where the help is."""
        self.exit(USER_ERROR, f"susd: error: {message}; see {self.prog} --help\n")


def integer(text: str) -> int:
    """The type of options that are integers."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer") from None


def number(text: str) -> float:
    """The type of options that are finite numbers."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number")
    return value


_TYPES: dict[type, tuple[Callable[[str], Any], str]] = {int: (integer, "N"), float: (number, "X"), str: (str, "NAME")}


def add_options(
    group: argparse._ActionsContainer, fields: Iterable[dataclasses.Field[Any]], required: tuple[str, ...] = ()
) -> None:
    """One flag for each field of a config dataclass; one that is not given stays out of the namespace."""
    for field in fields:
        kind, rule = type(field.default), field.metadata
        text = rule["help"] + (f" ({' | '.join(rule['choices'])})" if rule["choices"] else "")
        extra: dict[str, Any] = {"action": argparse.BooleanOptionalAction}
        if kind is not bool:
            extra = dict(zip(("type", "metavar"), _TYPES[kind], strict=True))
        flag = "--" + field.name.replace("_", "-")
        group.add_argument(flag, default=argparse.SUPPRESS, help=text, required=field.name in required, **extra)


def add_env_option(group: argparse._ActionsContainer) -> None:
    """`--env-option NAME=VALUE`."""
    group.add_argument(
        "--env-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="option of the environment, e.g. layout=random, start=0; for your own environment also its keyword arguments, "
        "horizon=N and parallel=threads|processes|none; may be repeated",
    )


def add_config_options(command: argparse.ArgumentParser) -> None:
    """Every option of a run."""
    group = command.add_argument_group("options of the run (default: the preset's)")
    add_env_option(group)
    add_options(group, (field for field in dataclasses.fields(Config) if field.name not in SPECIAL))


def given(options: argparse.Namespace) -> dict[str, Any]:
    """The options of a run that were given."""
    names = {field.name for field in dataclasses.fields(Config)} - set(SPECIAL)
    changes = {name: value for name, value in vars(options).items() if name in names}
    env_options: dict[str, Any] = {}
    for text in options.env_option:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UserError(f"--env-option {text!r} is not of the form NAME=VALUE")
        env_options[name] = _scalar(value)
    return {**changes, **({"env_options": env_options} if env_options else {})}


def _scalar(text: str) -> Any:
    """A number or a boolean where the text is one, else the text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)) else text

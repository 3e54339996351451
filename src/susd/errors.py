"""Errors for the user to fix, and exceptions of user code formatted in one line."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path
from typing import Any

SHOWN = 80  # characters of a value in a message


class UserError(ValueError):
    """Invalid input: the message names the thing, its value and what is allowed. The command line exits with code 2."""


def shown(value: Any) -> str:
    """A value in a message: its repr, shortened where it is long."""
    if isinstance(value, int) and value.bit_length() > 256:  # Python refuses to print very long ones
        return f"an integer of about {round(value.bit_length() * 0.30103)} digits"
    try:
        text = repr(value)
    except Exception:  # user code may be behind it
        text = f"an object of type {type(value).__name__}"
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 20]} .. ({len(text)} characters)"


def format_exception(error: BaseException) -> str:
    """An exception in one line: the first line of its message, and the last line of user code in its traceback."""
    installed = (Path(__file__).parent, *(Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")))
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<") and not any(Path(frame.filename).is_relative_to(f) for f in installed)
    ]
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    if isinstance(error, SyntaxError):
        where = f" ({error.filename}:{error.lineno})"
    return f"{headline(error)}{where}"


def headline(error: BaseException) -> str:
    """The type of an exception and the first line of its message."""
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return ": ".join([type(error).__name__, *message.strip().splitlines()[:1]])

"""Errors that are the user's to mend, and how the exceptions of somebody's own code are told."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path


class UserError(ValueError):
    """Bad input: the message names the thing, its value and what is allowed. The command line exits with 2."""


def format_exception(error: BaseException) -> str:
    """An exception in one line: the first of its message, and the last place in somebody's own code that led to it."""
    installed = (Path(__file__).parent, *(Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")))
    theirs = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<") and not any(Path(frame.filename).is_relative_to(f) for f in installed)
    ]
    place = f" ({theirs[-1].filename}:{theirs[-1].lineno})" if theirs else ""
    if isinstance(error, SyntaxError):
        place = f" ({error.filename}:{error.lineno})"
    return f"{headline(error)}{place}"


def headline(error: BaseException) -> str:
    """The kind of an exception and the first line of what it says."""
    said = error.msg if isinstance(error, SyntaxError) else str(error)
    return ": ".join([type(error).__name__, *said.strip().splitlines()[:1]])

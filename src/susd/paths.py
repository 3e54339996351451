"""Paths that a user gives: checked before anything is read or written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from susd.errors import UserError, shown

NAME_BYTES, PATH_BYTES = 255, 3800  # of one name, as file systems allow; of a whole path, with room for files inside


def user_path(what: str, value: Any) -> Path:
    """The path that a value names; a UserError, which calls it `what`, if it cannot be one."""
    if not isinstance(value, str | os.PathLike) or not isinstance(text := os.fspath(value), str):
        raise UserError(f"{what} is {shown(value)}; it must be a path, as text")
    if not text.strip():
        raise UserError(f"{what} is {text!r}; it must name a folder or file")
    try:
        size, longest = len(os.fsencode(text)), max(len(os.fsencode(part)) for part in text.split(os.sep))
    except UnicodeEncodeError:
        raise UserError(f"{what} is {shown(text)}; it has characters that no path can have") from None
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in text):
        raise UserError(f"{what} is {shown(text)}; a path cannot have control characters")
    if longest > NAME_BYTES:
        raise UserError(f"{what} has a name of {longest} bytes, {shown(text)}; a name has at most {NAME_BYTES}")
    if size > PATH_BYTES:
        raise UserError(f"{what} has {size} bytes, {shown(text)}; a path has at most {PATH_BYTES}")
    return Path(text)


def short_name(text: str, most: int = 80) -> str:
    """A name for a folder, shortened where what it is made of is long."""
    return text if len(os.fsencode(text)) <= most else os.fsencode(text)[:most].decode(errors="ignore")

"""Files from others: every JSON, JSON-lines and TOML file is read here, with limits, and is data until it was checked.

Whatever a file holds, reading it gives a value that is safe to use (bounded size and depth, finite numbers, valid text) or
a UserError that names the file and what is wrong. Imports neither JAX nor numpy.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import stat
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Any

from susd.errors import UserError, headline

MAX_BYTES = 32 * 2**20  # of a document
MAX_LINES_BYTES, MAX_LINE, MAX_LINES, MAX_VALUES = 2**30, 4 * 2**20, 10**6, 10**7  # of a file of lines
CHUNK = 2**20  # bytes that are read at once
MAX_DEPTH = 32
MAX_TOML_BYTES, MAX_DOTS = 2**18, 200  # of a TOML file, and of one of its lines: long dotted keys take quadratic time
MAX_INTEGER = 2**63 - 1

Kinds = Mapping[str, type | tuple[type, ...]]


class MalformedError(UserError):
    """Text that is no JSON at all, such as a line that was cut off."""


@contextlib.contextmanager
def opened(path: Path, limit: int) -> Iterator[BufferedReader]:
    """A regular file of at most `limit` bytes; never a pipe or a device, on which reading could wait for ever."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError as error:
        raise UserError(f"there is no file {path}") from error
    except (OSError, ValueError) as error:  # a ValueError for a path with a zero byte
        raise UserError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    try:
        with open(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise UserError(f"cannot read {path}: it is not a file")
            if found.st_size > limit:
                raise UserError(f"cannot read {path}: it has {found.st_size} bytes; at most {limit} are read")
            yield file
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error


def read_bytes(path: Path, limit: int = MAX_BYTES) -> bytes:
    """The content of a file."""
    with opened(path, limit) as file:
        return file.read(limit)


def read_text(path: Path, limit: int = MAX_BYTES) -> str:
    """The content of a text file; bytes that are no text are replaced."""
    return read_bytes(path, limit).decode("utf-8", errors="replace")


def read_json(path: Path) -> Any:
    """The value in a JSON file."""
    return parse_json(read_bytes(path), str(path))


def read_object(path: Path, kinds: Kinds | None = None) -> dict[str, Any]:
    """The object in a JSON file, with members of these types."""
    value = read_json(path)
    check_object(value, str(path), kinds or {})
    return dict(value)


def parse_json(content: bytes, where: str) -> Any:
    """The value of JSON text: each name once in an object, all numbers finite, no deeper than MAX_DEPTH."""
    try:
        value = _DECODER.decode(content.decode("utf-8"))
    except RecursionError:
        raise UserError(f"{where} is nested too deeply; at most {MAX_DEPTH} levels are read") from None
    except ValueError as error:
        kind = MalformedError if isinstance(error, json.JSONDecodeError | UnicodeDecodeError) else UserError
        raise kind(f"{where} is not valid JSON: {error}") from None
    check_value(value, where)
    return value


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file with their numbers and ends; empty ones are left out, the last may be incomplete."""
    with opened(path, MAX_LINES_BYTES) as file:
        if sum(chunk.count(b"\n") for chunk in iter(partial(file.read, CHUNK), b"")) > MAX_LINES:  # before any is parsed
            raise UserError(f"cannot read {path}: it has more than {MAX_LINES} lines")
        file.seek(0)
        number = 0
        while line := file.readline(MAX_LINE + 1):
            number += 1
            if len(line) > MAX_LINE:
                raise UserError(f"cannot read {path}: line {number} has more than {MAX_LINE} bytes")
            if line != b"\n":
                yield number, line


def read_toml(path: Path) -> tuple[str, dict[str, Any]]:
    """The text of a TOML file and its content."""
    content = read_bytes(path, MAX_TOML_BYTES)
    try:
        text = content.decode("utf-8")
        return text, parse_toml(text, str(path))
    except UnicodeDecodeError:
        raise UserError(f"{path} is not valid TOML: it is not UTF-8") from None


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """The content of TOML text."""
    if any(line.count(".") > MAX_DOTS for line in text.split("\n")):
        raise UserError(f"{where} has a line with more than {MAX_DOTS} dots")
    try:
        value = tomllib.loads(text)
    except RecursionError:
        raise UserError(f"{where} is nested too deeply; at most {MAX_DEPTH} levels are read") from None
    except ValueError as error:
        raise UserError(f"{where} is not valid TOML: {error}") from None
    check_value(value, where)
    return value


def check_value(value: Any, where: str) -> None:
    """Refuse what is nested too deeply, numbers that are not finite, and text that is not Unicode."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        inner: list[Any] = []
        for entry in level:
            kind = type(entry)
            if kind is dict:
                inner += entry
                inner += entry.values()
            elif kind is list:
                inner += entry
            elif not _is_plain(entry):
                raise UserError(f"{where} holds {describe(entry)}: {_REASONS.get(kind, 'it is no value of JSON')}")
        if not inner:
            return
        level = inner
    raise UserError(f"{where} is nested too deeply; at most {MAX_DEPTH} levels are read")


def check_object(value: Any, where: str, kinds: Kinds) -> None:
    """Refuse what is not an object, or lacks a member or has it with another type; a bool is no number."""
    if not isinstance(value, dict):
        raise UserError(f"{where} holds {describe(value)}; it must hold an object")
    for name, kind in kinds.items():
        if name not in value:
            raise UserError(f"{where} has no {name!r}")
        accepted = kind if isinstance(kind, tuple) else (kind,)
        found = value[name]
        if not isinstance(found, accepted) or (isinstance(found, bool) and bool not in accepted):
            raise UserError(f"{where} has the {name} {describe(found)}; it must be {_KINDS[accepted[0]]}")


@contextlib.contextmanager
def interpreting(path: Path | str, what: str) -> Iterator[None]:
    """Say which file is wrong when its content, valid JSON of any form, is not what the code that uses it expects."""
    try:
        yield
    except UserError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        reason = "".join(letter if letter.isprintable() else "?" for letter in headline(error))
        raise UserError(f"{path} does not hold {what}: {reason[:300]}") from error


def describe(value: Any) -> str:
    """A short form of a value for a sentence."""
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        return "an integer of more than 64 bits"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


_REASONS = {
    float: "it is not a finite number",
    int: f"integers go up to {MAX_INTEGER}",
    str: "it is not Unicode text",
}
_KINDS = {int: "an integer", float: "a number", str: "a text", dict: "an object", list: "a list", bool: "true or false"}


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a finite number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise ValueError(f"the name {describe(counts.most_common(1)[0][0])} is there twice")
    return found


def _is_plain(value: Any) -> bool:
    """Whether a value that is neither a list nor an object can be used and printed."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, str):
        return value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)
    return value is None or (isinstance(value, int) and abs(value) <= MAX_INTEGER)


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_unique)

"""Files that are written completely or not at all. No other module writes files atomically."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from susd.errors import UserError


def write_json(path: Path, obj: Any) -> None:
    """Write a JSON file."""
    write_text(path, json.dumps(obj, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8, with the line ends as they are."""
    with replace_file(path) as temporary:
        temporary.write_bytes(text.encode())


def _message(error: OSError) -> str:
    return error.strerror or str(error)


@contextmanager
def replace_file(path: Path, reason: Callable[[OSError], str] = _message) -> Iterator[Path]:
    """A temporary file in the folder of `path`; it replaces `path` if the block succeeds and is deleted if it does not.

    An OSError becomes a UserError, which names the path and the `reason`.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            _sync(temporary, os.O_RDWR)
            os.replace(temporary, path)
            _sync(path.parent, os.O_RDONLY)  # so that the new name survives a power failure, too
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"cannot write {path}: {reason(error)}") from error


def _sync(path: Path, mode: int) -> None:
    descriptor = os.open(path, mode)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def new_folder(path: Path, replace: bool = False) -> Iterator[Path]:
    """A temporary folder beside `path`; it becomes `path` if the block succeeds and is deleted if it does not.

    A folder that exists is a UserError, unless it is empty or `replace` is set.
    """
    path = Path(path)
    temporary, old = (path.with_name(f".{path.name}.{os.getpid()}.{kind}") for kind in ("tmp", "old"))
    if not replace and (path.is_file() or (path.is_dir() and any(path.iterdir()))):
        raise UserError(f"{path} already exists; delete it or choose another folder")
    try:
        temporary.mkdir(parents=True)
        try:
            yield temporary
            if replace and path.exists():
                os.replace(path, old)
            os.replace(temporary, path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            if old.exists() and not path.exists():
                os.replace(old, path)
            shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise UserError(f"cannot write {path}: {_message(error)}") from error

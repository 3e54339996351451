"""Extensions from outside the package: entry points of installed packages, and objects in a Python file (FILE.py:NAME).

A package registers methods, environments, tasks and evaluations under the entry-point groups `susd.methods`,
`susd.environments`, `susd.tasks` and `susd.evaluations`; the name of the entry point is the name on the command line.
Code that is not installed runs when the user names it. A name that comes from a file of someone else has to be trusted.
Imports no JAX.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Collection, Iterable
from functools import cache, lru_cache
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from susd.errors import UserError, format_exception
from susd.paths import user_path

Trust = bool | Collection[str]  # whether to run all code that a run names, or the names that may be run
GYMNASIUM = "gymnasium:"  # before the ID of an environment, and before MODULE:ID
KINDS = ("methods", "environments", "tasks", "evaluations")
_running: set[tuple[str, str]] = set()  # names whose code this process has imported


@cache
def registered(kind: str) -> dict[str, importlib.metadata.EntryPoint]:
    """The entry points of one of KINDS by name, without importing them."""
    return {entry.name: entry for entry in importlib.metadata.entry_points(group=f"susd.{kind}")}


def load(kind: str, name: str) -> Any:
    """The object that a package registered under a name."""
    entry = registered(kind)[name]
    try:
        with stdout_to_stderr():
            return entry.load()
    except (Exception, SystemExit) as error:
        raise UserError(f"entry point {name!r} of susd.{kind} cannot be imported: {format_exception(error)}") from error


def load_object(path: str) -> Any:
    """The object that module:name names."""
    module, _, name = path.partition(":")
    try:
        with stdout_to_stderr():
            return attrgetter(name)(import_module(module))
    except (Exception, SystemExit) as error:
        raise UserError(f"{path} cannot be imported: {format_exception(error)}") from error


def is_file(name: str) -> bool:
    """Whether a name has the form FILE.py:NAME; a missing file is a UserError."""
    path, colon, attribute = name.rpartition(":")
    if name.endswith(".py") or (colon and path.endswith(".py") and not attribute):
        raise UserError(f"{name!r} names a file but no object in it; write FILE.py:NAME, for example my_env.py:make")
    if not colon or not path.endswith(".py"):
        return False
    if not user_path("the file", path).is_file():
        raise UserError(f"file {path!r} does not exist: looked for {Path(path).absolute()} from folder {Path.cwd()}")
    return True


def code_of(name: str) -> str:
    """The file or module whose code a name runs, in words; empty for installed names and for a file that does not exist."""
    path, _, _ = name.removeprefix(GYMNASIUM).rpartition(":")
    if name.startswith(GYMNASIUM):
        return f"the module {path!r}" if path else ""
    path = name if name.endswith(".py") else path
    return f"the file {str(Path(path).absolute())!r}" if path.endswith(".py") and os.path.isfile(path) else ""


def check_trust(names: Iterable[str], trust: Trust, source: str) -> None:
    """Refuse to import the code of names from a `source` unless it is trusted, or was named and runs here already."""
    trusted = [] if isinstance(trust, bool) else trust
    for name in names:
        known = same_name(name) in _running or any(same_name(name) == same_name(other) for other in trusted)
        if trust is not True and not known and (code := code_of(name)):
            raise UserError(
                f"{source} names {name!r}: using it would run the code of {code}; "
                "if you trust that code, add --trust (in Python trust=True)"
            )


def also(trust: Trust, *names: str | None) -> Trust:
    """What is trusted, and these names in addition."""
    more = [name for name in names if name]
    return trust or more if isinstance(trust, bool) else [*trust, *more]


def same_name(name: str) -> tuple[str, str]:
    """Equal for names of the same thing: those of files are compared by path."""
    path, _, attribute = name.rpartition(":")
    return (str(Path(path).resolve()), attribute) if path.endswith(".py") else ("", name)


def runs_here(name: str) -> None:
    """Note that this process has imported the code of a name, which needs no consent from then on."""
    _running.add(same_name(name))


def load_file(name: str) -> Any:
    """The object NAME of FILE.py:NAME. The file is imported again only after it was changed."""
    path, _, attribute = name.rpartition(":")
    file = Path(path).resolve()
    module = _imported(file, path, file.stat().st_mtime_ns)
    if (found := getattr(module, attribute, None)) is None:
        public = {key: value for key, value in vars(module).items() if not key.startswith("_")}
        own = [key for key, value in public.items() if getattr(value, "__module__", "") == module.__name__]
        raise UserError(f"{path} has no object named {attribute!r}; it defines: {', '.join(own) or 'nothing'}")
    runs_here(name)
    return found


def stdout_to_stderr() -> contextlib.redirect_stdout[Any]:
    """Send what user code prints to stderr, so that it does not mix with results."""
    return contextlib.redirect_stdout(sys.stderr)


@lru_cache(maxsize=16)
def _imported(file: Path, shown: str, changed: int) -> ModuleType:
    """The file as a module. It can import other files in its folder."""
    del changed
    import susd.envs.mujoco  # noqa: F401 (chooses how MuJoCo draws, before the file imports it)

    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    name = f"susd_file_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        with stdout_to_stderr():
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise UserError(f"{shown} cannot be imported: {format_exception(error)}") from error
    return module

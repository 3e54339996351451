"""Where an environment of one's own comes from: `gymnasium:ID`, or `FILE.py:NAME`, a factory in a Python file.

Worker processes read this too, so it imports no JAX.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import susd.envs.mujoco  # noqa: F401 (chooses how MuJoCo draws, before somebody's file imports it)
from susd.errors import UserError, format_exception

PREFIX = "gymnasium:"


@dataclass(frozen=True)
class Source:
    """The name of an environment of one's own and the keyword arguments it is made with; it can be sent to a process."""

    name: str
    arguments: dict[str, Any]

    def factory(self) -> Callable[..., Any]:
        """What makes the environment, given `arguments`; a file is imported here."""
        return _gymnasium_factory(self.name.removeprefix(PREFIX)) if is_gymnasium(self.name) else _from_file(self.name)

    def creator(self) -> Callable[[], Any]:
        """The factory with its arguments; drawing is asked for where it can be. What it raises names the environment."""
        factory = self.factory()
        arguments = {**_drawing(factory), **self.arguments}

        def create() -> Any:
            try:
                with stdout_to_stderr():
                    return factory(**arguments)
            except UserError:
                raise
            except (Exception, SystemExit) as error:
                raise UserError(f"{self.name} cannot be made: {format_exception(error)}") from error

        return create


def is_gymnasium(name: str) -> bool:
    """Whether a name is that of an environment registered with Gymnasium."""
    return name.startswith(PREFIX)


def check_own(name: str) -> bool:
    """Whether a name has one of the two forms; one that names nothing is refused."""
    if is_gymnasium(name):
        if name == PREFIX:
            raise UserError("'gymnasium:' names no environment; write gymnasium:ID, for example gymnasium:Reacher-v5")
        return True
    path, colon, attribute = name.rpartition(":")
    if name.endswith(".py") or (colon and path.endswith(".py") and not attribute):
        raise UserError(f"{name!r} names a file but nothing in it; write FILE.py:NAME, for example my_env.py:make")
    if not colon or not path.endswith(".py"):
        return False
    if not Path(path).is_file():
        raise UserError(f"there is no file {path!r}: looked for {Path(path).absolute()}, from the folder {Path.cwd()}")
    return True


def spec_of(identifier: str) -> Any:
    """The registration of a Gymnasium environment; an unknown one is refused with those that are spelled alike."""
    import gymnasium

    module, _, plain = identifier.rpartition(":")
    try:
        with stdout_to_stderr():
            importlib.import_module(module or "gymnasium")  # it registers its environments
    except (Exception, SystemExit) as error:
        raise UserError(
            f"the module {module!r} of {PREFIX}{identifier} cannot be imported: {format_exception(error)}"
        ) from error
    try:
        return gymnasium.spec(plain)
    except (gymnasium.error.Error, ImportError) as error:
        known = sorted(gymnasium.registry)
        near = difflib.get_close_matches(plain, known, 4, 0.5)
        hint = f"do you mean {' or '.join(near)}?" if near else f"there are {len(known)}, such as Reacher-v5, Ant-v5"
        raise UserError(f"Gymnasium does not know {plain!r} ({str(error).rstrip('.')}); {hint}") from None


def stdout_to_stderr() -> contextlib.redirect_stdout[Any]:
    """What somebody's code prints does not mix with results: it goes to stderr."""
    return contextlib.redirect_stdout(sys.stderr)


def _gymnasium_factory(identifier: str) -> Callable[..., Any]:
    """`gymnasium.make` without its time limit, which is the collector's business, and without its own checks."""
    import gymnasium

    registered = spec_of(identifier)

    def make(**arguments: Any) -> Any:
        return gymnasium.make(registered, max_episode_steps=-1, disable_env_checker=True, **arguments)

    try:
        entry = registered.entry_point
        creator = gymnasium.envs.registration.load_env_creator(entry) if isinstance(entry, str) else entry
    except Exception as error:  # a package that is missing, for instance
        raise UserError(f"{PREFIX}{identifier} cannot be imported: {format_exception(error)}") from error
    make.metadata = getattr(creator, "metadata", {})  # type: ignore[attr-defined]
    return make


def _drawing(factory: Callable[..., Any]) -> dict[str, str]:
    """`render_mode` for what takes it, unless its metadata say that it cannot draw into an array."""
    metadata, parameters = getattr(factory, "metadata", None), inspect.signature(factory).parameters
    takes = "render_mode" in parameters
    if metadata is not None:
        wild = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        takes = (takes or wild) and "rgb_array" in (metadata.get("render_modes") or ())
    return {"render_mode": "rgb_array"} if takes else {}


def _from_file(name: str) -> Callable[..., Any]:
    path, _, attribute = name.rpartition(":")
    file = Path(path).resolve()
    module = _imported(file, path, file.stat().st_mtime_ns)
    if not callable(found := getattr(module, attribute, None)):
        own = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        names = [key for key in own if callable(getattr(module, key)) and not key.startswith("_")]
        what = "nothing named" if found is None else "no function or class"
        raise UserError(f"{path} has {what} {attribute!r}; it has: {', '.join(names) or 'no functions or classes'}")
    factory: Callable[..., Any] = found
    return factory


@lru_cache(maxsize=8)
def _imported(file: Path, shown: str, changed: int) -> ModuleType:
    """The file as a module, read once until it is changed; files beside it can be imported from it."""
    del changed
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    name = f"susd_own_{file.stem}"
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

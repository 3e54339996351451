"""From the name of a user-defined environment to the environment: functional, host or Gymnasium.

A name is `gymnasium:ID`, `FILE.py:NAME` or that of an entry point. Worker processes import this module: it imports no JAX.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import susd.envs.mujoco  # noqa: F401 (chooses how MuJoCo renders, before user code imports it)
from susd.envs.registry import env_entry
from susd.errors import UserError, format_exception
from susd.plugins import GYMNASIUM as PREFIX
from susd.plugins import is_file, load_file, load_object, runs_here, stdout_to_stderr

if TYPE_CHECKING:
    from susd.envs.base import Environment, HostEnvironment

ADAPTER = ("horizon", "parallel", "factors", "positions", "landmarks")  # options of GymnasiumVector, not of the environment


@dataclass(frozen=True)
class Source:
    """A user-defined environment by name, with its keyword arguments. It can be sent to a worker process."""

    name: str
    arguments: dict[str, Any]
    path: str = ""  # module:name of a registered environment's class or factory

    def factory(self) -> Callable[..., Any]:
        """The class or function that makes the environment."""
        if is_gymnasium(self.name):
            return _gymnasium_factory(self.name.removeprefix(PREFIX))
        factory: Callable[..., Any] = load_object(self.path) if self.path else load_file(self.name)
        if not callable(factory):
            raise UserError(f"{self.name} is a {type(factory).__name__}; it must be a class or function that makes one")
        return factory

    def creator(self) -> Callable[[], Any]:
        """The factory with its arguments, rendering where it can. Exceptions name the environment."""
        factory = self.factory()
        arguments = {**_render_mode(factory), **self.arguments}

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


def check(name: str) -> bool:
    """Whether a name has the form gymnasium:ID or FILE.py:NAME; an incomplete one is a UserError."""
    if name == PREFIX:
        raise UserError(f"{PREFIX!r} names no environment; write gymnasium:ID, for example gymnasium:Reacher-v5")
    return is_gymnasium(name) or is_file(name)


def make(name: str, num_envs: int | None, options: dict[str, Any]) -> Environment | HostEnvironment:
    """A Gymnasium environment as a batch, or the functional or host environment that the factory makes."""
    import gymnasium

    from susd.envs.base import EnvSpec, is_environment
    from susd.envs.gymnasium.adapter import GymnasiumVector
    from susd.envs.vector import is_functional

    source, ours = _source(name, num_envs, options)
    made = source.creator()()
    if isinstance(made, gymnasium.Env):
        if num_envs is not None:
            ours["num_envs"] = num_envs
        try:
            return GymnasiumVector(source, made, **ours)
        finally:
            with suppress(Exception):  # this example was needed for its spaces only
                made.close()
    if isinstance(made, gymnasium.vector.VectorEnv) or not is_environment(made):
        raise UserError(f"{name} makes {_describe(made)}")
    for option in ours.keys() - source.arguments.keys():
        kind = "functional" if is_functional(made) else "host"
        raise UserError(
            f"option {option!r} is {ours[option]!r}, but {name} is a {kind} environment without a parameter of that name; "
            "its factors, positions, landmarks and horizon are in its spec"
        )
    if not isinstance(made.spec, EnvSpec):
        raise UserError(f"the spec of {name} is a {type(made.spec).__name__}; it must be a susd.extend.EnvSpec")
    return made


def takes_horizon(name: str) -> bool:
    """Whether the factory of a user-defined environment has a parameter `horizon` of its own."""
    entry = env_entry(name)
    source = Source(name, {}, entry.source if entry else "")
    return not is_gymnasium(name) and "horizon" in inspect.signature(source.factory()).parameters


def find_registration(identifier: str) -> Any:
    """The registration of a Gymnasium environment; the error for an unknown one lists similar names."""
    import gymnasium

    module, _, plain = identifier.rpartition(":")
    try:
        with stdout_to_stderr():
            importlib.import_module(module or "gymnasium")  # it registers its environments
    except (Exception, SystemExit) as error:
        raise UserError(
            f"module {module!r} of {PREFIX}{identifier} cannot be imported: {format_exception(error)}"
        ) from error
    runs_here(f"{PREFIX}{identifier}")
    try:
        return gymnasium.spec(plain)
    except (gymnasium.error.Error, ImportError) as error:
        known = sorted(gymnasium.registry)
        near = difflib.get_close_matches(plain, known, 4, 0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"it has {len(known)}, such as Reacher-v5 and Ant-v5"
        raise UserError(f"Gymnasium has no environment {plain!r} ({str(error).rstrip('.')}); {hint}") from None


def _gymnasium_factory(identifier: str) -> Callable[..., Any]:
    """`gymnasium.make` without its time limit, which the collector applies, and without its own checks."""
    import gymnasium

    registration = find_registration(identifier)

    def make(**arguments: Any) -> Any:
        return gymnasium.make(registration, max_episode_steps=-1, disable_env_checker=True, **arguments)

    try:
        entry = registration.entry_point
        creator = gymnasium.envs.registration.load_env_creator(entry) if isinstance(entry, str) else entry
    except Exception as error:  # for instance a missing package
        raise UserError(f"{PREFIX}{identifier} cannot be imported: {format_exception(error)}") from error
    make.metadata = getattr(creator, "metadata", {})  # type: ignore[attr-defined]
    return make


def _render_mode(factory: Callable[..., Any]) -> dict[str, str]:
    """`render_mode` for factories that take it, unless their metadata exclude rendering into an array."""
    metadata, parameters = getattr(factory, "metadata", None), inspect.signature(factory).parameters
    takes = "render_mode" in parameters
    if metadata is not None:
        takes = (takes or _takes_any(parameters)) and "rgb_array" in (metadata.get("render_modes") or ())
    return {"render_mode": "rgb_array"} if takes else {}


def _takes_any(parameters: Any) -> bool:
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())


def _source(name: str, num_envs: int | None, options: dict[str, Any]) -> tuple[Source, dict[str, Any]]:
    """The options split into those of the environment, which come first, and those of the adapter."""
    entry = env_entry(name)
    path = entry.source if entry else ""
    if is_gymnasium(name):
        theirs, any_option = set(options) - set(ADAPTER), True
    else:
        parameters = inspect.signature(Source(name, {}, path).factory()).parameters
        theirs, any_option = set(parameters), _takes_any(parameters)
    arguments = {key: value for key, value in options.items() if key in theirs or (any_option and key not in ADAPTER)}
    ours = {key: value for key, value in options.items() if key not in arguments or key == "horizon"}  # that is for both
    if unknown := [key for key in ours if key not in ADAPTER]:
        allowed = sorted({*theirs, *ADAPTER} - {"num_envs"})
        raise UserError(f"{name} has no option {unknown[0]!r}; its options are: {', '.join(allowed)}")
    if num_envs is not None and not is_gymnasium(name) and "num_envs" in theirs:
        arguments["num_envs"] = num_envs
    return Source(name, arguments, path), ours


def _describe(made: object) -> str:
    """What a factory made, and why it is not an environment."""
    import gymnasium

    from susd.envs.base import missing_members

    if made is None:
        return "None, which is not an environment; does the factory return it?"
    if isinstance(made, gymnasium.vector.VectorEnv):
        return f"a {type(made).__name__}; make a single environment, of which susd creates as many as it needs"
    return f"a {type(made).__name__}, which is not an environment: it is no gymnasium.Env, {missing_members(made)}"

"""From the name of an environment of one's own to the environment, of whichever of the three kinds it is."""

from __future__ import annotations

import inspect
from contextlib import suppress
from typing import Any

import gymnasium

from susd.envs.base import Environment, EnvSpec, HostEnvironment, missing_members
from susd.envs.gymnasium.adapter import GymnasiumWorlds
from susd.envs.gymnasium.source import Source, is_gymnasium
from susd.errors import UserError

ADAPTER = ("horizon", "parallel", "factors")  # options that are not the environment's own, where it is a Gymnasium one


def make_own(name: str, num_envs: int | None, options: dict[str, Any]) -> Environment | HostEnvironment:
    """A Gymnasium environment as a batch of worlds, or the functional or host environment that the factory gives."""
    source, ours = _source(name, num_envs, options)
    thing = source.creator()()
    if isinstance(thing, gymnasium.Env):
        if num_envs is not None:
            ours["num_envs"] = num_envs
        try:
            return GymnasiumWorlds(source, thing, **ours)
        finally:
            with suppress(Exception):  # an example that cannot be closed keeps nobody from going on
                thing.close()
    if not isinstance(thing, (HostEnvironment, Environment)):
        raise UserError(f"{name} gives {_described(thing)}")
    for option in ours.keys() - source.arguments.keys():
        what = "host" if isinstance(thing, HostEnvironment) else "functional"
        raise UserError(
            f"option {option!r} is {ours[option]!r}, but {name} is a {what} environment and has no parameter of that name; "
            "its factors and horizon are in its spec"
        )
    if not isinstance(thing.spec, EnvSpec):
        raise UserError(f"the spec of {name} is a {type(thing.spec).__name__}; it must be a susd.envs.base.EnvSpec")
    return thing


def _source(name: str, num_envs: int | None, options: dict[str, Any]) -> tuple[Source, dict[str, Any]]:
    """The options sorted into those of the environment and those of the adapter; the factory's own names come first."""
    if is_gymnasium(name):
        theirs, wild = set(options) - set(ADAPTER), True
    else:
        parameters = inspect.signature(Source(name, {}).factory()).parameters
        theirs = set(parameters)
        wild = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    arguments = {key: value for key, value in options.items() if key in theirs or (wild and key not in ADAPTER)}
    ours = {key: value for key, value in options.items() if key not in arguments or key == "horizon"}  # that is for both
    if unknown := [key for key in ours if key not in ADAPTER]:
        allowed = sorted({*theirs, *ADAPTER} - {"num_envs"})
        raise UserError(f"{name} has no option {unknown[0]!r}; its options are: {', '.join(allowed)}")
    if num_envs is not None and not is_gymnasium(name) and "num_envs" in theirs:
        arguments["num_envs"] = num_envs
    return Source(name, arguments), ours


def _described(thing: object) -> str:
    """What a factory gave, and why it is no environment."""
    if thing is None:
        return "None, which is no environment; does the factory return what it makes?"
    if isinstance(thing, gymnasium.vector.VectorEnv):
        return f"a {type(thing).__name__}; give a single environment, of which susd makes as many as it needs"
    return f"a {type(thing).__name__}, which is no environment: it is no gymnasium.Env, {missing_members(thing)}"

"""The environments by name. Nothing here imports JAX until an environment is made."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from susd.envs.registry import BUILT_IN, EnvEntry, env_names, environments
from susd.errors import UserError, shown
from susd.plugins import load_object

if TYPE_CHECKING:
    from susd.envs.base import Environment, HostEnvironment

__all__ = ["EnvEntry", "check_name", "choices", "environments", "make"]
USER_DEFINED = "gymnasium:ID, FILE.py:NAME"  # the two forms of names of user-defined environments


def choices() -> str:
    """Which names are allowed, for help texts and errors."""
    return f"{', '.join(env_names())}, {USER_DEFINED}"


def check_name(name: str) -> None:
    """Refuse a name that no environment can have, without importing the environment."""
    if not isinstance(name, str):
        raise UserError(f"the environment is {shown(name)}; it must be the name of one: {choices()}")
    if name not in env_names():
        from susd.envs.gymnasium import loader

        if not loader.check(name):
            raise UserError(f"unknown environment {shown(name)}; choose one of: {choices()}")


def make(name: str, num_envs: int | None = None, **options: Any) -> Environment | HostEnvironment:
    """The environment of that name with its options, e.g. `make("gunner", factors=4)` or `make("gymnasium:Reacher-v5")`.

    `num_envs` is how many environments a host environment steps together; a functional environment ignores it.
    """
    check_name(name)
    if name in BUILT_IN:
        return _make_built_in(name, num_envs, options)
    from susd.envs.gymnasium import loader

    return loader.make(name, num_envs, options)


def _make_built_in(name: str, num_envs: int | None, options: dict[str, Any]) -> Environment | HostEnvironment:
    constructor = load_object(BUILT_IN[name].source)
    allowed = list(inspect.signature(constructor).parameters)
    for option in options:
        if option not in allowed:
            known = ", ".join(name for name in allowed if name != "num_envs" or num_envs is None)
            raise UserError(f"environment {name!r} has no option {option!r}; its options are: {known or 'none'}")
    if num_envs is not None and "num_envs" in allowed:
        options["num_envs"] = num_envs
    environment: Environment | HostEnvironment = constructor(**options)
    return environment

"""The environments by name. Nothing here imports JAX until an environment is made."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import TYPE_CHECKING, Any

from susd.errors import UserError

if TYPE_CHECKING:
    from susd.envs.base import Environment, HostEnvironment

ENVIRONMENTS: dict[str, str] = {  # name -> module:class, imported when it is first made
    "gunner": "susd.envs.gunner:Gunner",
    "multi_particle": "susd.envs.multi_particle:MultiParticle",
    "kitchen": "susd.envs.kitchen:Kitchen",
    "ant": "susd.envs.mujoco.bodies:Ant",
    "half_cheetah": "susd.envs.mujoco.bodies:HalfCheetah",
}
OWN = "gymnasium:ID, FILE.py:NAME"  # the two forms of names of other environments, see susd.envs.gymnasium.source


def choices() -> str:
    """What may be named, for help texts and errors."""
    return f"{', '.join(ENVIRONMENTS)}, {OWN}"


def check_name(name: str) -> None:
    """Refuse the name of an environment that cannot be: at once, and without importing anything of it."""
    if name not in ENVIRONMENTS:
        from susd.envs.gymnasium.source import check_own

        if not check_own(name):
            raise UserError(f"unknown environment {name!r}; there are: {choices()}")


def make(name: str, num_envs: int | None = None, **options: Any) -> Environment | HostEnvironment:
    """The environment of that name with its options, e.g. `make("gunner", factors=4)` or `make("gymnasium:Reacher-v5")`.

    `num_envs` is how many a host environment steps together; a functional one has no such number and ignores it.
    """
    check_name(name)
    if name not in ENVIRONMENTS:
        from susd.envs.gymnasium.loader import make_own

        return make_own(name, num_envs, options)
    module, _, attribute = ENVIRONMENTS[name].partition(":")
    constructor = getattr(import_module(module), attribute)
    allowed = list(inspect.signature(constructor).parameters)
    for option in options:
        if option not in allowed:
            known = ", ".join(name for name in allowed if name != "num_envs" or num_envs is None)
            raise UserError(f"environment {name!r} has no option {option!r}; its options are: {known or 'none'}")
    if num_envs is not None and "num_envs" in allowed:
        options["num_envs"] = num_envs
    environment: Environment | HostEnvironment = constructor(**options)
    return environment

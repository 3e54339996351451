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


def make(name: str, worlds: int | None = None, **options: Any) -> Environment | HostEnvironment:
    """The environment of that name with its options, e.g. `make("gunner", factors=4)`.

    `worlds` is how many a host environment steps together; a functional one has no such number and ignores it.
    """
    if name not in ENVIRONMENTS:
        raise UserError(f"unknown environment {name!r}; there are: {', '.join(sorted(ENVIRONMENTS))}")
    module, _, attribute = ENVIRONMENTS[name].partition(":")
    constructor = getattr(import_module(module), attribute)
    allowed = list(inspect.signature(constructor).parameters)
    for option in options:
        if option not in allowed:
            raise UserError(
                f"environment {name!r} has no option {option!r}; its options are: {', '.join(allowed) or 'none'}"
            )
    if worlds is not None and "worlds" in allowed:
        options["worlds"] = worlds
    environment: Environment | HostEnvironment = constructor(**options)
    return environment

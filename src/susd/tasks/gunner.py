"""Tasks in 2D-Gunner: four goals, one after another; with `lim` they pay only while the right ammo is held."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from susd.envs.gunner import Gunner, GunnerState
from susd.tasks.base import SKILL_STEPS, Task

PHASE = 250  # steps per goal


class GunnerTaskState(NamedTuple):
    """The world and the clock, which alone decides the goal."""

    world: GunnerState
    steps: jax.Array


@dataclass(frozen=True)
class GunnerTask(Task):
    """Stand in zone k and aim at corner k, one point each, where k advances every 250 steps."""

    env: Gunner
    limited: bool

    horizon = 1000
    extra_size = 1

    @property
    def bound(self) -> float:
        """Two points in every step."""
        return 2.0 * self.horizon / SKILL_STEPS

    def begin(self, world: GunnerState, key: jax.Array) -> GunnerTaskState:
        """The clock at zero; the key is not used."""
        return GunnerTaskState(world, jnp.zeros((), jnp.int32))

    def score(self, state: GunnerTaskState, world: GunnerState, key: jax.Array) -> tuple[GunnerTaskState, jax.Array]:
        """b_k + w_k, times m_0 when ammo is limited."""
        steps = state.steps + 1
        goal = jnp.minimum(steps // PHASE, 3)
        reward = (self.env.zones(world) + self.env.targets(world))[goal]
        if self.limited:
            reward = reward * world.ammo[0]
        return GunnerTaskState(world, steps), reward

    def extra(self, state: GunnerTaskState) -> jax.Array:
        """[1] the clock, from 0 to 1."""
        return (state.steps / self.horizon).astype(jnp.float32)[None]

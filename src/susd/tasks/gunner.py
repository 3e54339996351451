"""Tasks in 2D-Gunner: four goals, one after another; with `lim` they give reward only while the right ammo is held."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from susd.envs.gunner import AMMO, RANGE, SIDE, ZONES, Gunner, GunnerState
from susd.tasks.base import Task

PHASE = 250  # steps per goal
CORNERS = SIDE * np.array([(1, 0), (1, 1), (0, 0), (0, 1)], np.float32)  # the targets
MARGIN = 0.05  # the distance that the expert keeps from the edges of a cell


class GunnerTaskState(NamedTuple):
    """The environment's state and the clock, which determines the goal."""

    env_state: GunnerState
    steps: jax.Array


@dataclass(frozen=True)
class GunnerTask(Task):
    """Stand in zone k and aim at corner k, one point each, where k advances every 250 steps."""

    env: Gunner
    limited: bool

    horizon = 1000
    extra_size = 1

    part_of = (4, 17)  # standing in the zone is the agent's part, aiming the gun's

    @property
    def best(self) -> np.ndarray:
        """Two points in every step."""
        return np.full(self.horizon, 2.0)

    def begin(self, env_state: GunnerState, key: jax.Array) -> GunnerTaskState:
        """The clock at zero; the key is not used."""
        return GunnerTaskState(env_state, jnp.zeros((), jnp.int32))

    def score(self, state: GunnerTaskState, env_state: GunnerState, key: jax.Array) -> tuple[GunnerTaskState, jax.Array]:
        """b_k + w_k, times m_0 when ammo is limited."""
        return GunnerTaskState(env_state, state.steps + 1), self.parts(state, env_state).sum()

    def parts(self, state: GunnerTaskState, env_state: GunnerState) -> jax.Array:
        """[2] b_k and w_k, each times m_0 when ammo is limited."""
        goal = jnp.minimum((state.steps + 1) // PHASE, 3)
        both = jnp.stack([self.env.zones(env_state)[goal], self.env.targets(env_state)[goal]])
        return both * env_state.ammo[0] if self.limited else both

    def extra(self, state: GunnerTaskState) -> jax.Array:
        """[1] the clock, from 0 to 1."""
        return (state.steps / self.horizon).astype(jnp.float32)[None]

    def expert(self, state: GunnerTaskState) -> jax.Array:
        """Walk to the goal's zone, aim at its corner, and with limited ammo fetch the right kind first and keep it."""
        now = state.env_state
        goal = jnp.minimum((state.steps + 1) // PHASE, 3)  # the goal that the next step is rewarded for
        following = jnp.minimum(goal + 1, 3)
        zones = jnp.asarray(ZONES[:, 0], jnp.float32)
        spot = _into(zones[goal], zones[following] + 0.5)  # inside the zone, but as near to the next one as possible
        walk = jnp.clip((spot - now.agent) / RANGE[:2], -1.0, 1.0)
        agent = jnp.clip(now.agent + walk * RANGE[:2], 0.0, SIDE)

        # The agent is faster than the picker, so the picker goes to the ammo nearest to the agent's goal.
        cells = _into(jnp.asarray(AMMO[0], jnp.float32), spot)
        cell = cells[jnp.argmin(jnp.abs(cells - spot).max(axis=-1))]
        reach = jnp.clip((cell - agent - now.picker) / RANGE[2:4], -1.0, 1.0)
        grip = jnp.where(now.ammo[0] > 0, -1.0, jnp.where(now.grip < 0.5, 1.0, 0.0))  # below 0.5 the ammo is kept
        fetch = jnp.append(reach, grip) * self.limited

        corner = jnp.asarray(CORNERS)[goal] - agent
        turn = jnp.clip((jnp.arctan2(corner[0], corner[1]) - now.view) / RANGE[5], -1.0, 1.0)
        return jnp.concatenate([walk, fetch, turn[None]])


def _into(cells: jax.Array, point: jax.Array) -> jax.Array:
    """The point of each unit cell, [.., 2] given by its lower corner, that is nearest to a point and clear of the edges."""
    return jnp.clip(point, cells + MARGIN, cells + 1.0 - MARGIN)

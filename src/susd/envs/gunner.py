"""2D-Gunner: an agent moves, a picker collects ammo, a gun rotates; three parts that move independently."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from susd.envs.base import EnvSpec, Plane
from susd.envs.options import FactorOption, factorization, one_of
from susd.factors import Factorization

SIDE = 4.99  # the arena is [0, SIDE] on both axes, cut into 5 x 5 unit cells
REACH = SIDE / 3  # the picker's largest offset from the agent, per axis
AIM = math.pi / 10  # a target is hit when the view is at most this far from its bearing
RANGE = np.array([0.3, 0.3, 0.15, 0.15, 0.15, 0.8], np.float32)  # agent dx dy, picker dx dy, grip, view
LIMIT = 1000  # the original's time limit
STARTS = {"centre": (0.5, 0.5), "0": (0.2, 0.2), "1": (0.8, 0.2), "2": (0.2, 0.8), "3": (0.8, 0.8)}  # times SIDE

# Cells (column, row) that switch on flag k: [4, cells, 2].
ZONES = np.array([[(1, 1)], [(1, 3)], [(3, 1)], [(3, 3)]])
AMMO = np.array([[(0, 3), (2, 1), (4, 3)], [(1, 2), (3, 0), (3, 4)], [(0, 1), (2, 3), (4, 1)], [(1, 0), (1, 4), (3, 2)]])

FACTORS = {
    3: Factorization.from_boundaries((0, 6, 13, 18), ("agent", "ammo", "target")),
    4: Factorization.from_boundaries((0, 4, 6, 13, 18), ("zone", "agent", "ammo", "target")),
    2: Factorization.from_boundaries((0, 13, 18), ("agent_ammo", "target")),
    1: Factorization.from_boundaries((0, 18), ("all",)),
}


class GunnerState(NamedTuple):
    """The state. The picker is stored as an offset from the agent, which is not clipped at the arena's edge."""

    agent: jax.Array  # [2] position
    picker: jax.Array  # [2] offset from the agent
    grip: jax.Array  # [] in [0, 1]; from 0.5 up the picker takes the ammo under it
    view: jax.Array  # [] radians in [-pi, pi], 0 along +y, positive towards +x; it saturates instead of wrapping
    ammo: jax.Array  # [4] flags of the ammo held


@dataclass(frozen=True)
class Gunner:
    """The 2D-Gunner environment. It is deterministic."""

    start: str | int = "centre"
    factors: FactorOption = 3

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", one_of("start", self.start, STARTS))
        object.__setattr__(self, "factors", factorization(self.factors, 18, FACTORS))

    @cached_property
    def spec(self) -> EnvSpec:
        """Sizes, horizon and factors; indices are those of the grouped observation."""
        assert isinstance(self.factors, Factorization)
        landmarks = {
            f"{kind}_{k}": first + k for kind, first in (("zone", 0), ("ammo", 6), ("target", 13)) for k in range(4)
        }
        flags = frozenset(landmarks.values())
        return EnvSpec("gunner", 18, 6, 50, self.factors, (Plane("agent", 4, 5, 0.0, SIDE),), landmarks, flags)

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The smallest and largest observation, each [18]."""
        low, high = np.zeros(18, np.float32), np.ones(18, np.float32)
        high[[4, 5, 10, 11]] = SIDE
        low[17], high[17] = -math.pi, math.pi
        return low, high

    def reset(self, key: jax.Array) -> GunnerState:
        """The start state; the key is not used."""
        agent = jnp.asarray(np.array(STARTS[str(self.start)]) * SIDE, jnp.float32)
        zero = jnp.zeros((), jnp.float32)
        return GunnerState(agent, jnp.zeros(2, jnp.float32), zero + 0.5, zero, _flags(agent, AMMO))

    def uniform(self, key: jax.Array) -> GunnerState:
        """A state drawn from the whole range of the environment, whether a policy visits it or not."""
        k_agent, k_picker, k_grip, k_view, k_ammo = jax.random.split(key, 5)
        held = jax.nn.one_hot(jax.random.randint(k_ammo, (), 0, 5), 5)[:4]  # one of four, or none
        return GunnerState(
            jax.random.uniform(k_agent, (2,), jnp.float32, 0.0, SIDE),
            jax.random.uniform(k_picker, (2,), jnp.float32, -REACH, REACH),
            jax.random.uniform(k_grip, (), jnp.float32),
            jax.random.uniform(k_view, (), jnp.float32, -math.pi, math.pi),
            held,
        )

    def step(self, state: GunnerState, action: jax.Array, key: jax.Array) -> GunnerState:
        """One step with an action in [-1, 1]^6, clipped and scaled; the key is not used."""
        return self.apply(state, jnp.clip(action * RANGE, -RANGE, RANGE))

    def apply(self, state: GunnerState, physical: jax.Array) -> GunnerState:
        """One step with increments in arena units and radians, without clipping (the original does not clip them)."""
        physical = jnp.asarray(physical, jnp.float32)
        agent = jnp.clip(state.agent + physical[0:2], 0.0, SIDE)
        offset = jnp.clip(state.picker + physical[2:4], -REACH, REACH)
        grip = jnp.clip(state.grip + physical[4], 0.0, 1.0)
        view = jnp.clip(state.view + physical[5], -math.pi, math.pi)
        under = _flags(jnp.clip(agent + offset, 0.0, SIDE), AMMO)
        # From a grip of 0.5 up the ammo is that of the cell under the picker, possibly none; below that it is kept.
        return GunnerState(agent, offset, grip, view, jnp.where(grip >= 0.5, under, state.ammo))

    def observe(self, state: GunnerState) -> jax.Array:
        """Grouped order: zones 4, agent 2 | ammo 4, picker 2, grip | targets 4, view."""
        grip, view = state.grip[None], state.view[None]
        agent = (self.zones(state), state.agent)
        return jnp.concatenate([*agent, state.ammo, self.picker(state), grip, self.targets(state), view])

    def picker(self, state: GunnerState) -> jax.Array:
        """Absolute position of the picker, clipped to the arena."""
        return jnp.clip(state.agent + state.picker, 0.0, SIDE)

    def zones(self, state: GunnerState) -> jax.Array:
        """[4] flags: the zone that the agent is in."""
        return _flags(state.agent, ZONES)

    def targets(self, state: GunnerState) -> jax.Array:
        """[4] flags: the corner that the gun points at. The view's quadrant alone decides which corner can be hit."""
        right = state.view > 0.0
        up = jnp.abs(state.view) <= math.pi / 2
        corner = SIDE * jnp.stack([right, up]).astype(jnp.float32)
        bearing = jnp.arctan2(corner[0] - state.agent[0], corner[1] - state.agent[1])
        hit = jnp.abs(bearing - state.view) <= AIM
        return jnp.where(hit, jax.nn.one_hot(2 * (1 - right) + up, 4, dtype=jnp.float32), 0.0)

    def render(self, state: GunnerState, size: int = 400) -> np.ndarray:
        """One state as an RGB image, uint8 [size, size, 3]."""
        from susd.envs.render import draw_gunner

        return draw_gunner(np.asarray(_observe(self, state)), size)


def _flags(point: jax.Array, cells: np.ndarray) -> jax.Array:
    """[4] flags: whether the unit cell under the point is one of the cells of kind k."""
    cell = jnp.floor(point).astype(jnp.int32)
    return jnp.any(jnp.all(cell == cells, axis=-1), axis=-1).astype(jnp.float32)


_observe = jax.jit(Gunner.observe, static_argnums=0)  # for rendering: one dispatch instead of thirty

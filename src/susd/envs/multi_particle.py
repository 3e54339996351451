"""Multi-Particle: ten independent point masses, each with its own station."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from susd.envs.base import EnvSpec, Plane
from susd.envs.options import FactorOption, factorization, non_negative_integer, one_of
from susd.factors import Factorization

AGENTS = 10
NEAR = 0.6  # an agent interacts with its station within this distance
STEP, KEPT, GAIN = 0.1, 0.75, 0.5  # time step; velocity kept per step (damping 0.25); force gain 5 times the time step
SPEED = GAIN / (1.0 - KEPT)  # the speed per axis that a full action approaches
LIMIT = 1000  # the original's time limit

FACTORS = {
    10: Factorization.from_boundaries(range(0, 71, 7), [f"agent_{i}" for i in range(AGENTS)]),
    20: Factorization.from_boundaries(
        [0, *(7 * i + cut for i in range(AGENTS) for cut in (5, 7))],
        [f"{body}_{i}" for i in range(AGENTS) for body in ("agent", "station")],
    ),
    1: Factorization.from_boundaries((0, 70), ("all",)),
}


class ParticleState(NamedTuple):
    """Positions and velocities of the agents, positions of the stations; each [10, 2]."""

    position: jax.Array
    velocity: jax.Array
    station: jax.Array


@cache
def fixed_layout(seed: int) -> np.ndarray:
    """[20, 2] start positions of ten agents, then ten stations, from numpy's generator with that seed."""
    points = np.random.default_rng(seed).uniform(-1.0, 1.0, (2 * AGENTS, 2))
    points.setflags(write=False)
    return points


@dataclass(frozen=True)
class MultiParticle:
    """The Multi-Particle environment: the same start in every episode, or one sampled with the reset key."""

    layout: str = "fixed"
    layout_seed: int = 0
    actions: str = "planar"
    factors: FactorOption = 10

    def __post_init__(self) -> None:
        object.__setattr__(self, "layout", one_of("layout", self.layout, ("fixed", "random")))
        object.__setattr__(self, "layout_seed", non_negative_integer("layout_seed", self.layout_seed))
        object.__setattr__(self, "actions", one_of("actions", self.actions, ("planar", "five")))
        object.__setattr__(self, "factors", factorization(self.factors, 70, FACTORS))

    @cached_property
    def spec(self) -> EnvSpec:
        """Sizes, horizon and factors; agent i has the observation indices 7i .. 7i+6."""
        assert isinstance(self.factors, Factorization)
        planes = tuple(Plane(f"agent_{i}", 7 * i + 3, 7 * i + 4, -1.0, 1.0) for i in range(AGENTS))
        action_size = AGENTS * (2 if self.actions == "planar" else 5)
        distances = frozenset(range(0, 7 * AGENTS, 7))
        return EnvSpec("multi_particle", 70, action_size, 50, self.factors, planes, {}, distances)

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The smallest and largest observation, each [70]."""
        high = np.array([np.sqrt(8.0), SPEED, SPEED, 1, 1, 1, 1], np.float32)
        low = np.array([0, *-high[1:]], np.float32)
        return np.tile(low, AGENTS), np.tile(high, AGENTS)

    def reset(self, key: jax.Array) -> ParticleState:
        """The start of an episode, at rest. The key matters only for the random layout."""
        if self.layout == "random":
            points = jax.random.uniform(key, (2 * AGENTS, 2), jnp.float32, -1.0, 1.0)
        else:
            points = jnp.asarray(fixed_layout(self.layout_seed), jnp.float32)
        return ParticleState(points[:AGENTS], jnp.zeros((AGENTS, 2), jnp.float32), points[AGENTS:])

    def uniform(self, key: jax.Array) -> ParticleState:
        """A state drawn from the whole range of the environment; stations are those of the layout."""
        k_position, k_velocity, k_layout = jax.random.split(key, 3)
        position = jax.random.uniform(k_position, (AGENTS, 2), jnp.float32, -1.0, 1.0)
        velocity = jax.random.uniform(k_velocity, (AGENTS, 2), jnp.float32, -SPEED, SPEED)
        return ParticleState(position, velocity, self.reset(k_layout).station)

    def step(self, state: ParticleState, action: jax.Array, key: jax.Array) -> ParticleState:
        """One step with an action in [-1, 1], clipped; the key is not used."""
        force = jnp.clip(jnp.asarray(action, jnp.float32), -1.0, 1.0).reshape(AGENTS, -1)
        if self.actions == "five":
            # Slots (unused, +x, -x, +y, -y) are in [0, 1], so a force is half a difference of values in [-1, 1].
            force = 0.5 * (force[:, 1::2] - force[:, 2::2])
        # Explicit Euler: the position moves with the old velocity, which a wall does not change.
        position = jnp.clip(state.position + STEP * state.velocity, -1.0, 1.0)
        return ParticleState(position, KEPT * state.velocity + GAIN * force, state.station)

    def observe(self, state: ParticleState) -> jax.Array:
        """Per agent: distance to its station, velocity 2, position 2, station 2."""
        columns = [self.distances(state)[:, None], state.velocity, state.position, state.station]
        return jnp.concatenate(columns, axis=1).reshape(-1)

    def distances(self, state: ParticleState) -> jax.Array:
        """[10] distance of every agent to its station."""
        return jnp.sqrt(jnp.sum(jnp.square(state.position - state.station), axis=-1))

    def render(self, state: ParticleState, size: int = 400) -> np.ndarray:
        """One state as an RGB image, uint8 [size, size, 3]."""
        from susd.envs.render import draw_particles

        return draw_particles(np.asarray(state.position), np.asarray(state.velocity), np.asarray(state.station), size)

"""Tasks in Multi-Particle: visit stations in order, or seek food and shun poison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from susd.envs.multi_particle import AGENTS, NEAR, MultiParticle, ParticleState
from susd.tasks.base import SKILL_STEPS, Task

WINDOW = 10  # sequential: the turn passes only after every tenth step
REDRAW = 50  # food-poison: new indicators after every fiftieth step


class SequenceState(NamedTuple):
    """The world, the clock, how many stations are finished, and the steps the current agent spent near its own."""

    world: ParticleState
    steps: jax.Array
    progress: jax.Array
    charge: jax.Array


@dataclass(frozen=True)
class Sequential(Task):
    """The agents named must go to their stations one after another while all others stay away from theirs."""

    env: MultiParticle
    agents: tuple[int, ...]

    horizon = 50
    extra_size = AGENTS + 1

    @property
    def bound(self) -> float:
        """Ten points in every step after the earliest possible completion."""
        return 10.0 * max(self.horizon - WINDOW * len(self.agents), 0) / SKILL_STEPS

    def begin(self, world: ParticleState, key: jax.Array) -> SequenceState:
        """Nothing finished yet; the key is not used."""
        zero = jnp.zeros((), jnp.int32)
        return SequenceState(world, zero, zero, zero)

    def target(self, state: SequenceState) -> jax.Array:
        """[10] one-hot of the agent whose turn it is, all zero when the sequence is finished."""
        order = jax.nn.one_hot(jnp.asarray((*self.agents, -1)), AGENTS, dtype=jnp.float32)
        return order[state.progress]

    def score(self, state: SequenceState, world: ParticleState, key: jax.Array) -> tuple[SequenceState, jax.Array]:
        """-0.1 for every wrong agent near and for the right one not near; 10 per step when all are done."""
        steps, finished = state.steps + 1, state.progress == len(self.agents)
        distance, turn = self.env.distances(world), self.target(state) > 0
        faults = jnp.sum(jnp.where(turn, distance >= NEAR, distance <= NEAR))
        reward = jnp.where(finished, 10.0, -faults.astype(jnp.float32) / 10.0)
        charge = state.charge + jnp.any(turn & (distance < NEAR))
        passes = (steps % WINDOW == 0) & ~finished & (charge > 0)
        return SequenceState(world, steps, state.progress + passes, jnp.where(passes, 0, charge)), reward

    def extra(self, state: SequenceState) -> jax.Array:
        """[11] whose turn it is, and the clock in windows of ten steps."""
        return jnp.append(self.target(state), (state.steps / WINDOW).astype(jnp.float32))


class FoodPoisonState(NamedTuple):
    """The world, the clock, and which stations are poison (1) or food (0)."""

    world: ParticleState
    steps: jax.Array
    indicator: jax.Array


@dataclass(frozen=True)
class FoodPoison(Task):
    """The agents named must be near their station when it is food and away from it when it is poison."""

    env: MultiParticle
    agents: tuple[int, ...]

    horizon = 50
    extra_size = AGENTS + 1
    completable = False  # it pays or costs in every step

    @property
    def bound(self) -> float:
        """One point for every agent that counts, in every step."""
        return float(len(self.agents) * self.horizon / SKILL_STEPS)

    def begin(self, world: ParticleState, key: jax.Array) -> FoodPoisonState:
        """Ten fair coins decide what is food and what is poison."""
        return FoodPoisonState(world, jnp.zeros((), jnp.int32), _coins(key))

    def verdicts(self, indicator: jax.Array, world: ParticleState) -> jax.Array:
        """[10] +1 for an agent that is where it should be, -1 otherwise and exactly on the threshold."""
        distance = self.env.distances(world)
        right = jnp.where(indicator > 0, distance > NEAR, distance < NEAR)
        return jnp.where(right, 1.0, -1.0)

    def score(self, state: FoodPoisonState, world: ParticleState, key: jax.Array) -> tuple[FoodPoisonState, jax.Array]:
        """The sum of the verdicts on the agents that count; indicators are drawn anew after the reward."""
        steps = state.steps + 1
        reward = jnp.sum(self.verdicts(state.indicator, world)[jnp.asarray(self.agents)])
        indicator = jnp.where(steps % REDRAW == 0, _coins(key), state.indicator)
        return FoodPoisonState(world, steps, indicator), reward

    def extra(self, state: FoodPoisonState) -> jax.Array:
        """[11] all indicators, also those that do not count, and the clock from 0 to 1."""
        return jnp.append(state.indicator, (state.steps / REDRAW).astype(jnp.float32))


def _coins(key: jax.Array) -> jax.Array:
    return jax.random.bernoulli(key, 0.5, (AGENTS,)).astype(jnp.float32)

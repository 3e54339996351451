"""Tasks in Multi-Particle: visit stations in order, or seek food and avoid poison."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from susd.envs.multi_particle import AGENTS, NEAR, MultiParticle, ParticleState
from susd.tasks.base import Task

WINDOW = 10  # sequential: the turn passes only after every tenth step
REDRAW = 50  # food-poison: new indicators after every fiftieth step
RING = 0.75  # distance to its station at which the expert's agent waits: clear of NEAR, but not far
DIAGONALS = np.array(list(itertools.product((-1.0, 1.0), repeat=2)), np.float32)


class SequenceState(NamedTuple):
    """The environment's state, the clock, the finished stations, and the steps of the current agent near its station."""

    env_state: ParticleState
    steps: jax.Array
    progress: jax.Array
    charge: jax.Array


@dataclass(frozen=True)
class Sequential(Task):
    """The given agents must go to their stations one after another while all others stay away from theirs."""

    env: MultiParticle
    agents: tuple[int, ...]

    horizon = 50
    extra_size = AGENTS + 1

    part_of = tuple(range(0, 7 * AGENTS, 7))  # every agent's faults are its own part
    extra_of = (*part_of, -1)

    @property
    def best(self) -> np.ndarray:
        """Ten points in every step after the earliest possible completion."""
        best = np.full(self.horizon, 10.0)
        best[: WINDOW * len(self.agents)] = 0.0
        return best

    def begin(self, env_state: ParticleState, key: jax.Array) -> SequenceState:
        """Nothing finished yet; the key is not used."""
        zero = jnp.zeros((), jnp.int32)
        return SequenceState(env_state, zero, zero, zero)

    def target(self, state: SequenceState) -> jax.Array:
        """[10] one-hot of the agent whose turn it is, all zero when the sequence is finished."""
        order = jax.nn.one_hot(jnp.asarray((*self.agents, -1)), AGENTS, dtype=jnp.float32)
        return order[state.progress]

    def score(self, state: SequenceState, env_state: ParticleState, key: jax.Array) -> tuple[SequenceState, jax.Array]:
        """-0.1 for every wrong agent near and for the right one not near; 10 per step when all are done."""
        steps, finished = state.steps + 1, state.progress == len(self.agents)
        distance, turn = self.env.distances(env_state), self.target(state) > 0
        reward = jnp.where(finished, 10.0, self.parts(state, env_state).sum())
        charge = state.charge + jnp.any(turn & (distance < NEAR))
        passes = (steps % WINDOW == 0) & ~finished & (charge > 0)
        return SequenceState(env_state, steps, state.progress + passes, jnp.where(passes, 0, charge)), reward

    def parts(self, state: SequenceState, env_state: ParticleState) -> jax.Array:
        """[10] -0.1 for every agent at fault, while the sequence is not finished."""
        distance, turn = self.env.distances(env_state), self.target(state) > 0
        faults = jnp.where(turn, distance >= NEAR, distance <= NEAR) & (state.progress < len(self.agents))
        return -faults.astype(jnp.float32) / 10.0

    def success(self, state: SequenceState) -> jax.Array:
        """Whether all stations are finished, also where that was too late for a reward."""
        return state.progress == len(self.agents)

    def extra(self, state: SequenceState) -> jax.Array:
        """[11] whose turn it is, and the clock in windows of ten steps."""
        return jnp.append(self.target(state), (state.steps / WINDOW).astype(jnp.float32))

    def expert(self, state: SequenceState) -> jax.Array:
        """The agent whose turn it is goes to its station; the others keep away from theirs."""
        return _steer(self.env, state.env_state, self.target(state) > 0)


class FoodPoisonState(NamedTuple):
    """The environment's state, the clock, and which stations are poison (1) or food (0)."""

    env_state: ParticleState
    steps: jax.Array
    indicator: jax.Array


@dataclass(frozen=True)
class FoodPoison(Task):
    """The given agents must be near their station when it is food and away from it when it is poison."""

    env: MultiParticle
    agents: tuple[int, ...]

    horizon = 50
    extra_size = AGENTS + 1
    completable = False  # every step has a reward above or below zero
    random_episodes = True
    extra_of = (*range(0, 7 * AGENTS, 7), -1)

    @property
    def best(self) -> np.ndarray:
        """One point for every agent that counts, in every step."""
        return np.full(self.horizon, float(len(self.agents)))

    @property
    def part_of(self) -> tuple[int, ...]:
        """The verdict on every agent that counts is its part."""
        return tuple(7 * agent for agent in self.agents)

    def begin(self, env_state: ParticleState, key: jax.Array) -> FoodPoisonState:
        """Ten fair coins decide what is food and what is poison."""
        return FoodPoisonState(env_state, jnp.zeros((), jnp.int32), _coins(key))

    def verdicts(self, indicator: jax.Array, env_state: ParticleState) -> jax.Array:
        """[10] +1 for an agent that is where it should be, -1 otherwise and exactly on the threshold."""
        distance = self.env.distances(env_state)
        right = jnp.where(indicator > 0, distance > NEAR, distance < NEAR)
        return jnp.where(right, 1.0, -1.0)

    def score(self, state: FoodPoisonState, env_state: ParticleState, key: jax.Array) -> tuple[FoodPoisonState, jax.Array]:
        """The sum of the verdicts on the agents that count; indicators are redrawn after the reward."""
        steps = state.steps + 1
        reward = self.parts(state, env_state).sum()
        indicator = jnp.where(steps % REDRAW == 0, _coins(key), state.indicator)
        return FoodPoisonState(env_state, steps, indicator), reward

    def parts(self, state: FoodPoisonState, env_state: ParticleState) -> jax.Array:
        """The verdicts on the agents that count."""
        return self.verdicts(state.indicator, env_state)[jnp.asarray(self.agents)]

    def extra(self, state: FoodPoisonState) -> jax.Array:
        """[11] all indicators, also those that do not count, and the clock from 0 to 1."""
        return jnp.append(state.indicator, (state.steps / REDRAW).astype(jnp.float32))

    def expert(self, state: FoodPoisonState) -> jax.Array:
        """Go to stations with food and keep away from those with poison."""
        return _steer(self.env, state.env_state, state.indicator == 0)


def _coins(key: jax.Array) -> jax.Array:
    return jax.random.bernoulli(key, 0.5, (AGENTS,)).astype(jnp.float32)


def _steer(env: MultiParticle, env_state: ParticleState, wanted: jax.Array) -> jax.Array:
    """Wanted agents go to their station; the others leave it on the shortest path and wait on a ring around it."""
    position, station = env_state.position, env_state.station
    offset = position - station
    distance = jnp.maximum(jnp.linalg.norm(offset, axis=1, keepdims=True), 1e-6)
    # Forces are bounded per axis, so the way out is a diagonal: the one that leads farthest before it meets a wall.
    exits = jnp.clip(position[:, None] + 0.5 * DIAGONALS, -1.0, 1.0)
    farthest = jnp.argmax(jnp.linalg.norm(exits - station[:, None], axis=-1), axis=1)
    leave = jnp.take_along_axis(exits, farthest[:, None, None], axis=1)[:, 0]
    wait = station + RING * offset / distance
    goal = jnp.where(wanted[:, None], station, jnp.where(distance < RING - 0.02, leave, wait))
    force = jnp.clip(10.0 * (goal - position) - 3.0 * env_state.velocity, -1.0, 1.0)
    if env.actions == "five":  # slots: unused, +x, -x, +y, -y
        force = jnp.stack([0.0 * force[:, 0], force[:, 0], -force[:, 0], force[:, 1], -force[:, 1]], axis=1)
    return force.reshape(-1)

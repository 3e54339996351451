"""The measurements taken during training, for every seed: coverage and control with mean actions, compiled once.

A host environment is too slow for that; there the coverage of what was collected last is measured, which costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from susd.envs.base import Environment, EnvSpec
from susd.evaluation import control, coverage
from susd.replay import Replay
from susd.sac import SacState
from susd.training.trainer import Trainer, TrainState

Measurements = dict[str, jax.Array]
Probe = Callable[[TrainState, int], Measurements]


def build_probe(trainer: Trainer) -> Probe | None:
    """A function (state with an axis of seeds, epoch) -> measurements; None where there is nothing to measure."""
    if not trainer.env.spec.planes:
        return None
    return _skills(trainer) if isinstance(trainer.env, Environment) else _collected(trainer.env.spec)


def _shares(cells: jax.Array, spec: EnvSpec) -> Measurements:
    """Visited cells of every plane as percentages of all: the worst and the average plane."""
    share = 100.0 * cells / coverage.all_cells(spec)
    return {"coverage_worst": share.min(), "coverage_average": share.mean()}


def _skills(trainer: Trainer) -> Probe:
    env, skills = trainer.env, trainer.learner.method.skills
    assert isinstance(env, Environment)
    factors = len(env.spec.factorization)

    def measure(sac: SacState, key: jax.Array) -> Measurements:
        policy = trainer.policy(sac.actor, sampled=False)
        result = _shares(coverage.visited_cells(env.spec, coverage.trajectories(env, policy, skills, key)), env.spec)
        if skills.parts == factors > 1:
            measured = control.control_matrix(env, policy, skills, key, trainer.horizon, pairs=32)
            result["control_ratio"] = jnp.asarray(control.diagonal_ratio(measured.matrix))
        return result

    def all_seeds(sac: SacState, epoch: jax.Array) -> Measurements:
        key = jax.random.fold_in(jax.random.key(0), epoch)
        return jax.lax.map(lambda one: measure(one, key), sac)

    compiled = jax.jit(all_seeds)
    return lambda state, epoch: compiled(state.learner.sac, jnp.int32(epoch))


def _collected(spec: EnvSpec) -> Probe:
    """Of the last 20,000 steps in the replay, or of all it has so far."""

    def measure(buffer: Replay) -> Measurements:
        obs, capacity = buffer.data.next_obs, len(buffer.data.done)
        back = jnp.minimum(jnp.arange(min(coverage.STEPS, capacity)), jnp.maximum(buffer.size - 1, 0))
        return _shares(coverage.visited_cells(spec, obs[(buffer.position - 1 - back) % capacity]), spec)

    compiled = jax.jit(lambda buffer: jax.lax.map(measure, buffer))
    return lambda state, epoch: compiled(state.replay)

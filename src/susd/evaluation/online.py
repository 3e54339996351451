"""The measurements during training, for every seed: coverage and control with mean actions, compiled once.

In a host environment that would be too slow; there the coverage of the last collected steps is measured, at no cost.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from susd.collect import rollout
from susd.envs.base import EnvSpec
from susd.envs.vector import is_functional
from susd.evaluation import control, coverage
from susd.replay import Replay
from susd.sac import SacState
from susd.training.agent import part_names
from susd.training.trainer import Trainer, TrainState

Measurements = dict[str, jax.Array]
OnlineEvaluation = Callable[[TrainState, int], Measurements]


def build_online(trainer: Trainer) -> OnlineEvaluation | None:
    """A function (state with an axis of seeds, epoch) -> measurements; None where there is nothing to measure."""
    if not trainer.env.spec.planes:
        return None
    return _of_skills(trainer) if is_functional(trainer.env) else _of_replay(trainer.env.spec)


def _shares(cells: jax.Array, spec: EnvSpec) -> Measurements:
    """Visited cells of every plane as percentages of all: the worst and the average plane."""
    share = 100.0 * cells / coverage.all_cells(spec)
    return {"coverage_worst": share.min(), "coverage_average": share.mean()}


def _of_skills(trainer: Trainer) -> OnlineEvaluation:
    env, skills = trainer.env, trainer.learner.method.skills
    assert is_functional(env)
    factors, own = env.spec.factorization, env.spec.own
    diagonal = control.own_cells(part_names(trainer), control.measured_factors(factors, own)[0])

    def measure(sac: SacState, key: jax.Array) -> Measurements:
        policy = trainer.policy(sac.actor, sampled=False)

        def observations(drawn: jax.Array, key: jax.Array, steps: int) -> jax.Array:
            return rollout(env, policy, drawn, steps, key)[1].next_obs

        obs = observations(*coverage.sample_skills(skills, key), coverage.PERIOD)
        result = _shares(coverage.visited_cells(env.spec, obs), env.spec)
        if diagonal is not None:
            episodes = lambda drawn, key: observations(drawn, key, trainer.horizon)  # noqa: E731
            found = control.control_matrix(factors, skills, episodes, key, 32, over_parts=jax.lax.map, own=own)
            result["control_ratio"] = control.diagonal_ratio(found.matrix, diagonal, found.counted)
        return result

    def all_seeds(sac: SacState, epoch: jax.Array) -> Measurements:
        key = jax.random.fold_in(jax.random.key(0), epoch)
        return jax.lax.map(lambda one: measure(one, key), sac)

    devices, seeds = trainer.devices, trainer.config.seeds
    if seeds == 1:  # every device has a copy of the networks
        compiled = jax.jit(all_seeds, compiler_options=devices.compiler_options)
        return lambda state, epoch: compiled(devices.local(state.learner.sac), jnp.int32(epoch))
    compiled = jax.jit(devices.over_seeds(all_seeds, (0, None)))
    return lambda state, epoch: compiled(state.learner.sac, np.int32(epoch))


def _of_replay(spec: EnvSpec) -> OnlineEvaluation:
    """Of the last 20,000 steps in the replay, or of all it has so far."""

    def measure(buffer: Replay) -> Measurements:
        obs, capacity = buffer.data.next_obs, len(buffer.data.done)
        back = jnp.minimum(jnp.arange(min(coverage.STEPS, capacity)), jnp.maximum(buffer.size - 1, 0))
        return _shares(coverage.visited_cells(spec, obs[(buffer.position - 1 - back) % capacity]), spec)

    compiled = jax.jit(lambda buffer: jax.lax.map(measure, buffer))
    return lambda state, epoch: compiled(state.replay)

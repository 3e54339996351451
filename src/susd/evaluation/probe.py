"""The measurements taken during training: coverage and control with mean actions, compiled once, for every seed."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from susd.envs.base import Environment
from susd.evaluation import control, coverage
from susd.program import Program
from susd.sac import SacState

Measurements = dict[str, jax.Array]


def build_probe(program: Program) -> Callable[[SacState, int], Measurements] | None:
    """A function (SAC state with an axis of seeds, epoch) -> measurements; None where there is nothing to measure."""
    env, skills = program.env, program.learner.method.skills
    if not isinstance(env, Environment) or not env.spec.planes:
        return None
    factors = len(env.spec.factorization)

    def measure(sac: SacState, key: jax.Array) -> Measurements:
        policy = program.policy(sac.actor, sampled=False)
        cells = coverage.visited_cells(env.spec, coverage.trajectories(env, policy, skills, key))
        share = 100.0 * cells / coverage.BINS**2
        result = {"coverage_worst": share.min(), "coverage_average": share.mean()}
        if skills.parts == factors > 1:
            measured = control.control_matrix(env, policy, skills, key, program.horizon, pairs=32)
            result["control_ratio"] = jnp.asarray(control.diagonal_ratio(measured.matrix))
        return result

    def all_seeds(sac: SacState, epoch: jax.Array) -> Measurements:
        key = jax.random.fold_in(jax.random.key(0), epoch)
        return jax.lax.map(lambda one: measure(one, key), sac)

    compiled = jax.jit(all_seeds)
    return lambda sac, epoch: compiled(sac, jnp.int32(epoch))

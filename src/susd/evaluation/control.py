"""Control: which part of the skill moves which factor. Vary z^i alone, measure how far every factor's course changes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from susd.collect import Policy, rollout
from susd.envs.base import Environment, EnvSpec
from susd.skills import SkillSpace

PAIRS = 128


def control_matrix(
    env: Environment, policy: Policy, skills: SkillSpace, key: jax.Array, steps: int, pairs: int = PAIRS
) -> jax.Array:
    """[parts, N] matrix: row i redraws z^i alone in `pairs` random skills; column j is the change of factor j.

    The change of a dimension is the mean absolute difference of the two courses over time, as a share of the difference
    between the courses of two unrelated skills: 0 is no effect, 1 is as much as redrawing the whole skill. A factor's
    change is the mean over its dimensions; dimensions that never vary are left out. Both courses start from the same
    reset and take mean actions, so every difference comes from the skill.
    """
    k_skills, k_vary, k_run = jax.random.split(key, 3)
    base = skills.sample(k_skills, pairs)

    def course(z: jax.Array) -> jax.Array:
        return rollout(env, policy, z, steps, k_run)[1].next_obs  # [T, pairs, S]

    reference = course(base)
    unrelated = difference_of_strangers(reference)
    moves = unrelated > 1e-5
    inverse = jnp.where(moves, 1.0 / jnp.maximum(unrelated, 1e-5), 0.0)
    membership = env.spec.factorization.membership

    def row(part: jax.Array) -> jax.Array:
        changed = course(skills.vary(jax.random.fold_in(k_vary, part), base, part))
        relative = jnp.abs(changed - reference).mean(axis=(0, 1)) * inverse  # [S]
        return (membership @ relative) / jnp.maximum(membership @ moves, 1.0)

    return jax.lax.map(row, jnp.arange(skills.parts))


def difference_of_strangers(courses: jax.Array) -> jax.Array:
    """Mean absolute difference of each dimension between two different worlds at the same time, [T, W, S] to [S].

    Over all pairs of worlds, from the sorted values: sum_k (2 k - W + 1) x_(k) = sum over pairs of |x_a - x_b|.
    """
    worlds = courses.shape[1]
    rank = 2.0 * jnp.arange(worlds) - worlds + 1
    total = jnp.einsum("tws,w->ts", jnp.sort(courses, axis=1), rank)
    return total.mean(axis=0) / (worlds * (worlds - 1) / 2)


def summarise(spec: EnvSpec, matrix: np.ndarray) -> dict[str, Any]:
    """The matrix with its names and, where skill parts and factors correspond, the diagonal over off-diagonal ratio."""
    names = list(spec.factorization.names)
    result: dict[str, Any] = {"factors": names, "matrix": np.asarray(matrix, float).tolist()}
    if matrix.shape[0] == matrix.shape[1] and len(names) > 1:
        own = np.eye(len(names), dtype=bool)
        diagonal, others = float(matrix[own].mean()), float(matrix[~own].mean())
        result |= {"diagonal": diagonal, "off_diagonal": others, "ratio": diagonal / max(others, 1e-12)}
    return result

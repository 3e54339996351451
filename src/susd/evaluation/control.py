"""Control: which part of the skill moves which factor. Vary z^i alone, measure how far every factor's course changes."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from susd.collect import rollout_skills
from susd.envs.base import Environment, EnvSpec, HostEnvironment
from susd.skills import SkillSpace
from susd.types import Policy

PAIRS = 128


class Control(NamedTuple):
    """Two [parts, N] matrices: row i redraws z^i alone, column j is the change of factor j; and the spread, [N].

    A change is the distance between the two courses at the same time, as a share of the distance between the courses of
    two unrelated skills: 0 is no effect, 1 is as much as redrawing the whole skill. In `matrix` the distance is Euclidean,
    in the factor's own units; in `balanced` every dimension that varies is compared alone and counts the same, so that a
    flag that is rarely on weighs as much as a position. `spread` is the distance between unrelated skills itself: how far
    the skills as a whole move each factor. Where the skill has one part it says more than the matrix, whose only row is 1.
    """

    matrix: jax.Array
    balanced: jax.Array
    spread: jax.Array


def control_matrix(
    env: Environment | HostEnvironment, policy: Policy, skills: SkillSpace, key: jax.Array, steps: int, pairs: int = PAIRS
) -> Control:
    """Redraw each part of `pairs` random skills and compare the courses, which start from the same reset.

    With mean actions every difference comes from the skill.
    """
    k_skills, k_other, k_vary, k_run = jax.random.split(key, 4)
    base = skills.sample(k_skills, pairs)
    factors = env.spec.factorization
    membership = factors.membership

    def course(z: jax.Array) -> jax.Array:
        return jnp.asarray(rollout_skills(env, policy, z, steps, k_run).next_obs)  # [T, pairs, S]

    def distances(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Mean distance of each factor, [N], and of each dimension, [S]."""
        difference = a - b
        return jnp.sqrt(difference**2 @ membership.T).mean(axis=(0, 1)), jnp.abs(difference).mean(axis=(0, 1))

    reference = course(base)
    factor_scale, dimension_scale = distances(course(skills.sample(k_other, pairs)), reference)
    varies = dimension_scale > 1e-5

    def row(part: jax.Array) -> tuple[jax.Array, jax.Array]:
        changed = course(skills.vary(jax.random.fold_in(k_vary, part), base, part))
        factor, dimension = distances(changed, reference)
        share = jnp.where(varies, dimension / jnp.maximum(dimension_scale, 1e-5), 0.0)
        balanced = jnp.matmul(membership, share) / jnp.maximum(jnp.matmul(membership, varies), 1.0)
        return factor / jnp.maximum(factor_scale, 1e-5), balanced

    if isinstance(env, HostEnvironment):
        matrix, balanced = map(jnp.stack, zip(*(row(jnp.asarray(part)) for part in range(skills.parts)), strict=True))
    else:
        matrix, balanced = jax.lax.map(row, jnp.arange(skills.parts))
    return Control(matrix, balanced, factor_scale)


def diagonal_ratio(matrix: jax.Array | np.ndarray) -> jax.Array | np.ndarray:
    """Mean of the diagonal over mean of the rest: how much more a skill part moves its own factor than the others."""
    own = np.eye(len(matrix), dtype=bool)
    return matrix[own].mean() / (matrix[~own].mean() + 1e-9)


def summarise(spec: EnvSpec, result: Control) -> dict[str, Any]:
    """The matrices with their names and, where skill parts and factors correspond, diagonal, rest and their ratio."""
    matrix, balanced = np.asarray(result.matrix, float), np.asarray(result.balanced, float)
    names = list(spec.factorization.names)
    summary: dict[str, Any] = {"factors": names, "matrix": matrix.tolist(), "balanced_matrix": balanced.tolist()}
    summary["spread"] = dict(zip(names, np.asarray(result.spread, float).tolist(), strict=True))
    if len(matrix) == len(names) > 1:
        own = np.eye(len(names), dtype=bool)
        summary |= {"diagonal": float(matrix[own].mean()), "off_diagonal": float(matrix[~own].mean())}
        summary |= {"ratio": float(diagonal_ratio(matrix)), "balanced_ratio": float(diagonal_ratio(balanced))}
    return summary

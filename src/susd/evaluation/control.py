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
    """[parts, N] matrix: row i redraws z^i in `pairs` random skills; column j is the change of factor j.

    A change is the root mean square difference of the two courses, over time and over the factor's dimensions, each
    dimension measured in its own standard deviation under random skills; dimensions that never vary are left out.
    Both courses start from the same reset, so with mean actions every difference comes from the skill.
    """
    k_skills, k_vary, k_run = jax.random.split(key, 3)
    base = skills.sample(k_skills, pairs)

    def course(z: jax.Array) -> jax.Array:
        return rollout(env, policy, z, steps, k_run)[1].next_obs  # [T, pairs, S]

    reference = course(base)
    std = reference.std(axis=(0, 1))
    moves = std > 1e-5
    inverse = jnp.where(moves, 1.0 / jnp.maximum(std, 1e-5), 0.0)
    membership = env.spec.factorization.membership

    def row(part: jax.Array) -> jax.Array:
        changed = course(skills.vary(jax.random.fold_in(k_vary, part), base, part))
        square = (((changed - reference) * inverse) ** 2).mean(axis=0)  # [pairs, S]
        per_factor = (square @ membership.T) / jnp.maximum(membership @ moves, 1.0)
        return jnp.sqrt(per_factor).mean(axis=0)

    return jax.lax.map(row, jnp.arange(skills.parts))


def summarise(spec: EnvSpec, matrix: np.ndarray) -> dict[str, Any]:
    """The matrix with its names and, where skill parts and factors correspond, the diagonal over off-diagonal ratio."""
    names = list(spec.factorization.names)
    result: dict[str, Any] = {"factors": names, "matrix": np.asarray(matrix, float).tolist()}
    if matrix.shape[0] == matrix.shape[1] and len(names) > 1:
        own = np.eye(len(names), dtype=bool)
        diagonal, others = float(matrix[own].mean()), float(matrix[~own].mean())
        result |= {"diagonal": diagonal, "off_diagonal": others, "ratio": diagonal / max(others, 1e-12)}
    return result

"""Control: which part of the skill moves which factor. Redraw z^i alone and compare the trajectories of every factor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from susd.collect import rollout_skills
from susd.envs.base import EnvSpec
from susd.evaluation.registry import Artifacts, Evaluation, Fact, Result
from susd.factors import Factorization
from susd.runs.tables import Row, Table, seed_table
from susd.skills import SkillSpace
from susd.training.agent import part_names
from susd.viz import figures

if TYPE_CHECKING:
    from susd.training.agent import Agent

PAIRS = 128

Own = Mapping[str, tuple[int, ...]] | None  # as in EnvSpec
Map = Callable[[Callable[[jax.Array], Any], jax.Array], Any]  # as jax.lax.map


class Control(NamedTuple):
    """Two [parts, N] matrices: row i redraws z^i alone, column j is the change of factor j; and the spread, [N].

    Where the environment declares own dimensions, a factor changes with these alone, and factors without any are left out.

    A change is the distance between the two trajectories at the same time, as a share of the distance between the
    trajectories of two unrelated skills: 0 is no effect, 1 is as much as redrawing the whole skill. In `matrix` the
    distance is Euclidean, in the factor's own units; in `balanced` every dimension that varies is compared alone and counts
    the same, so that a flag that is rarely on weighs as much as a position. `spread` is the distance between unrelated
    skills itself: how far the skills as a whole move each factor. Where the skill has one part, it says more than the
    matrix, whose only row is 1.
    """

    matrix: jax.Array
    balanced: jax.Array
    spread: jax.Array


def loop(function: Callable[[jax.Array], Any], over: jax.Array) -> Any:
    """`jax.lax.map` for functions that cannot be compiled."""
    return jax.tree.map(lambda *rows: jnp.stack(rows), *(function(item) for item in over))


def measured_factors(factors: Factorization, own: Own = None) -> tuple[tuple[str, ...], np.ndarray]:
    """The factors whose change is measured, and the dimensions that count for each, as ones in [N, S]."""
    if own is None:
        return factors.names, factors.membership
    names = tuple(name for name in factors.names if name in own)
    membership = np.zeros((len(names), factors.size), np.float32)
    for row, name in zip(membership, names, strict=True):
        row[list(own[name])] = 1.0
    return names, membership


def control_matrix(
    factors: Factorization,
    skills: SkillSpace,
    rollout: Callable[[jax.Array, jax.Array], Any],
    key: jax.Array,
    pairs: int = PAIRS,
    over_parts: Map = loop,
    own: Own = None,
) -> Control:
    """Redraw each part of `pairs` random skills and compare trajectories that start from the same reset.

    `rollout` gives the observations [T, pairs, S] of skills [pairs, Z] and a key; with mean actions every difference comes
    from the skill. Where it can be compiled, `over_parts` may be `jax.lax.map`.
    """
    k_skills, k_other, k_vary, k_run = jax.random.split(key, 4)
    base = skills.sample(k_skills, pairs)
    membership = measured_factors(factors, own)[1]

    def distances(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Mean distance of each factor, [N], and of each dimension, [S]."""
        difference = a - b
        return jnp.sqrt(difference**2 @ membership.T).mean(axis=(0, 1)), jnp.abs(difference).mean(axis=(0, 1))

    reference = jnp.asarray(rollout(base, k_run))
    factor_scale, dimension_scale = distances(jnp.asarray(rollout(skills.sample(k_other, pairs), k_run)), reference)
    varies = dimension_scale > 1e-5

    def row(part: jax.Array) -> tuple[jax.Array, jax.Array]:
        changed = jnp.asarray(rollout(skills.vary(jax.random.fold_in(k_vary, part), base, part), k_run))
        factor, dimension = distances(changed, reference)
        share = jnp.where(varies, dimension / jnp.maximum(dimension_scale, 1e-5), 0.0)
        balanced = jnp.matmul(membership, share) / jnp.maximum(jnp.matmul(membership, varies), 1.0)
        return factor / jnp.maximum(factor_scale, 1e-5), balanced

    matrix, balanced = over_parts(row, jnp.arange(skills.parts))
    return Control(matrix, balanced, factor_scale)


def own_cells(parts: Sequence[str], factors: Sequence[str]) -> np.ndarray | None:
    """The diagonal, [parts, N]: where part and factor have one name; None if a factor has no part, or there is only one."""
    if len(parts) < 2 or not set(factors) <= set(parts):
        return None
    return np.array([[part == factor for factor in factors] for part in parts])


def diagonal_ratio(matrix: jax.Array | np.ndarray, own: np.ndarray) -> jax.Array | np.ndarray:
    """Mean of the diagonal over mean of the rest: how much more a skill part moves its own factor than the others."""
    return matrix[own].mean() / (matrix[~own].mean() + 1e-9)


def summarise(parts: Sequence[str], factors: Sequence[str], found: Control) -> Result:
    """The matrices with their names and, where every factor has a skill part, diagonal, rest and their ratio."""
    matrix, balanced = np.asarray(found.matrix, float), np.asarray(found.balanced, float)
    summary: Result = {"parts": list(parts), "factors": list(factors), "matrix": matrix.tolist()}
    summary["balanced_matrix"] = balanced.tolist()
    summary["spread"] = dict(zip(factors, np.asarray(found.spread, float).tolist(), strict=True))
    if (own := own_cells(parts, factors)) is not None:
        summary |= {"diagonal": float(matrix[own].mean()), "off_diagonal": float(matrix[~own].mean())}
        summary |= {"ratio": float(diagonal_ratio(matrix, own)), "balanced_ratio": float(diagonal_ratio(balanced, own))}
    return summary


def measure(agent: Agent, seed: int = 0, pairs: int = PAIRS) -> Result:
    """Which part of the skill moves which factor, with mean actions over one training episode."""
    env, trainer = agent.trainer.env, agent.trainer
    policy = trainer.policy(agent.actor, sampled=False)

    def rollout(skills: jax.Array, key: jax.Array) -> np.ndarray:
        return np.asarray(rollout_skills(env, policy, skills, trainer.horizon, key).next_obs)

    factors, own, skills = env.spec.factorization, env.spec.own, trainer.learner.method.skills
    found = control_matrix(factors, skills, rollout, jax.random.key(seed), pairs, own=own)
    return summarise(part_names(trainer), measured_factors(factors, own)[0], found)


def row_names(result: Result) -> list[str]:
    """The names of the rows of the matrix; results of earlier versions name the factors only."""
    names: list[str] = result["parts"] if "parts" in result else result["factors"]
    return names


def draw(path: Path, spec: EnvSpec, result: Result, artifacts: Artifacts) -> None:
    """The matrix as a heat map."""
    figures.control_matrix(path, row_names(result), result["factors"], np.array(result["matrix"]), result.get("ratio"))


def facts(result: Result) -> Iterator[Fact]:
    """The matrix, cell by cell; its summary where parts and factors correspond; and the spread of every factor."""
    for part, row in zip(row_names(result), result["matrix"], strict=True):
        cells = zip(result["factors"], row, strict=True)
        yield from ((f"{part}>{factor}", 0, "change", value) for factor, value in cells)
    summary = ("diagonal", "off_diagonal", "ratio", "balanced_ratio")
    yield from (("", 0, name, result[name]) for name in summary if name in result)
    yield from ((factor, 0, "spread", value) for factor, value in result["spread"].items())


def tables(report: Result) -> list[Table]:
    """Diagonal, rest and ratio where parts and factors correspond, and the spread of every factor."""
    results, found = report["results"], []
    if "ratio" in results[0]:
        columns = ("own factor (diagonal)", "other factors", "ratio")
        values = ("diagonal", "off_diagonal", "ratio")
        rows = [(one["seed"], tuple(f"{one[name]:.2f}" for name in values)) for one in results]
        found.append(seed_table("Control: change of a factor when one part of the skill is redrawn", columns, rows))
    spreads: list[tuple[int, Row]] = [(one["seed"], tuple(f"{x:.2f}" for x in one["spread"].values())) for one in results]
    title = "Spread: distance of a factor between two unrelated skills, in its own units"
    return [*found, seed_table(title, tuple(results[0]["spread"]), spreads)]


EVALUATION = Evaluation(
    name="control",
    title="Control",
    summary="which part of the skill moves which factor",
    measure=measure,
    draw=draw,
    tables=tables,
    facts=facts,
    seconds=10.0,
    section="susd.report.sections.skills:control",
)

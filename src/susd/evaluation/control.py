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
from susd.errors import UserError
from susd.evaluation.registry import Artifacts, Evaluation, Fact, Option, Result
from susd.factors import Factorization
from susd.runs.tables import Row, Table, seed_table
from susd.skills import SkillSpace
from susd.training.agent import part_names
from susd.viz import figures

if TYPE_CHECKING:
    from susd.training.agent import Agent

PAIRS, MAX_PAIRS = 128, 10_000
STILL = 1e-5  # distance up to which two trajectories of a factor are the same
RARE = 0.1  # a factor that moved in a smaller share of the pairs is left out of means: too rare to say what moves it
RESAMPLES, TAIL = 1000, 2.5  # of the bootstrap over pairs, and the percent that its interval leaves out on either side

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
    matrix, whose only row is 1. The last two are the distances of `matrix` and `spread` pair by pair.
    """

    matrix: jax.Array
    balanced: jax.Array
    spread: jax.Array
    changes: jax.Array  # [parts, pairs, N]
    spreads: jax.Array  # [pairs, N]

    @property
    def moved(self) -> jax.Array:
        """[N] the number of pairs of unrelated skills that differ in a factor."""
        return (self.spreads > STILL).sum(axis=0)

    @property
    def counted(self) -> jax.Array:
        """[N] whether a factor moved often enough to say what moves it."""
        return self.moved >= RARE * self.spreads.shape[0]


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
        """Mean distance over time of each factor in every pair, [pairs, N], and of each dimension in all pairs, [S]."""
        difference = a - b
        return jnp.sqrt(difference**2 @ membership.T).mean(axis=0), jnp.abs(difference).mean(axis=(0, 1))

    reference = jnp.asarray(rollout(base, k_run))
    spreads, dimension_scale = distances(jnp.asarray(rollout(skills.sample(k_other, pairs), k_run)), reference)
    varies = dimension_scale > STILL

    def row(part: jax.Array) -> tuple[jax.Array, jax.Array]:
        changed = jnp.asarray(rollout(skills.vary(jax.random.fold_in(k_vary, part), base, part), k_run))
        factor, dimension = distances(changed, reference)
        share = jnp.where(varies, dimension / jnp.maximum(dimension_scale, STILL), 0.0)
        return factor, jnp.matmul(membership, share) / jnp.maximum(jnp.matmul(membership, varies), 1.0)

    changes, balanced = over_parts(row, jnp.arange(skills.parts))
    spread = spreads.mean(axis=0)
    return Control(changes.mean(axis=1) / jnp.maximum(spread, STILL), balanced, spread, changes, spreads)


def probe_matrix(
    factors: Factorization,
    skills: SkillSpace,
    rollout: Callable[[jax.Array, jax.Array], Any],
    key: jax.Array,
    pairs: int = PAIRS,
    own: Own = None,
) -> np.ndarray:
    """[dimensions, pairs, N]: how far each factor moves if one dimension of the skill is redrawn, as `Control.changes`.

    A skill with one part of many dimensions may have a dimension for each factor, which its only part cannot show.
    """
    k_skills, k_vary, k_run = jax.random.split(key, 3)
    base, membership = skills.sample(k_skills, pairs), measured_factors(factors, own)[1]
    reference, other = jnp.asarray(rollout(base, k_run)), skills.sample(k_vary, pairs)
    rows = []
    for index in range(skills.size):
        changed = skills.project(base.at[:, index].set(other[:, index]))
        difference = jnp.asarray(rollout(changed, k_run)) - reference
        rows.append(jnp.sqrt(difference**2 @ membership.T).mean(axis=0))
    return np.asarray(jnp.stack(rows))


def probe(changes: np.ndarray, spreads: np.ndarray, counted: np.ndarray) -> Result:
    """How much more the dimensions that belong to a factor move it than the others do; the dimensions are found by half
    of the pairs, each for one factor and as many for each factor as there are, and measured with the other half.
    """
    from scipy.optimize import linear_sum_assignment

    half = changes.shape[1] // 2
    scale = np.maximum(spreads.mean(axis=0), STILL)
    find, test = changes[:, :half].mean(axis=1) / scale, changes[:, half:] / scale
    copies = max(1, len(find) // int(counted.sum()))
    columns = np.tile(np.flatnonzero(counted), copies)
    dimensions, chosen = linear_sum_assignment(-find[:, columns])
    own = np.zeros(find.shape, bool)
    own[dimensions, columns[chosen]] = True
    rest = ~own & counted

    def ratio(weights: np.ndarray) -> np.ndarray:
        matrices = np.einsum("rp,ipj->rij", weights, test)
        return matrices[:, own].mean(axis=1) / (matrices[:, rest].mean(axis=1) + 1e-9)

    pairs = test.shape[1]
    drawn = np.random.default_rng(0).multinomial(pairs, np.full(pairs, 1 / pairs), RESAMPLES) / pairs
    low, high = np.percentile(ratio(drawn), (TAIL, 100 - TAIL))
    value = float(ratio(np.full((1, pairs), 1 / pairs))[0])
    return {"ratio": value, "interval": [float(low), float(high)], "dimensions": len(find)}


def own_cells(parts: Sequence[str], factors: Sequence[str]) -> np.ndarray | None:
    """The diagonal, [parts, N]: where part and factor have one name; None without any, or if there is only one part."""
    if len(parts) < 2 or not set(factors) & set(parts):
        return None
    return np.array([[part == factor for factor in factors] for part in parts])


def diagonal_means(matrix: jax.Array | np.ndarray, own: np.ndarray, counted: Any) -> tuple[jax.Array, jax.Array]:
    """Mean of the diagonal, and of the rest, over the columns that count; not a number where there are none."""
    return tuple(jnp.where(cells, matrix, 0.0).sum() / cells.sum() for cells in (own & counted, _others(own) & counted))


def _others(own: np.ndarray) -> np.ndarray:
    """Off the diagonal, in the columns of factors that have a part."""
    found: np.ndarray = ~own & own.any(axis=0)
    return found


def diagonal_ratio(matrix: jax.Array | np.ndarray, own: np.ndarray, counted: Any) -> jax.Array:
    """How much more a part of the skill moves its own factor than the others, over the columns that count."""
    diagonal, rest = diagonal_means(matrix, own, counted)
    return diagonal / (rest + 1e-9)


def ratio_interval(found: Control, own: np.ndarray) -> tuple[float, float]:
    """The 95 % percentile interval of the ratio, from a bootstrap over pairs of skills (Efron, 1979)."""
    changes, spreads, counted = (np.asarray(x) for x in (found.changes, found.spreads, found.counted))
    pairs = len(spreads)
    weights = np.random.default_rng(0).multinomial(pairs, np.full(pairs, 1 / pairs), RESAMPLES) / pairs
    matrices = np.einsum("rp,ipj->rij", weights, changes) / np.maximum(weights @ spreads, STILL)[:, None]
    ratios = matrices[:, own & counted].mean(axis=1) / (matrices[:, _others(own) & counted].mean(axis=1) + 1e-9)
    low, high = np.percentile(ratios, (TAIL, 100 - TAIL))
    return float(low), float(high)


def summarise(parts: Sequence[str], factors: Sequence[str], found: Control) -> Result:
    """The matrices with their names, how many pairs moved each factor and, where factors have parts, the ratio.

    The columns of factors that never moved are empty. Means are over factors that moved in enough pairs.
    """
    moved, counted = np.asarray(found.moved), np.asarray(found.counted)

    def rows(matrix: jax.Array) -> list[list[float | None]]:
        return [[float(x) if n else None for x, n in zip(row, moved, strict=True)] for row in np.asarray(matrix)]

    summary: Result = {"parts": list(parts), "factors": list(factors), "matrix": rows(found.matrix)}
    summary["balanced_matrix"] = rows(found.balanced)
    summary["spread"] = dict(zip(factors, np.asarray(found.spread, float).tolist(), strict=True))
    summary |= {"pairs": len(found.spreads), "moved": dict(zip(factors, moved.tolist(), strict=True))}
    summary["left_out"] = [name for name, kept in zip(factors, counted, strict=True) if not kept]
    if (own := own_cells(parts, factors)) is not None and (own & counted).any():
        diagonal, rest = diagonal_means(found.matrix, own, counted)
        summary |= {"diagonal": float(diagonal), "off_diagonal": float(rest)}
        summary["ratio"] = float(diagonal_ratio(found.matrix, own, counted))
        summary["ratio_interval"] = list(ratio_interval(found, own))
        summary["balanced_ratio"] = float(diagonal_ratio(found.balanced, own, counted))
    return summary


def check_pairs(pairs: int) -> None:
    """Refuse too few pairs for an interval, and more than fit the memory."""
    if not 8 <= pairs <= MAX_PAIRS:
        raise UserError(f"--pairs is {pairs}; it must be from 8 to {MAX_PAIRS}")


def measure(agent: Agent, seed: int = 0, pairs: int = PAIRS) -> Result:
    """Which part of the skill moves which factor, with mean actions over one training episode."""
    env, trainer = agent.trainer.env, agent.trainer
    policy = trainer.policy(agent.actor, sampled=False)

    def rollout(skills: jax.Array, key: jax.Array) -> np.ndarray:
        return np.asarray(rollout_skills(env, policy, skills, trainer.horizon, key).next_obs)

    factors, own, skills = env.spec.factorization, env.spec.own, trainer.learner.method.skills
    found = control_matrix(factors, skills, rollout, jax.random.key(seed), pairs, own=own)
    result = summarise(part_names(trainer), measured_factors(factors, own)[0], found)
    counted = np.asarray(found.counted)
    if not skills.discrete and skills.size > 1 and counted.sum() > 1:
        changes = probe_matrix(factors, skills, rollout, jax.random.key(seed), pairs, own)
        result["probe"] = probe(changes, np.asarray(found.spreads), counted)
    return result


def row_names(result: Result) -> list[str]:
    """The names of the rows of the matrix; results of earlier versions name the factors only."""
    names: list[str] = result["parts"] if "parts" in result else result["factors"]
    return names


def draw(path: Path, spec: EnvSpec, result: Result, artifacts: Artifacts) -> None:
    """The matrix as a heat map."""
    matrix = np.array(result["matrix"], float)
    left_out = {name: f"{result['moved'][name]} of {result['pairs']} pairs" for name in result["left_out"]}
    ratio, interval = result.get("ratio"), result.get("ratio_interval")
    figures.control_matrix(path, row_names(result), result["factors"], matrix, ratio, interval, left_out)


def facts(result: Result) -> Iterator[Fact]:
    """The matrix, cell by cell; its summary where parts and factors correspond; spread and movement of every factor."""
    for part, row in zip(row_names(result), result["matrix"], strict=True):
        cells = zip(result["factors"], row, strict=True)
        yield from ((f"{part}>{factor}", 0, "change", value) for factor, value in cells if value is not None)
    summary = ("diagonal", "off_diagonal", "ratio", "balanced_ratio", "pairs")
    yield from (("", 0, name, result[name]) for name in summary if name in result)
    yield from (
        ("", 0, f"ratio_{end}", x) for end, x in zip(("low", "high"), result.get("ratio_interval", ()), strict=False)
    )
    if "probe" in result:
        low, high = result["probe"]["interval"]
        yield from (("", 0, f"probe_{name}", x) for name, x in (("low", low), ("high", high)))
        yield from (("", 0, f"probe_{name}", result["probe"][name]) for name in ("ratio", "dimensions"))
    for metric in ("spread", "moved"):
        yield from ((factor, 0, metric, value) for factor, value in result.get(metric, {}).items())


def tables(report: Result) -> list[Table]:
    """Diagonal, rest and ratio where parts and factors correspond; spread and movement of every factor."""
    results, found = report["results"], []
    if summaries := [one for one in results if "ratio" in one]:
        columns = ("own factor (diagonal)", "other factors", "ratio", "95 % interval")
        rows: list[tuple[int, Row]] = [
            (one["seed"], (*(f"{one[name]:.2f}" for name in ("diagonal", "off_diagonal", "ratio")), _interval(one)))
            for one in summaries
        ]
        found.append(seed_table("Control: change of a factor when one part of the skill is redrawn", columns, rows))
    if probed := [one for one in results if "probe" in one]:
        of_probe: list[tuple[int, Row]] = []
        for one in probed:
            low, high = one["probe"]["interval"]
            row = (str(one["probe"]["dimensions"]), f"{one['probe']['ratio']:.2f}", f"{low:.2f} to {high:.2f}")
            of_probe.append((one["seed"], row))
        title = "Control of single dimensions: each by the factor that it moves most"
        found.append(seed_table(title, ("dimensions", "ratio", "95 % interval"), of_probe))
    factors: list[tuple[int, Row]] = []
    for one in results:
        moved = one.get("moved", {})
        for name, spread in one["spread"].items():
            pairs = f"{moved[name]} of {one['pairs']}" if name in moved else "-"
            factors.append((one["seed"], (name, f"{spread:.3g}", pairs, _remark(one, name))))
    title = "Spread: distance of a factor between two unrelated skills, in its own units"
    return [*found, seed_table(title, ("factor", "spread", "pairs that moved it", ""), factors)]


def _interval(result: Result) -> str:
    return " to ".join(f"{end:.2f}" for end in result["ratio_interval"]) if "ratio_interval" in result else "-"


def _remark(result: Result, factor: str) -> str:
    """Why a factor is not in the means."""
    if factor not in result.get("left_out", ()):
        return ""
    return "moved too rarely: left out" if result["moved"][factor] else "never moved: left out"


EVALUATION = Evaluation(
    name="control",
    title="Control",
    summary="which part of the skill moves which factor",
    measure=measure,
    draw=draw,
    tables=tables,
    facts=facts,
    options=(Option("pairs", PAIRS, "pairs of skills that are compared", check_pairs),),
    seconds=10.0,
    section="susd.report.sections.skills:control",
)

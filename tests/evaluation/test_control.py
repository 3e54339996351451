"""Control in an environment whose answers are known."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.two_points import STEP, TwoPoints
from susd.collect import rollout
from susd.envs.gunner import Gunner
from susd.evaluation import control
from susd.evaluation.control import Control
from susd.skills import SkillSpace
from susd.types import Policy

CIRCLE = SkillSpace("factor_sphere", 2, 2)
KEY = jax.random.key(0)
FACTORS = TwoPoints().spec.factorization


def noisy(obs: jax.Array, skill: jax.Array, key: jax.Array) -> jax.Array:
    return 0.5 * skill + 0.5 * jax.random.normal(key, skill.shape)


def measure(policy: Policy, steps: int = 4, pairs: int = 32, skills: SkillSpace = CIRCLE) -> Control:
    def observations(drawn: jax.Array, key: jax.Array) -> jax.Array:
        return rollout(TwoPoints(), policy, drawn, steps, key)[1].next_obs

    return jax.jit(lambda: control.control_matrix(FACTORS, skills, observations, KEY, pairs, jax.lax.map))()


def of_pairs(matrix: Any, balanced: Any, spread: Any, moved: Sequence[int] = (40, 40), pairs: int = 40) -> Control:
    """Measurements of equal pairs, of which the first `moved` move a factor and the others do not."""
    spread, weights = np.array(spread), np.zeros((pairs, 2))
    for factor, count in enumerate(moved):
        weights[:count, factor] = pairs / max(count, 1)
    changes = np.asarray(matrix)[:, None] * spread * weights
    return Control(*(jnp.asarray(x) for x in (matrix, balanced, spread, changes, spread * weights)))


def matrix(policy: Policy, steps: int = 4, pairs: int = 32, skills: SkillSpace = CIRCLE) -> np.ndarray:
    return np.asarray(measure(policy, steps, pairs, skills).matrix)


@pytest.mark.slow
def test_loop_and_compiled_map_agree() -> None:
    def observations(drawn: jax.Array, key: jax.Array) -> jax.Array:
        return rollout(TwoPoints(), noisy, drawn, 4, key)[1].next_obs

    looped = control.control_matrix(FACTORS, CIRCLE, jax.jit(observations), KEY, 32)
    for one, other in zip(looped, measure(noisy), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_own_parts_move_own_factors() -> None:
    result = matrix(lambda obs, z, key: z, pairs=2048)
    assert result[0, 1] == result[1, 0] == 0.0
    # A factor that depends on its own part alone changes as much as between unrelated skills. The flag of factor a never
    # varies here and must not reduce that.
    np.testing.assert_allclose(np.diag(result), 1.0, rtol=0.03)


def test_control_is_the_share_of_the_whole_skill() -> None:
    # Point a follows z^1 + 2 z^2: redrawing z^2 changes it twice as far as redrawing z^1, and neither as far as both.
    result = matrix(lambda obs, z, key: jnp.concatenate([z[:, :2] + 2.0 * z[:, 2:], 0.0 * z[:, 2:]], -1), pairs=2048)
    assert result[1, 0] / result[0, 0] == pytest.approx(2.0, rel=0.05)
    assert result[0, 0] < result[1, 0] < 1.0
    assert not result[:, 1].any()


def test_balanced_control_weighs_dimensions_equally() -> None:
    # Point a: x follows z^1 ten times as far as y follows z^2. In distance z^1 decides nearly all, in balance one half.
    def policy(obs: jax.Array, z: jax.Array, key: jax.Array) -> jax.Array:
        return jnp.stack([z[:, 0], 0.1 * z[:, 2], 0.0 * z[:, 0], 0.0 * z[:, 0]], -1)

    result = measure(policy, pairs=2048)
    assert result.matrix[0, 0] > 0.95
    assert result.matrix[1, 0] < 0.2
    np.testing.assert_allclose(result.balanced[:, 0], 0.5, rtol=0.05)
    assert not result.balanced[:, 1].any()


def test_swapped_parts_move_the_other_factor() -> None:
    result = matrix(lambda obs, z, key: jnp.roll(z, 2, axis=-1))
    assert np.diag(result).tolist() == [0.0, 0.0]
    assert result[0, 1] > 0.8
    assert result[1, 0] > 0.8


@pytest.mark.parametrize(
    "policy", [lambda obs, z, key: jnp.zeros_like(z), lambda obs, z, key: jax.random.normal(key, z.shape)]
)
def test_no_control_without_the_skill(policy: Policy) -> None:
    assert not matrix(policy).any()


def test_sampled_actions_are_no_control() -> None:
    result = matrix(noisy)
    assert result[0, 1] == result[1, 0] == 0.0
    assert (np.diag(result) > 0.1).all()


def test_control_of_one_part() -> None:
    whole = SkillSpace("sphere", 1, 4)
    result = matrix(lambda obs, z, key: jnp.concatenate([z[:, :2], jnp.zeros_like(z[:, 2:])], -1), skills=whole)
    assert result.shape == (1, 2)
    assert result[0, 0] > 0.8
    assert result[0, 1] == 0.0
    summary = control.summarise(("all",), FACTORS.names, of_pairs(result, result, [0.5, 0.0]))
    assert "ratio" not in summary
    assert summary["spread"] == {"a": 0.5, "b": 0.0}


def test_spread_of_unrelated_skills() -> None:
    """Two random directions are 4 / pi apart in the mean, and so are trajectories of a after one step; b never moves."""
    whole = SkillSpace("sphere", 1, 2)
    spread = np.asarray(measure(lambda obs, z, key: jnp.concatenate([z, 0.0 * z], -1), pairs=4096, skills=whole).spread)
    np.testing.assert_allclose(spread[0], STEP * 4 / np.pi * np.mean([1, 2, 3, 4]), rtol=0.03)
    assert spread[1] == 0.0


def test_control_summary() -> None:
    matrices = np.array([[2.0, 0.5], [0.3, 4.0]]), np.array([[1.0, 0.5], [0.5, 1.0]])
    summary = control.summarise(FACTORS.names, FACTORS.names, of_pairs(*matrices, [7.0, 0.25]))
    assert summary["factors"] == ["a", "b"]
    np.testing.assert_allclose(summary["matrix"], [[2.0, 0.5], [0.3, 4.0]], rtol=1e-6)
    assert summary["spread"] == {"a": 7.0, "b": 0.25}
    assert (summary["diagonal"], summary["off_diagonal"]) == (pytest.approx(3.0), pytest.approx(0.4))
    assert summary["ratio"] == pytest.approx(7.5)
    assert summary["balanced_ratio"] == pytest.approx(2.0)


def test_facts_and_tables() -> None:
    matrices = np.array([[2.0, 0.5], [0.3, 4.0]]), np.array([[1.0, 0.5], [0.5, 1.0]])
    result = control.summarise(FACTORS.names, FACTORS.names, of_pairs(*matrices, [7.0, 0.25]))
    facts = {(subject, metric): value for subject, _, metric, value in control.facts(result)}
    assert facts["a>b", "change"] == 0.5
    assert facts["b>b", "change"] == 4.0
    assert facts["a", "spread"] == 7.0
    assert (facts["", "ratio"], facts["", "balanced_ratio"]) == (pytest.approx(7.5), pytest.approx(2.0))
    ratio, spread = control.tables({"results": [{"seed": 0, "epoch": 1, **result}]})
    assert ratio.rows == [("3.00", "0.40", "7.50", "7.50 to 7.50")]
    assert spread.columns == ("factor", "spread", "pairs that moved it", "")
    assert spread.rows == [("a", "7", "40 of 40", ""), ("b", "0.25", "40 of 40", "")]
    one_part = control.summarise(("all",), FACTORS.names, of_pairs(*(m[:1] for m in matrices), [7.0, 0.25]))
    assert {subject for subject, *_ in control.facts(one_part)} == {"all>a", "all>b", "a", "b", ""}
    assert len(control.tables({"results": [{"seed": 0, "epoch": 1, **one_part}]})) == 1


def summary_of(moved: Sequence[int]) -> dict[str, Any]:
    matrices = np.array([[1.0, 0.5], [0.25, 1.0]]), np.array([[1.0, 0.5], [0.5, 1.0]])
    return control.summarise(FACTORS.names, FACTORS.names, of_pairs(*matrices, [7.0, 0.25], moved))


@pytest.mark.parametrize(("moved", "ratio"), [((40, 40), 8 / 3), ((40, 4), 8 / 3), ((40, 3), 4.0), ((40, 0), 4.0)])
def test_rare_factors_are_left_out(moved: tuple[int, int], ratio: float) -> None:
    """A tenth of the pairs is enough; a factor that moved in fewer is named, and not in the means."""
    summary = summary_of(moved)
    assert summary["moved"] == {"a": 40, "b": moved[1]}
    assert summary["ratio"] == pytest.approx(ratio, rel=1e-5)
    assert summary["left_out"] == ([] if moved[1] >= 4 else ["b"])
    assert (summary["matrix"][0][1] is None) == (moved[1] == 0)
    facts = {(subject, metric): value for subject, _, metric, value in control.facts(summary)}
    assert (facts["b", "moved"], facts["", "pairs"]) == (moved[1], 40)
    assert ("a>b", "change") in facts or not moved[1]
    remark = control.tables({"results": [{"seed": 0, "epoch": 1, **summary}]})[1].rows[1][-1]
    assert remark == {40: "", 4: "", 3: "moved too rarely: left out", 0: "never moved: left out"}[moved[1]]


def test_no_ratio_where_nothing_moved(tmp_path: Path) -> None:
    summary = summary_of((3, 0))
    assert summary["left_out"] == ["a", "b"]
    assert not {"ratio", "ratio_interval", "diagonal"} & summary.keys()
    assert len(control.tables({"results": [{"seed": 0, "epoch": 1, **summary}]})) == 1
    control.draw(tmp_path / "control.png", TwoPoints().spec, summary, {})
    matrix = np.ones((2, 2))
    assert np.isnan(control.diagonal_ratio(matrix, np.eye(2, dtype=bool), np.zeros(2, bool)))


def test_interval_of_the_ratio() -> None:
    """It holds the ratio, narrows with more pairs, and covers the ratio of a thousand pairs in most repetitions."""

    def drawn(seed: int, pairs: int) -> Control:
        random, scale = np.random.default_rng(seed), np.array([[1.0, 0.4], [0.4, 1.0]])
        changes, spreads = scale[:, None] * random.exponential(size=(2, pairs, 2)), random.exponential(size=(pairs, 2))
        spread = spreads.mean(axis=0)
        matrix = changes.mean(axis=1) / spread
        return Control(*(jnp.asarray(x) for x in (matrix, matrix, spread, changes, spreads)))

    own = np.eye(2, dtype=bool)
    few = [control.ratio_interval(drawn(seed, 64), own) for seed in range(40)]
    assert sum(low <= 2.5 <= high for low, high in few) >= 34
    widths = [high - low for low, high in (control.ratio_interval(drawn(0, pairs), own) for pairs in (64, 1024))]
    assert widths[1] < widths[0] / 2
    assert control.ratio_interval(drawn(0, 64), own) == few[0]


def test_results_of_earlier_versions_have_no_interval() -> None:
    old = {key: x for key, x in summary_of((40, 40)).items() if key not in ("pairs", "moved", "left_out", "ratio_interval")}
    ratio, spread = control.tables({"results": [{"seed": 0, "epoch": 1, **old}]})
    assert ratio.rows[0][-1] == "-"
    assert spread.rows[0] == ("a", "7", "-", "")
    assert not {metric for _, _, metric, _ in control.facts(old)} & {"moved", "pairs", "ratio_low"}


def test_own_dimensions_alone_count() -> None:
    """Point a is its position (1, 2), not its flag; b has nothing of its own, so it is no column."""

    def observations(drawn: jax.Array, key: jax.Array) -> jax.Array:
        return rollout(TwoPoints(), lambda obs, z, key: z, drawn, 4, key)[1].next_obs.at[..., 0].set(drawn[:, 2])

    own = {"a": (1, 2)}
    whole = control.control_matrix(FACTORS, CIRCLE, jax.jit(observations), KEY, 256)
    found = control.control_matrix(FACTORS, CIRCLE, jax.jit(observations), KEY, 256, own=own)
    assert control.measured_factors(FACTORS, own)[0] == ("a",)
    assert found.matrix.shape == (2, 1)
    assert float(found.matrix[1, 0]) == 0.0  # the flag follows the other part of the skill, and does not count
    assert float(whole.matrix[1, 0]) > 0.5
    summary = control.summarise(("a", "b"), ("a",), found)
    assert summary["ratio"] > 100
    assert {subject for subject, *_ in control.facts(summary)} == {"a>a", "b>a", "a", ""}


def test_ratio_is_of_factors_that_have_a_part() -> None:
    assert control.own_cells(("all",), ("a", "b")) is None
    assert control.own_cells(("part 1", "part 2"), ("a", "b")) is None
    some = control.own_cells(("a", "c"), ("a", "b"))
    assert some is not None
    matrix = np.array([[0.8, 0.6], [0.2, 0.7]])  # nothing belongs to b, so its column does not count
    np.testing.assert_allclose(control.diagonal_means(matrix, some, np.array([True, True])), (0.8, 0.2), rtol=1e-6)
    cells = control.own_cells(("a", "b", "rest"), ("a", "b"))
    assert cells is not None
    assert cells.tolist() == [[True, False], [False, True], [False, False]]


def test_results_of_earlier_versions() -> None:
    old = {"factors": ["a", "b"], "matrix": [[1.0, 0.0], [0.0, 1.0]], "spread": {"a": 1.0, "b": 1.0}}
    assert {subject for subject, *_ in control.facts(old)} == {"a>a", "a>b", "b>a", "b>b", "a", "b"}


def probed(policy: Policy, skills: SkillSpace) -> dict[str, Any]:
    observations = jax.jit(lambda drawn, key: rollout(TwoPoints(), policy, drawn, 4, key)[1].next_obs)
    changes = control.probe_matrix(FACTORS, skills, observations, KEY, 64)
    found = control.control_matrix(FACTORS, skills, observations, KEY, 64)
    return control.probe(changes, np.asarray(found.spreads), np.asarray(found.counted))


def test_dimensions_of_one_part_may_belong_to_factors() -> None:
    """A single part whose dimensions move one factor each, in any order, differs from one whose dimensions move both."""
    whole = SkillSpace("gaussian", 1, 4)
    apart = probed(lambda obs, z, key: 0.3 * z[:, jnp.array([2, 0, 3, 1])], whole)
    mixed = probed(
        lambda obs, z, key: 0.3 * z @ jnp.array([[1.0, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]), whole
    )
    assert apart["dimensions"] == 4
    assert apart["ratio"] > 1e3
    assert mixed["ratio"] == pytest.approx(1.0, abs=0.25)
    assert mixed["interval"][0] < mixed["ratio"] < mixed["interval"][1]


def test_probe_in_facts_and_tables() -> None:
    result = summary_of((40, 40)) | {"probe": {"ratio": 2.0, "interval": [1.5, 2.5], "dimensions": 6}}
    facts = {(subject, metric): value for subject, _, metric, value in control.facts(result)}
    assert (facts["", "probe_ratio"], facts["", "probe_low"], facts["", "probe_dimensions"]) == (2.0, 1.5, 6)
    assert ("6", "2.00", "1.50 to 2.50") in control.tables({"results": [{"seed": 0, "epoch": 1, **result}]})[1].rows


def test_scripted_skills_of_gunner() -> None:
    """Parts that drive only their own actuators: the bound that the coupling of factors sets, which docs/results names."""
    env = Gunner()

    def scripted(obs: jax.Array, z: jax.Array, key: jax.Array) -> jax.Array:
        hand = jnp.concatenate([z[:, 2:4], z[:, 2:3]], -1)
        return jnp.concatenate([0.35 * z[:, :2], hand, 0.1 * z[:, 4:5]], -1)

    skills = SkillSpace("factor_sphere", 3, 2)
    observations = jax.jit(lambda drawn, key: rollout(env, scripted, drawn, env.spec.horizon, key)[1].next_obs)
    found = control.control_matrix(env.spec.factorization, skills, observations, KEY)
    names = env.spec.factorization.names
    assert control.summarise(names, names, found)["ratio"] > 4.0

"""Coverage, control and the skill space on made-up data whose answers are known by hand."""

from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from susd.collect import rollout
from susd.envs.base import EnvSpec, Plane
from susd.errors import UserError
from susd.evaluation import control, coverage
from susd.evaluation.control import Control
from susd.factors import Factorization
from susd.skills import PRIORS, SkillSpace
from susd.types import Policy

STEP = 1 / 64  # a power of two, so that every sum below is exact
CIRCLE = SkillSpace("factor_sphere", 2, 2)
KEY = jax.random.key(0)


class TwoPoints:
    """Points a and b in the box [0, 1], from its middle, each pushed by its own half of the action; a flag beside a."""

    @cached_property
    def spec(self) -> EnvSpec:
        factors = Factorization.from_mapping({"a": [0, 1, 2], "b": [3, 4]}, 5)
        planes = (Plane("a", 1, 2, 0.0, 1.0), Plane("b", 3, 4, 0.0, 1.0))
        return EnvSpec("two_points", 5, 4, 8, factors, planes, {"right": 0})

    def reset(self, key: jax.Array) -> jax.Array:
        return jnp.full(4, 0.5)

    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> jax.Array:
        return jnp.clip(state + STEP * action, 0.0, 1.0)

    def observe(self, state: jax.Array) -> jax.Array:
        return jnp.concatenate([(state[:1] > 0.75).astype(jnp.float32), state])

    def render(self, state: jax.Array, size: int = 400) -> np.ndarray:
        raise NotImplementedError


def noisy(obs: jax.Array, skill: jax.Array, key: jax.Array) -> jax.Array:
    return 0.5 * skill + 0.5 * jax.random.normal(key, skill.shape)


def measure(policy: Policy, steps: int = 4, pairs: int = 32, skills: SkillSpace = CIRCLE) -> Control:
    return jax.jit(lambda: control.control_matrix(TwoPoints(), policy, skills, KEY, steps, pairs))()


def matrix(policy: Policy, steps: int = 4, pairs: int = 32, skills: SkillSpace = CIRCLE) -> np.ndarray:
    return np.asarray(measure(policy, steps, pairs, skills).matrix)


def spec_of(low: float = 0.0, high: float = 1.0) -> EnvSpec:
    plane = Plane("p", 0, 1, low, high)
    return EnvSpec("plane", 3, 1, 1, Factorization.from_boundaries((0, 3), ("all",)), (plane,), {"flag": 2})


def grid_of(points: list[tuple[float, float]], spec: EnvSpec) -> np.ndarray:
    obs = jnp.array([(x, y, 0.0) for x, y in points])[:, None]
    return np.asarray(jax.jit(lambda x: coverage.grid(spec, x))(obs))[0]


def test_own_parts_move_own_factors_only() -> None:
    result = matrix(lambda obs, z, key: z, pairs=2048)
    assert result[0, 1] == result[1, 0] == 0.0
    # A factor that its own part alone decides changes as much as between strangers. The flag of factor a never varies
    # here and must not dilute that.
    np.testing.assert_allclose(np.diag(result), 1.0, rtol=0.03)


def test_control_is_the_share_of_the_whole_skill() -> None:
    # Point a follows z^1 + 2 z^2: redrawing z^2 changes it twice as far as redrawing z^1, and neither as far as both.
    result = matrix(lambda obs, z, key: jnp.concatenate([z[:, :2] + 2.0 * z[:, 2:], 0.0 * z[:, 2:]], -1), pairs=2048)
    assert result[1, 0] / result[0, 0] == pytest.approx(2.0, rel=0.05)
    assert result[0, 0] < result[1, 0] < 1.0
    assert not result[:, 1].any()


def test_balanced_control_counts_every_dimension_that_varies_the_same() -> None:
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
def test_a_policy_that_ignores_the_skill_has_no_control(policy: Policy) -> None:
    assert not matrix(policy).any()


def test_sampled_actions_do_not_look_like_control() -> None:
    result = matrix(noisy)
    assert result[0, 1] == result[1, 0] == 0.0
    assert (np.diag(result) > 0.1).all()


def test_control_of_a_skill_in_one_part() -> None:
    whole = SkillSpace("sphere", 1, 4)
    result = matrix(lambda obs, z, key: jnp.concatenate([z[:, :2], jnp.zeros_like(z[:, 2:])], -1), skills=whole)
    assert result.shape == (1, 2)
    assert result[0, 0] > 0.8
    assert result[0, 1] == 0.0
    summary = control.summarise(TwoPoints().spec, Control(result, result, np.array([0.5, 0.0])))
    assert "ratio" not in summary
    assert summary["spread"] == {"a": 0.5, "b": 0.0}


def test_spread_is_the_distance_between_two_unrelated_skills() -> None:
    """Two random directions are 4 / pi apart in the mean, and so are the courses of a after one step; b never moves."""
    whole = SkillSpace("sphere", 1, 2)
    push = jax.jit(
        lambda: control.control_matrix(
            TwoPoints(), lambda obs, z, key: jnp.concatenate([z, 0.0 * z], -1), whole, KEY, steps=4, pairs=4096
        )
    )
    spread = np.asarray(push().spread)
    np.testing.assert_allclose(spread[0], STEP * 4 / np.pi * np.mean([1, 2, 3, 4]), rtol=0.03)
    assert spread[1] == 0.0


def test_control_summary() -> None:
    matrices = np.array([[2.0, 0.5], [0.3, 4.0]]), np.array([[1.0, 0.5], [0.5, 1.0]])
    summary = control.summarise(TwoPoints().spec, Control(*matrices, np.array([7.0, 0.25])))
    assert summary["factors"] == ["a", "b"]
    assert summary["matrix"] == [[2.0, 0.5], [0.3, 4.0]]
    assert summary["spread"] == {"a": 7.0, "b": 0.25}
    assert (summary["diagonal"], summary["off_diagonal"]) == (3.0, 0.4)
    assert summary["ratio"] == pytest.approx(7.5)
    assert summary["balanced_ratio"] == pytest.approx(2.0)


def test_cells_at_the_borders() -> None:
    expected = {
        (0.0, 0.0): [0, 0],
        (1.0, 1.0): [49, 49],  # the far edge belongs to the last cell
        (0.5, 0.1): [25, 5],  # an inner edge belongs to the cell above it; x comes first
        (0.5 - 2**-20, 0.1): [24, 5],
        (-3.0, 7.0): [0, 49],  # outside: the nearest cell
    }
    assert np.argwhere(grid_of(list(expected), spec_of())).tolist() == sorted(expected.values())
    assert np.argwhere(grid_of([(0.0, -1.0), (1.0, 0.999)], spec_of(-1.0, 1.0))).tolist() == [[25, 0], [49, 49]]


def test_cells_are_counted_once_and_visits_each_time() -> None:
    points = [(0.001, 0.001), (0.019, 0.019), (0.021, 0.001), (0.999, 0.5), (0.001, 0.001)]
    grid = grid_of(points, spec_of())
    assert (grid[0, 0], grid[1, 0], grid[49, 25], grid.sum()) == (3, 1, 1, 5)
    obs = jnp.array([(x, y, 0.0) for x, y in points])[:, None]
    assert np.asarray(coverage.visited_cells(spec_of(), obs)).tolist() == [3]


def test_unique_positions_round_to_hundredths() -> None:
    points = [(0.001, 0.0), (-0.004, 0.004), (0.006, 0.0), (0.014, 0.0), (0.0, 0.01), (3.0, -3.0), (3.0, -3.0)]
    obs = np.array([(x, y, 0.0) for x, y in points], np.float32).reshape(7, 1, 3)
    # (0, 0) twice, (0.01, 0) twice, (0, 0.01), (3, -3) twice
    assert coverage.unique_positions(spec_of(), obs).tolist() == [4]
    assert coverage.unique_positions(spec_of(), obs.reshape(1, 7, 3)).tolist() == [4]


def test_every_plane_is_counted_by_itself() -> None:
    right = jnp.array([[1.0, 0.0, 0.0, 0.0]])
    moves = jax.jit(lambda: rollout(TwoPoints(), lambda obs, z, key: z, right, 32, KEY)[1])()
    # a walks from 0.5 to 1 in steps of 1/64, b stands: cells 25 .. 49 against one.
    assert np.asarray(coverage.visited_cells(TwoPoints().spec, moves.next_obs)).tolist() == [25, 1]
    summary = coverage.summarise(TwoPoints().spec, np.asarray(moves.next_obs))
    assert summary["cells"] == {"worst": 1, "average": 13.0, "of": 2500}
    assert summary["unique"] == {"worst": 1, "average": 16.5}
    assert summary["per_plane"] == {
        "a": {"cells": 25, "unique": 32, "moved": 1.0, "reach": 31 / 64},
        "b": {"cells": 1, "unique": 1, "moved": 0.0, "reach": 0.0},
    }
    assert summary["steps"] == 32
    assert summary["landmarks"] == {"right": 1.0}


def test_landmarks_are_the_share_of_skills_that_reach_them() -> None:
    flags = np.zeros((3, 4))
    flags[1, 0] = flags[0, 2] = flags[2, 2] = 1.0  # skill 0 once, skill 2 twice
    obs = np.stack([np.zeros((3, 4)), np.zeros((3, 4)), flags], axis=-1)
    assert {name: float(share) for name, share in coverage.landmarks(spec_of(), jnp.asarray(obs)).items()} == {"flag": 0.5}


def test_coverage_trajectories_start_anew_with_every_skill() -> None:
    run = jax.jit(lambda: coverage.trajectories(TwoPoints(), lambda obs, z, key: z, CIRCLE, KEY, steps=600))
    obs = np.asarray(run())
    assert obs.shape == (200, 3, 5)
    first = obs[0, :, 1:] - 0.5
    np.testing.assert_allclose(np.hypot(first[:, 0], first[:, 1]), STEP, rtol=1e-4)
    assert len(np.unique(first, axis=0)) == 3


def test_coverage_needs_a_plane() -> None:
    spec = EnvSpec("blind", 3, 1, 1, spec_of().factorization, (), {})
    with pytest.raises(UserError, match="blind has no position"):
        coverage.summarise(spec, np.zeros((2, 1, 3)))


def lengths(space: SkillSpace, skills: jax.Array) -> np.ndarray:
    """The lengths that the prior fixes at 1."""
    return np.linalg.norm(np.asarray(skills if space.prior == "sphere" else space.split(skills)), axis=-1)


@pytest.mark.parametrize("prior", [prior for prior in PRIORS if prior != "one_hot"])
@pytest.mark.parametrize(("parts", "dim"), [(3, 2), (1, 6), (6, 1)])
def test_skills_lie_in_their_space(prior: str, parts: int, dim: int) -> None:
    space = SkillSpace(prior, parts, dim)
    skills = space.sample(KEY, 4096)
    assert skills.shape == (4096, space.size) == (4096, parts * dim)
    if prior != "gaussian":
        np.testing.assert_allclose(lengths(space, skills), 1.0, rtol=1e-5)
    np.testing.assert_allclose(space.input_scale * np.asarray(skills).std(axis=0), 1.0, atol=0.05)
    np.testing.assert_allclose(np.asarray(skills).mean(axis=0), 0.0, atol=0.06)
    assert space.split(skills).shape == (4096, parts, dim)
    np.testing.assert_array_equal(space.split(skills)[:, -1], skills[:, -dim:])


@pytest.mark.parametrize(("parts", "dim"), [(3, 2), (1, 6), (2, 5)])
def test_choices_are_one_of_k_and_equally_likely(parts: int, dim: int) -> None:
    space = SkillSpace("one_hot", parts, dim)
    skills = np.asarray(space.sample(KEY, 4096))
    chosen = np.asarray(space.split(skills))
    assert set(np.unique(skills)) == {0.0, 1.0}
    assert (chosen.sum(axis=-1) == 1.0).all()
    np.testing.assert_allclose(chosen.mean(axis=0), 1 / dim, atol=4 * np.sqrt(0.25 / 4096))
    assert space.input_scale == 1.0
    assert len(np.unique(skills, axis=0)) == dim**parts


@pytest.mark.parametrize("prior", PRIORS)
def test_project_twice_is_project_once(prior: str) -> None:
    space = SkillSpace(prior, 3, 2)
    once = space.project(5.0 * jax.random.normal(KEY, (64, 6)))
    np.testing.assert_allclose(space.project(once), once, atol=2e-7)
    if prior != "gaussian":
        np.testing.assert_allclose(space.project(7.0 * once), once, atol=1e-6)
        np.testing.assert_allclose(lengths(space, once), 1.0, rtol=1e-5)


@pytest.mark.parametrize("prior", PRIORS)
def test_vary_changes_one_part_alone(prior: str) -> None:
    space = SkillSpace(prior, 3, 2)
    skills = space.sample(KEY, 32)
    changed = jax.jit(space.vary)(jax.random.key(1), skills, 1)
    old, new = np.asarray(space.split(skills)), np.asarray(space.split(changed))
    assert new[:, [0, 2]].tobytes() == old[:, [0, 2]].tobytes()
    other = (new[:, 1] != old[:, 1]).any(axis=-1)
    assert 0.2 < other.mean() < 0.8 if prior == "one_hot" else other.all()  # one choice of two is drawn again half the time
    if prior != "gaussian":
        np.testing.assert_allclose(lengths(space, changed), 1.0, rtol=1e-5)


def test_skill_space_errors_say_what_is_wrong() -> None:
    with pytest.raises(UserError, match=r"'cube' is unknown; choose one of sphere, factor_sphere, gaussian, one_hot"):
        SkillSpace("cube", 2, 2)
    with pytest.raises(UserError, match="at least one part and one dimension, not 0 x 2"):
        SkillSpace("sphere", 0, 2)
    with pytest.raises(UserError, match="not 2 x 0"):
        SkillSpace("sphere", 2, 0)
    with pytest.raises(UserError, match="at least 2 values to choose from, not 1"):
        SkillSpace("one_hot", 2, 1)

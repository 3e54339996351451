"""Coverage of trajectories whose cells are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.two_points import STEP, TwoPoints
from susd.collect import rollout
from susd.envs.base import EnvSpec, Plane
from susd.envs.multi_particle import MultiParticle
from susd.errors import UserError
from susd.evaluation import coverage
from susd.factors import Factorization
from susd.methods.registry import method
from susd.skills import SkillSpace

CIRCLE = SkillSpace("factor_sphere", 2, 2)
KEY = jax.random.key(0)


def spec_of(low: float = 0.0, high: float = 1.0) -> EnvSpec:
    plane = Plane("p", 0, 1, low, high)
    return EnvSpec("plane", 3, 1, 1, Factorization.from_boundaries((0, 3), ("all",)), (plane,), {"flag": 2})


def grid_of(points: list[tuple[float, float]], spec: EnvSpec) -> np.ndarray:
    obs = jnp.array([(x, y, 0.0) for x, y in points])[:, None]
    return np.asarray(jax.jit(lambda x: coverage.grid(spec, x))(obs))[0]


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


def test_cells_and_visits() -> None:
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


@pytest.mark.slow
def test_planes_are_counted_separately() -> None:
    right = jnp.array([[1.0, 0.0, 0.0, 0.0]])
    moves = jax.jit(lambda: rollout(TwoPoints(), lambda obs, z, key: z, right, 32, KEY)[1])()
    # a walks from 0.5 to 1 in steps of 1/64, b does not move: cells 25 .. 49, and one cell.
    assert np.asarray(coverage.visited_cells(TwoPoints().spec, moves.next_obs)).tolist() == [25, 1]
    summary = coverage.summarise(TwoPoints().spec, np.asarray(moves.next_obs))
    assert summary["cells"] == {"worst": 1, "average": 13.0, "of": 2500}
    assert summary["unique"] == {"worst": 1, "average": 16.5}
    assert summary["per_plane"] == {
        "a": {"cells": 25, "of": 2500, "unique": 32, "moved": 1.0, "reach": 31 / 64},
        "b": {"cells": 1, "of": 2500, "unique": 1, "moved": 0.0, "reach": 0.0},
    }
    assert summary["steps"] == 32
    assert summary["landmarks"] == {"right": 1.0}


def test_landmarks_are_shares_of_skills() -> None:
    flags = np.zeros((3, 4))
    flags[1, 0] = flags[0, 2] = flags[2, 2] = 1.0  # skill 0 once, skill 2 twice
    obs = np.stack([np.zeros((3, 4)), np.zeros((3, 4)), flags], axis=-1)
    assert {name: float(share) for name, share in coverage.landmarks(spec_of(), jnp.asarray(obs)).items()} == {"flag": 0.5}


def test_every_trajectory_starts_from_reset() -> None:
    obs = coverage.trajectories(TwoPoints(), lambda obs, z, key: z, CIRCLE, KEY, steps=600)
    assert obs.shape == (200, 3, 5)
    first = obs[0, :, 1:] - 0.5
    np.testing.assert_allclose(np.hypot(first[:, 0], first[:, 1]), STEP, rtol=1e-4)
    assert len(np.unique(first, axis=0)) == 3


def test_coverage_needs_a_plane() -> None:
    spec = EnvSpec("blind", 3, 1, 1, spec_of().factorization, (), {})
    with pytest.raises(UserError, match="blind has no position"):
        coverage.summarise(spec, np.zeros((2, 1, 3)))
    assert coverage.undefined(spec, method("susd")) == "blind has no position whose coverage could be measured"
    assert coverage.undefined(TwoPoints().spec, method("susd")) == coverage.undefined("gunner", method("susd")) == ""


def test_facts_hold_every_body_and_landmark() -> None:
    right = jnp.array([[1.0, 0.0, 0.0, 0.0]])
    obs = np.asarray(jax.jit(lambda: rollout(TwoPoints(), lambda obs, z, key: z, right, 32, KEY)[1])().next_obs)
    result = {"trained": coverage.summarise(TwoPoints().spec, obs)}
    result["trained"]["longer"] = coverage.summarise(TwoPoints().spec, np.concatenate([obs, obs], axis=1))
    facts = {(subject, step, metric): value for subject, step, metric, value in coverage.facts(result)}
    assert facts["trained", 32, "cells_worst"] == 1 / 2500
    assert facts["trained", 32, "unique_average"] == 16.5
    assert facts["trained>a", 32, "cells"] == 25 / 2500
    assert (facts["trained>a", 32, "moved"], facts["trained>b", 64, "moved"]) == (1.0, 0.0)
    assert facts["trained>a", 32, "reach"] == 31 / 64
    assert facts["trained>right", 64, "landmark"] == 1.0


@pytest.mark.parametrize("steps", [0, -200, 100, 20_100, 10**12])
def test_steps_are_a_multiple_of_a_skill(steps: int) -> None:
    with pytest.raises(UserError, match=f"--steps is {steps}; it must be"):
        coverage.check_steps(steps)


def joint(x: list[float], y: list[float]) -> float | None:
    """The share of two points' configurations that is visited, each on a diagonal of its plane."""
    obs = np.zeros((len(x), 1, 5), np.float32)
    spec = TwoPoints().spec
    for plane, values in zip(spec.planes, (x, y), strict=True):
        obs[:, 0, plane.x] = obs[:, 0, plane.y] = values
    return coverage.joint_coverage(spec, obs)


def test_joint_coverage_needs_independent_factors() -> None:
    """Two bodies that move alike visit as many cells each as two that do not, and far fewer configurations."""
    line = [(i + 0.5) / coverage.COARSE for i in range(coverage.COARSE)]
    alike = joint(line, line)
    apart = joint([a for a in line for _ in line], [b for _ in line for b in line])
    assert alike == pytest.approx(coverage.COARSE / coverage.COARSE**4)
    assert apart == pytest.approx(coverage.COARSE**2 / coverage.COARSE**4)
    assert coverage.joint_coverage(spec_of(), np.zeros((2, 1, 3))) is None  # one factor


def test_configurations_of_flags() -> None:
    """A factor without a body has the configurations of its landmarks, and none of them."""
    spec = EnvSpec("flags", 3, 1, 1, Factorization.from_boundaries((0, 2, 3), ("a", "b")), (), {"x": 0, "y": 1, "z": 2})
    obs = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 1], [0, 1, 1]], float)[:, None]
    found = coverage.configurations(spec, obs)
    assert found["a"][0].ravel().tolist() == [0, 1, 2, 2]
    assert (found["a"][1], found["b"][1]) == (3, 2)
    assert coverage.joint_coverage(spec, obs) == 3 / 6


def test_fixed_start_repeats_one_state() -> None:
    env = MultiParticle(layout="random")
    start = coverage.FixedStart(env, KEY)
    still = jax.jit(lambda obs, z, key: jnp.zeros((len(obs), env.spec.action_size)))
    skills = SkillSpace("factor_sphere", 10, 2)
    moving = coverage.summarise(env.spec, coverage.trajectories(env, still, skills, KEY, steps=1000))
    fixed = coverage.summarise(env.spec, coverage.trajectories(start, still, skills, KEY, steps=1000))
    assert moving["cells"]["worst"] > 1  # random starts alone cover cells
    assert fixed["cells"] == {"worst": 1, "average": 1.0, "of": 2500}
    assert fixed["reach"] == {"worst": 0.0, "average": 0.0}
    facts = {(s, m): v for s, _, m, v in coverage.facts({"random actions": moving | {"fixed_start": fixed}})}
    assert facts["random actions", "fixed_cells_average"] == 1 / 2500
    assert facts["random actions", "joint"] == moving["joint"]
    assert facts["random actions", "fixed_reach_worst"] == 0.0

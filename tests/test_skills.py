"""The skill prior: a joint unit sphere by default, so that every factor's part has length 1/N in the mean square."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from susd.errors import UserError
from susd.skills import PRIORS, SkillSpace

KEY = jax.random.key(7)


@pytest.mark.parametrize(("prior", "square"), [("sphere", 1 / 5), ("factor_sphere", 1.0), ("gaussian", 2.0)])
def test_mean_square_of_a_part(prior: str, square: float) -> None:
    space = SkillSpace(prior, 5, 2)
    skills = np.asarray(space.sample(KEY, 20_000), np.float64)
    np.testing.assert_allclose((np.asarray(space.split(skills)) ** 2).sum(axis=-1).mean(axis=0), square, rtol=0.03)
    covariance = skills.T @ skills / len(skills)
    np.testing.assert_allclose(covariance, square / 2 * np.eye(10), atol=0.05 * square)


def test_one_factor_of_two_dimensions_is_the_unit_circle() -> None:
    skills = np.asarray(SkillSpace("sphere", 1, 2).sample(KEY, 4000))
    angle = np.arctan2(skills[:, 1], skills[:, 0])
    assert stats.kstest((angle + np.pi) / (2 * np.pi), "uniform").pvalue > 1e-3


def test_joint_parts_differ_in_length() -> None:
    """A sphere per factor would be another prior: here one part can take the budget of the others."""
    space = SkillSpace("sphere", 3, 2)
    lengths = np.linalg.norm(np.asarray(space.split(space.sample(KEY, 1000))), axis=-1)
    assert lengths.min() < 0.1
    assert lengths.max() > 0.95


def test_one_dimension_per_factor_is_a_sign() -> None:
    skills = np.asarray(SkillSpace("factor_sphere", 4, 1).sample(KEY, 2000))
    assert set(np.unique(skills)) == {-1.0, 1.0}
    np.testing.assert_allclose(skills.mean(axis=0), 0.0, atol=0.1)


@pytest.mark.parametrize("prior", PRIORS)
def test_project_of_zero_is_finite(prior: str) -> None:
    assert np.isfinite(np.asarray(SkillSpace(prior, 2, 2).project(jnp.zeros((3, 4))))).all()


def test_project_keeps_the_direction() -> None:
    vector = np.asarray(jax.random.normal(KEY, (8, 6)), np.float64)
    joint = vector / np.linalg.norm(vector, axis=1, keepdims=True)
    np.testing.assert_allclose(SkillSpace("sphere", 3, 2).project(jnp.asarray(vector, jnp.float32)), joint, rtol=1e-5)
    parts = vector.reshape(8, 3, 2)
    each = (parts / np.linalg.norm(parts, axis=2, keepdims=True)).reshape(8, 6)
    np.testing.assert_allclose(SkillSpace("factor_sphere", 3, 2).project(jnp.asarray(vector, jnp.float32)), each, rtol=1e-5)


@pytest.mark.parametrize("prior", PRIORS)
def test_same_key_same_skills(prior: str) -> None:
    space = SkillSpace(prior, 2, 3)
    assert np.asarray(space.sample(KEY, 4)).tobytes() == np.asarray(space.sample(KEY, 4)).tobytes()
    assert (np.asarray(space.sample(jax.random.key(8), 4)) != np.asarray(space.sample(KEY, 4))).any()


def test_choices_are_uniform_and_one_of_each_part() -> None:
    space = SkillSpace("one_hot", 3, 4)
    parts = np.asarray(space.split(space.sample(KEY, 8000)))
    assert set(np.unique(parts)) == {0.0, 1.0}
    np.testing.assert_array_equal(parts.sum(axis=-1), 1.0)
    np.testing.assert_allclose(parts.mean(axis=0), 0.25, atol=0.03)
    num_envs = np.einsum("bi,bj->ij", parts[:, 0], parts[:, 1]) / 8000
    np.testing.assert_allclose(num_envs, 1 / 16, atol=0.015)  # channels are drawn independently


def test_project_takes_the_largest_entry_of_every_part() -> None:
    space = SkillSpace("one_hot", 2, 3)
    vector = jnp.array([[-5.0, -4.0, -6.0, 0.9, 0.8, 0.7]])  # neither a threshold nor a length would do
    np.testing.assert_array_equal(space.project(vector), [[0, 1, 0, 1, 0, 0]])


def test_direction_of_a_choice_has_no_common_part() -> None:
    space = SkillSpace("one_hot", 2, 4)
    direction = np.asarray(space.direction(space.sample(KEY, 16)))
    np.testing.assert_allclose(direction.sum(axis=-1), 0.0, atol=1e-6)
    np.testing.assert_allclose(
        np.sort(direction, axis=-1), np.broadcast_to([-1 / 3, -1 / 3, -1 / 3, 1.0], (16, 2, 4)), rtol=1e-6
    )
    round_space = SkillSpace("sphere", 2, 4)
    skill = round_space.sample(KEY, 16)
    np.testing.assert_array_equal(round_space.direction(skill), round_space.split(skill))


def test_a_choice_needs_two_values() -> None:
    with pytest.raises(UserError, match="at least 2 values to choose from, not 1"):
        SkillSpace("one_hot", 3, 1)


@pytest.mark.parametrize("prior", PRIORS)
def test_vary_redraws_one_part_only_and_stays_in_the_space(prior: str) -> None:
    space = SkillSpace(prior, 3, 4)
    skill = space.sample(KEY, 600)
    varied = space.vary(jax.random.key(8), skill, 1)
    old, new = np.asarray(space.split(skill)), np.asarray(space.split(varied))
    np.testing.assert_array_equal(new[:, [0, 2]], old[:, [0, 2]])
    np.testing.assert_allclose(space.project(varied), varied, atol=1e-6)
    changed = (new[:, 1] != old[:, 1]).any(axis=1).mean()
    if space.discrete:  # a new draw among 4 is the old one a quarter of the time
        np.testing.assert_allclose(new[:, 1].mean(axis=0), 0.25, atol=0.08)
        assert changed == pytest.approx(0.75, abs=0.08)
    else:
        assert changed == 1.0


def test_a_choice_enters_networks_as_it_is() -> None:
    assert SkillSpace("one_hot", 3, 4).input_scale == 1.0
    assert SkillSpace("one_hot", 3, 4).discrete

"""The skill prior: on the joint unit sphere, the part of every factor has a mean square of 1/N."""

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


def test_two_dimensions_are_the_unit_circle() -> None:
    skills = np.asarray(SkillSpace("sphere", 1, 2).sample(KEY, 4000))
    angle = np.arctan2(skills[:, 1], skills[:, 0])
    assert stats.kstest((angle + np.pi) / (2 * np.pi), "uniform").pvalue > 1e-3


def test_joint_parts_differ_in_length() -> None:
    """Unlike on a sphere per factor, one part can be long while the others are short."""
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


def test_discrete_skills_are_uniform() -> None:
    space = SkillSpace("one_hot", 3, 4)
    parts = np.asarray(space.split(space.sample(KEY, 8000)))
    assert set(np.unique(parts)) == {0.0, 1.0}
    np.testing.assert_array_equal(parts.sum(axis=-1), 1.0)
    np.testing.assert_allclose(parts.mean(axis=0), 0.25, atol=0.03)
    joint = np.einsum("bi,bj->ij", parts[:, 0], parts[:, 1]) / 8000
    np.testing.assert_allclose(joint, 1 / 16, atol=0.015)  # the parts are independent


def test_project_takes_the_largest_entry() -> None:
    space = SkillSpace("one_hot", 2, 3)
    vector = jnp.array([[-5.0, -4.0, -6.0, 0.9, 0.8, 0.7]])  # neither a threshold nor the length decides
    np.testing.assert_array_equal(space.project(vector), [[0, 1, 0, 1, 0, 0]])


def test_direction_of_a_discrete_skill() -> None:
    space = SkillSpace("one_hot", 2, 4)
    direction = np.asarray(space.direction(space.sample(KEY, 16)))
    np.testing.assert_allclose(direction.sum(axis=-1), 0.0, atol=1e-6)
    np.testing.assert_allclose(
        np.sort(direction, axis=-1), np.broadcast_to([-1 / 3, -1 / 3, -1 / 3, 1.0], (16, 2, 4)), rtol=1e-6
    )
    sphere = SkillSpace("sphere", 2, 4)
    skill = sphere.sample(KEY, 16)
    np.testing.assert_array_equal(sphere.direction(skill), sphere.split(skill))


def test_discrete_skills_need_two_values() -> None:
    with pytest.raises(UserError, match="a one-hot skill needs at least 2 values, not 1"):
        SkillSpace("one_hot", 3, 1)


@pytest.mark.parametrize("prior", PRIORS)
def test_vary_resamples_one_part(prior: str) -> None:
    space = SkillSpace(prior, 3, 4)
    skill = space.sample(KEY, 600)
    varied = space.vary(jax.random.key(8), skill, 1)
    old, new = np.asarray(space.split(skill)), np.asarray(space.split(varied))
    np.testing.assert_array_equal(new[:, [0, 2]], old[:, [0, 2]])
    np.testing.assert_allclose(space.project(varied), varied, atol=1e-6)
    changed = (new[:, 1] != old[:, 1]).any(axis=1).mean()
    if space.discrete:  # a new sample out of 4 is the old one in a quarter of all cases
        np.testing.assert_allclose(new[:, 1].mean(axis=0), 0.25, atol=0.08)
        assert changed == pytest.approx(0.75, abs=0.08)
    elif space.paced:  # rest is followed by rest in 1/16 of all cases
        assert changed == pytest.approx(15 / 16, abs=0.04)
        np.testing.assert_allclose((new[:, 1] ** 2).sum(axis=-1).mean(), 0.75 * 4 / 6, atol=0.08)
    else:
        assert changed == 1.0


def test_input_scale_of_discrete_skills() -> None:
    assert SkillSpace("one_hot", 3, 4).input_scale == 1.0
    assert SkillSpace("one_hot", 3, 4).discrete


def lengths(space: SkillSpace, skills: jax.Array) -> np.ndarray:
    """The lengths that the prior fixes at 1."""
    return np.linalg.norm(np.asarray(skills if space.prior == "sphere" else space.split(skills)), axis=-1)


@pytest.mark.slow
@pytest.mark.parametrize("prior", [prior for prior in PRIORS if prior != "one_hot"])
@pytest.mark.parametrize(("parts", "dim"), [(3, 2), (1, 6), (6, 1)])
def test_samples_of_continuous_priors(prior: str, parts: int, dim: int) -> None:
    space = SkillSpace(prior, parts, dim)
    skills = space.sample(KEY, 4096)
    assert skills.shape == (4096, space.size) == (4096, parts * dim)
    if prior == "factor_ball":
        assert (lengths(space, skills) <= 1.0 + 1e-6).all()
    elif prior != "gaussian":
        np.testing.assert_allclose(lengths(space, skills), 1.0, rtol=1e-5)
    np.testing.assert_allclose(space.input_scale * np.asarray(skills).std(axis=0), 1.0, atol=0.05)
    np.testing.assert_allclose(np.asarray(skills).mean(axis=0), 0.0, atol=0.06)
    assert space.split(skills).shape == (4096, parts, dim)
    np.testing.assert_array_equal(space.split(skills)[:, -1], skills[:, -dim:])


@pytest.mark.parametrize(("parts", "dim"), [(3, 2), (1, 6), (2, 5)])
def test_discrete_skills_are_equally_likely(parts: int, dim: int) -> None:
    space = SkillSpace("one_hot", parts, dim)
    skills = np.asarray(space.sample(KEY, 4096))
    chosen = np.asarray(space.split(skills))
    assert set(np.unique(skills)) == {0.0, 1.0}
    assert (chosen.sum(axis=-1) == 1.0).all()
    np.testing.assert_allclose(chosen.mean(axis=0), 1 / dim, atol=4 * np.sqrt(0.25 / 4096))
    assert space.input_scale == 1.0
    assert len(np.unique(skills, axis=0)) == dim**parts


@pytest.mark.parametrize("prior", PRIORS)
def test_project_is_idempotent(prior: str) -> None:
    space = SkillSpace(prior, 3, 2)
    once = space.project(5.0 * jax.random.normal(KEY, (64, 6)))
    np.testing.assert_allclose(space.project(once), once, atol=2e-7)
    if prior == "factor_ball":
        assert (lengths(space, once) <= 1.0 + 1e-6).all()
        np.testing.assert_array_equal(space.project(0.1 * once), 0.1 * once)  # inside the ball nothing changes
    elif prior != "gaussian":
        np.testing.assert_allclose(space.project(7.0 * once), once, atol=1e-6)
        np.testing.assert_allclose(lengths(space, once), 1.0, rtol=1e-5)


def test_paced_skills_are_uniform_in_the_ball_or_zero() -> None:
    space = SkillSpace("factor_ball", 3, 2)
    length = np.linalg.norm(np.asarray(space.split(space.sample(KEY, 8000))), axis=-1)
    at_rest = length == 0.0
    np.testing.assert_allclose(at_rest.mean(axis=0), 0.25, atol=0.02)
    np.testing.assert_allclose((at_rest[:, 0] & at_rest[:, 1]).mean(), 1 / 16, atol=0.01)  # the parts are independent
    assert stats.kstest(length[~at_rest] ** 2, "uniform").pvalue > 1e-3


def test_paced_direction_has_unit_length_or_is_zero() -> None:
    space = SkillSpace("factor_ball", 2, 2)
    skill = jnp.array([[0.3, -0.4, 0.0, 0.0]])
    np.testing.assert_allclose(space.direction(skill), [[[0.6, -0.8], [0.0, 0.0]]], rtol=1e-6)
    np.testing.assert_allclose(space.project(jnp.array([3.0, -4.0, 0.1, 0.2])), [0.6, -0.8, 0.1, 0.2], rtol=1e-6)
    np.testing.assert_allclose(
        space.towards(jnp.array([[3.0, -4.0], [0.1, 0.0]])), [0.6, -0.8, 0.1, 0.0], rtol=1e-6
    )  # as a goal action: full speed while it is far, slower when it is near


def test_names_of_parts() -> None:
    assert SkillSpace("sphere", 2, 2, ("a", "b")).names == ("a", "b")
    with pytest.raises(UserError, match="a skill has 2 parts, but 1 names: a"):
        SkillSpace("sphere", 2, 2, ("a",))


def test_errors_name_the_problem() -> None:
    known = "sphere, factor_sphere, factor_ball, gaussian, one_hot"
    with pytest.raises(UserError, match=f"'cube' is unknown; choose one of {known}"):
        SkillSpace("cube", 2, 2)
    with pytest.raises(UserError, match="parts of a skill is 0; it must be an integer from 1 to"):
        SkillSpace("sphere", 0, 2)
    with pytest.raises(UserError, match="dim of a skill is 0; it must be an integer from 1 to"):
        SkillSpace("sphere", 2, 0)

"""What a high-level action means: the skill it stands for."""

import jax.numpy as jnp
import numpy as np
import pytest

from susd.downstream.interface import FlatActions, SkillActions
from susd.skills import SkillSpace


@pytest.mark.parametrize(
    ("prior", "parts", "dim", "expected"),
    [
        ("sphere", 2, 2, [0.36, -0.48, 0.0, 0.8]),
        ("factor_sphere", 2, 2, [0.6, -0.8, 0.0, 1.0]),
        ("gaussian", 2, 2, [0.675, -0.9, 0.0, 1.5]),
        ("one_hot", 2, 2, [1.0, 0.0, 0.0, 1.0]),
        ("one_hot", 1, 4, [0.0, 0.0, 0.0, 1.0]),
    ],
)
def test_projection_onto_the_prior(prior: str, parts: int, dim: int, expected: list[float]) -> None:
    skills = SkillActions(SkillSpace(prior, parts, dim), lambda _: lambda obs, skill, key: skill)
    high_action = jnp.asarray([0.45, -0.6, 0.0, 1.0])
    np.testing.assert_allclose(skills.skill(high_action), expected, atol=1e-6)
    np.testing.assert_allclose(skills.act(None, jnp.zeros(3), high_action), expected, atol=1e-6)
    assert (skills.size, skills.duration) == (4, 5)


def test_discrete_skills_are_one_hot() -> None:
    """Where a threshold would give no discrete skill or several, the largest value of each part decides."""
    skills = SkillActions(SkillSpace("one_hot", 2, 3), lambda _: lambda obs, skill, key: skill)
    low, high = skills.skill(jnp.asarray([-0.9, -0.8, -0.7, 0.8, 0.9, 0.7])).reshape(2, 3)
    assert low.tolist() == [0, 0, 1]
    assert high.tolist() == [0, 1, 0]


def test_flat_actions_are_actions() -> None:
    flat = FlatActions(2)
    assert flat.duration == 1
    np.testing.assert_array_equal(flat.act(None, jnp.zeros(3), jnp.asarray([0.3, -0.4])), np.float32([0.3, -0.4]))

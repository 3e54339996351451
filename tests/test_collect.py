"""Rollouts: the loop over a batch gives what the compiled scan gives, in batches and with a callback."""

import jax
import jax.numpy as jnp
import numpy as np

from susd.collect import rollout, rollout_skills
from susd.envs.base import HostEnvironment
from susd.envs.multi_particle import MultiParticle
from susd.envs.vector import JaxVector
from susd.types import Policy

ENV = MultiParticle(layout="random")
SKILLS = jax.random.normal(jax.random.key(8), (5, 20))
KEY = jax.random.key(3)
POLICY: Policy = jax.jit(lambda obs, skill, key: jnp.tanh(skill + 0.3 * jax.random.normal(key, skill.shape)))


def test_loop_equals_scan() -> None:
    looped = rollout_skills(ENV, POLICY, SKILLS, 12, KEY)
    scanned = jax.jit(lambda: rollout(ENV, POLICY, SKILLS, 12, KEY)[1])()
    for ours, expected in zip(looped, scanned, strict=True):
        assert isinstance(ours, np.ndarray)
        np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_equal_keys_mean_equal_starts() -> None:
    one, two = (rollout_skills(ENV, POLICY, skills, 3, KEY) for skills in (SKILLS, -SKILLS))
    np.testing.assert_array_equal(one.obs[0], two.obs[0])
    assert (one.next_obs != two.next_obs).any()
    other = rollout_skills(ENV, POLICY, SKILLS, 3, jax.random.key(4))
    assert (other.obs[0] != one.obs[0]).any()


def test_batches_of_a_vector() -> None:
    """A batch that is smaller than the number of skills runs several times, each time from other starts."""
    found = rollout_skills(JaxVector(ENV, 2), POLICY, SKILLS, 4, KEY)
    assert found.obs.shape == (4, 5, 70)
    np.testing.assert_array_equal(found.skill[0], SKILLS)
    assert len(np.unique(np.asarray(found.obs[0]), axis=0)) == 5


def test_watch_sees_every_state() -> None:
    seen: list[np.ndarray] = []

    def watch(env: HostEnvironment) -> None:
        assert isinstance(env, JaxVector)
        seen.append(np.asarray(env.state.position))

    found = rollout_skills(ENV, POLICY, SKILLS, 6, KEY, watch)
    positions = np.asarray(found.next_obs).reshape(6, 5, 10, 7)[..., 3:5]
    assert len(seen) == 7
    np.testing.assert_allclose(np.stack(seen)[1:], positions, atol=1e-6)  # compiled in two ways

"""One batched interface over functional and host environments."""

import jax
import numpy as np

from susd.envs import make
from susd.envs.base import HostEnvironment
from susd.envs.multi_particle import MultiParticle
from susd.envs.vector import JaxVector, is_functional, vectorize

ENV = MultiParticle(layout="random")


def test_functional_environments_are_wrapped() -> None:
    vector = vectorize(ENV, 3)
    assert isinstance(vector, JaxVector)
    assert isinstance(vector, HostEnvironment)
    assert (vector.num_envs, vector.spec) == (3, ENV.spec)
    assert is_functional(ENV)
    assert not is_functional(vector)


def test_host_environments_are_kept() -> None:
    env = make("half_cheetah", num_envs=2)
    assert not is_functional(env)
    assert vectorize(env, 5) is env


def test_reset_depends_on_the_seed() -> None:
    vector, other = JaxVector(ENV, 3), JaxVector(ENV, 3)
    first = vector.reset(4)
    assert first.shape == (3, 70)
    assert len(np.unique(first, axis=0)) == 3
    vector.step(np.ones((3, 20)))
    np.testing.assert_array_equal(vector.reset(4), first)
    np.testing.assert_array_equal(other.reset(4), first)
    assert (vector.reset(5) != first).any()


def test_steps_equal_those_of_the_environment() -> None:
    vector = JaxVector(ENV, 2)
    vector.reset(0)
    state = jax.tree.map(lambda x: x[1], vector.state)
    actions = np.linspace(-1, 1, 40).reshape(2, 20)
    result = vector.step(actions)
    expected = ENV.step(state, actions[1].astype(np.float32), jax.random.key(0))
    np.testing.assert_allclose(result.next_obs[1], ENV.observe(expected), atol=1e-6)
    np.testing.assert_array_equal(result.obs, result.next_obs)
    assert not (result.terminated | result.truncated).any()


def test_render_shows_the_current_state() -> None:
    vector = JaxVector(ENV, 2)
    vector.reset(0)
    images = [vector.render(index, 64) for index in (0, 1)]
    assert [image.shape for image in images] == [(64, 64, 3)] * 2
    assert (images[0] != images[1]).any()
    vector.step(np.ones((2, 20)))
    vector.step(np.ones((2, 20)))
    assert (vector.render(0, 64) != images[0]).any()

"""Multi-Particle against its rules: worked examples, layouts, and properties that hold for any actions."""

from collections.abc import Callable

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from susd.envs import make
from susd.envs.base import Environment
from susd.envs.gymnasium.registration import register
from susd.envs.multi_particle import MultiParticle, ParticleState, fixed_layout
from susd.errors import UserError

KEY = jax.random.key(0)
ENV = MultiParticle()
FIVE = MultiParticle(actions="five")
step: Callable[[ParticleState, jax.Array, jax.Array], ParticleState] = jax.jit(ENV.step)


def rollout(env: MultiParticle, actions: jax.Array) -> jax.Array:
    def body(state: ParticleState, action: jax.Array) -> tuple[ParticleState, jax.Array]:
        state = env.step(state, action, KEY)
        return state, env.observe(state)

    return jax.lax.scan(body, env.reset(KEY), actions)[1]


ROLL = jax.jit(rollout, static_argnums=0)
ROLLS = jax.jit(jax.vmap(rollout, (None, 0)), static_argnums=0)


def random_actions(seed: int, shape: tuple[int, ...], scale: float = 1.0) -> jax.Array:
    """Held for ten steps, so that walls and top speed are reached."""
    draws = np.random.default_rng(seed).uniform(-scale, scale, (*shape[:-2], shape[-2] // 10, shape[-1]))
    return jnp.asarray(np.repeat(draws, 10, axis=-2), jnp.float32)


def test_spec() -> None:
    env = make("multi_particle")
    assert isinstance(env, Environment)
    assert hash(env) == hash(make("multi_particle", factors="10", layout_seed="0"))
    assert (env.spec.obs_size, env.spec.action_size, env.spec.horizon) == (70, 20, 50)
    assert make("multi_particle", actions="five").spec.action_size == 50
    assert env.spec.landmarks == {}
    assert [(p.x, p.y) for p in env.spec.planes[:2]] == [(3, 4), (10, 11)]
    assert env.observe(env.reset(KEY)).dtype == jnp.float32


def test_worked_example() -> None:
    state = ENV.reset(KEY)
    before = [1.251585, 0, 0, 0.273923, -0.460427, -0.943361, -0.751433]
    np.testing.assert_allclose(ENV.observe(state)[:7], before, atol=1e-6)
    state = step(state, jnp.zeros(20).at[:2].set(jnp.array([-0.098388, 0.556484])), KEY)
    expected = [1.251585, -0.049194, 0.278242, 0.273923, -0.460427, -0.943361, -0.751433]
    np.testing.assert_allclose(ENV.observe(state)[:7], expected, atol=1e-6)
    state = step(state, jnp.zeros(20).at[:2].set(jnp.array([-0.064639, -0.249322])), KEY)
    expected = [1.253587, -0.069215, 0.084021, 0.269004, -0.432602, -0.943361, -0.751433]
    np.testing.assert_allclose(ENV.observe(state)[:7], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("seed", "distances"),
    [
        (0, [1.252, 1.782, 1.130, 0.929, 0.636, 0.813, 1.995, 0.489, 1.027, 1.275]),
        (1, [1.42, 0.69, 1.43, 0.63, 2.04, 0.97, 0.59, 1.12, 0.31, 0.65]),
        (2, [0.46, 1.38, 0.69, 1.40, 1.16, 1.64, 0.61, 0.63, 0.92, 1.07]),
        (3, [1.48, 1.14, 1.62, 1.23, 1.84, 0.85, 0.83, 1.25, 0.19, 0.16]),
        (22, [0.05, 0.29, 1.22, 0.63, 1.49, 0.73, 1.05, 1.29, 0.03, 0.81]),
    ],
)
def test_fixed_layouts(seed: int, distances: list[float]) -> None:
    env = MultiParticle(layout_seed=seed)
    state = env.reset(jax.random.key(7))
    np.testing.assert_allclose(env.distances(state), distances, atol=0.0051 if seed else 0.00051)
    np.testing.assert_array_equal(state.velocity, 0)
    rng = np.random.default_rng(seed)  # drawn pair by pair: agents first, then stations
    pairs = np.array([rng.uniform(-1, 1, 2) for _ in range(20)])
    np.testing.assert_array_equal(fixed_layout(seed), pairs)
    np.testing.assert_allclose(jnp.concatenate([state.position, state.station]), pairs, atol=1e-7)


def test_random_layout_depends_on_the_key() -> None:
    env = MultiParticle(layout="random")
    one, same, other = (env.reset(jax.random.key(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.position, same.position)
    assert np.all(np.asarray(one.position) != np.asarray(other.position))
    many = jax.vmap(env.reset)(jax.random.split(KEY, 500))
    assert abs(float(many.position.mean())) < 0.05
    assert float(many.station.std()) == pytest.approx(1 / np.sqrt(3), abs=0.02)


def test_walls_stop_positions_not_velocities() -> None:
    state = ENV.reset(KEY)._replace(position=jnp.full((10, 2), 0.95), velocity=jnp.full((10, 2), 1.0))
    pressed = step(state, jnp.ones(20), KEY)
    np.testing.assert_array_equal(pressed.position, 1.0)
    np.testing.assert_allclose(pressed.velocity, 1.25)
    np.testing.assert_array_equal(step(pressed, -jnp.ones(20), KEY).position, 1.0)  # it must slow down first


def test_agents_do_not_collide() -> None:
    state = ENV.reset(KEY)._replace(position=jnp.zeros((10, 2)))
    moved = step(step(state, jnp.zeros(20).at[6].set(1.0), KEY), jnp.zeros(20), KEY)
    expected = np.zeros((10, 2))
    expected[3, 0] = 0.05
    np.testing.assert_allclose(moved.position, expected, atol=1e-7)


def test_top_speed() -> None:
    speeds = np.asarray(ROLL(ENV, jnp.ones((100, 20))))[:, [1, 2]]
    assert speeds.max() <= 2.0
    assert speeds[-1] == pytest.approx([2.0, 2.0], abs=1e-5)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([0, 22]), st.sampled_from(["planar", "five"]))
def test_bounds_and_determinism(seed: int, layout_seed: int, actions: str) -> None:
    env = MultiParticle(layout_seed=layout_seed, actions=actions)
    moves = random_actions(seed, (100, env.spec.action_size), 1.5)
    obs = np.asarray(ROLL(env, moves))
    low, high = env.bounds
    assert np.all(obs >= low)
    assert np.all(obs <= high)
    np.testing.assert_array_equal(obs, ROLL(env, moves))
    np.testing.assert_array_equal(obs, ROLL(env, jnp.clip(moves, -1, 1)))  # step clips


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31))
def test_planar_and_five_slot_actions_agree(seed: int) -> None:
    planar = random_actions(seed, (50, 20))
    slots = np.zeros((50, 10, 5), np.float32)  # the original's translation: positive and negative parts, first slot unused
    split = np.asarray(planar).reshape(50, 10, 2)
    slots[..., 0] = 0.5
    slots[..., 1::2], slots[..., 2::2] = np.maximum(split, 0), np.maximum(-split, 0)
    np.testing.assert_allclose(ROLL(ENV, planar), ROLL(FIVE, jnp.asarray(2 * slots - 1).reshape(50, 50)), atol=2e-6)


def test_vmap_equals_loop() -> None:
    actions = random_actions(4, (6, 100, 20))
    batch = ROLLS(ENV, actions)
    for one, each in zip(actions, batch, strict=True):
        np.testing.assert_allclose(ROLL(ENV, one), each, atol=2e-6)


def test_factor_counts() -> None:
    ten, twenty, one = (make("multi_particle", factors=n).spec.factorization for n in (10, 20, 1))
    assert ten.names == tuple(f"agent_{i}" for i in range(10))
    assert ten.sizes == (7,) * 10
    assert twenty.names[:4] == ("agent_0", "station_0", "agent_1", "station_1")
    assert twenty.sizes == (5, 2) * 10
    assert one.sizes == (70,)
    assert twenty.indices[1] == (5, 6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layout": "free"}, "'layout' cannot be 'free'; allowed: fixed, random"),
        ({"layout_seed": -1}, "'layout_seed' cannot be -1; allowed: an integer"),
        ({"layout_seed": 1.5}, "'layout_seed' cannot be 1.5"),
        ({"actions": 50}, "'actions' cannot be 50; allowed: planar, five"),
        ({"factors": 7}, "'factors' cannot be 7; allowed: 10, 20, 1"),
        ({"start": 0}, "no option 'start'; its options are: layout, layout_seed, actions, factors"),
    ],
)
def test_invalid_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make("multi_particle", **options)


def test_rendering() -> None:
    state = ENV.reset(KEY)
    first = ENV.render(state)
    assert (first.shape, first.dtype) == ((400, 400, 3), np.uint8)
    np.testing.assert_array_equal(first, ENV.render(state))
    assert np.any(first != ENV.render(state._replace(position=state.station)))
    assert ENV.render(state, 64).shape == (64, 64, 3)


@pytest.mark.parametrize("options", [{}, {"layout": "random", "actions": "five"}])
def test_gymnasium(options: dict[str, str]) -> None:
    register()
    env = gymnasium.make("susd/MultiParticle-v0", render_mode="rgb_array", **options)
    check_env(env.unwrapped)
    one, same, other = (env.reset(seed=seed)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert np.array_equal(one, other) == (options == {})
    env.close()

"""2D-Gunner against its rules: worked examples, thresholds, and properties that hold for any actions."""

import math
import subprocess
import sys
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
from susd.envs.gunner import RANGE, SIDE, Gunner, GunnerState
from susd.envs.gymnasium.registration import register
from susd.errors import UserError
from susd.factors import Factorization

KEY = jax.random.key(0)
ENV = Gunner()
observe: Callable[[GunnerState], jax.Array] = jax.jit(ENV.observe)
apply: Callable[[GunnerState, jax.Array], GunnerState] = jax.jit(ENV.apply)


def state_at(
    x: float, y: float, view: float = 0.0, grip: float = 0.5, offset: tuple[float, float] = (0.0, 0.0)
) -> GunnerState:
    values = [jnp.array(v, jnp.float32) for v in ((x, y), offset, grip, view)]
    return GunnerState(values[0], values[1], values[2], values[3], jnp.zeros(4))


def idle(**moves: float) -> jax.Array:
    names = ("x", "y", "dx", "dy", "grip", "view")
    return jnp.array([moves.get(name, 0.0) for name in names], jnp.float32)


def rollout(env: Gunner, actions: jax.Array) -> jax.Array:
    def body(state: GunnerState, action: jax.Array) -> tuple[GunnerState, jax.Array]:
        state = env.step(state, action, KEY)
        return state, env.observe(state)

    return jax.lax.scan(body, env.reset(KEY), actions)[1]


ROLL = jax.jit(rollout, static_argnums=0)
ROLLS = jax.jit(jax.vmap(rollout, (None, 0)), static_argnums=0)


def random_actions(seed: int, shape: tuple[int, ...], scale: float = 1.0) -> jax.Array:
    """Held for ten steps, so that walls and limits are reached."""
    draws = np.random.default_rng(seed).uniform(-scale, scale, (*shape[:-2], shape[-2] // 10, shape[-1]))
    return jnp.asarray(np.repeat(draws, 10, axis=-2), jnp.float32)


def test_spec() -> None:
    env = make("gunner")
    assert isinstance(env, Environment)
    assert hash(env) == hash(make("gunner", start="centre", factors="3"))
    assert (env.spec.obs_size, env.spec.action_size, env.spec.horizon, env.spec.name) == (18, 6, 50, "gunner")
    assert observe(env.reset(KEY)).shape == (18,)
    assert observe(env.reset(KEY)).dtype == jnp.float32


def test_worked_example() -> None:
    state = apply(ENV.reset(KEY), jnp.array([0.3, -0.3, 0.1, 0.05, 0.02, 0.7]))
    expected = [0, 0, 0, 0, 2.795, 2.195, 0, 0, 0, 0, 2.895, 2.245, 0.52, 0, 1, 0, 0, 0.7]
    np.testing.assert_allclose(observe(state), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("start", "position", "on"),
    [
        ("centre", (0.5, 0.5), []),
        (0, (0.2, 0.2), ["target_3"]),
        (1, (0.8, 0.2), ["ammo_1"]),
        ("2", (0.2, 0.8), ["ammo_0"]),
        (3, (0.8, 0.8), ["zone_3"]),
    ],
)
def test_starts(start: str | int, position: tuple[float, float], on: list[str]) -> None:
    env = Gunner(start=start)
    obs = np.asarray(env.observe(env.reset(KEY)))
    np.testing.assert_allclose(obs[4:6], np.array(position) * SIDE, rtol=1e-6)
    np.testing.assert_allclose(obs[10:12], obs[4:6])
    assert (obs[12], obs[17]) == (0.5, 0.0)
    lit = [name for name, index in env.spec.landmarks.items() if obs[index] == 1]
    if start in (1, "2", 3):  # the view along +y may hit a corner as well
        lit = [name for name in lit if not name.startswith("target")]
    assert lit == on


def test_zones_and_ammo_of_every_cell() -> None:
    zones = {(1, 1): 0, (1, 3): 1, (3, 1): 2, (3, 3): 3}
    ammo = {(0, 3): 0, (2, 1): 0, (4, 3): 0, (1, 2): 1, (3, 0): 1, (3, 4): 1}
    ammo |= {(0, 1): 2, (2, 3): 2, (4, 1): 2, (1, 0): 3, (1, 4): 3, (3, 2): 3}
    for x in range(5):
        for y in range(5):
            for inside in (0.0, 0.5, 0.98):
                obs = np.asarray(observe(apply(state_at(x + inside, y + inside), idle())))
                assert obs[0:4].tolist() == [float(zones.get((x, y)) == k) for k in range(4)]
                assert obs[6:10].tolist() == [float(ammo.get((x, y)) == k) for k in range(4)]


def test_grip_takes_and_keeps_ammo() -> None:
    state = apply(state_at(2.5, 1.5), idle())  # grip exactly 0.5 counts as open
    assert state.ammo.tolist() == [1, 0, 0, 0]
    closed = apply(state, idle(grip=-0.01))
    moved = apply(closed, idle(y=0.3))
    moved = apply(moved, idle(y=0.3))
    assert ENV.picker(moved)[1] > 2.0
    assert moved.ammo.tolist() == [1, 0, 0, 0]
    assert apply(moved, idle(grip=0.02)).ammo.tolist() == [0, 0, 0, 0]  # the cell (2, 2) is empty


def test_picker_offset_is_not_clipped() -> None:
    state = apply(state_at(4.9, 4.9, offset=(1.0, -4.0)), idle())
    assert state.picker.tolist() == pytest.approx([1.0, -SIDE / 3])
    assert ENV.picker(state).tolist() == pytest.approx([SIDE, 4.9 - SIDE / 3])
    back = apply(state, idle(x=-2.0))
    assert float(ENV.picker(back)[0]) == pytest.approx(3.9)


@pytest.mark.parametrize(
    ("view", "corner"),
    [
        (math.pi / 2 + 1e-3, 0),
        (math.pi / 2, 1),
        (1e-3, 1),
        (0.0, 3),
        (-math.pi / 2, 3),
        (-math.pi / 2 - 1e-3, 2),
    ],
)
def test_view_quadrant_selects_the_corner(view: float, corner: int) -> None:
    corners = [(SIDE, 0.0), (SIDE, SIDE), (0.0, 0.0), (0.0, SIDE)]
    inward = np.array([2.0 * math.sin(view), 2.0 * math.cos(view)])  # stand so that the corner lies straight ahead
    x, y = np.clip(np.array(corners[corner]) - inward, 0.0, SIDE).tolist()
    assert np.asarray(ENV.targets(state_at(x, y, view))).tolist() == [float(k == corner) for k in range(4)]


def test_targets_follow_the_rules() -> None:
    rng = np.random.default_rng(0)
    positions = rng.uniform(0, SIDE, (3000, 2)).astype(np.float32)
    views = rng.uniform(-math.pi, math.pi, 3000).astype(np.float32)
    zeros = jnp.zeros((3000, 2))
    flags = jax.vmap(ENV.targets)(GunnerState(jnp.asarray(positions), zeros, zeros[:, 0], jnp.asarray(views), zeros))
    hits = 0
    for (x, y), view, flag in zip(positions.tolist(), views.tolist(), np.asarray(flags).tolist(), strict=True):
        if view > math.pi / 2:
            k, corner = 0, (SIDE, 0.0)
        elif view > 0:
            k, corner = 1, (SIDE, SIDE)
        elif view < -math.pi / 2:
            k, corner = 2, (0.0, 0.0)
        else:
            k, corner = 3, (0.0, SIDE)
        gap = abs(math.atan2(corner[0] - x, corner[1] - y) - view) - math.pi / 10
        if abs(gap) > 1e-5:  # nearer than that, single precision may decide otherwise
            assert flag == [float(k == i and gap <= 0) for i in range(4)]
            hits += gap <= 0
    assert 300 < hits < 2700


def test_view_saturates() -> None:
    state = state_at(2.5, 2.5, view=3.0)
    assert float(apply(state, idle(view=0.8)).view) == pytest.approx(math.pi)
    assert float(apply(state_at(2.5, 2.5, view=-3.0), idle(view=-0.8)).view) == pytest.approx(-math.pi)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from(["centre", "0", "3"]))
def test_bounds_and_determinism(seed: int, start: str) -> None:
    env, actions = Gunner(start=start), random_actions(seed, (100, 6), 1.5)
    obs = np.asarray(ROLL(env, actions))
    low, high = env.bounds
    assert np.all(obs >= low)
    assert np.all(obs <= high)
    assert np.all(obs[:, 0:4].sum(1) <= 1)
    assert np.all(obs[:, 6:10].sum(1) <= 1)
    np.testing.assert_array_equal(obs, ROLL(env, actions))
    np.testing.assert_array_equal(obs, ROLL(env, jnp.clip(actions, -1, 1)))  # step clips


def test_vmap_equals_loop() -> None:
    actions = random_actions(4, (6, 100, 6))
    batch = ROLLS(ENV, actions)
    for one, each in zip(actions, batch, strict=True):
        np.testing.assert_array_equal(ROLL(ENV, one), each)


def test_step_scales_and_apply_does_not_clip() -> None:
    state, action = state_at(2.5, 2.5), jnp.array([1.0, -1.0, 0.5, 0.2, -0.4, 0.9])
    scaled, applied = ENV.step(state, action, KEY), ENV.apply(state, action * RANGE)
    for a, b in zip(scaled, applied, strict=True):
        np.testing.assert_array_equal(a, b)
    assert float(ENV.step(state, 5 * action, KEY).agent[0]) == pytest.approx(2.8)
    assert float(ENV.apply(state, idle(x=1.0)).agent[0]) == 3.5


@pytest.mark.parametrize(
    ("count", "names", "sizes"),
    [
        (3, ("agent", "ammo", "target"), (6, 7, 5)),
        (4, ("zone", "agent", "ammo", "target"), (4, 2, 7, 5)),
        (2, ("agent_ammo", "target"), (13, 5)),
        (1, ("all",), (18,)),
    ],
)
def test_factor_counts(count: int, names: tuple[str, ...], sizes: tuple[int, ...]) -> None:
    factorization = make("gunner", factors=count).spec.factorization
    assert (factorization.names, factorization.sizes) == (names, sizes)
    assert make("gunner", factors=str(count)).spec.factorization == factorization


def test_user_defined_factors() -> None:
    expected = Factorization.from_boundaries((0, 5, 18), ("left", "right"))
    for given_factors in (expected, "left=0:5,right=5:18", {"left": range(5), "right": range(5, 18)}):
        assert make("gunner", factors=given_factors).spec.factorization == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": "4"}, "'start' cannot be '4'; allowed: centre, 0, 1, 2, 3"),
        ({"start": True}, "'start' cannot be True"),
        ({"factors": 5}, "'factors' cannot be 5; allowed: 3, 4, 2, 1"),
        ({"factors": True}, "'factors' cannot be True"),
        ({"factors": "a=0:5,b=4:18"}, "index 4 is in factor 'a' and again in factor 'b'"),
        ({"factors": {"a": range(17)}}, "index 17 belongs to no factor"),
        ({"factors": Factorization.from_boundaries((0, 70), ("all",))}, "covers 70 dimensions, but the observation has 18"),
        ({"colour": 1}, "no option 'colour'; its options are: start, factors"),
    ],
)
def test_invalid_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make("gunner", **options)


def test_unknown_environment() -> None:
    with pytest.raises(UserError, match="unknown environment 'gunnr'; choose one of: gunner, multi_particle, "):
        make("gunnr")


def test_registration_does_not_import_jax() -> None:
    code = "import sys, susd.tasks; from susd.envs.gymnasium import registration; registration.register(); "
    code += "sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_rendering() -> None:
    first = ENV.render(ENV.reset(KEY))
    assert (first.shape, first.dtype) == ((400, 400, 3), np.uint8)
    np.testing.assert_array_equal(first, ENV.render(ENV.reset(KEY)))
    assert np.any(first != ENV.render(apply(ENV.reset(KEY), idle(view=0.5))))
    assert np.any(first != ENV.render(apply(ENV.reset(KEY), idle(grip=0.2))))
    assert ENV.render(state_at(0.0, 4.99), 64).shape == (64, 64, 3)


def test_gymnasium() -> None:
    register()
    env = gymnasium.make("susd/Gunner-v0", render_mode="rgb_array", start=1)
    check_env(env.unwrapped)
    obs, _ = env.reset(seed=0)
    assert obs[7] == 1.0
    steps = 0
    truncated = False
    while not truncated:
        _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        steps += 1
        assert (reward, terminated) == (0.0, False)
    assert steps == 50
    env.close()

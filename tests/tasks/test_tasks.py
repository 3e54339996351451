"""The downstream tasks against their rules, and scripted controllers against their bounds."""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from susd.envs import make
from susd.envs.gunner import GunnerState
from susd.envs.multi_particle import ParticleState
from susd.tasks import make_task
from susd.tasks.base import Task
from susd.tasks.kitchen import PREDICATES
from susd.tasks.multi_particle import FoodPoison, Sequential

KEY = jax.random.key(0)
NEAR = float(np.float32(0.6))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gunner-lim", "multi_particle-seq-medium", "multi_particle-fp-hard"])
def test_episodes_end_at_the_horizon(name: str) -> None:
    task = make_task(name)

    def episode(key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        def body(state: Any, key: jax.Array) -> tuple[Any, tuple[jax.Array, jax.Array]]:
            action = jax.random.uniform(key, (task.env.spec.action_size,), minval=-1, maxval=1)
            state, reward = task.step(state, action, key)
            return state, (reward, task.done(state))

        state, (rewards, done) = jax.lax.scan(body, task.reset(key), jax.random.split(key, task.horizon))
        return rewards, done, jnp.concatenate([task.observe(state), task.extra(state)])

    rewards, done, seen = jax.jit(jax.vmap(episode))(jax.random.split(KEY, 3))
    assert rewards.dtype == seen.dtype == jnp.float32
    assert seen.shape == (3, task.env.spec.obs_size + task.extra_size)
    assert not np.any(done[:, :-1])
    assert np.all(done[:, -1])
    assert np.all(rewards.sum(1) / 5 <= task.bound)
    assert task.name == name


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "goal"), [(1, 0), (249, 0), (250, 1), (499, 1), (500, 2), (749, 2), (750, 3), (1000, 3)])
def test_gunner_goals_follow_the_clock(steps: int, goal: int) -> None:
    unlim, lim = make_task("unlim"), make_task("lim")
    zones = [(1.5, 1.5), (1.5, 3.5), (3.5, 1.5), (3.5, 3.5)]
    corners = [(4.99, 0), (4.99, 4.99), (0, 0), (0, 4.99)]
    for k, (x, y) in enumerate(zones):
        view = float(np.arctan2(corners[k][0] - x, corners[k][1] - y))
        for ammo in (0, 1):
            held = jax.nn.one_hot(ammo, 4)
            env_state = GunnerState(jnp.array([x, y]), jnp.zeros(2), jnp.array(0.5), jnp.array(view), held)
            before = unlim.reset(KEY)._replace(steps=jnp.int32(steps - 1))
            after, reward = unlim.score(before, env_state, KEY)
            assert float(reward) == (2.0 if k == goal else 0.0)
            assert float(lim.score(before, env_state, KEY)[1]) == (2.0 if k == goal and ammo == 0 else 0.0)
            assert unlim.extra(after).tolist() == pytest.approx([steps / 1000])
    only_zone = GunnerState(jnp.array(zones[goal]), jnp.zeros(2), jnp.array(0.5), jnp.array(0.0), jnp.zeros(4))
    aimed = float(unlim.env.targets(only_zone)[goal])
    assert float(unlim.score(before, only_zone, KEY)[1]) == 1.0 + aimed


def at_distances(distances: list[float]) -> ParticleState:
    """Every station in the middle and every agent this far to its right."""
    position = jnp.stack([jnp.array(distances, jnp.float32), jnp.zeros(10)], axis=1)
    return ParticleState(position, jnp.zeros((10, 2)), jnp.zeros((10, 2)))


def test_sequential_rewards_and_thresholds() -> None:
    task = make_task("seq-easy")  # agents 1, then 3
    start = task.reset(KEY)
    far = [1.0] * 10

    def reward(**distances: float) -> tuple[float, int]:
        state, value = task.score(start, at_distances([distances.get(f"a{i}", far[i]) for i in range(10)]), KEY)
        return float(value), int(state.charge)

    assert reward() == (pytest.approx(-0.1), 0)
    assert reward(a1=0.59) == (0.0, 1)
    assert reward(a1=NEAR) == (pytest.approx(-0.1), 0)  # exactly on the threshold the right agent is not near
    assert reward(a1=0.1, a3=NEAR) == (pytest.approx(-0.1), 1)  # and a wrong one is
    assert reward(a0=0.1, a2=0.1, a9=0.1) == (pytest.approx(-0.4), 0)


def test_sequential_turns_pass_every_ten_steps() -> None:
    task = make_task("seq-easy")
    assert isinstance(task, Sequential)
    score = jax.jit(task.score)
    right = [at_distances([0.1 if i == agent else 1.0 for i in range(10)]) for agent in (1, 3)]
    nowhere = at_distances([1.0] * 10)
    state = task.reset(KEY)
    assert task.extra(state).tolist() == [0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    rewards, progress, charge = [], [], []
    for n in range(1, 36):
        env_state = right[0] if n == 3 else right[1] if 15 <= n <= 17 else nowhere
        state, reward = score(state, env_state, KEY)
        rewards.append(round(float(reward), 5))
        progress.append(int(state.progress))
        charge.append(int(state.charge))
        if n == 10:
            assert task.extra(state).tolist() == [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1]
    assert progress == [0] * 9 + [1] * 10 + [2] * 16
    assert charge == [0, 0] + [1] * 7 + [0] * 5 + [1, 2, 3, 3, 3] + [0] * 16
    assert rewards == [-0.1] * 2 + [0.0] + [-0.1] * 11 + [0.0] * 3 + [-0.1] * 3 + [10.0] * 15
    assert task.extra(state).tolist() == [0] * 10 + [3.5]


def test_sequential_success_is_completion() -> None:
    """Also in the last step, after which there is no time for a reward; half of the sequence is none."""
    task = make_task("seq-easy")
    score, success = jax.jit(task.score), jax.jit(task.success)
    near = [at_distances([0.1 if i == agent else 1.0 for i in range(10)]) for agent in (1, 3)]
    for first, completed in ((range(1, 41), True), (range(1, 51), False)):
        state, rewards = task.reset(KEY), []
        for n in range(1, 51):
            assert not success(state)
            state, reward = score(state, near[0] if n in first else near[1], KEY)
            rewards.append(float(reward))
        assert bool(success(state)) == completed
        assert max(rewards) <= 0.0


def test_success_of_other_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert make_task("gunner-lim").success is None
    assert make_task("fp-easy").success is None
    task = make_task("kitchen-pos", num_envs=2)
    task.environment.reset(0)
    step = task.environment.step(np.zeros((2, 4), np.float32))
    monkeypatch.setitem(PREDICATES, "pos", lambda facts: np.array([True, False]))
    assert task.success(step).tolist() == [True, False]


def test_food_poison_thresholds() -> None:
    task = make_task("fp-easy")  # agents 1 and 6
    assert isinstance(task, FoodPoison)
    for poison, distance, verdict in [
        (0, 0.59, 1),
        (0, NEAR, -1),
        (0, 0.61, -1),
        (1, 0.59, -1),
        (1, NEAR, -1),
        (1, 0.61, 1),
    ]:
        state = task.reset(KEY)._replace(indicator=jnp.full(10, float(poison)))
        env_state = at_distances([distance] * 10)
        assert task.verdicts(state.indicator, env_state).tolist() == [verdict] * 10
        assert float(task.score(state, env_state, KEY)[1]) == 2 * verdict
    mixed = task.reset(KEY)._replace(indicator=jnp.zeros(10).at[6].set(1.0))
    assert float(task.score(mixed, at_distances([0.1] * 10), KEY)[1]) == 0.0


def test_indicators_are_fair_and_redrawn() -> None:
    task = make_task("fp-hard")
    drawn = jax.jit(jax.vmap(task.reset))(jax.random.split(KEY, 2000)).indicator
    np.testing.assert_allclose(drawn.mean(0), 0.5, atol=0.05)
    assert np.corrcoef(np.asarray(drawn).T)[~np.eye(10, dtype=bool)].max() < 0.1

    def body(state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        state = task.step(state, jnp.zeros(20), key)[0]
        return state, state.indicator

    start = task.reset(KEY)
    final, later = jax.lax.scan(body, start, jax.random.split(jax.random.key(1), 101))
    history = [start.indicator.tolist(), *later.tolist()]
    changes = [n for n, (a, b) in enumerate(itertools.pairwise(history), start=1) if a != b]
    assert changes == [50, 100]
    assert task.extra(final).tolist() == [*history[-1], pytest.approx(2.02)]


def test_reward_is_independent_of_the_observation() -> None:
    """The reward comes from the state, so neither factors nor the action interface can change it."""
    one, other = make_task("seq-hard"), make_task("seq-hard", factors=20, actions="five")
    for seed in range(5):
        env_state = make("multi_particle", layout="random").reset(jax.random.key(seed))
        state = one.reset(KEY)
        assert float(one.score(state, env_state, KEY)[1]) == float(other.score(state, env_state, KEY)[1])


def play(task: Task, policy: Callable[[Any], jax.Array]) -> float:
    """Mean return of a few episodes in the units of `bound`."""

    def body(state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        return task.step(state, policy(state), key)

    def episode(key: jax.Array) -> jax.Array:
        return jax.lax.scan(body, task.reset(key), jax.random.split(key, task.horizon))[1].sum()

    return float(jax.jit(jax.vmap(episode))(jax.random.split(KEY, 8)).mean()) / 5


def steer(env_state: ParticleState, wanted: jax.Array) -> jax.Array:
    """Fly to the station where wanted; elsewhere leave its neighbourhood and stay there."""
    offset = env_state.position - env_state.station
    distance = jnp.linalg.norm(offset, axis=1, keepdims=True)
    flee = jnp.where(distance < 0.8, -jnp.sign(env_state.station), env_state.position)
    goal = jnp.where(wanted[:, None], env_state.station, flee)
    return jnp.clip(5.0 * (goal - env_state.position) - 1.5 * env_state.velocity, -1, 1).reshape(-1)


@pytest.mark.parametrize("level", ["easy", "hard"])
def test_simple_script_sequential(level: str) -> None:
    task = make_task(f"seq-{level}")
    assert isinstance(task, Sequential)
    returns = play(task, lambda state: steer(state.env_state, task.target(state) > 0))
    assert task.bound - 1.5 < returns < task.bound


@pytest.mark.parametrize("level", ["medium", "difficult"])
def test_simple_script_food_poison(level: str) -> None:
    task = make_task(f"fp-{level}")
    returns = play(task, lambda state: steer(state.env_state, state.indicator == 0))
    assert 0.8 * task.bound < returns < task.bound

"""The high-level policy on probe tasks with known answers: what it observes, stores, learns and earns."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from reference import fast
from susd.downstream.controller import Controller, ControllerState
from susd.downstream.interface import ActionInterface, FlatActions, SkillActions
from susd.downstream.returns import returns
from susd.downstream.vector import HostVectorTask, JaxVectorTask, first_state, run_script
from susd.envs.base import EnvSpec, HostStep
from susd.factors import Factorization
from susd.sac import Sac
from susd.skills import SkillSpace
from susd.tasks.base import HostTask, Task

KEY = jax.random.key(0)


# --- a functional task whose best skill is known ----------------------------------------------------------------------


class Dots(NamedTuple):
    """Two dots, each on a line, and the last action."""

    position: jax.Array
    action: jax.Array


class Lines:
    """An action moves both dots; it is part of the observation, so that it can be checked."""

    spec = EnvSpec("lines", 4, 2, 20, Factorization(("a", "b"), ((0, 2), (1, 3)), 4), (), {})

    def reset(self, key: jax.Array) -> Dots:
        return Dots(0.1 * jax.random.normal(key, (2,)), jnp.zeros(2))

    def step(self, state: Dots, action: jax.Array, key: jax.Array) -> Dots:
        return Dots(jnp.clip(state.position + 0.2 * action, -1, 1), action)

    def observe(self, state: Dots) -> jax.Array:
        return jnp.concatenate([state.position, state.action])

    def render(self, state: Dots, size: int = 400) -> np.ndarray:
        return np.full((size, size, 3), int(100 + 100 * state.position[0]), np.uint8)


class SidesState(NamedTuple):
    env_state: Dots
    steps: jax.Array
    side: jax.Array


@dataclass(frozen=True)
class Sides(Task):
    """Each dot has a side, drawn for the episode; the reward is how far the dots are on their sides."""

    horizon = 20
    extra_size = 3
    best = np.full(20, 2.0)

    def begin(self, env_state: Dots, key: jax.Array) -> SidesState:
        return SidesState(env_state, jnp.zeros((), jnp.int32), jax.random.rademacher(key, (2,)).astype(jnp.float32))

    def score(self, state: SidesState, env_state: Dots, key: jax.Array) -> tuple[SidesState, jax.Array]:
        return SidesState(env_state, state.steps + 1, state.side), jnp.sum(state.side * env_state.position)

    def extra(self, state: SidesState) -> jax.Array:
        return jnp.append(state.side, state.steps / self.horizon)

    def expert(self, state: SidesState) -> jax.Array:
        return state.side


TASK = Sides("sides", Lines())
START = Dots(jnp.asarray([0.5, -0.5]), jnp.zeros(2))


def crossed(weights: jax.Array) -> Any:
    """A frozen policy, written by hand: the first part of the skill moves the second dot and vice versa."""
    return lambda obs, skill, key: weights * skill[:, ::-1]


SKILLS = SkillActions(SkillSpace("factor_sphere", 2, 1), crossed)


def build(interface: ActionInterface = SKILLS, **changes: Any) -> Controller:
    sac = Sac(7, interface.size, 32, 2, "relu", "float32", 3e-3, 0.9, 0.02, 0.1, True, -0.5)
    sizes: dict[str, Any] = {"gradient_steps": 5, "batch_size": 64, "capacity": 200, "warmup": 5, **changes}
    return Controller(TASK, interface, sac, **sizes)


def initial(controller: Controller, seed: int = 0) -> ControllerState:
    state: ControllerState = fast(controller.init)(seed)
    return state


@pytest.fixture(scope="module")
def tests() -> tuple[JaxVectorTask, jax.Array]:
    """64 test episodes; their batch is compiled once for all controllers."""
    return JaxVectorTask(TASK, 64), jax.random.split(jax.random.key(7), 64)


def score(controller: Controller, state: ControllerState, frozen: Any, tests: tuple[JaxVectorTask, jax.Array]) -> float:
    """The mean return divided by that of the expert in the same episodes."""
    vector, keys = tests
    runs = controller.evaluate(vector, state.policy, frozen, keys).rewards, run_script(vector, vector.expert, keys)
    learned, best = (float(returns(rewards)["undiscounted"].mean()) for rewards in runs)
    assert 5.5 < best < TASK.bound
    return learned / best


def test_evaluation_equals_the_batched_interface(tests: tuple[JaxVectorTask, jax.Array]) -> None:
    controller, (vector, keys) = build(), tests
    policy = initial(controller).policy
    expected = controller.run(vector, lambda view, key, number: policy.mode(view), jnp.ones(2), keys).rewards
    np.testing.assert_allclose(controller.evaluate(vector, policy, jnp.ones(2), keys).rewards, expected, atol=1e-5)


class Touched(Sides):
    """Solved if the first dot has been beyond 0.85 on its side, which it may leave again."""

    def success(self, state: SidesState) -> jax.Array:
        return state.side[0] * state.env_state.position[0] > 0.85


@pytest.mark.parametrize("steps", [5, 20])
def test_solved_episodes(steps: int) -> None:
    """The first high-level action leads to the right, all others to the left: both sides are reached, one of them late."""
    task = Touched("touched", Lines())
    controller = replace(build(), task=task, horizon=steps)
    keys, frozen = jax.random.split(KEY, 16), jnp.ones(2)
    vector = JaxVectorTask(task, 16, START)

    def choose(view: Any, key: jax.Array, number: Any) -> jax.Array:
        return jnp.broadcast_to(jnp.where(number == 0, 1.0, -1.0), (*np.shape(view)[:-1], 2))  # crossed, so both

    batched = controller.run(vector, choose, frozen, keys)
    fused = fast(jax.vmap(lambda key: controller.episode(choose, frozen, START, key)))(keys)
    sides = np.asarray(vector.reset(keys))[:, 4]
    assert set(sides) == {-1.0, 1.0}
    expected = np.ones(16, bool) if steps == 20 else sides > 0  # the left is reached with the second action
    np.testing.assert_array_equal(batched.solved, expected)
    np.testing.assert_array_equal(fused.solved, expected)
    without = controller.run(JaxVectorTask(TASK, 16, START), choose, frozen, keys)
    assert not without.solved.any()


@pytest.mark.slow
def test_finds_the_right_skill(tests: tuple[JaxVectorTask, jax.Array]) -> None:
    controller = build()
    before = initial(controller)
    state, info = fast(controller.rounds)(before, jnp.ones(2), None, 0, 200)
    assert all(np.isfinite(float(value)) for value in info.values())
    assert score(controller, before, jnp.ones(2), tests) < 0.3
    assert score(controller, state, jnp.ones(2), tests) > 0.97
    sides = np.array([(1, 1), (1, -1), (-1, 1), (-1, -1)])
    x = np.zeros((4, 7), np.float32)
    x[:, 4:6] = sides
    skills = jax.vmap(SKILLS.skill)(state.policy.mode(jnp.asarray(x)))
    np.testing.assert_array_equal(skills, sides[:, ::-1])
    frames = controller.video(*tests[:1], state.policy, jnp.ones(2), tests[1], 5, 8)
    assert frames.shape == (4, 8, 8, 3)
    assert len({int(frame.max()) for frame in frames}) > 1  # the dot moves


class Endless(Sides):
    """The same task without a value of zero at its horizon."""

    terminal = False


@pytest.mark.parametrize("task", [TASK, Endless("endless", Lines())], ids=["terminal", "bootstrapped"])
def test_value_at_the_horizon(task: Task) -> None:
    controller = replace(build(), task=task)
    done = controller.collect(initial(controller), jnp.ones(2), None, jnp.int32(0)).transitions.done
    np.testing.assert_array_equal(done, [0, 0, 0, float(task.terminal)])


@pytest.mark.slow
def test_flat_policy_learns_it_too(tests: tuple[JaxVectorTask, jax.Array]) -> None:
    controller = build(FlatActions(2))
    assert controller.length == 20
    state, _ = fast(controller.rounds)(initial(controller), None, None, 0, 200)
    assert score(controller, state, None, tests) > 0.9


# --- what is stored ---------------------------------------------------------------------------------------------------

Run = Callable[[int, int, int], list[ControllerState]]


@pytest.fixture(scope="module")
def run() -> Run:
    """The states of a seed before and after pieces of so many episodes; the warm-up is three, the capacity four."""
    controller = build(capacity=4, warmup=3)
    train, init = fast(controller.rounds), fast(controller.init)

    def pieces(seed: int, count: int, length: int) -> list[ControllerState]:
        states = [init(seed)]
        for index in range(count):
            states.append(train(states[-1], jnp.ones(2), None, index * length, (index + 1) * length)[0])
        assert train._cache_size() == 1  # type: ignore[attr-defined]  # nothing is compiled for other bounds
        return states

    return pieces


@pytest.fixture(scope="module")
def episodes(run: Run) -> list[ControllerState]:
    """Six episodes one by one."""
    return run(3, 6, 1)


@pytest.mark.slow
def test_rows_are_high_level_transitions(episodes: list[ControllerState]) -> None:
    rows = jax.tree.map(lambda x: np.asarray(x[:4]), episodes[1].replay.data)
    assert rows.obs.shape == rows.next_obs.shape == (4, 7)
    np.testing.assert_array_equal(rows.obs[1:], rows.next_obs[:-1])
    assert rows.done.tolist() == [0, 0, 0, 1]
    np.testing.assert_allclose(rows.obs[:, 6], [0, 0.25, 0.5, 0.75])  # the clock
    assert set(np.abs(rows.obs[:, 4:6]).ravel()) == {1.0}
    for x, action, reward, after in zip(rows.obs, rows.action, rows.skill, rows.next_obs, strict=True):
        skill = np.where(action >= 0, 1.0, -1.0)
        position, rewards = x[:2].astype(np.float64), []
        for _ in range(5):
            position = np.clip(position + 0.2 * skill[::-1], -1, 1)
            rewards.append(np.sum(x[4:6] * position))
        np.testing.assert_allclose(reward, [np.mean(rewards)], atol=1e-6)
        np.testing.assert_allclose(after[:4], [*position, *skill[::-1]], atol=1e-6)
    assert np.all(np.abs(rows.action) < 1)  # the action of the policy, not the skill it stands for
    assert np.any(np.abs(rows.action) < 0.9)


def test_flat_rows_are_steps() -> None:
    """Their rewards add up to the same return."""
    episode = fast(partial(build(FlatActions(2)).episode, lambda x, *_: 0.5 * x[4:6]))(None, None, KEY)
    rows = episode.transitions
    assert rows.action.shape == (20, 2)
    np.testing.assert_allclose(rows.skill[:, 0], episode.rewards / 5)
    assert rows.done.tolist() == [0] * 19 + [1]
    means = np.asarray(episode.rewards, np.float64).reshape(4, 5).mean(1)
    both = returns(episode.rewards)
    assert float(both["undiscounted"]) == pytest.approx(means.sum(), rel=1e-5)
    assert float(both["discounted"]) == pytest.approx(sum(0.99**t * m for t, m in enumerate(means)), rel=1e-5)


def test_warmup_and_ring(episodes: list[ControllerState]) -> None:
    counts = [{int(x) for x in jax.tree.leaves(state.sac) if x.dtype == jnp.int32} for state in episodes]
    assert counts == [{0}, {0}, {0}, {0}, {5}, {10}, {15}]
    assert [int(state.replay.size) for state in episodes] == [0, 4, 8, 12, 16, 16, 16]
    assert [int(state.replay.position) for state in episodes] == [0, 4, 8, 12, 0, 4, 8]
    stored = [np.asarray(state.replay.data.obs) for state in episodes]
    assert (stored[5][:4] != stored[4][:4]).any()
    np.testing.assert_array_equal(stored[5][4:], stored[4][4:])
    assert len({tuple(x[0]) for x in stored[4].reshape(4, 4, 7)}) == 4  # all episodes differ


def test_determinism_in_pieces(episodes: list[ControllerState], run: Run) -> None:
    """Episodes depend on their number and the seed, not on how many are trained in one call."""
    whole, again, other = run(3, 1, 6)[-1], run(3, 2, 3)[-1], run(4, 1, 6)[-1]
    for a, b, c in zip(*(jax.tree.leaves(state) for state in (whole, episodes[-1], again)), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)
    assert not np.array_equal(whole.replay.data.obs, other.replay.data.obs)
    assert not np.array_equal(whole.sac.actor.trunk.weights[0], other.sac.actor.trunk.weights[0])


@pytest.mark.slow
def test_parallel_episodes_equal_sequential_ones(episodes: list[ControllerState]) -> None:
    """During the warm-up they are the same, in the same order; then as many gradient steps follow as without."""
    controller = build(capacity=6, warmup=3, num_envs=3)
    train = fast(controller.rounds)
    parallel, one_by_one = train(initial(controller, 3), jnp.ones(2), None, 0, 3)[0], episodes[3]
    for a, b in zip(jax.tree.leaves(parallel.sac), jax.tree.leaves(one_by_one.sac), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(*(jax.tree.leaves(state.replay.data) for state in (parallel, one_by_one)), strict=True):
        np.testing.assert_allclose(a[:12], b[:12], atol=1e-6)
    assert int(parallel.replay.size) == int(parallel.replay.position) == 12
    later = train(parallel, jnp.ones(2), None, 3, 6)[0]
    assert {int(x) for x in jax.tree.leaves(later.sac) if x.dtype == jnp.int32} == {15}
    assert int(later.replay.size) == 24


def test_given_start_state() -> None:
    controller = build()
    collect = jax.vmap(controller.collect, in_axes=(None, None, None, 0))
    found = fast(collect)(initial(controller), jnp.ones(2), START, jnp.arange(8)).transitions
    first = np.asarray(found.obs[:, 0])
    np.testing.assert_array_equal(first[:, :4], np.tile([0.5, -0.5, 0, 0], (8, 1)))
    assert len(np.unique(first[:, 4:6], axis=0)) > 1  # the task still draws its sides


def test_evaluation_uses_mean_actions() -> None:
    """Then only the sides distinguish two test episodes."""
    controller, keys = build(FlatActions(2)), jax.random.split(KEY, 16)
    rewards = controller.evaluate(JaxVectorTask(TASK, 16, START), initial(controller).policy, None, keys).rewards
    assert rewards.shape == (16, 20)
    sides = fast(jax.vmap(lambda k: first_state(TASK, START, jax.random.split(k)[0]).side))(keys)
    assert 1 < len(np.unique(sides, axis=0)) == len(np.unique(rewards.round(5), axis=0))


@pytest.mark.slow
def test_evaluation_equals_the_fused_episode() -> None:
    """The batched interface runs the same test episodes as the scan that training uses."""
    controller, keys = build(), jax.random.split(KEY, 3)
    actor = initial(controller).policy
    stepped = controller.run(JaxVectorTask(TASK, 3), lambda x, *_: actor.mode(jnp.asarray(x)), jnp.ones(2), keys)
    episode = partial(controller.episode, lambda x, *_: actor.mode(x[None])[0], jnp.ones(2), None)
    scanned = fast(jax.vmap(episode))(keys)
    for a, b in zip(jax.tree.leaves(stepped), jax.tree.leaves(scanned), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_exploration_replaces_parts_for_a_while() -> None:
    """Some parts of some episodes are uniform for 25 steps, five high-level actions; all else is the policy's."""
    controller = replace(build(), horizon=500, explore=0.5)
    actor, view = initial(controller).policy, jnp.zeros((64, 7))
    choose = controller.sampled(actor, KEY, 64)
    chosen = fast(jax.vmap(lambda number: choose(view, KEY, number)))(jnp.arange(100))  # [100, 64, 2]
    policy = actor.sample(view, KEY)
    other = np.asarray(jnp.abs(chosen - policy) > 1e-5).reshape(20, 5, 64, 2)
    assert (other == other[:, :1]).all()
    assert (np.diff(np.asarray(chosen).reshape(20, 5, 64, 2), axis=1) == 0).all()
    assert 0.45 < other.mean() < 0.55
    assert 0.2 < (other[..., 0] & other[..., 1]).mean() < 0.3  # the parts are independent
    uniform = np.asarray(chosen)[other.reshape(100, 64, 2)]
    assert np.abs(np.quantile(uniform, (0.0, 0.25, 0.75, 1.0)) - (-1.0, -0.5, 0.5, 1.0)).max() < 0.05


@pytest.mark.slow
def test_views_are_scaled_by_the_warmup() -> None:
    """The networks see mean 0 and unit variance; the statistics are fixed when learning starts."""
    controller = replace(build(capacity=6, warmup=3), scale_view=True)
    train, states = fast(controller.rounds), [initial(controller)]
    for number in range(5):
        states.append(train(states[-1], jnp.ones(2), None, number, number + 1)[0])
    views = [state.views for state in states]
    assert [int(view.count) for view in views if view is not None] == [0, 4, 8, 12, 16, 16]
    seen = np.asarray(states[4].replay.data.obs)[:16]
    assert views[4] is not None
    np.testing.assert_allclose(views[4].mean, seen.mean(axis=0), atol=1e-5)
    scaled = np.asarray(views[4].scale(jnp.asarray(seen)))
    expected = (seen - seen.mean(axis=0)) / np.maximum(seen.std(axis=0), 0.2)
    np.testing.assert_allclose(scaled, expected, atol=1e-4)
    np.testing.assert_allclose(states[4].policy.mode(seen), states[4].sac.actor.mode(expected), atol=1e-4)


# --- a host task ------------------------------------------------------------------------------------------------------


class Points:
    """Three points in the plane, moved by their actions from a seeded start."""

    num_envs = 3
    spec = EnvSpec("points", 2, 2, 10, Factorization.from_mapping({"x": [0], "y": [1]}, 2), (), {})

    def reset(self, seed: int) -> np.ndarray:
        self.position = np.random.default_rng(seed).uniform(-1, 1, (3, 2)).astype(np.float32)
        return self.position

    def step(self, actions: np.ndarray) -> HostStep:
        self.position = self.position + actions
        never = np.zeros(3, bool)
        return HostStep(self.position, self.position, never, never)

    def render(self, index: int = 0, size: int = 400) -> np.ndarray:
        return np.full((size, size, 3), 40 * index, np.uint8)


class Right(HostTask):
    """A reward where x is above zero."""

    horizon = 10

    def reward(self, step: HostStep) -> np.ndarray:
        return (self.env.position[:, 0] > 0).astype(np.float32)

    def success(self, step: HostStep) -> np.ndarray:
        return self.reward(step) > 0


@pytest.fixture(scope="module")
def host() -> Controller:
    sac = Sac(2, 2, 32, 1, "relu", "float32", 3e-3, 0.9, 0.05, 0.1, True, -0.5)
    return Controller(Right("right", Points()), FlatActions(2), sac, 5, 32, capacity=60, warmup=6, num_envs=3)


@pytest.mark.slow
def test_learns_on_host_environments(host: Controller) -> None:
    assert isinstance(host.task, HostTask)
    vector, keys = HostVectorTask(host.task), jax.random.split(jax.random.key(5), 7)
    state = initial(host)
    before = host.evaluate(vector, state.policy, None, keys).rewards.mean()
    state, info = host.train(state, None, None, 0, 60)
    after, solved = host.evaluate(vector, state.policy, None, keys)  # three batches, of which the last is not full
    assert after.shape == (7, 10)
    np.testing.assert_array_equal(solved, after.any(axis=1))
    assert after.mean() > max(0.85, before)
    assert np.isfinite(list(map(float, info.values()))).all()
    assert "critic_loss" in info
    idle = run_script(vector, lambda: np.zeros((3, 2), np.float32), keys)
    assert 0 < float(returns(idle)["undiscounted"].mean()) < 2  # it stays where it starts
    assert host.video(vector, state.policy, None, keys, 4, 8).shape == (3, 8, 8, 3)


@pytest.mark.slow
def test_host_determinism_in_pieces(host: Controller) -> None:
    whole, _ = host.train(initial(host, 1), None, None, 0, 18)
    state, _ = host.train(initial(host, 1), None, None, 0, 9)
    pieces, _ = host.train(state, None, None, 9, 18)
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(pieces), strict=True):
        np.testing.assert_array_equal(a, b)


def test_host_warmup_and_rows(host: Controller) -> None:
    state, info = host.train(initial(host), None, None, 0, 6)
    assert set(info) == {"training_return"}
    assert int(state.replay.size) == 60
    rows = jax.tree.map(lambda x: np.asarray(x[:10]), state.replay.data)  # of the first point
    np.testing.assert_array_equal(rows.obs[1:], rows.next_obs[:-1])
    np.testing.assert_allclose(rows.next_obs - rows.obs, rows.action, atol=1e-6)
    np.testing.assert_allclose(rows.skill[:, 0], (rows.next_obs[:, 0] > 0) / 5)
    assert rows.done.tolist() == [0] * 9 + [1]
    state, info = host.train(state, None, None, 6, 9)
    assert {int(x) for x in jax.tree.leaves(state.sac) if x.dtype == jnp.int32} == {15}

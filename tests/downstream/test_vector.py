"""Episodes side by side: the batched interface gives what a scan over the task gives, episode by episode."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from reference import fast
from susd.downstream.vector import HostVectorTask, JaxVectorTask, first_state, run_script, vectorize_task, view_of
from susd.envs.base import HostStep
from susd.tasks import make_task
from susd.tasks.base import HostTask, Task

KEYS = jax.random.split(jax.random.key(3), 5)


def scanned(task: Task, policy: Callable[[Any], jax.Array], start: Any, keys: jax.Array) -> np.ndarray:
    """Rewards [episodes, horizon], in one program."""

    def episode(key: jax.Array) -> jax.Array:
        k_start, k_run = jax.random.split(key)
        steps = jax.vmap(lambda n: jax.random.fold_in(k_run, n))(np.arange(task.horizon))
        return jax.lax.scan(lambda s, k: task.step(s, policy(s), k), first_state(task, start, k_start), steps)[1]

    return np.asarray(fast(jax.vmap(episode))(keys))


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["fixed", "random"])
def test_batches_equal_a_scan(layout: str) -> None:
    task = make_task("fp-medium", layout=layout)
    assert isinstance(task, Task)
    start = task.environment.reset(jax.random.key(0)) if layout == "fixed" else None
    vector = vectorize_task(task, 2, start)  # three batches, of which the last is not full
    rewards = run_script(vector, vector.expert, KEYS)
    assert rewards.shape == (5, 50)
    np.testing.assert_allclose(rewards, scanned(task, task.expert, start, KEYS), atol=1e-6)
    idle = run_script(vector, lambda: np.zeros((2, 20), np.float32), KEYS)
    np.testing.assert_allclose(idle, scanned(task, lambda state: np.zeros(20, np.float32), start, KEYS), atol=1e-6)


def test_views_and_images() -> None:
    task = make_task("lim")
    assert isinstance(task, Task)
    vector = JaxVectorTask(task, 3)
    view = vector.reset(KEYS[:3])
    assert view.shape == (3, 19)
    step = vector.step(np.full((3, 6), 0.5, np.float32))
    assert step.rewards.shape == (3, 3)  # the reward and its two parts
    assert not (step.terminated | step.ended).any()
    np.testing.assert_array_equal(step.view, view := step.reached)
    state = jax.tree.map(lambda x: x[1], vector.state)
    np.testing.assert_allclose(view[1], view_of(task, state), atol=1e-6)
    assert float(view[1, -1]) == pytest.approx(1 / 1000)  # the clock is the extra observation
    image = vector.render(1, 32)
    assert (image.shape, image.dtype) == ((32, 32, 3), np.uint8)


class Counting:
    """Two host environments that remember their seeds and reuse the array of observations."""

    num_envs = 2

    def __init__(self) -> None:
        self.seeds: list[int] = []
        self.obs = np.zeros((2, 1), np.float32)

    def reset(self, seed: int) -> np.ndarray:
        self.seeds.append(seed)
        self.obs[:] = 0.0
        return self.obs

    def step(self, actions: np.ndarray) -> Any:
        self.obs += actions
        never = np.zeros(2, bool)
        return HostStep(self.obs, self.obs, never, never)

    def render(self, index: int = 0, size: int = 400) -> np.ndarray:
        return np.full((size, size, 3), index, np.uint8)


class Sum(HostTask):
    """The reward is the observation."""

    horizon = 10
    best = np.full(10, 10.0)

    def reward(self, step: HostStep) -> np.ndarray:
        return step.obs[:, 0].copy()

    def expert(self) -> np.ndarray:
        return np.ones((2, 1), np.float32)


def test_host_tasks() -> None:
    env = Counting()
    vector = vectorize_task(Sum("sum", env), 7)
    assert isinstance(vector, HostVectorTask)
    assert vector.num_envs == 2
    rewards = run_script(vector, vector.expert, KEYS[:3])
    np.testing.assert_array_equal(rewards, np.tile(np.arange(1, 11), (3, 1)))
    assert len(set(env.seeds)) == 2  # two batches of other episodes ..
    run_script(vector, vector.expert, KEYS[:3])
    assert env.seeds[:2] == env.seeds[2:]  # .. which are a function of the keys
    before = vector.reset(KEYS)
    vector.step(np.ones((2, 1), np.float32))
    assert before.max() == 0.0
    assert vector.render(1, 8).max() == 1
    assert vector.task.bound == 20.0
    assert run_script(vector, vector.expert, KEYS[:3], horizon=4).shape == (3, 4)

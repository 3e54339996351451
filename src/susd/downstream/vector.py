"""Episodes of a task side by side: one batched interface over functional and host tasks, for all but fused training."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from susd.collect import batch_seed
from susd.tasks.base import HostTask, Task
from susd.training.compiler import compiler_options


class VectorStep(NamedTuple):
    """The result of one step of W episodes."""

    view: np.ndarray  # [W, obs + extra] after an automatic reset: the first of the new episode
    reached: np.ndarray  # [W, obs + extra] what the actions led to, before any reset
    rewards: np.ndarray  # [W, 1 + parts] the reward, followed by its parts
    terminated: np.ndarray  # [W] the environment reached a terminal state
    ended: np.ndarray  # [W] it did, or it reached a time limit of its own; it has been reset
    success: np.ndarray  # [W] the step solved the task; never where the task has no such notion


class VectorTask(Protocol):
    """W episodes of a task that are stepped together. A view is what the high-level policy observes, [W, obs + extra]."""

    @property
    def task(self) -> Task | HostTask:
        """What the episodes are of."""
        ...

    @property
    def num_envs(self) -> int:
        """How many episodes are stepped together."""
        ...

    def reset(self, keys: jax.Array, batch: int = 0) -> np.ndarray:
        """Start the given batch of the episodes that `keys` stand for, and return their views."""
        ...

    def step(self, actions: np.ndarray) -> VectorStep:
        """Step every episode by [W, A] in [-1, 1]."""
        ...

    def expert(self) -> np.ndarray:
        """[W, A] what the task's scripted expert does next."""
        ...

    def render(self, index: int, size: int) -> np.ndarray:
        """One of the episodes in its current state, as an RGB image, uint8 [size, size, 3]."""
        ...


def vectorize_task(task: Task | HostTask, num_envs: int, start: Any = None) -> VectorTask:
    """The task as a batch; a host task has as many episodes as its environment, whatever `num_envs`.

    Episodes of a functional task start in the environment state `start`, or each in a new one where that is None.
    """
    return JaxVectorTask(task, num_envs, start) if isinstance(task, Task) else HostVectorTask(task)


def first_state(task: Task, start: Any, key: jax.Array) -> Any:
    """The first state of an episode: in a given state of the environment, or in a new one where that is None."""
    return task.reset(key) if start is None else task.begin(start, key)


def view_of(task: Task, state: Any) -> jax.Array:
    """What the high-level policy observes: the environment's observation and the extra one of the task."""
    return jnp.concatenate([task.observe(state), task.extra(state)])


def success_in(task: Task, state: Any) -> jax.Array:
    """Whether the step that led to a state solved the task."""
    return jnp.zeros((), bool) if task.success is None else jnp.asarray(task.success(state), bool)


class JaxVectorTask:
    """Episodes of a functional task, compiled and vmapped; each is a function of its own key and of the actions."""

    def __init__(self, task: Task, num_envs: int, start: Any = None) -> None:
        self.task = task
        self.num_envs = num_envs
        self.start = start
        self._keys: jax.Array = jax.random.split(jax.random.key(0), num_envs)
        self._steps = 0
        self.state: Any = None  # task states with a leading axis of episodes; None before the first reset

    def reset(self, keys: jax.Array, batch: int = 0) -> np.ndarray:
        """The episodes of a batch of keys, of which the last batch repeats some if it is not full."""
        rows = np.arange(batch * self.num_envs, (batch + 1) * self.num_envs) % len(keys)
        self._steps = 0
        self.state, self._keys, view = self._reset(self.start, keys[rows])
        return np.asarray(view)

    def step(self, actions: np.ndarray) -> VectorStep:
        """One step of every episode; a functional environment never ends by itself."""
        self.state, found, rewards, success = self._step(self.state, actions, self._keys, self._steps)
        self._steps += 1
        view, never = np.asarray(found), np.zeros(self.num_envs, bool)
        return VectorStep(view, view, np.asarray(rewards), never, never, np.asarray(success))

    def expert(self) -> np.ndarray:
        """The expert in the current states."""
        return np.asarray(self._expert(self.state))

    def render(self, index: int, size: int) -> np.ndarray:
        """One of the episodes, drawn by the environment."""
        return self.task.environment.render(jax.tree.map(lambda x: x[index], self.state.env_state), size)

    @cached_property
    def _reset(self) -> Callable[..., tuple[Any, jax.Array, jax.Array]]:
        def reset(start: Any, key: jax.Array) -> tuple[Any, jax.Array, jax.Array]:
            k_start, k_steps = jax.random.split(key)
            state = first_state(self.task, start, k_start)
            return state, k_steps, view_of(self.task, state)

        return jax.jit(jax.vmap(reset, in_axes=(None, 0)), compiler_options=compiler_options())

    @cached_property
    def _step(self) -> Callable[..., tuple[Any, ...]]:
        def step(state: Any, action: jax.Array, key: jax.Array, number: jax.Array) -> tuple[Any, ...]:
            state, rewards = self.task.step_parts(state, action, jax.random.fold_in(key, number))
            return state, view_of(self.task, state), rewards, success_in(self.task, state)

        return jax.jit(jax.vmap(step, in_axes=(0, 0, 0, None)), compiler_options=compiler_options())

    @cached_property
    def _expert(self) -> Callable[..., jax.Array]:
        return jax.jit(jax.vmap(self.task.expert))


class HostVectorTask:
    """Episodes of a host task, one in each of its environments."""

    def __init__(self, task: HostTask) -> None:
        self.task = task

    @property
    def num_envs(self) -> int:
        """How many environments there are."""
        return self.task.environment.num_envs

    def reset(self, keys: jax.Array, batch: int = 0) -> np.ndarray:
        """A reset with a seed that depends on the first key and the number of the batch."""
        obs = self.task.environment.reset(batch_seed(keys[0], batch)[0])
        self.task.begin()
        return self._view(obs)

    def step(self, actions: np.ndarray) -> VectorStep:
        """One step of every environment."""
        step = self.task.environment.step(actions)
        rewards = [np.asarray(self.task.reward(step), np.float32)[:, None]]
        if self.task.parts is not None:
            rewards.append(np.asarray(self.task.parts(step), np.float32))
        success = np.zeros(self.num_envs, bool)
        if self.task.success is not None:
            success |= np.asarray(self.task.success(step), bool)
        terminated, ended = step.terminated.copy(), step.terminated | step.truncated
        view = self._view(step.obs)
        reached = np.where(ended[:, None], self._view(step.next_obs), view) if ended.any() else view
        return VectorStep(view, reached, np.concatenate(rewards, axis=1), terminated, ended, success)

    def _view(self, obs: np.ndarray) -> np.ndarray:
        """Observations and extra ones; always a copy, since an environment may reuse its array."""
        return np.concatenate([obs, self.task.extra()], axis=1, dtype=np.float32)

    def expert(self) -> np.ndarray:
        """The expert in the current states."""
        return np.asarray(self.task.expert())

    def render(self, index: int, size: int) -> np.ndarray:
        """One of the environments, drawn by itself."""
        return self.task.environment.render(index, size)


def run_script(vector: VectorTask, policy: Callable[[], np.ndarray], keys: jax.Array, horizon: int = 0) -> np.ndarray:
    """Rewards [episodes, horizon] of a policy that acts in every step, in the episodes that the keys stand for."""
    found = []
    for batch in range(-(-len(keys) // vector.num_envs)):
        vector.reset(keys, batch)
        found.append(_script_rewards(vector, policy, horizon or vector.task.horizon))
    return np.concatenate(found)[: len(keys)]


def _script_rewards(vector: VectorTask, policy: Callable[[], np.ndarray], horizon: int) -> np.ndarray:
    """Rewards [W, horizon] of one batch; nothing after an episode has ended."""
    alive, rows = np.ones(vector.num_envs, bool), []
    for _ in range(horizon):
        step = vector.step(policy())
        rows.append(step.rewards[:, 0] * alive)
        alive &= ~step.ended
    return np.stack(rows, axis=1)

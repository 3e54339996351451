"""What a downstream task is: an environment, a reward on its true state, an extra observation and a horizon.

A task of your own is a subclass of `Task` (functional environments) or of `HostTask` (all others) with two members:
`horizon` and `reward`. Everything else has a default.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from susd.envs.base import Environment, HostEnvironment, HostStep
from susd.tasks.registry import SKILL_STEPS

__all__ = ["SKILL_STEPS", "BaseTask", "HostTask", "Task", "TaskState"]


@dataclass(frozen=True)
class BaseTask(ABC):
    """What functional and host tasks have in common.

    A reward may be a sum over factors. A task then has `parts`, with one reward for each entry of `part_of`: an observation
    index, whose factor the part belongs to. What the parts leave of the reward depends on all factors. In the same way
    `extra_of` says which factor each dimension of the extra observation is about; -1 means all of them. An episode
    counts as solved if `success` holds after one of its steps.
    """

    name: str
    env: Any  # the environment; tasks know its concrete type

    horizon: ClassVar[int]  # environment steps of one episode
    extra_size: ClassVar[int] = 0  # dimensions of the extra observation
    terminal: ClassVar[bool] = True  # nothing has value beyond the horizon; if False, the last value is bootstrapped
    completable: ClassVar[bool] = True  # a step with a reward above zero is a step in which the task is completed
    random_episodes: ClassVar[bool] = False  # episodes differ even if all of them start in the same state
    expert: ClassVar[Any] = None  # a scripted policy that knows the true state; None where there is none
    parts: ClassVar[Any] = None  # a method that gives the parts of the reward; None where it is not a sum over factors
    success: ClassVar[Any] = None  # a method that says whether a step solved the task; None where there is no such notion

    @property
    def best(self) -> np.ndarray | None:
        """[horizon] the highest reward of each step; None where nobody knows."""
        return None

    @property
    def bound(self) -> float | None:
        """The highest undiscounted return of an episode, in units of SKILL_STEPS; None where nobody knows."""
        return None if self.best is None else float(self.best.sum()) / SKILL_STEPS

    @property
    def part_of(self) -> tuple[int, ...]:
        """For each part of the reward an observation index of the factor it belongs to."""
        return ()

    @property
    def extra_of(self) -> tuple[int, ...]:
        """For each dimension of the extra observation an observation index of the factor it is about, or -1."""
        return (-1,) * self.extra_size


class TaskState(NamedTuple):
    """The environment's state and the clock."""

    env_state: Any
    steps: jax.Array


@dataclass(frozen=True)
class Task(BaseTask):
    """A functional task: pure, jit-able and vmap-able, like its environment. `expert` maps a state to an action.

    A task that remembers more than the clock replaces `begin` and `score`; its state has the fields `env_state`, `steps`.
    `parts(state, env_state)` has the arguments of `score` and gives [len(part_of)] rewards. `success(state)` gets the state
    after a step.
    """

    def reward(self, env_state: Any) -> jax.Array:
        """The reward of the step that led to `env_state`."""
        raise NotImplementedError(f"task {self.name!r} defines neither `reward` nor `score`")

    def begin(self, env_state: Any, key: jax.Array) -> Any:
        """The task state at the start of an episode."""
        return TaskState(env_state, jnp.zeros((), jnp.int32))

    def score(self, state: Any, env_state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        """The next task state after the step that led to `env_state`, and the reward of that step."""
        return TaskState(env_state, state.steps + 1), self.reward(env_state)

    def extra(self, state: Any) -> jax.Array:
        """[extra_size] what the high-level policy observes in addition to the environment's observation."""
        return jnp.zeros(0, jnp.float32)

    def reset(self, key: jax.Array) -> Any:
        """The first state of an episode."""
        key_env, key_task = jax.random.split(key)
        return self.begin(self.environment.reset(key_env), key_task)

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> tuple[Any, jax.Array]:
        """One environment step with an action in [-1, 1], and its reward."""
        state, rewards = self.step_parts(state, action, key)
        return state, rewards[0]

    def step_parts(self, state: Any, action: jax.Array, key: jax.Array) -> tuple[Any, jax.Array]:
        """One environment step, and [1 + parts] its reward followed by the parts of the reward."""
        key_env, key_task = jax.random.split(key)
        env_state = self.environment.step(state.env_state, action, key_env)
        parts = [] if self.parts is None else [self.parts(state, env_state)]
        state, reward = self.score(state, env_state, key_task)
        return state, jnp.concatenate([jnp.asarray(reward, jnp.float32)[None], *parts])

    def observe(self, state: Any) -> jax.Array:
        """The environment's observation, without the extra one."""
        return self.environment.observe(state.env_state)

    def done(self, state: Any) -> jax.Array:
        """Whether the episode has reached its horizon."""
        return jnp.asarray(state.steps >= self.horizon)

    @property
    def environment(self) -> Environment:
        """The environment, typed as its protocol."""
        env: Environment = self.env
        return env


@dataclass(frozen=True)
class HostTask(BaseTask):
    """A task on parallel host environments. `expert` takes nothing and gives actions [W, A].

    `parts(step)` has the argument of `reward` and gives [W, len(part_of)] rewards, and so has `success(step)`, which gives
    [W]; they are called after `reward`.
    """

    @abstractmethod
    def reward(self, step: HostStep) -> np.ndarray:
        """[W] the rewards of the last step, from what it returned or from the true state of the environments."""

    def begin(self) -> None:
        """Called after all environments were reset."""

    def extra(self) -> np.ndarray:
        """[W, extra_size] what the high-level policy observes in addition to the environment's observation."""
        return np.zeros((self.environment.num_envs, self.extra_size), np.float32)

    @property
    def environment(self) -> HostEnvironment:
        """The environment, typed as its protocol."""
        env: HostEnvironment = self.env
        return env

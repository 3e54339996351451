"""What a downstream task is: an environment, a reward on its true state, an extra observation and a horizon."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from susd.envs.base import Environment, HostEnvironment

SKILL_STEPS = 5  # environment steps per high-level action (K)


@dataclass(frozen=True)
class BaseTask(ABC):
    """What functional and host tasks have in common."""

    name: str
    env: Any  # the environment; tasks know its concrete type

    horizon: ClassVar[int]  # environment steps of one episode
    extra_size: ClassVar[int] = 0  # dimensions of the extra observation
    completable: ClassVar[bool] = True  # a step with a reward above zero is a step in which the task is completed
    random_episodes: ClassVar[bool] = False  # episodes differ even if all of them start in the same state
    expert: ClassVar[Any] = None  # a scripted policy that knows the true state; None where there is none

    @property
    @abstractmethod
    def ceiling(self) -> np.ndarray:
        """[high-level actions] the highest reward of each high-level action, which is the mean over its steps."""

    @property
    def bound(self) -> float:
        """The highest undiscounted return of an episode."""
        return float(self.ceiling.sum())


@dataclass(frozen=True)
class Task(BaseTask):
    """A functional task: pure, jit-able and vmap-able, like its environment. `expert` maps a state to an action."""

    @abstractmethod
    def begin(self, env_state: Any, key: jax.Array) -> Any:
        """The task state at the start of an episode; it has the fields `env_state` and `steps`."""

    @abstractmethod
    def score(self, state: Any, env_state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        """The next task state after the step that led to `env_state`, and the reward of that step."""

    @abstractmethod
    def extra(self, state: Any) -> jax.Array:
        """[extra_size] what the high-level policy observes in addition to the environment's observation."""

    def reset(self, key: jax.Array) -> Any:
        """The first state of an episode."""
        key_env, key_task = jax.random.split(key)
        return self.begin(self.environment.reset(key_env), key_task)

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> tuple[Any, jax.Array]:
        """One environment step with an action in [-1, 1], and its reward."""
        key_env, key_task = jax.random.split(key)
        return self.score(state, self.environment.step(state.env_state, action, key_env), key_task)

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
    """A task on parallel host environments, without extra observation. `expert` takes nothing and gives actions [W, A]."""

    @abstractmethod
    def score(self) -> np.ndarray:
        """[W] the rewards of the last step, computed from the true state of the environments."""

    @property
    def environment(self) -> HostEnvironment:
        """The environment, typed as its protocol."""
        env: HostEnvironment = self.env
        return env

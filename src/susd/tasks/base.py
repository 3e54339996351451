"""What a downstream task is: an environment, a reward on its true state, extra information and a horizon."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from susd.envs.base import Environment, HostEnvironment

SKILL_STEPS = 5  # environment steps per decision of the high level (K)


@dataclass(frozen=True)
class Task(ABC):
    """A functional task: pure, jit-able and vmap-able, like the environment inside it."""

    name: str
    env: Any  # the Environment; its concrete type is the task's business

    horizon: ClassVar[int]  # environment steps of one episode
    extra_size: ClassVar[int]  # how many numbers `extra` gives
    completable: ClassVar[bool] = True  # a step with a reward above zero is a step in which the task is done

    @property
    @abstractmethod
    def bound(self) -> float:
        """The most an episode can pay: the sum over decisions of the mean reward of a decision's steps."""

    @abstractmethod
    def begin(self, world: Any, key: jax.Array) -> Any:
        """The task state at the start of an episode; it has the fields `world` and `steps`."""

    @abstractmethod
    def score(self, state: Any, world: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        """The task's own rules: what the step that led to `world` pays, and the next task state."""

    @abstractmethod
    def extra(self, state: Any) -> jax.Array:
        """What the high level is told besides the observation."""

    def reset(self, key: jax.Array) -> Any:
        """A new episode."""
        key_world, key_task = jax.random.split(key)
        return self.begin(self.environment.reset(key_world), key_task)

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> tuple[Any, jax.Array]:
        """One environment step with an action in [-1, 1], and its reward."""
        key_world, key_task = jax.random.split(key)
        return self.score(state, self.environment.step(state.world, action, key_world), key_task)

    def observe(self, state: Any) -> jax.Array:
        """The environment's observation, without the extra information."""
        return self.environment.observe(state.world)

    def done(self, state: Any) -> jax.Array:
        """Whether the episode has reached its horizon."""
        return jnp.asarray(state.steps >= self.horizon)

    @property
    def environment(self) -> Environment:
        """The environment by its contract."""
        env: Environment = self.env
        return env


@dataclass(frozen=True)
class HostTask(ABC):
    """A task on a batch of host worlds: it says what the step they have just made pays. It has no extra information."""

    name: str
    env: Any  # the HostEnvironment; its concrete type is the task's business

    horizon: ClassVar[int]
    extra_size: ClassVar[int] = 0
    completable: ClassVar[bool] = True

    @property
    @abstractmethod
    def bound(self) -> float:
        """The most an episode can pay: the sum over decisions of the mean reward of a decision's steps."""

    @abstractmethod
    def score(self) -> np.ndarray:
        """[W] what the last step pays, by the true state of the worlds."""

    @property
    def environment(self) -> HostEnvironment:
        """The environment by its contract."""
        env: HostEnvironment = self.env
        return env

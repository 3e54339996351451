"""One batched interface over functional and host environments, for evaluation, downstream tasks and tools."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from susd.envs.base import Environment, EnvSpec, HostEnvironment, HostStep

if TYPE_CHECKING:
    from typing_extensions import TypeIs


def is_functional(env: Environment | HostEnvironment) -> TypeIs[Environment]:
    """Whether an environment is pure JAX, so that it can be compiled; else it is a host environment."""
    return not hasattr(env, "num_envs")


def vectorize(env: Environment | HostEnvironment, num_envs: int) -> HostEnvironment:
    """The environment as a batch over numpy; a host environment is one already and keeps its own `num_envs`."""
    return JaxVector(env, num_envs) if is_functional(env) else env


class JaxVector:
    """Parallel copies of a functional environment behind the interface of a host environment: compiled, vmapped."""

    def __init__(self, env: Environment, num_envs: int) -> None:
        self.env = env
        self._static = _Static(env)
        self._num_envs = num_envs
        self._key = jax.random.key(0)
        self._step_keys: list[jax.Array] = []
        self.state: Any = None  # a pytree with a leading axis of environments; None before the first reset

    @property
    def spec(self) -> EnvSpec:
        """The fixed facts."""
        return self.env.spec

    @property
    def num_envs(self) -> int:
        """How many environments are stepped together."""
        return self._num_envs

    def reset(self, seed: int) -> np.ndarray:
        """Reset all environments, as a function of the seed alone; [W, S]."""
        self._key, k_reset = jax.random.split(jax.random.key(seed))
        return self.reset_with_keys(k_reset, [])

    def reset_with_keys(self, key: jax.Array, step_keys: jax.Array | list[jax.Array]) -> np.ndarray:
        """Reset all environments with a key; the next steps use `step_keys`, in their order."""
        self._step_keys = list(step_keys)[::-1]
        self.state, obs = _reset(self._static, key, self._num_envs)
        return np.asarray(obs)

    def step(self, actions: np.ndarray) -> HostStep:
        """Step all environments by [W, A] in [-1, 1]; a functional environment never ends by itself."""
        if self._step_keys:
            key = self._step_keys.pop()
        else:
            self._key, key = jax.random.split(self._key)
        self.state, next_obs = _step(self._static, self.state, np.asarray(actions, np.float32), key)
        obs, never = np.asarray(next_obs), np.zeros(self._num_envs, bool)
        return HostStep(obs, obs, never, never)

    def render(self, index: int = 0, size: int = 400) -> np.ndarray:
        """One environment in its current state, as an RGB image."""
        return self.env.render(jax.tree.map(lambda x: x[index], self.state), size)


class _Static:
    """An environment as a static argument of compiled functions: by identity, since it need not be hashable."""

    def __init__(self, env: Environment) -> None:
        self.env = env

    def __hash__(self) -> int:
        return id(self.env)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Static) and other.env is self.env


@partial(jax.jit, static_argnums=(0, 2))
def _reset(static: _Static, key: jax.Array, num_envs: int) -> tuple[Any, jax.Array]:
    state = jax.vmap(static.env.reset)(jax.random.split(key, num_envs))
    return state, jax.vmap(static.env.observe)(state)


@partial(jax.jit, static_argnums=0)
def _step(static: _Static, state: Any, actions: jax.Array, key: jax.Array) -> tuple[Any, jax.Array]:
    state = jax.vmap(static.env.step)(state, actions, jax.random.split(key, actions.shape[0]))
    return state, jax.vmap(static.env.observe)(state)

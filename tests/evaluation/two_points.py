"""An environment of two points, whose coverage and control are known."""

from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from susd.envs.base import EnvSpec, Plane
from susd.factors import Factorization

STEP = 1 / 64  # a power of two, so that every sum below is exact


class TwoPoints:
    """Points a and b in the box [0, 1], from its centre, each moved by its own half of the action; a flag belongs to a."""

    @cached_property
    def spec(self) -> EnvSpec:
        factors = Factorization.from_mapping({"a": [0, 1, 2], "b": [3, 4]}, 5)
        planes = (Plane("a", 1, 2, 0.0, 1.0), Plane("b", 3, 4, 0.0, 1.0))
        return EnvSpec("two_points", 5, 4, 8, factors, planes, {"right": 0})

    def reset(self, key: jax.Array) -> jax.Array:
        return jnp.full(4, 0.5)

    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> jax.Array:
        return jnp.clip(state + STEP * action, 0.0, 1.0)

    def observe(self, state: jax.Array) -> jax.Array:
        return jnp.concatenate([(state[:1] > 0.75).astype(jnp.float32), state])

    def render(self, state: jax.Array, size: int = 400) -> np.ndarray:
        raise NotImplementedError

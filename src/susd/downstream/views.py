"""What a high-level policy observes, scaled: each dimension of a view has about mean 0 and standard deviation 1.

The clock of a task goes from 0 to 1 in an episode, positions from 0 to 5: a small network hardly notices the clock.
The statistics are those of the warm-up and stay fixed after it, so that replayed and new views mean the same.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

MIN_STD = 0.2  # a flag that was never seen in the warm-up becomes at most 5


class Views(eqx.Module):
    """Mean and sum of squared deviations of `count` views."""

    count: jax.Array
    mean: jax.Array
    squares: jax.Array

    @classmethod
    def init(cls, size: int) -> Views:
        """Of no views."""
        return cls(jnp.zeros(()), jnp.zeros(size), jnp.zeros(size))

    def add(self, views: jax.Array) -> Views:
        """With a batch [B, size] added (the parallel algorithm of Chan, Golub and LeVeque, 1979)."""
        new = float(len(views))
        mean = views.mean(axis=0)
        gap, count = mean - self.mean, self.count + new
        squares = self.squares + ((views - mean) ** 2).sum(axis=0) + gap**2 * self.count * new / count
        return Views(count, self.mean + gap * new / count, squares)

    @property
    def std(self) -> jax.Array:
        """[size] what deviations from the mean are divided by; 1 before the first batch."""
        found = jnp.maximum(jnp.sqrt(self.squares / jnp.maximum(self.count, 1.0)), MIN_STD)
        return jnp.where(self.count > 0, found, 1.0)

    def scale(self, views: jax.Array) -> jax.Array:
        """Views [.., size] as the networks see them; as they are before the first batch."""
        return (views - self.mean) / self.std


class ScaledActor(eqx.Module):
    """An actor that scales what it observes; without statistics it is the actor itself."""

    actor: Any
    views: Views | None

    def sample(self, view: jax.Array, key: jax.Array) -> jax.Array:
        """Random actions."""
        sampled: jax.Array = self.actor.sample(self._seen(view), key)
        return sampled

    def mode(self, view: jax.Array) -> jax.Array:
        """The mean actions."""
        mean: jax.Array = self.actor.mode(self._seen(view))
        return mean

    def _seen(self, view: jax.Array) -> jax.Array:
        return view if self.views is None else self.views.scale(jnp.asarray(view))

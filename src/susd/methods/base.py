"""What a method is, and the pieces several methods share: dual ascent, density distances, running means."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from susd.networks import Density, normal_log_prob
from susd.replay import Transition
from susd.skills import SkillSpace

Info = dict[str, jax.Array]


class Reward(NamedTuple):
    """The policy's reward, [B], and its parts, [B, N], one per factor (or one in all)."""

    total: jax.Array
    parts: jax.Array


class Method(Protocol):
    """The objective of a skill-discovery method. Everything is pure; SAC is shared and lives elsewhere."""

    @property
    def skills(self) -> SkillSpace:
        """The space its skills come from."""
        ...

    def init(self, key: jax.Array) -> Any:
        """Fresh parameters, all of them trained by gradient descent on `loss`."""
        ...

    def init_stats(self) -> Any:
        """Running statistics that no gradient touches."""
        ...

    def optimizer(self) -> optax.GradientTransformation:
        """What takes the gradient of `loss` to a step of the parameters."""
        ...

    def loss(self, params: Any, stats: Any, batch: Transition, key: jax.Array) -> tuple[jax.Array, tuple[Any, Any, Info]]:
        """The loss, and (new stats, what `reward` needs from before the step, things to log)."""
        ...

    def reward(self, params: Any, before: Any, batch: Transition) -> Reward:
        """The policy's reward under the updated parameters."""
        ...

    def encode(self, params: Any, obs: jax.Array) -> jax.Array:
        """phi(s), [B, N * D]."""
        ...


class RunningMean(eqx.Module):
    """An exponential moving average that is unbiased from the first sample on."""

    total: jax.Array
    weight: jax.Array

    @classmethod
    def init(cls) -> RunningMean:
        """Nothing seen yet."""
        return cls(jnp.zeros(()), jnp.zeros(()))

    def update(self, value: jax.Array, decay: float = 0.99) -> RunningMean:
        """Take one more value in."""
        return RunningMean(decay * self.total + (1 - decay) * value, decay * self.weight + (1 - decay))

    @property
    def value(self) -> jax.Array:
        """The average so far."""
        return self.total / jnp.maximum(self.weight, 1e-8)


def dual_losses(objective: jax.Array, slack: jax.Array, log_lambda: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Dual gradient descent on max J subject to slack >= 0.

    `objective` is [B], `slack` [B, C] holds min(eps, 1 - ||delta||^2) for C constraints, `log_lambda` is [C]. The first
    loss moves phi only (lambda constant), the second lambda only (slack constant): all satisfied, lambda shrinks.
    """
    penalty = jnp.sum(jnp.exp(jax.lax.stop_gradient(log_lambda)) * slack, axis=-1)
    phi_loss = -jnp.mean(objective + penalty)
    dual_loss = jnp.sum(log_lambda * jax.lax.stop_gradient(slack.mean(axis=0)))
    return phi_loss, dual_loss


def density_loss(density: Density, batch: Transition) -> tuple[jax.Array, jax.Array]:
    """Negative log-likelihood of delta s given s, and kappa [B, S], its squared distance per dimension.

    kappa_d = ((delta s_d - mu_d) / sigma_d)^2 gbar^2 with gbar the geometric mean of all sigma (the CSD form).
    """
    delta = batch.next_obs - batch.obs
    mean, log_std = density(batch.obs)
    loss = -normal_log_prob(delta, mean, log_std).sum(axis=-1).mean()
    log_scale = log_std.mean(axis=-1, keepdims=True) - log_std
    kappa = ((delta - mean) * jnp.exp(log_scale)) ** 2
    return loss, jax.lax.stop_gradient(kappa)

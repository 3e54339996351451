"""What a method is, and the pieces several methods share: dual ascent, density distances, discriminators, running means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from susd.networks import Density, normal_log_prob
from susd.skills import SkillSpace
from susd.types import Info, Transition


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

    def init_stats(self, params: Any) -> Any:
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
        """phi(s), or what the method's discriminator says of s, [B, N * D]."""
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


def difference(phi: Callable[[jax.Array], jax.Array], batch: Transition) -> jax.Array:
    """phi(s') - phi(s), in one pass over both ends of the transition."""
    before, after = jnp.split(phi(jnp.concatenate([batch.obs, batch.next_obs])), 2)
    return after - before


def dual_losses(objective: jax.Array, slack: jax.Array, log_lambda: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Dual gradient descent on max J subject to slack >= 0.

    `objective` is [B], `slack` [B, C] holds min(eps, 1 - ||delta||^2) for C constraints, `log_lambda` is [C]. The first
    loss moves phi only (lambda constant), the second lambda only (slack constant): all satisfied, lambda shrinks.
    """
    penalty = jnp.sum(jnp.exp(jax.lax.stop_gradient(log_lambda)) * slack, axis=-1)
    phi_loss = -jnp.mean(objective + penalty)
    dual_loss = jnp.sum(log_lambda * jax.lax.stop_gradient(slack.mean(axis=0)))
    return phi_loss, dual_loss


def constrained_loss(
    reward: jax.Array, square: jax.Array, bound: jax.Array | float, eps: float, log_lambda: jax.Array
) -> tuple[jax.Array, Info]:
    """max E[reward] subject to square <= bound, by dual descent: its loss for phi and lambda together, and what to log.

    `reward` is [B]; `square`, [B, C], holds the mean squares of phi(s') - phi(s) that C constraints bound.
    """
    slack = jnp.minimum(eps, bound - square)
    phi_loss, dual_loss = dual_losses(reward, slack, log_lambda)
    info = {
        "phi_loss": phi_loss,
        "phi_reward": reward.mean(),
        "constraint": square.mean(),
        "constraint_max": square.max(),
        "violations": (slack < 0).mean(),
        "lambda": jnp.exp(log_lambda).mean(),
    }
    return phi_loss + dual_loss, info


def dual_optimizer(labels: Any, learning_rate: float, dual_learning_rate: float) -> optax.GradientTransformation:
    """Adam for what is labelled `net`, and Adam at a rate of its own for what is labelled `dual`."""
    return optax.partition({"net": optax.adam(learning_rate), "dual": optax.adam(dual_learning_rate)}, labels)


def choice_log_prob(logits: jax.Array, choice: jax.Array) -> jax.Array:
    """log q of a one-hot choice under a softmax, over the last axis."""
    return jnp.sum(jax.nn.log_softmax(logits) * choice, axis=-1)


def accuracy(logits: jax.Array, choice: jax.Array) -> jax.Array:
    """Share of rows in which the largest logit is the choice; [..] of [B, .., K]."""
    return jnp.mean(jnp.argmax(logits, axis=-1) == jnp.argmax(choice, axis=-1), axis=0)


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

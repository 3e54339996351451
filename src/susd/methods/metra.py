"""METRA: one embedding phi of the whole state, bounded by temporal distance (Park, Rybkin and Levine, ICLR 2024)."""

from __future__ import annotations

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from susd.methods.base import Reward, constrained_loss, difference, dual_optimizer
from susd.networks import MLP
from susd.skills import SkillSpace
from susd.types import Info, Transition


class Params(eqx.Module):
    """phi and log lambda."""

    phi: MLP
    log_lambda: jax.Array


@dataclass(frozen=True)
class Metra:
    """The objective of METRA: max E[<phi(s') - phi(s), z>] where neighbours in time stay within a step of each other."""

    obs_size: int
    skills: SkillSpace
    hidden: int
    layers: int
    lambda_init: float
    slack: float
    learning_rate: float
    dual_learning_rate: float

    def init(self, key: jax.Array) -> Params:
        """Fresh phi; lambda starts high, so phi starts inside its constraint."""
        phi = MLP.init(key, [self.obs_size, *[self.hidden] * self.layers, self.skills.size])
        return Params(phi, jnp.full((1,), jnp.log(self.lambda_init)))

    def init_stats(self, params: Params) -> None:
        """Nothing runs along."""

    def optimizer(self) -> optax.GradientTransformation:
        """Adam; lambda has its own rate."""
        labels = Params(phi="net", log_lambda="dual")  # type: ignore[arg-type]
        return dual_optimizer(labels, self.learning_rate, self.dual_learning_rate)

    def loss(
        self, params: Params, stats: None, batch: Transition, key: jax.Array
    ) -> tuple[jax.Array, tuple[None, None, Info]]:
        """max E[r] subject to ||phi(s') - phi(s)||^2 <= D, as a mean over the D outputs, by dual gradient descent."""
        delta = difference(params.phi, batch)
        reward = jnp.sum(delta * batch.skill, axis=-1)
        square = jnp.mean(delta**2, axis=-1, keepdims=True)
        loss, info = constrained_loss(reward, square, 1.0, self.slack, params.log_lambda)
        return loss, (None, None, info)

    def reward(self, params: Params, before: None, batch: Transition) -> Reward:
        """r = <phi(s') - phi(s), z>, with the updated phi."""
        reward = jnp.sum(difference(params.phi, batch) * batch.skill, axis=-1)
        return Reward(reward, reward[:, None])

    def encode(self, params: Params, obs: jax.Array) -> jax.Array:
        """phi(s)."""
        return params.phi(obs)

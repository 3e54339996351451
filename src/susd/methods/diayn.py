"""DIAYN: skills that a discriminator can tell from the states they lead to (Eysenbach et al., ICLR 2019)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from susd.methods.base import Reward, accuracy, choice_log_prob
from susd.networks import MLP, Density, normal_log_prob
from susd.skills import SkillSpace
from susd.types import Info, Transition


class Params(eqx.Module):
    """The discriminator q(z | s'): a diagonal Gaussian, or a softmax over K choices."""

    discriminator: Density | MLP


@dataclass(frozen=True)
class Diayn:
    """The objective of DIAYN: max I(z; s'), by the bound E[log q(z | s')]."""

    obs_size: int
    skills: SkillSpace
    hidden: int
    layers: int
    min_std: float  # of the Gaussian; the smaller, the more a well-predicted skill can earn
    precision: str
    learning_rate: float

    def init(self, key: jax.Array) -> Params:
        """A fresh discriminator."""
        if self.skills.discrete:
            layers = [self.obs_size, *[self.hidden] * self.layers, self.skills.size]
            return Params(MLP.init(key, layers, precision=self.precision))
        sizes = (self.obs_size, self.skills.size, self.hidden, self.layers)
        return Params(Density.init(key, *sizes, self.min_std, self.precision))

    def init_stats(self, params: Params) -> None:
        """Nothing runs along."""

    def optimizer(self) -> optax.GradientTransformation:
        """Adam."""
        return optax.adam(self.learning_rate)

    def loss(
        self, params: Params, stats: None, batch: Transition, key: jax.Array
    ) -> tuple[jax.Array, tuple[None, None, Info]]:
        """Maximum likelihood: -E[log q(z | s')]."""
        loss = -self._log_prob(params, batch).mean()
        info = {"discriminator_loss": loss}
        if isinstance(params.discriminator, MLP):
            info["accuracy"] = accuracy(params.discriminator(batch.next_obs), batch.skill)
        else:
            mean, log_std = params.discriminator(batch.next_obs)
            info |= {"skill_error": jnp.abs(mean - batch.skill).mean(), "skill_std": jnp.exp(log_std).mean()}
        return loss, (None, None, info)

    def reward(self, params: Params, before: None, batch: Transition) -> Reward:
        """r = log q(z | s'), for choices with - log p(z) = log K, with the updated discriminator."""
        reward = self._log_prob(params, batch)
        if self.skills.discrete:
            reward = reward + math.log(self.skills.dim)
        return Reward(reward, reward[:, None])

    def encode(self, params: Params, obs: jax.Array) -> jax.Array:
        """What q says of s: the Gaussian's mean, or the logits of the choices."""
        if isinstance(params.discriminator, MLP):
            return params.discriminator(obs)
        return params.discriminator(obs)[0]

    def _log_prob(self, params: Params, batch: Transition) -> jax.Array:
        if isinstance(params.discriminator, MLP):
            return choice_log_prob(params.discriminator(batch.next_obs), batch.skill)
        return normal_log_prob(batch.skill, *params.discriminator(batch.next_obs)).sum(axis=-1)

"""DUSDi: one choice per factor, told from that factor and from no other (Hu et al., NeurIPS 2024)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import equinox as eqx
import jax
import optax

from susd.methods.base import Reward, accuracy, choice_log_prob
from susd.networks import FactoredMLP
from susd.skills import SkillSpace
from susd.types import Info, Transition


class Params(eqx.Module):
    """The discriminators q_i(z^i | x_i) and, with a penalty, their opponents q_i(z^i | x_j, j != i)."""

    own: FactoredMLP
    others: FactoredMLP | None


@dataclass(frozen=True)
class Dusdi:
    """The objective of DUSDi: max sum_i I(z^i; x_i) - beta I(z^i; x_{-i}), x_i being what is seen of factor i."""

    names: tuple[str, ...]
    features: tuple[tuple[int, ...], ...]  # x_i as indices of the observation
    skills: SkillSpace
    penalty: float  # beta; 0 for none
    hidden: int
    layers: int
    learning_rate: float

    def init(self, key: jax.Array) -> Params:
        """Fresh discriminators; x_{-i} is everything that is seen of the other factors."""
        k_own, k_others = jax.random.split(key)
        rest = tuple(
            tuple(index for j, other in enumerate(self.features) if j != i for index in other)
            for i in range(len(self.features))
        )
        own = FactoredMLP.init(k_own, self.features, self.hidden, self.layers, self.skills.dim)
        if not self.penalty:
            return Params(own, None)
        return Params(own, FactoredMLP.init(k_others, rest, self.hidden, self.layers, self.skills.dim))

    def init_stats(self, params: Params) -> None:
        """Nothing runs along."""

    def optimizer(self) -> optax.GradientTransformation:
        """Adam."""
        return optax.adam(self.learning_rate)

    def loss(
        self, params: Params, stats: None, batch: Transition, key: jax.Array
    ) -> tuple[jax.Array, tuple[None, None, Info]]:
        """Cross-entropy of every discriminator on the next state."""
        choice = self.skills.split(batch.skill)
        logits = params.own(batch.next_obs)
        loss = -choice_log_prob(logits, choice).sum(axis=1).mean()
        right = accuracy(logits, choice)
        info = {"discriminator_loss": loss, "accuracy": right.mean()}
        info |= {f"factor/{name}/accuracy": right[i] for i, name in enumerate(self.names)}
        if params.others is not None:
            logits = params.others(batch.next_obs)
            opponent_loss = -choice_log_prob(logits, choice).sum(axis=1).mean()
            info |= {"opponent_loss": opponent_loss, "opponent_accuracy": accuracy(logits, choice).mean()}
            loss = loss + opponent_loss
        return loss, (None, None, info)

    def reward(self, params: Params, before: None, batch: Transition) -> Reward:
        """r_i = log q_i(z^i | x_i') + log K - beta (log q_i(z^i | x_{-i}') + log K), with the updated discriminators."""
        choice, uniform = self.skills.split(batch.skill), math.log(self.skills.dim)
        parts = choice_log_prob(params.own(batch.next_obs), choice) + uniform
        if params.others is not None:
            parts = parts - self.penalty * (choice_log_prob(params.others(batch.next_obs), choice) + uniform)
        return Reward(parts.sum(axis=1), parts)

    def encode(self, params: Params, obs: jax.Array) -> jax.Array:
        """The logits of all discriminators side by side."""
        return params.own(obs).reshape(obs.shape[0], -1)

"""DUSDi: a discrete skill per factor, recognised in that factor and in no other (Hu et al., NeurIPS 2024)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import optax

from susd.errors import UserError
from susd.methods.base import (
    DISCRIMINATOR_METRICS,
    FACTORED,
    ONE_START,
    TOTAL_ONLY,
    Reward,
    accuracy,
    one_hot_log_prob,
    phi_input,
)
from susd.methods.registry import Card, Unless
from susd.networks import FactoredMLP
from susd.sac import adam
from susd.skills import SkillSpace
from susd.types import Info, Transition

if TYPE_CHECKING:
    from susd.config import Config
    from susd.envs.base import EnvSpec


class Params(eqx.Module):
    """The discriminators q_i(z^i | x_i) and, with a penalty, their opponents q_i(z^i | x_j, j != i)."""

    own: FactoredMLP
    others: FactoredMLP | None


@dataclass(frozen=True)
class Dusdi:
    """The objective of DUSDi: max sum_i I(z^i; x_i) - beta I(z^i; x_{-i}), x_i being the observed features of factor i."""

    names: tuple[str, ...]
    features: tuple[tuple[int, ...], ...]  # x_i as indices of the observation
    skills: SkillSpace
    penalty: float  # beta; 0 for none
    hidden: int
    layers: int
    learning_rate: float

    def loss(
        self, params: Params, stats: None, batch: Transition, key: jax.Array
    ) -> tuple[jax.Array, tuple[None, None, Info]]:
        """Cross-entropy of every discriminator on the next state."""
        skill = self.skills.split(batch.skill)
        logits = params.own(batch.next_obs)
        loss = -one_hot_log_prob(logits, skill).sum(axis=1).mean()
        right = accuracy(logits, skill)
        info = {"discriminator_loss": loss, "accuracy": right.mean()}
        info |= {f"factor/{name}/accuracy": right[i] for i, name in enumerate(self.names)}
        if params.others is not None:
            logits = params.others(batch.next_obs)
            opponent_loss = -one_hot_log_prob(logits, skill).sum(axis=1).mean()
            info |= {"opponent_loss": opponent_loss, "opponent_accuracy": accuracy(logits, skill).mean()}
            loss = loss + opponent_loss
        return loss, (None, None, info)

    def reward(self, params: Params, before: None, batch: Transition) -> Reward:
        """r_i = log q_i(z^i | x_i') + log K - beta (log q_i(z^i | x_{-i}') + log K), with the updated discriminators."""
        skill, uniform = self.skills.split(batch.skill), math.log(self.skills.dim)
        parts = one_hot_log_prob(params.own(batch.next_obs), skill) + uniform
        if params.others is not None:
            parts = parts - self.penalty * (one_hot_log_prob(params.others(batch.next_obs), skill) + uniform)
        return Reward(parts.sum(axis=1), parts)

    def encode(self, params: Params, obs: jax.Array) -> jax.Array:
        """The logits of all discriminators, concatenated."""
        return params.own(obs).reshape(obs.shape[0], -1)

    def network(self, params: Params) -> FactoredMLP:
        """The discriminators."""
        return params.own

    def init(self, key: jax.Array) -> Params:
        """Initial discriminators; x_{-i} has the features of all other factors."""
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
        """No running statistics."""

    def optimizer(self) -> optax.GradientTransformation:
        """Adam."""
        return adam(self.learning_rate)

    @classmethod
    def from_config(cls, config: Config, spec: EnvSpec) -> Dusdi:
        """DUSDi with the factors of an environment."""
        view, factors = phi_input(config, spec)
        if len(factors) == 1 and config.disentangle:
            raise UserError(f"--disentangle is {config.disentangle}, but there is only one factor; use --disentangle 0")
        return cls(
            names=factors.names,
            features=_filtered(spec) if config.features == "filtered" else view.whole(factors.indices),
            skills=SkillSpace(config.prior, len(factors), config.skill_dim, factors.names),
            penalty=config.disentangle,
            hidden=config.phi_hidden,
            layers=config.layers,
            learning_rate=config.learning_rate,
        )


def _filtered(spec: EnvSpec) -> tuple[tuple[int, ...], ...]:
    """The features of every factor in the original DUSDi."""
    factors = spec.factorization
    kept = tuple(tuple(index for index in own if index in spec.filtered) for own in factors.indices)
    for name, own in zip(factors.names, kept, strict=True):
        if not own:
            raise UserError(f"--features is 'filtered', but {spec.name} keeps nothing of factor {name!r}; use full")
    return kept


CARDS = (
    Card(
        name="dusdi",
        title="DUSDi",
        summary="a discrete skill per factor, recognised in that factor and in no other",
        source="Hu, Wang, Stone and Martin-Martin, NeurIPS 2024",
        implementation="susd.methods.dusdi:Dusdi",
        objective="max E[sum_i log q_i(z^i | x_i')], x_i the features of factor i; q_i(z^i | x_j, j != i) is fitted too",
        reward="sum_i log q_i(z^i | x_i') + log K - beta (log q_i(z^i | x_j', j != i) + log K)",
        options=FACTORED | {"disentangle", "features", "phi_input"},
        priors=("one_hot",),
        unless=(
            Unless("phi_input", "own", frozenset({"features"}), "it does not apply with --phi-input own"),
            TOTAL_ONLY,
        ),
        paper={
            "prior": "one_hot",
            "skill_dim": 5,
            "critic": "decomposed",
            "disentangle": 0.1,
            "discount": 0.95,
            "adaptive_alpha": False,
        },
        own={
            "gunner": {"features": "filtered"},
            "multi_particle": {"alpha_init": 0.3, "features": "filtered"},
            "ant": {"disentangle": 0.0},  # a single factor: there are no others
            "half_cheetah": {"disentangle": 0.0},
        },
        quick={"prior": "one_hot", "adaptive_alpha": True, "features": "full"},
        quick_own={"multi_particle": ONE_START},
        colour="#E69F00",
        metrics={"opponent_accuracy": "Opponent accuracy"} | DISCRIMINATOR_METRICS,
        directions=False,
        order=5,
    ),
)

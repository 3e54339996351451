"""DIAYN: skills that a discriminator recognises in the states they reach (Eysenbach et al., ICLR 2019)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from susd.methods.base import (
    DISCRIMINATOR_METRICS,
    ONE_START,
    WHOLE,
    Reward,
    View,
    accuracy,
    network_of,
    one_hot_log_prob,
    phi_input,
)
from susd.methods.registry import Card, Unless
from susd.networks import MLP, Density, FactoredMLP, normal_log_prob
from susd.sac import adam
from susd.skills import SkillSpace
from susd.types import Info, Transition

if TYPE_CHECKING:
    from susd.config import Config
    from susd.envs.base import EnvSpec


class Params(eqx.Module):
    """The discriminator q(z | s'): a diagonal Gaussian, or a softmax over K discrete skills."""

    discriminator: Density | MLP


@dataclass(frozen=True)
class Diayn:
    """The objective of DIAYN: max I(z; s'), by the bound E[log q(z | s')]."""

    obs_size: int  # of what the discriminator sees
    skills: SkillSpace
    hidden: int
    layers: int
    min_std: float  # of the Gaussian; it bounds the reward of a skill that is predicted well
    precision: str
    learning_rate: float
    view: View = WHOLE
    std_bound: str = "clip"  # clip | soft

    def loss(
        self, params: Params, stats: None, batch: Transition, key: jax.Array
    ) -> tuple[jax.Array, tuple[None, None, Info]]:
        """Maximum likelihood: -E[log q(z | s')]."""
        batch = self.view.of(batch)
        loss = -self._log_prob(params, batch).mean()
        info = {"discriminator_loss": loss}
        if isinstance(params.discriminator, MLP):
            info["accuracy"] = accuracy(params.discriminator(batch.next_obs), batch.skill)
        else:
            mean, log_std = params.discriminator(batch.next_obs)
            info |= {"skill_error": jnp.abs(mean - batch.skill).mean(), "skill_std": jnp.exp(log_std).mean()}
        return loss, (None, None, info)

    def reward(self, params: Params, before: None, batch: Transition) -> Reward:
        """r = log q(z | s') with the updated discriminator; discrete skills have - log p(z) = log K in addition."""
        reward = self._log_prob(params, self.view.of(batch))
        if self.skills.discrete:
            reward = reward + math.log(self.skills.dim)
        return Reward(reward, reward[:, None])

    def encode(self, params: Params, obs: jax.Array) -> jax.Array:
        """The prediction of q for s: the mean of the Gaussian, or the logits of the discrete skills."""
        if isinstance(params.discriminator, MLP):
            return params.discriminator(self.view(obs))
        return params.discriminator(self.view(obs))[0]

    def network(self, params: Params) -> FactoredMLP:
        """The logits, or the mean of the Gaussian."""
        found = params.discriminator
        if isinstance(found, MLP):
            return network_of(found, self.view, self.obs_size)
        weights, biases = (tuple(layer[0] for layer in layers) for layers in (found.nets.weights, found.nets.biases))
        return network_of(MLP(weights, biases, found.nets.activation, found.nets.precision), self.view, self.obs_size)

    def _log_prob(self, params: Params, batch: Transition) -> jax.Array:
        if isinstance(params.discriminator, MLP):
            return one_hot_log_prob(params.discriminator(batch.next_obs), batch.skill)
        return normal_log_prob(batch.skill, *params.discriminator(batch.next_obs)).sum(axis=-1)

    def init(self, key: jax.Array) -> Params:
        """Initial discriminator."""
        if self.skills.discrete:
            layers = [self.obs_size, *[self.hidden] * self.layers, self.skills.size]
            return Params(MLP.init(key, layers, precision=self.precision))
        sizes = (self.obs_size, self.skills.size, self.hidden, self.layers)
        return Params(Density.init(key, *sizes, self.min_std, self.precision, self.std_bound))

    def init_stats(self, params: Params) -> None:
        """No running statistics."""

    def optimizer(self) -> optax.GradientTransformation:
        """Adam."""
        return adam(self.learning_rate)

    @classmethod
    def from_config(cls, config: Config, spec: EnvSpec) -> Diayn:
        """DIAYN for the observations of an environment."""
        view, factors = phi_input(config, spec)
        return cls(
            obs_size=factors.size,
            skills=SkillSpace(config.prior, 1, config.skill_dim, ("all",)),
            hidden=config.phi_hidden,
            layers=config.layers,
            min_std=config.min_std,
            precision=config.precision,
            learning_rate=config.learning_rate,
            view=view,
            std_bound=config.std_bound,
        )


DIAYN = Card(
    name="diayn",
    title="DIAYN",
    summary="skills that a discriminator recognises in the next state",
    source="Eysenbach, Gupta, Ibarz and Levine, ICLR 2019",
    implementation="susd.methods.diayn:Diayn",
    objective="max E[log q(z | s')], q a diagonal Gaussian or a softmax",
    reward="log q(z | s'), with + log K for one_hot skills",
    options=frozenset({"phi_input", "min_std", "std_bound"}),
    priors=("gaussian", "one_hot"),
    unless=(Unless("prior", "one_hot", frozenset({"min_std", "std_bound"}), "it does not apply with --prior one_hot"),),
    paper={"prior": "gaussian"},
    quick={"prior": "gaussian", "phi_hidden": 128, "min_std": 0.1},
    quick_own={"multi_particle": ONE_START},
    colour="#56B4E9",
    metrics={"skill_error": "Skill prediction error"} | DISCRIMINATOR_METRICS,
    directions=False,
    order=4,
)
CARDS = (
    DIAYN,
    DIAYN.variant(
        "diayn-discrete",
        "DIAYN (discrete)",
        "DIAYN with K discrete skills",
        {"prior": "one_hot"},
        objective="max E[log q(z | s')], q a softmax",
        reward="log q(z | s') + log K",
        priors=("one_hot",),
        paper={"skill_dim": 16},
        colour="#808000",
        metrics=DISCRIMINATOR_METRICS,
    ),
)

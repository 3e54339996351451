"""CSD: an embedding whose bound grows with how unlikely a transition is (Park, Lee, Lee and Abbeel, ICML 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from susd.methods.base import (
    DENSITY,
    DENSITY_METRICS,
    DUAL,
    DUAL_METRICS,
    RELABEL,
    STATE_OBJECTIVE,
    STATE_REWARD,
    UNIT_ONLY,
    WHOLE,
    WIDE_PHI,
    Reward,
    RunningMean,
    View,
    constrained_loss,
    density_loss,
    difference,
    dual_optimizer,
    network_of,
    phi_input,
)
from susd.methods.registry import Card
from susd.networks import MLP, Density, FactoredMLP
from susd.skills import SkillSpace
from susd.types import Info, Transition

if TYPE_CHECKING:
    from susd.config import Config
    from susd.envs.base import EnvSpec


class Params(eqx.Module):
    """phi, the density model q(delta s | s), and log lambda."""

    phi: MLP
    density: Density
    log_lambda: jax.Array


@dataclass(frozen=True)
class Csd:
    """The objective of CSD: max E[<phi(s') - phi(s), z>] where phi moves far only in transitions that are unlikely."""

    obs_size: int  # of what phi sees
    skills: SkillSpace
    distance: str  # raw | mean (divided by its running mean)
    hidden: int
    density_hidden: int
    layers: int
    min_std: float
    precision: str
    lambda_init: float
    slack: float
    learning_rate: float
    dual_learning_rate: float
    view: View = WHOLE
    std_bound: str = "clip"  # clip | soft

    def loss(
        self, params: Params, stats: RunningMean, batch: Transition, key: jax.Array
    ) -> tuple[jax.Array, tuple[RunningMean, None, Info]]:
        """max E[r] subject to mean_d (phi(s') - phi(s))_d^2 <= mean_d kappa_d, and the likelihood of the density model."""
        nll, kappa = density_loss(params.density, batch, self.view)
        distance = kappa.mean(axis=1, keepdims=True)  # d(s, s')^2, by the density model before its step
        stats = stats.update(distance.mean())
        if self.distance == "mean":
            distance = distance / jnp.maximum(stats.value, 1e-12)
        delta = difference(params.phi, self.view.of(batch))
        reward = jnp.sum(delta * batch.skill, axis=-1)
        square = jnp.mean(delta**2, axis=-1, keepdims=True)
        loss, info = constrained_loss(reward, square, distance, self.slack, params.log_lambda)
        info |= {"density_nll": nll, "distance_raw": stats.value}
        return loss + nll, (stats, None, info)

    def reward(self, params: Params, before: None, batch: Transition) -> Reward:
        """r = <phi(s') - phi(s), z>, with the updated phi; the distance is in the constraint only."""
        reward = jnp.sum(difference(params.phi, self.view.of(batch)) * batch.skill, axis=-1)
        return Reward(reward, reward[:, None])

    def encode(self, params: Params, obs: jax.Array) -> jax.Array:
        """phi(s)."""
        return params.phi(self.view(obs))

    def network(self, params: Params) -> FactoredMLP:
        """phi."""
        return network_of(params.phi, self.view, self.obs_size)

    def init(self, key: jax.Array) -> Params:
        """Initial networks; lambda starts high, so that phi starts within its constraint."""
        k_phi, k_density = jax.random.split(key)
        size = self.obs_size
        sizes = (self.view.obs_size or size, size, self.density_hidden, self.layers)
        return Params(
            MLP.init(k_phi, [size, *[self.hidden] * self.layers, self.skills.size]),
            Density.init(k_density, *sizes, self.min_std, self.precision, self.std_bound),
            jnp.full((1,), jnp.log(self.lambda_init)),
        )

    def init_stats(self, params: Params) -> RunningMean:
        """The running mean of the squared distance."""
        return RunningMean.init()

    def optimizer(self) -> optax.GradientTransformation:
        """Adam; lambda has its own learning rate."""
        labels = Params(phi="net", density="net", log_lambda="dual")  # type: ignore[arg-type]
        return dual_optimizer(labels, self.learning_rate, self.dual_learning_rate)

    @classmethod
    def from_config(cls, config: Config, spec: EnvSpec) -> Csd:
        """CSD for the observations of an environment."""
        view, factors = phi_input(config, spec)
        return cls(
            obs_size=factors.size,
            skills=SkillSpace(config.prior, 1, config.skill_dim, ("all",)),
            distance=config.distance,
            hidden=config.phi_hidden,
            density_hidden=config.density_hidden,
            layers=config.layers,
            min_std=config.min_std,
            precision=config.precision,
            lambda_init=config.lambda_init,
            slack=config.slack,
            learning_rate=config.learning_rate,
            dual_learning_rate=config.dual_learning_rate,
            view=view,
            std_bound=config.std_bound,
        )


CARDS = (
    Card(
        name="csd",
        title="CSD",
        summary="one embedding, distance by how unlikely a transition is",
        source="Park, Lee, Lee and Abbeel, ICML 2023",
        implementation="susd.methods.csd:Csd",
        objective=STATE_OBJECTIVE,
        constraint="mean_d (phi(s') - phi(s))_d^2 <= mean_d kappa_d of a density q(delta s | s), by dual descent on lambda",
        weight="none; the surprise is in the constraint",
        reward=STATE_REWARD,
        options=DUAL | DENSITY | RELABEL | {"distance"},
        unless=UNIT_ONLY,
        quick=WIDE_PHI | {"distance": "mean"},
        quick_own={"gunner": {"discount": 0.85}},
        colour="#CC79A7",
        metrics=DUAL_METRICS | DENSITY_METRICS,
        order=3,
    ),
)

"""LSD: an embedding phi that is 1-Lipschitz by construction (Park, Choi, Kim, Lee and Kim, ICLR 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from susd.methods.base import (
    PHI_METRICS,
    RELABEL,
    STATE_OBJECTIVE,
    STATE_REWARD,
    UNIT_ONLY,
    WHOLE,
    WIDE_PHI,
    Reward,
    View,
    difference,
    network_of,
    phi_input,
)
from susd.methods.registry import Card
from susd.networks import MLP, FactoredMLP, spectral_normalise, spectral_vectors
from susd.sac import adam
from susd.skills import SkillSpace
from susd.types import Info, Transition

if TYPE_CHECKING:
    from susd.config import Config
    from susd.envs.base import EnvSpec

# Power iterations per step. Training brings the largest singular values close to each other; a single iteration then loses
# track for a while, and phi stretches some steps by far more than the bound.
ITERATIONS = 16


class Params(eqx.Module):
    """phi before its weights are normalised."""

    phi: MLP


class Vectors(eqx.Module):
    """The singular vectors of phi's layers from which the power iteration continues."""

    right: tuple[jax.Array, ...]


@dataclass(frozen=True)
class Lsd:
    """The objective of LSD: max E[<phi(s') - phi(s), z>] over the phi with ||phi(s') - phi(s)|| <= ||s' - s||."""

    obs_size: int  # of what phi sees
    skills: SkillSpace
    hidden: int
    layers: int
    learning_rate: float
    view: View = WHOLE

    def loss(
        self, params: Params, stats: Vectors, batch: Transition, key: jax.Array
    ) -> tuple[jax.Array, tuple[Vectors, Vectors, Info]]:
        """max E[r]; every layer is divided by its spectral norm, so no constraint is left."""
        phi, right = spectral_normalise(params.phi, stats.right, ITERATIONS)
        batch = self.view.of(batch)
        delta = difference(phi, batch)
        reward = jnp.sum(delta * batch.skill, axis=-1)
        loss = -reward.mean()
        moved = jnp.linalg.norm(batch.next_obs - batch.obs, axis=-1)
        stretch = jnp.linalg.norm(delta, axis=-1) / jnp.maximum(moved, 1e-6)
        info = {"phi_loss": loss, "phi_reward": reward.mean(), "stretch": stretch.mean(), "stretch_max": stretch.max()}
        return loss, (Vectors(right), Vectors(right), info)

    def reward(self, params: Params, before: Vectors, batch: Transition) -> Reward:
        """r = <phi(s') - phi(s), z>, with the updated phi and its updated spectral norms."""
        phi, _ = spectral_normalise(params.phi, before.right, ITERATIONS)
        reward = jnp.sum(difference(phi, self.view.of(batch)) * batch.skill, axis=-1)
        return Reward(reward, reward[:, None])

    def encode(self, params: Params, obs: jax.Array) -> jax.Array:
        """phi(s), with singular vectors computed from scratch."""
        return spectral_normalise(params.phi, spectral_vectors(params.phi))[0](self.view(obs))

    def network(self, params: Params) -> FactoredMLP:
        """phi with normalised weights."""
        return network_of(spectral_normalise(params.phi, spectral_vectors(params.phi))[0], self.view, self.obs_size)

    def init(self, key: jax.Array) -> Params:
        """Initial phi."""
        return Params(MLP.init(key, [self.obs_size, *[self.hidden] * self.layers, self.skills.size]))

    def init_stats(self, params: Params) -> Vectors:
        """Singular vectors that have converged before the first step."""
        return Vectors(spectral_vectors(params.phi))

    def optimizer(self) -> optax.GradientTransformation:
        """Adam."""
        return adam(self.learning_rate)

    @classmethod
    def from_config(cls, config: Config, spec: EnvSpec) -> Lsd:
        """LSD for the observations of an environment."""
        view, factors = phi_input(config, spec)
        return cls(
            obs_size=factors.size,
            skills=SkillSpace(config.prior, 1, config.skill_dim, ("all",)),
            hidden=config.phi_hidden,
            layers=config.layers,
            learning_rate=config.learning_rate,
            view=view,
        )


CARDS = (
    Card(
        name="lsd",
        title="LSD",
        summary="one embedding that is 1-Lipschitz in the state",
        source="Park, Choi, Kim, Lee and Kim, ICLR 2022",
        implementation="susd.methods.lsd:Lsd",
        objective=STATE_OBJECTIVE,
        constraint="||phi(s') - phi(s)|| <= ||s' - s|| by spectral normalisation of every layer",
        reward=STATE_REWARD,
        options=RELABEL | {"phi_input"},
        unless=UNIT_ONLY,
        quick=WIDE_PHI,
        quick_own={"gunner": {"discount": 0.85}},
        colour="#009E73",
        metrics=PHI_METRICS | {"stretch": "Embedding step / state step"},
        order=2,
    ),
)

"""METRA: one embedding phi of the whole state, bounded by temporal distance (Park, Rybkin and Levine, ICLR 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from susd.methods.base import (
    DUAL,
    DUAL_METRICS,
    RELABEL,
    STATE_OBJECTIVE,
    STATE_REWARD,
    TEMPORAL,
    UNIT_ONLY,
    WHOLE,
    WIDE_PHI,
    Reward,
    View,
    constrained_loss,
    difference,
    dual_optimizer,
    network_of,
    phi_input,
)
from susd.methods.registry import Card
from susd.networks import MLP, FactoredMLP
from susd.skills import SkillSpace
from susd.types import Info, Transition

if TYPE_CHECKING:
    from susd.config import Config
    from susd.envs.base import EnvSpec


class Params(eqx.Module):
    """phi and log lambda."""

    phi: MLP
    log_lambda: jax.Array


@dataclass(frozen=True)
class Metra:
    """The objective of METRA: max E[<phi(s') - phi(s), z>] where phi moves by at most one unit per time step."""

    obs_size: int  # of what phi sees
    skills: SkillSpace
    hidden: int
    layers: int
    lambda_init: float
    slack: float
    learning_rate: float
    dual_learning_rate: float
    view: View = WHOLE

    def loss(
        self, params: Params, stats: None, batch: Transition, key: jax.Array
    ) -> tuple[jax.Array, tuple[None, None, Info]]:
        """max E[r] subject to ||phi(s') - phi(s)||^2 <= D, as a mean over the D outputs, by dual gradient descent."""
        delta = difference(params.phi, self.view.of(batch))
        reward = jnp.sum(delta * batch.skill, axis=-1)
        square = jnp.mean(delta**2, axis=-1, keepdims=True)
        loss, info = constrained_loss(reward, square, 1.0, self.slack, params.log_lambda)
        return loss, (None, None, info)

    def reward(self, params: Params, before: None, batch: Transition) -> Reward:
        """r = <phi(s') - phi(s), z>, with the updated phi."""
        reward = jnp.sum(difference(params.phi, self.view.of(batch)) * batch.skill, axis=-1)
        return Reward(reward, reward[:, None])

    def encode(self, params: Params, obs: jax.Array) -> jax.Array:
        """phi(s)."""
        return params.phi(self.view(obs))

    def network(self, params: Params) -> FactoredMLP:
        """phi."""
        return network_of(params.phi, self.view, self.obs_size)

    def init(self, key: jax.Array) -> Params:
        """Initial phi; lambda starts high, so that phi starts within its constraint."""
        phi = MLP.init(key, [self.obs_size, *[self.hidden] * self.layers, self.skills.size])
        return Params(phi, jnp.full((1,), jnp.log(self.lambda_init)))

    def init_stats(self, params: Params) -> None:
        """No running statistics."""

    def optimizer(self) -> optax.GradientTransformation:
        """Adam; lambda has its own learning rate."""
        labels = Params(phi="net", log_lambda="dual")  # type: ignore[arg-type]
        return dual_optimizer(labels, self.learning_rate, self.dual_learning_rate)

    @classmethod
    def from_config(cls, config: Config, spec: EnvSpec) -> Metra:
        """METRA for the observations of an environment."""
        view, factors = phi_input(config, spec)
        return cls(
            obs_size=factors.size,
            skills=SkillSpace(config.prior, 1, config.skill_dim, ("all",)),
            hidden=config.phi_hidden,
            layers=config.layers,
            lambda_init=config.lambda_init,
            slack=config.slack,
            learning_rate=config.learning_rate,
            dual_learning_rate=config.dual_learning_rate,
            view=view,
        )


CARDS = (
    Card(
        name="metra",
        title="METRA",
        summary="one embedding, temporal distance; the paper's SUSD-wf is this with D = 2",
        source="Park, Rybkin and Levine, ICLR 2024",
        implementation="susd.methods.metra:Metra",
        objective=STATE_OBJECTIVE,
        constraint=TEMPORAL,
        reward=STATE_REWARD,
        options=DUAL | RELABEL,
        unless=UNIT_ONLY,
        paper={"lambda_init": 30.0, "slack": 1e-3},
        quick=WIDE_PHI,
        quick_own={"gunner": {"discount": 0.85}},
        colour="#D55E00",
        metrics=DUAL_METRICS,
        order=1,
    ),
)

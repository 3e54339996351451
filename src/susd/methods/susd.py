"""SUSD: per-factor embeddings phi_i by dual gradient descent, weighted by per-factor curiosity (Eqs. 3 to 10)."""

from __future__ import annotations

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from susd.factors import Factorization
from susd.methods.base import Reward, RunningMean, constrained_loss, density_loss, difference, dual_optimizer
from susd.networks import Density, FactoredMLP
from susd.skills import SkillSpace
from susd.types import Info, Transition


class Params(eqx.Module):
    """phi_1 .. phi_N, the density model q(delta s | s) if weights are used, and log lambda (one, or one per factor)."""

    phi: FactoredMLP
    density: Density | None
    log_lambda: jax.Array


class Before(eqx.Module):
    """What the reward takes from before the gradient step: the curiosity weights w, [B, N], if there are any."""

    weight: jax.Array | None


@dataclass(frozen=True)
class Susd:
    """The objective of SUSD. Without factors it has one, the whole state."""

    factorization: Factorization
    skills: SkillSpace
    constraint: str  # joint | per_factor
    weight: str  # mean (divided by its running mean) | raw | none
    weight_scope: str  # factor | state (one weight for all factors)
    share_agent: tuple[str, ...]  # the factors whose phi_i also sees the first factor
    phi_hidden: int
    density_hidden: int
    layers: int
    min_std: float
    precision: str
    lambda_init: float
    slack: float
    learning_rate: float
    dual_learning_rate: float

    def init(self, key: jax.Array) -> Params:
        """Fresh networks; lambda starts high, so phi starts inside its constraint."""
        k_phi, k_density = jax.random.split(key)
        factors = self.factorization
        first = factors.indices[0]
        named = zip(factors.names, factors.indices, strict=True)
        inputs = tuple((*first, *own) if name in self.share_agent else own for name, own in named)
        constraints = len(inputs) if self.constraint == "per_factor" else 1
        return Params(
            FactoredMLP.init(k_phi, inputs, self.phi_hidden, self.layers, self.skills.dim),
            None if self.weight == "none" else self._init_density(k_density),
            jnp.full((constraints,), jnp.log(self.lambda_init)),
        )

    def _init_density(self, key: jax.Array) -> Density:
        size = self.factorization.size
        return Density.init(key, size, size, self.density_hidden, self.layers, self.min_std, self.precision)

    def init_stats(self, params: Params) -> RunningMean:
        """The running mean of the curiosity weight."""
        return RunningMean.init()

    def optimizer(self) -> optax.GradientTransformation:
        """Adam; lambda has its own rate."""
        density = None if self.weight == "none" else "net"
        labels = Params(phi="net", density=density, log_lambda="dual")  # type: ignore[arg-type]
        return dual_optimizer(labels, self.learning_rate, self.dual_learning_rate)

    def loss(
        self, params: Params, stats: RunningMean, batch: Transition, key: jax.Array
    ) -> tuple[jax.Array, tuple[RunningMean, Before, Info]]:
        """Eq. 8 for phi, Eq. 9 for lambda, and the likelihood of the density model, in one sum of separate gradients."""
        del key
        # 1. Eq. 7: r_i = <delta_i, z^i> with delta_i = phi_i(s'^i) - phi_i(s^i)
        delta = difference(params.phi, batch)
        rewards = jnp.sum(delta * self.skills.direction(batch.skill), axis=-1)
        # 2. to 4. the steps of phi and lambda: the mean square of delta is at most 1, of all factors together or of each
        square = jnp.mean(delta**2, axis=-1)
        bounded = square.mean(axis=1, keepdims=True) if self.constraint == "joint" else square
        loss, info = constrained_loss(rewards.sum(axis=1), bounded, 1.0, self.slack, params.log_lambda)
        info |= {"constraint_max": square.max()}
        for i, name in enumerate(self.factorization.names):
            info[f"factor/{name}/phi_square"] = square[:, i].mean()
            info[f"factor/{name}/reward"] = rewards[:, i].mean()
        if params.density is None:
            return loss, (stats, Before(None), info)
        # 5. the density step; its weights are taken before the step
        nll, kappa = density_loss(params.density, batch)
        weight, stats = self._weight(kappa, stats)
        info |= {"density_nll": nll, "weight_raw": stats.value}
        for i, name in enumerate(self.factorization.names):
            info[f"factor/{name}/weight"] = weight[:, i].mean()
        return loss + nll, (stats, Before(weight), info)

    def _weight(self, kappa: jax.Array, stats: RunningMean) -> tuple[jax.Array, RunningMean]:
        """Eq. 5: w_i = sqrt(1/S sum_{d in F_i} kappa_d), or one w of all S dimensions for every factor, as in CSD."""
        size = self.factorization.size
        weight = jnp.sqrt(kappa @ self.factorization.membership.T / size)
        if self.weight_scope == "state":
            weight = jnp.broadcast_to(jnp.sqrt(kappa.mean(axis=1, keepdims=True)), weight.shape)
        stats = stats.update(weight.mean())
        return (weight / jnp.maximum(stats.value, 1e-12) if self.weight == "mean" else weight), stats

    def reward(self, params: Params, before: Before, batch: Transition) -> Reward:
        """Eq. 10: R = sum_i w_i r_i, with the updated phi and the weights from before the density's step."""
        rewards = jnp.sum(difference(params.phi, batch) * self.skills.direction(batch.skill), axis=-1)
        parts = rewards if before.weight is None else before.weight * rewards
        return Reward(parts.sum(axis=1), parts)

    def encode(self, params: Params, obs: jax.Array) -> jax.Array:
        """phi(s), all factors side by side."""
        return params.phi(obs).reshape(obs.shape[0], -1)

"""SUSD: per-factor embeddings phi_i by dual gradient descent, weighted by per-factor curiosity (Eqs. 3 to 10)."""

from __future__ import annotations

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from susd.factors import Factorization
from susd.methods.base import Info, Reward, RunningMean, density_loss, dual_losses
from susd.networks import Density, FactoredMLP
from susd.replay import Transition
from susd.skills import SkillSpace


class Params(eqx.Module):
    """phi_1 .. phi_N, the density model q(delta s | s), and log lambda (one, or one per factor)."""

    phi: FactoredMLP
    density: Density
    log_lambda: jax.Array


class Before(eqx.Module):
    """What the reward takes from before the gradient step: the curiosity weights w, [B, N]."""

    weight: jax.Array


@dataclass(frozen=True)
class Susd:
    """The objective of SUSD."""

    factorization: Factorization
    skills: SkillSpace
    constraint: str  # joint | per_factor
    weight: str  # mean (divided by its running mean) | raw | none
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
            Density.init(
                k_density, self.factorization.size, self.density_hidden, self.layers, self.min_std, self.precision
            ),
            jnp.full((constraints,), jnp.log(self.lambda_init)),
        )

    def init_stats(self) -> RunningMean:
        """The running mean of the curiosity weight."""
        return RunningMean.init()

    def optimizer(self) -> optax.GradientTransformation:
        """Adam; lambda has its own rate."""
        labels = Params(phi="net", density="net", log_lambda="dual")  # type: ignore[arg-type]
        return optax.partition({"net": optax.adam(self.learning_rate), "dual": optax.adam(self.dual_learning_rate)}, labels)

    def loss(
        self, params: Params, stats: RunningMean, batch: Transition, key: jax.Array
    ) -> tuple[jax.Array, tuple[RunningMean, Before, Info]]:
        """Eq. 8 for phi, Eq. 9 for lambda, and the likelihood of the density model, in one sum of separate gradients."""
        del key
        # 1. Eq. 7: r_i = <delta_i, z^i> with delta_i = phi_i(s'^i) - phi_i(s^i)
        delta = self._delta(params.phi, batch)
        rewards = jnp.sum(delta * self.skills.split(batch.skill), axis=-1)
        # 2. c = min(eps, 1 - mean square of delta), over all factors together or for each alone
        square = jnp.mean(delta**2, axis=-1)
        joint = self.constraint == "joint"
        slack = jnp.minimum(self.slack, 1.0 - (square.mean(axis=1, keepdims=True) if joint else square))
        # 3. and 4. the steps of phi and of lambda
        phi_loss, dual_loss = dual_losses(rewards.sum(axis=1), slack, params.log_lambda)
        # 5. the density step; its weights are taken before the step
        nll, kappa = density_loss(params.density, batch)
        weight = jnp.sqrt(kappa @ self.factorization.membership.T / self.factorization.size)
        stats = stats.update(weight.mean())
        if self.weight == "mean":
            weight = weight / jnp.maximum(stats.value, 1e-12)
        elif self.weight == "none":
            weight = jnp.ones_like(weight)
        info = {
            "phi_loss": phi_loss,
            "phi_reward": rewards.sum(axis=1).mean(),
            "constraint": square.mean(),
            "constraint_max": square.max(),
            "violations": (slack < 0).mean(),
            "lambda": jnp.exp(params.log_lambda).mean(),
            "density_nll": nll,
            "weight_raw": stats.value,
        }
        for i, name in enumerate(self.factorization.names):
            info[f"factor/{name}/phi_square"] = square[:, i].mean()
            info[f"factor/{name}/reward"] = rewards[:, i].mean()
            info[f"factor/{name}/weight"] = weight[:, i].mean()
        return phi_loss + dual_loss + nll, (stats, Before(weight), info)

    def reward(self, params: Params, before: Before, batch: Transition) -> Reward:
        """Eq. 10: R = sum_i w_i r_i, with the updated phi and the weights from before the density's step."""
        rewards = jnp.sum(self._delta(params.phi, batch) * self.skills.split(batch.skill), axis=-1)
        parts = before.weight * rewards
        return Reward(parts.sum(axis=1), parts)

    def encode(self, params: Params, obs: jax.Array) -> jax.Array:
        """phi(s), all factors side by side."""
        return params.phi(obs).reshape(obs.shape[0], -1)

    def _delta(self, phi: FactoredMLP, batch: Transition) -> jax.Array:
        both = phi(jnp.concatenate([batch.obs, batch.next_obs]))  # one pass over both ends of the transition
        before, after = jnp.split(both, 2)
        return after - before

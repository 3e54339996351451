"""The factored high-level policy: one network chooses all parts of an action, and each part has a value of its own.

With one value, a policy has to give up one reward before it finds another: in 2D-Gunner, walking to the zone loses the aim,
so that standing and aiming is a local optimum. Here the agent's part learns from the zone alone and the gun's part from the
aim alone. A factor that no part of the reward belongs to learns from all of it, and every factor from what the parts
leave over. Critics that see everything, with a reward of its own for each part of the action, are those of multi-agent
actor-critics (Lowe et al., NeurIPS 2017).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from susd.downstream.parts import part_factors
from susd.networks import MLP, Actor
from susd.sac import Sac, SacBatch, SacState, values
from susd.tasks.base import HostTask, Task
from susd.types import Info


@dataclass(frozen=True)
class FactoredSac(Sac):
    """Hyperparameters and pure functions. A batch's rewards are [B, 1 + P]: the sum, then the P parts of the reward."""

    factors: int = 1  # N, the parts of an action and the heads of each critic
    part_factors: tuple[int, ...] = ()  # the factor that each part of the reward belongs to

    @property
    def heads(self) -> int:
        """One value for each part of the action."""
        return self.factors

    @property
    def rewards(self) -> int:
        """Columns of the rewards in a batch."""
        return 1 + len(self.part_factors)

    def factor_rewards(self, reward: jax.Array) -> jax.Array:
        """[B, N] what each factor learns from: its own parts and the rest, or the sum if no part belongs to it."""
        total, parts = reward[:, :1], reward[:, 1:]
        belongs = jax.nn.one_hot(jnp.array(self.part_factors, jnp.int32), self.factors)
        rest = total - parts.sum(axis=1, keepdims=True)
        return jnp.where(belongs.sum(axis=0) > 0, parts @ belongs + rest, total)

    def by_part(self, log_prob: jax.Array) -> jax.Array:
        """[B, A] to [B, N]: the log-probability of each part of the action."""
        return log_prob.reshape(-1, self.factors, self.actions // self.factors).sum(axis=-1)

    def critic_loss(self, critic: MLP, state: SacState, batch: SacBatch, noise: jax.Array) -> tuple[jax.Array, Info]:
        """Half the squared error of all q_k,i to y_i = r_i + gamma (1 - done) (min_k qbar_k,i - alpha log pi_i)."""
        action, each = state.actor.reparametrised(batch.next_x, noise)
        log_prob = self.by_part(each)
        next_q = values(state.target, batch.next_x, action).min(axis=1)  # [N, B]
        soft = next_q - jnp.exp(state.log_alpha) * log_prob.T
        y = jax.lax.stop_gradient(self.factor_rewards(batch.reward).T + self.discount * (1.0 - batch.done) * soft)
        q = values(critic, batch.x, batch.action)
        loss = 0.5 * jnp.mean((q - y[:, None]) ** 2, axis=-1).sum()
        return loss, {"critic_loss": loss, "q": q.sum(axis=0).mean(), "target_q": y.sum(axis=0).mean()}

    def actor_loss(
        self, actor: Actor, critic: MLP, log_alpha: jax.Array, x: jax.Array, noise: jax.Array
    ) -> tuple[jax.Array, Info]:
        """sum_i (alpha log pi_i - min_k q_k,i), where q_k,i has a gradient in part i of the action only."""
        action, each = actor.reparametrised(x, noise)
        at = jax.lax.stop_gradient(action)
        q, gradients_of = jax.vjp(lambda a: values(critic, x, a).min(axis=1), at)  # [N, B]
        slopes = [gradients_of(jnp.zeros_like(q).at[i].set(1.0))[0] for i in range(self.factors)]  # dq_i / da, [B, A]
        own = [jnp.split(slope, self.factors, axis=1)[i] for i, slope in enumerate(slopes)]  # dq_i / da^i
        value = q.sum(axis=0) + (jax.lax.stop_gradient(jnp.concatenate(own, axis=1)) * (action - at)).sum(axis=1)
        total = each.sum(axis=-1)
        loss = jnp.mean(jnp.exp(log_alpha) * total - value)
        return loss, {"actor_loss": loss, "entropy": -total.mean()}

    @classmethod
    def of_task(
        cls, config: Any, task: Task | HostTask, names: tuple[str, ...], actions: int, discount: float
    ) -> FactoredSac:
        """The policy of a config over the parts `names` of a skill, with `actions` dimensions in all."""
        inputs = task.environment.spec.obs_size + task.extra_size
        changes = {"factors": len(names), "part_factors": part_factors("factored", task, names), "discount": discount}
        sac = cls.from_config(config, inputs, actions, adaptive_alpha=True, **changes)
        assert isinstance(sac, cls)
        return sac

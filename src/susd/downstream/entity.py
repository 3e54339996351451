"""The entity-wise high-level policy: one small network, shared by all factors, chooses each factor's part of an action.

It has the interface of `Sac`. Where a task gives the parts of its reward, every factor has a value of its own. The rest of
the reward, or all of it without parts, has one value that is a sum over the factors (value decomposition; Sunehag et al.,
AAMAS 2018). Networks shared by entities, with a pooled context, are Deep Sets (Zaheer et al., NeurIPS 2017).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from susd.downstream.parts import part_factors
from susd.networks import ACTIVATIONS, MLP, Actor, padded
from susd.sac import SacBatch, SacState, adam, options_of, start, update
from susd.tasks.base import HostTask, Task
from susd.types import Info


@dataclass(frozen=True)
class Tokens:
    """What each of N factors sees of a view: token_i = [s^i, extra^i, what all share, one_hot(i), whether it counts].

    Shorter factors are padded with zeros. Factors without a part of the skill are seen by all others.
    """

    own: tuple[tuple[int, ...], ...]  # for each factor the indices of the view that belong to it
    shared: tuple[int, ...]  # the indices that every token has
    counts: tuple[bool, ...]  # whether a part of the reward belongs to the factor

    @classmethod
    def of_task(cls, task: Task | HostTask, names: tuple[str, ...]) -> Tokens:
        """The tokens of the factors that have a part of the skill, `names`, in a task."""
        factors = task.environment.spec.factorization
        owner = factors.owners
        own: dict[str, list[int]] = {name: list(factors.indices[factors.names.index(name)]) for name in names}
        shared = [d for name, dims in zip(factors.names, factors.indices, strict=True) if name not in own for d in dims]
        for extra, index in enumerate(task.extra_of, start=factors.size):
            own.get(owner[index] if index >= 0 else "", shared).append(extra)
        counted = {owner[index] for index in task.part_of} or set(names)
        return cls(tuple(tuple(own[name]) for name in names), tuple(shared), tuple(name in counted for name in names))

    @property
    def size(self) -> int:
        """Dimensions of a token."""
        return max(len(own) for own in self.own) + len(self.shared) + len(self.own) + 1

    def __call__(self, view: jax.Array) -> jax.Array:
        """[B, view] to [B, N, size]."""
        gather, real = padded(self.own)
        fixed = np.concatenate([np.eye(len(self.own)), np.array(self.counts)[:, None]], axis=1).astype(np.float32)
        shared = view[:, None, np.array(self.shared, np.int32)]
        shape = (view.shape[0], len(self.own))
        parts = (view[:, gather] * real, jnp.broadcast_to(shared, (*shape, len(self.shared))))
        return jnp.concatenate([*parts, jnp.broadcast_to(fixed, (*shape, fixed.shape[1]))], axis=-1)


class EntityActor(eqx.Module):
    """pi(a | view) = prod_i pi(a^i | token_i, context), with one network for all i."""

    embed: MLP | None  # of a token; its mean over the factors is the context
    body: Actor
    tokens: Tokens = eqx.field(static=True)

    def sample(self, view: jax.Array, key: jax.Array) -> jax.Array:
        """Random actions [B, N * D] in [-1, 1]."""
        tokens, *context = self._inputs(view)
        return self.body.sample(tokens, key, *context).reshape(view.shape[0], -1)

    def reparametrised(self, view: jax.Array, noise: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Actions as a function of noise, both [B, N * D], and the log-probability of each part, [B, N]."""
        tokens, *context = self._inputs(view)
        action, log_prob = self.body.reparametrised(tokens, noise.reshape(*tokens.shape[:2], -1), *context)
        return action.reshape(noise.shape), log_prob.sum(axis=-1)

    def mode(self, view: jax.Array) -> jax.Array:
        """The mean action [B, N * D]."""
        return self.body.mode(*self._inputs(view)).reshape(view.shape[0], -1)

    def _inputs(self, view: jax.Array) -> tuple[jax.Array, ...]:
        """The tokens [B, N, ..] and, if there is one, their context [B, ..]."""
        tokens = self.tokens(view)
        return (tokens,) if self.embed is None else (tokens, ACTIVATIONS["relu"](self.embed(tokens)).mean(axis=1))


class EntityCritic(eqx.Module):
    """Twin values q_i(token_i, a^i, context) of each factor's reward, and that of the rest, a sum of terms of this form."""

    embed: MLP | None  # of a token and its part of the action; its mean over the factors is the context
    body: MLP  # one network for all i; with a rest it has two outputs
    tokens: Tokens = eqx.field(static=True)

    def __call__(self, view: jax.Array, action: jax.Array) -> jax.Array:
        """[2, B, N] the values of all factors, or [2, B, N + 1] with that of the rest at the end."""
        tokens = self.tokens(view)
        batch, count = tokens.shape[:2]
        pieces = [tokens.reshape(batch * count, -1), action.reshape(batch * count, -1)]
        if self.embed is not None:
            pieces.append(ACTIVATIONS["relu"](self.embed(*pieces)).reshape(2, batch, count, -1).mean(axis=2))
        q = self.body(*pieces).reshape(2, batch, count, -1)
        return jnp.concatenate([q[..., 0], q[..., 1:].sum(axis=2)], axis=-1)


@dataclass(frozen=True)
class EntitySac:
    """Hyperparameters and pure functions. A batch's rewards are [B, 1] or, with parts, [B, 1 + P]: the sum comes first."""

    tokens: Tokens
    inputs: int  # dimensions of a view
    dim: int  # of each factor's part of the action
    part_factors: tuple[int, ...]  # the factor that each part of the reward belongs to; (): value decomposition
    context: str  # mean | none
    hidden: int
    layers: int
    activation: str
    precision: str
    learning_rate: float
    discount: float
    tau: float
    alpha_init: float
    target_entropy: float  # per action dimension
    adaptive_alpha: bool = True

    @property
    def actions(self) -> int:
        """Dimensions of an action, N * D."""
        return len(self.tokens.own) * self.dim

    @property
    def rewards(self) -> int:
        """Columns of the rewards in a batch."""
        return 1 + len(self.part_factors)

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """Adam."""
        return adam(self.learning_rate)

    def init(self, key: jax.Array) -> SacState:
        """Initial networks; the target critic is a copy of the critic."""
        k_actor, k_embed, k_critic, k_pool = jax.random.split(key, 4)
        token, sees = self.tokens.size, self.context == "mean"
        wide = self.hidden if sees else 0
        body = Actor.init(k_actor, token + wide, self.dim, self.hidden, self.layers, self.activation, self.precision)
        embed = MLP.init(k_embed, [token, self.hidden, self.hidden], precision=self.precision) if sees else None
        actor = EntityActor(embed, body, self.tokens)

        def twins(key: jax.Array, sizes: list[int]) -> MLP:
            return MLP.init(key, sizes, ensemble=(2,), kind="normal", precision=self.precision)

        inputs, outputs = token + self.dim, 2 if self.part_factors else 1
        critic = EntityCritic(
            twins(k_pool, [inputs, self.hidden, self.hidden]) if sees else None,
            twins(k_critic, [inputs + wide, *[self.hidden] * self.layers, outputs]),
            self.tokens,
        )
        return start(self, actor, critic, self.alpha_init)

    def targets(self, state: SacState, batch: SacBatch, noise: jax.Array) -> jax.Array:
        """y_i = r_i + gamma (1 - done) (min_k qbar_k,i - alpha log pi_i), [B, N + 1]; of the rest without entropy.

        Without parts there is one target, [B, 1], for the sum of all values.
        """
        action, log_prob = state.actor.reparametrised(batch.next_x, noise)
        entropy = jnp.exp(state.log_alpha) * log_prob
        q = state.target(batch.next_x, action)
        keep = self.discount * (1.0 - batch.done)[:, None]
        if not self.part_factors:
            return batch.reward[:, :1] + keep * (q.sum(axis=-1).min(axis=0) - entropy.sum(axis=-1))[:, None]
        belongs = jax.nn.one_hot(jnp.array(self.part_factors), len(self.tokens.own))
        parts = batch.reward[:, 1:]
        rest = batch.reward[:, :1] - parts.sum(axis=1, keepdims=True)
        rewards = jnp.concatenate([parts @ belongs, rest], axis=1)
        return rewards + keep * (q.min(axis=0) - jnp.pad(entropy, ((0, 0), (0, 1))))

    def critic_loss(
        self, critic: EntityCritic, state: SacState, batch: SacBatch, noise: jax.Array
    ) -> tuple[jax.Array, Info]:
        """Half the squared error of both critics, summed over the factors and the rest, or that of the sum."""
        y = jax.lax.stop_gradient(self.targets(state, batch, noise))
        q = critic(batch.x, batch.action)
        q = q if self.part_factors else q.sum(axis=-1, keepdims=True)
        loss = 0.5 * ((q - y) ** 2).mean(axis=1).sum()
        return loss, {"critic_loss": loss, "q": q.sum(axis=-1).mean(), "target_q": y.sum(axis=-1).mean()}

    def actor_loss(
        self, actor: EntityActor, critic: EntityCritic, log_alpha: jax.Array, x: jax.Array, noise: jax.Array
    ) -> tuple[jax.Array, Info]:
        """sum_i (alpha log pi_i - min_k q_k,i) and the rest, through the reparametrised action."""
        action, log_prob = actor.reparametrised(x, noise)
        q = critic(x, action)
        value = q.min(axis=0).sum(axis=-1) if self.part_factors else q.sum(axis=-1).min(axis=0)
        total = log_prob.sum(axis=-1)
        loss = jnp.mean(jnp.exp(log_alpha) * total - value)
        return loss, {"actor_loss": loss, "entropy": -total.mean()}

    def update(self, state: SacState, batch: SacBatch, noise: jax.Array) -> tuple[SacState, Info]:
        """One step of critic, actor, temperature and target critic."""
        return update(self, state, batch, noise)

    @classmethod
    def from_config(
        cls, config: Any, task: Task | HostTask, names: tuple[str, ...], dim: int, discount: float
    ) -> EntitySac:
        """The policy of a config over the parts `names` of a skill with `dim` dimensions each."""
        belongs = part_factors("entity", task, names)
        return cls(
            **options_of(cls, config)
            | {
                "tokens": Tokens.of_task(task, names),
                "inputs": task.environment.spec.obs_size + task.extra_size,
                "dim": dim,
                "part_factors": belongs,
                "discount": discount,
            }
        )

"""Soft actor-critic: losses, temperature and target update. It knows inputs, actions and rewards, nothing about skills.

The reward may have several parts. The critics then have one head per part and one for the entropy, each with its own
target, and the actor maximises the sum of all heads. With one part there is a single head for reward and entropy.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from susd.networks import MLP, Actor
from susd.types import Info


class SacBatch(NamedTuple):
    """Transitions for SAC: `x` is the whole input of the policy, and `reward` is [B, parts]."""

    x: jax.Array
    action: jax.Array
    reward: jax.Array
    next_x: jax.Array
    done: jax.Array


class SacState(eqx.Module):
    """Networks, temperature and optimiser states."""

    actor: Any  # an Actor, or another policy with `sample` and `mode`
    critic: Any
    target: Any
    log_alpha: jax.Array
    actor_opt: optax.OptState
    critic_opt: optax.OptState
    alpha_opt: optax.OptState
    updates: jax.Array | None = None  # of the critics, counted where the actor is updated less often


@dataclass(frozen=True)
class Sac:
    """Hyperparameters and pure functions."""

    inputs: int
    actions: int
    hidden: int
    layers: int
    activation: str
    precision: str
    learning_rate: float
    discount: float
    tau: float
    alpha_init: float
    adaptive_alpha: bool
    target_entropy: float  # per action dimension; uniform actions have log 2
    head_scale: float = 0.1  # initial scale of the actor's output layers, relative to Xavier initialisation
    parts: int = 1  # of the reward
    critic_norm: str = "none"  # none | layer
    actor_every: int = 1  # updates of the critics per update of actor and temperature

    @classmethod
    def from_config(cls, config: Any, inputs: int, actions: int, **changes: Any) -> Sac:
        """SAC with the options of a config, for a policy with so many inputs and actions; `changes` replaces fields."""
        return cls(**{**options_of(cls, config), "inputs": inputs, "actions": actions, **changes})

    @property
    def heads(self) -> int:
        """Outputs of each critic: a single one, or one per part of the reward and one for the entropy."""
        return 1 if self.parts == 1 else self.parts + 1

    @property
    def rewards(self) -> int:
        """Columns of the rewards in a batch."""
        return self.parts

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """Adam."""
        return adam(self.learning_rate)

    def init(self, key: jax.Array) -> SacState:
        """Initial networks; the target critic is a copy of the critic."""
        k_actor, k_critic = jax.random.split(key)
        actor = Actor.init(
            k_actor,
            self.inputs,
            self.actions,
            self.hidden,
            self.layers,
            self.activation,
            self.precision,
            self.head_scale,
        )
        sizes = [self.inputs + self.actions, *[self.hidden] * self.layers, self.heads]
        critic = MLP.init(k_critic, sizes, ensemble=(2,), kind="normal", precision=self.precision, norm=self.critic_norm)
        scale = math.sqrt((self.hidden + self.heads) / (self.hidden + 1))  # every head starts at the scale of one
        critic = eqx.tree_at(lambda m: m.weights[-1], critic, scale * critic.weights[-1])
        state = start(self, actor, critic, self.alpha_init)
        return state if self.actor_every == 1 else dataclasses.replace(state, updates=jnp.zeros((), jnp.int32))

    def critic_loss(self, critic: MLP, state: SacState, batch: SacBatch, noise: jax.Array) -> tuple[jax.Array, Info]:
        """Half the squared error of both critics to y = r + gamma (1 - done) (min_k Qbar_k - alpha log pi).

        With several heads each has its own r and its own minimum; the last one has the entropy and no reward.
        """
        next_action, next_log_prob = state.actor.reparametrised(batch.next_x, noise)
        next_q = values(state.target, batch.next_x, next_action).min(axis=1)  # [heads, B]
        entropy = (jnp.exp(state.log_alpha) * next_log_prob.sum(axis=-1))[None]
        reward = batch.reward.T
        if self.heads > 1:
            entropy = jnp.pad(entropy, ((self.parts, 0), (0, 0)))
            reward = jnp.pad(reward, ((0, 1), (0, 0)))
        y = jax.lax.stop_gradient(reward + self.discount * (1.0 - batch.done) * (next_q - entropy))
        q = values(critic, batch.x, batch.action)
        loss = 0.5 * jnp.mean((q - y[:, None]) ** 2, axis=-1).sum()
        return loss, {"critic_loss": loss, "q": q.sum(axis=0).mean(), "target_q": y.sum(axis=0).mean()}

    def actor_loss(
        self, actor: Actor, critic: MLP, log_alpha: jax.Array, x: jax.Array, noise: jax.Array
    ) -> tuple[jax.Array, Info]:
        """alpha log pi(a|x) - min_k Q_k(x, a), through the reparametrised action; Q sums the minima of all heads."""
        action, each = actor.reparametrised(x, noise)
        log_prob = each.sum(axis=-1)
        q = values(critic, x, action).min(axis=1).sum(axis=0)
        loss = jnp.mean(jnp.exp(log_alpha) * log_prob - q)
        return loss, {"actor_loss": loss, "entropy": -log_prob.mean()}

    def update(self, state: SacState, batch: SacBatch, noise: jax.Array) -> tuple[SacState, Info]:
        """One step of critic, actor, temperature and target critic; actor and temperature may skip it."""
        return update(self, state, batch, noise, self.actor_every)


class ActorCritic(Protocol):
    """What `update` needs: two losses, an optimiser and a few hyperparameters."""

    @property
    def actions(self) -> int:
        """Dimensions of an action."""
        ...

    @property
    def tau(self) -> float:
        """Soft update rate of the target critics."""
        ...

    @property
    def adaptive_alpha(self) -> bool:
        """Whether the temperature follows the target entropy."""
        ...

    @property
    def target_entropy(self) -> float:
        """Per action dimension."""
        ...

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """Of all networks and the temperature."""
        ...

    def critic_loss(self, critic: Any, state: SacState, batch: SacBatch, noise: jax.Array) -> tuple[jax.Array, Info]:
        """The loss of the critics; the noise, [B, actions], is that of the next actions."""
        ...

    def actor_loss(
        self, actor: Any, critic: Any, log_alpha: jax.Array, x: jax.Array, noise: jax.Array
    ) -> tuple[jax.Array, Info]:
        """The loss of the actor; its info has the entropy."""
        ...


def update(
    sac: ActorCritic, state: SacState, batch: SacBatch, noise: jax.Array, actor_every: int = 1
) -> tuple[SacState, Info]:
    """Critic, then actor with the updated critic and temperature in the last of `actor_every` updates, then target critic.

    `noise` is that of `action_noise`. Values to log of an actor that was not updated are NaN.
    """
    critic_grad, critic_info = jax.grad(sac.critic_loss, has_aux=True)(state.critic, state, batch, noise[0])
    critic, critic_opt = descend(sac.optimizer, critic_grad, state.critic_opt, state.critic)

    def improve(policy: _Policy) -> tuple[_Policy, Info]:
        return _improve(sac, policy, critic, batch.x, noise[1])

    policy = _Policy(state.actor, state.actor_opt, state.log_alpha, state.alpha_opt)
    updates = state.updates
    if updates is None:
        policy, actor_info = improve(policy)
    else:
        updates = (updates + 1) % actor_every
        unknown = jax.tree.map(lambda s: jnp.full(s.shape, jnp.nan, s.dtype), jax.eval_shape(improve, policy)[1])
        policy, actor_info = jax.lax.cond(updates == 0, improve, lambda same: (same, unknown), policy)

    target = jax.tree.map(lambda old, new: old + sac.tau * (new - old), state.target, critic)
    info = {**critic_info, **actor_info, "alpha": jnp.exp(policy.log_alpha)}
    actor, actor_opt, log_alpha, alpha_opt = policy
    return SacState(actor, critic, target, log_alpha, actor_opt, critic_opt, alpha_opt, updates), info


class _Policy(NamedTuple):
    """What an update of the actor changes."""

    actor: Any
    actor_opt: optax.OptState
    log_alpha: jax.Array
    alpha_opt: optax.OptState


def _improve(sac: ActorCritic, policy: _Policy, critic: Any, x: jax.Array, noise: jax.Array) -> tuple[_Policy, Info]:
    """One step of the actor and, if it is adaptive, of the temperature."""
    actor, opt, log_alpha, alpha_opt = policy
    grad, info = jax.grad(sac.actor_loss, has_aux=True)(actor, critic, log_alpha, x, noise)
    actor, opt = descend(sac.optimizer, grad, opt, actor)
    if sac.adaptive_alpha:  # gradient of log(alpha) (H - H_target): alpha grows while the entropy is too low
        gap = info["entropy"] - sac.actions * sac.target_entropy
        log_alpha, alpha_opt = descend(sac.optimizer, gap, alpha_opt, log_alpha)
    return _Policy(actor, opt, log_alpha, alpha_opt), info


def action_noise(key: jax.Array, batch: int, actions: int) -> jax.Array:
    """Standard normal noise of the next actions and of those that the actor is improved with: [2, B, actions].

    The noise of many updates is drawn at once, before their loop: many short draws are slow.
    """
    return jax.vmap(lambda k: jax.random.normal(k, (batch, actions)))(jax.random.split(key))


def start(sac: ActorCritic, actor: Any, critic: Any, alpha: float) -> SacState:
    """The state before the first update; the target critic is a copy of the critic."""
    log_alpha = jnp.log(jnp.float32(alpha))
    opts = (sac.optimizer.init(actor), sac.optimizer.init(critic), sac.optimizer.init(log_alpha))
    return SacState(actor, critic, jax.tree.map(jnp.copy, critic), log_alpha, *opts)


def options_of(cls: type[Any], config: Any) -> dict[str, Any]:
    """The hyperparameters of a learner that a config has, by the names of the learner's fields."""
    names = [spec.name for spec in dataclasses.fields(cls) if hasattr(config, spec.name)]
    return {name: getattr(config, name) for name in names} | {"activation": config.actor_activation}


def values(critic: MLP, x: jax.Array, action: jax.Array) -> jax.Array:
    """The values of both critics, [heads, 2, B]."""
    return jnp.moveaxis(critic(x, action), -1, 0)


def adam(learning_rate: float) -> optax.GradientTransformation:
    """Adam on all parameters as one vector: a few long operations instead of several short ones per layer."""
    return optax.flatten(optax.adam(learning_rate))


def descend(optimizer: optax.GradientTransformation, grad, opt_state, params):  # type: ignore[no-untyped-def]
    """One optimiser step: the updated parameters and optimiser state."""
    updates, opt_state = optimizer.update(grad, opt_state, params)
    return optax.apply_updates(params, updates), opt_state

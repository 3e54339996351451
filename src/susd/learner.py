"""The learner: an update is a step of the method, its reward, and a step of SAC. Pure functions over one pytree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from susd import replay
from susd.methods.base import Method, Reward, RunningMean
from susd.methods.registry import build_method
from susd.replay import Replay
from susd.sac import Sac, SacBatch, SacState, descend
from susd.types import Info, Transition

if TYPE_CHECKING:
    from susd.config import Config
    from susd.envs.base import EnvSpec

SMALLEST = 0.03  # a factor's root mean square is at least this share of the largest, so that noise is not blown up


class LearnerState(eqx.Module):
    """Everything that is learned: parameters of the method and of SAC, optimiser states and running statistics."""

    params: Any
    opt: optax.OptState
    stats: Any
    reward_square: RunningMean  # of the sum, or [N] of each factor
    sac: SacState


@dataclass(frozen=True)
class Learner:
    """A skill-discovery method together with SAC."""

    method: Method
    sac: Sac
    batch_size: int
    reward_scale: float
    normalise_reward: bool
    skill_input_scale: float
    reward_scope: str = "total"  # total | factor

    @classmethod
    def from_config(cls, config: Config, spec: EnvSpec) -> Learner:
        """The learner of a run, sized for an environment."""
        method = build_method(config, spec)
        parts = method.skills.parts if config.critic == "decomposed" else 1
        sac = Sac.from_config(config, spec.obs_size + method.skills.size, spec.action_size, parts=parts)
        scale = method.skills.input_scale if config.scale_skill else 1.0
        rewards = (config.reward_scale, config.normalise_reward)
        return cls(method, sac, config.batch_size, *rewards, scale, config.reward_scope)

    def init(self, key: jax.Array) -> LearnerState:
        """The initial state."""
        k_method, k_sac = jax.random.split(key)
        params = self.method.init(k_method)
        opt, stats = self.method.optimizer().init(params), self.method.init_stats(params)
        shape = (self.method.skills.parts,) if self.reward_scope == "factor" else ()
        return LearnerState(params, opt, stats, RunningMean.init(shape), self.sac.init(k_sac))

    def policy_input(self, obs: jax.Array, skill: jax.Array) -> jax.Array:
        """The input of actor and critics: the observation and the scaled skill."""
        return jnp.concatenate([obs, skill * self.skill_input_scale], axis=-1)

    def update(self, state: LearnerState, batch: Transition, key: jax.Array) -> tuple[LearnerState, Info]:
        """One gradient step of the method and of SAC."""
        k_method, k_sac = jax.random.split(key)
        grad, (stats, before, info) = jax.grad(self.method.loss, has_aux=True)(state.params, state.stats, batch, k_method)
        params, opt = descend(self.method.optimizer(), grad, state.opt, state.params)

        reward = self.method.reward(params, before, batch)
        scaled, reward_square = self._scaled(reward, state.reward_square)
        x, next_x = self.policy_input(batch.obs, batch.skill), self.policy_input(batch.next_obs, batch.skill)
        sac, sac_info = self.sac.update(state.sac, SacBatch(x, batch.action, scaled, next_x, batch.done), k_sac)
        info = {**info, **sac_info, "reward": reward.total.mean(), "reward_rms": jnp.sqrt(reward_square.value.mean())}
        return LearnerState(params, opt, stats, reward_square, sac), info

    def _scaled(self, reward: Reward, square: RunningMean) -> tuple[jax.Array, RunningMean]:
        """The reward of SAC, [B, parts], and the running mean square of the sum or of each factor's reward."""
        by_factor = self.reward_scope == "factor"
        square = square.update(jnp.mean(reward.parts**2, axis=0) if by_factor else jnp.mean(reward.total**2))
        scale = jnp.asarray(self.reward_scale)
        if self.normalise_reward:
            rms = jnp.sqrt(jnp.maximum(square.value, 1e-12))
            scale = scale / jnp.maximum(rms, SMALLEST * rms.max())
        if self.sac.parts > 1:
            return jax.lax.stop_gradient(scale * reward.parts), square
        total = (scale * reward.parts).sum(axis=1) if by_factor else scale * reward.total
        return jax.lax.stop_gradient(total[:, None]), square

    def learn(
        self, state: LearnerState, buffer: Replay, key: jax.Array, steps: int, ready: jax.Array
    ) -> tuple[LearnerState, Info]:
        """`steps` updates on batches of the replay buffer in one scan, or none before it is ready; info is averaged."""

        def one(carry: LearnerState, step_key: jax.Array) -> tuple[LearnerState, Info]:
            k_batch, k_update = jax.random.split(step_key)
            return self.update(carry, replay.sample(buffer, k_batch, self.batch_size), k_update)

        def run(carry: LearnerState) -> tuple[LearnerState, Info]:
            carry, infos = jax.lax.scan(one, carry, jax.random.split(key, steps))
            return carry, jax.tree.map(lambda x: x.mean(axis=0), infos)

        shapes = jax.eval_shape(run, state)[1]

        def wait(carry: LearnerState) -> tuple[LearnerState, Info]:
            return carry, jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)

        return jax.lax.cond(ready, run, wait, state)

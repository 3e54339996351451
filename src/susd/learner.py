"""The learner: an update is a step of the method, its reward, and a step of SAC. Pure functions over one pytree."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from susd import replay
from susd.methods.base import Method, Reward, RunningMean
from susd.methods.registry import build_method
from susd.replay import Replay
from susd.sac import Sac, SacBatch, SacState, action_noise, descend
from susd.types import Info, Transition

if TYPE_CHECKING:
    from susd.config import Config
    from susd.envs.base import EnvSpec

AVERAGE_RATE = 0.005  # of the average of phi that relabels skills
AHEAD = 10  # steps over which half of the relabelled skills are measured; the others over the whole episode
MOVED = 0.25  # mean square from which a factor has moved; the constraint bounds that of one step by 1
SMALLEST = 0.03  # the reward of a factor counts as at least this share of the largest, so that noise is not blown up


class LearnerState(eqx.Module):
    """Everything that is learned: parameters of the method and of SAC, optimiser states and running statistics."""

    params: Any
    opt: optax.OptState
    stats: Any
    reward_square: RunningMean  # of the sum, or [N] of each factor; of its absolute value where rare changes count more
    sac: SacState
    average: Any = None  # of the method's parameters, where skills are relabelled


class Draws(NamedTuple):
    """The random numbers of an update: a key for the method, and the noise of actions."""

    key: jax.Array
    noise: jax.Array  # [2, B, actions]


@dataclass(frozen=True)
class Learner:
    """A skill-discovery method together with SAC."""

    method: Method
    sac: Sac
    batch_size: int
    reward_scale: float
    normalise_reward: bool
    skill_input_scale: float
    reward_scope: str = "total"  # total | factor | rare
    reward_phi: str = "after"  # after | before the gradient step of the method
    episodes: int = 0  # in a chunk of the replay, where skills are relabelled
    horizon: int = 0

    @classmethod
    def from_config(cls, config: Config, spec: EnvSpec) -> Learner:
        """The learner of a run, sized for an environment."""
        method = build_method(config, spec)
        parts = method.skills.parts if config.critic == "decomposed" else 1
        sac = Sac.from_config(config, spec.obs_size + method.skills.size, spec.action_size, parts=parts)
        scale = method.skills.input_scale if config.scale_skill else 1.0
        rewards = (config.reward_scale, config.normalise_reward)
        length = (config.episodes, config.horizon or spec.horizon) if config.relabel else (0, 0)
        return cls(method, sac, config.batch_size, *rewards, scale, config.reward_scope, config.reward_phi, *length)

    @property
    def relabel(self) -> bool:
        """Whether replayed skills are replaced by the directions in which the embedding moved."""
        return self.episodes > 0

    def init(self, key: jax.Array) -> LearnerState:
        """The initial state."""
        k_method, k_sac = jax.random.split(key)
        params = self.method.init(k_method)
        opt, stats = self.method.optimizer().init(params), self.method.init_stats(params)
        shape = () if self.reward_scope == "total" else (self.method.skills.parts,)
        average = jax.tree.map(jnp.copy, params) if self.relabel else None
        return LearnerState(params, opt, stats, RunningMean.init(shape), self.sac.init(k_sac), average)

    def policy_input(self, obs: jax.Array, skill: jax.Array) -> jax.Array:
        """The input of actor and critics: the observation and the scaled skill."""
        return jnp.concatenate([obs, skill * self.skill_input_scale], axis=-1)

    def update(self, state: LearnerState, batch: Transition, key: jax.Array) -> tuple[LearnerState, Info]:
        """One gradient step of the method and of SAC."""
        return self.step(state, batch, self.draws(key, len(batch.done)))

    def step(self, state: LearnerState, batch: Transition, draws: Draws) -> tuple[LearnerState, Info]:
        """`update` with random numbers that are drawn already."""
        state, reward, info = self.discover(state, batch, draws.key)
        state, sac_info = self.control(state, batch, reward, draws.noise)
        return state, {**info, **sac_info}

    def discover(self, state: LearnerState, batch: Transition, key: jax.Array) -> tuple[LearnerState, jax.Array, Info]:
        """One gradient step of the method, and the reward that it gives SAC for the batch, [B, parts]."""
        grad, (stats, before, info) = jax.grad(self.method.loss, has_aux=True)(state.params, state.stats, batch, key)
        params, opt = descend(self.method.optimizer(), grad, state.opt, state.params)
        reward = self.method.reward(params if self.reward_phi == "after" else state.params, before, batch)
        scaled, reward_square = self._scaled(reward, state.reward_square)
        info = {**info, "reward": reward.total.mean(), "reward_rms": jnp.sqrt(jnp.mean(self._size(reward_square) ** 2))}
        average = state.average
        if self.relabel:
            average = jax.tree.map(lambda old, new: old + AVERAGE_RATE * (new - old), average, params)
        return LearnerState(params, opt, stats, reward_square, state.sac, average), scaled, info

    def control(
        self, state: LearnerState, batch: Transition, reward: jax.Array, noise: jax.Array
    ) -> tuple[LearnerState, Info]:
        """One gradient step of SAC. The method needs nothing of it, so that it can be some steps ahead."""
        x, next_x = self.policy_input(batch.obs, batch.skill), self.policy_input(batch.next_obs, batch.skill)
        sac, info = self.sac.update(state.sac, SacBatch(x, batch.action, reward, next_x, batch.done), noise)
        return replace(state, sac=sac), info

    def draws(self, key: jax.Array, batch_size: int) -> Draws:
        """The random numbers of one update."""
        k_method, k_sac = jax.random.split(key)
        return Draws(k_method, action_noise(k_sac, batch_size, self.sac.actions))

    def batch(self, state: LearnerState, buffer: Replay, rows: jax.Array) -> Transition:
        """Rows of the replay buffer, with relabelled skills if these are wanted."""
        batch = replay.take(buffer, rows)
        return batch._replace(skill=self.relabelled(state.average, buffer, rows, batch.skill)) if self.relabel else batch

    def relabelled(self, average: Any, buffer: Replay, rows: jax.Array, skill: jax.Array) -> jax.Array:
        """Skills that say where the average phi moved: in the whole episode, or in the next steps for half of the batch.

        A factor that hardly moved keeps the part of the skill with which it was collected.
        """
        whole = jnp.arange(len(rows)) < len(rows) // 2
        step = rows // self.episodes % self.horizon
        first = jnp.where(whole, 0, step)
        last = jnp.where(whole, self.horizon - 1, jnp.minimum(step + AHEAD, self.horizon) - 1)
        start, end = (replay.row_at(rows, at, self.episodes, self.horizon) for at in (first, last))
        seen = jnp.concatenate([replay.take(buffer, start).obs, replay.take(buffer, end).next_obs])
        before, after = jnp.split(self.method.encode(average, seen), 2)
        skills = self.method.skills
        moved = skills.split(after - before)
        enough = jnp.mean(moved**2, axis=-1, keepdims=True) >= MOVED
        new = skills.split(skills.project(after - before))
        return skills.project(jnp.where(enough, new, skills.split(skill)).reshape(skill.shape))

    def _scaled(self, reward: Reward, square: RunningMean) -> tuple[jax.Array, RunningMean]:
        """The reward of SAC, [B, parts], and the running mean square of the sum or of each factor's reward."""
        by_factor = self.reward_scope != "total"
        found = reward.parts if by_factor else reward.total
        square = square.update(jnp.mean(jnp.abs(found) if self.reward_scope == "rare" else found**2, axis=0))
        scale = jnp.asarray(self.reward_scale)
        if self.normalise_reward:
            size = self._size(square)
            scale = scale / jnp.maximum(size, SMALLEST * size.max())
        if self.sac.parts > 1:
            return jax.lax.stop_gradient(scale * reward.parts), square
        total = (scale * reward.parts).sum(axis=1) if by_factor else scale * reward.total
        return jax.lax.stop_gradient(total[:, None]), square

    def _size(self, square: RunningMean) -> jax.Array:
        """By what rewards are divided: their root mean square, or their mean size.

        A factor that moves in a share p of the steps gets sqrt(p) times the mean reward of one that always moves with the
        first, and as much with the second.
        """
        found = jnp.maximum(square.value, 1e-12)
        return found if self.reward_scope == "rare" else jnp.sqrt(found)

    def draw(self, buffer: Replay, key: jax.Array) -> tuple[jax.Array, Draws]:
        """Rows and random numbers of one update. Those of many are drawn before their loop: many short draws are slow."""
        k_rows, k_update = jax.random.split(key)
        return replay.sample_rows(buffer.size, k_rows, self.batch_size), self.draws(k_update, self.batch_size)

    def learn(
        self, state: LearnerState, buffer: Replay, key: jax.Array, steps: int, ready: jax.Array
    ) -> tuple[LearnerState, Info]:
        """`steps` updates on batches of the replay buffer in one scan, or none before it is ready; info is averaged."""
        draw = partial(self.draw, buffer)

        @jax.jit  # traced once for the shapes and for the scan
        def one(carry: LearnerState, drawn: tuple[jax.Array, Draws]) -> tuple[LearnerState, Info]:
            rows, draws = drawn
            return self.step(carry, self.batch(carry, buffer, rows), draws)

        shapes = jax.eval_shape(lambda: one(state, draw(key)))[1]
        none, unravel = ravel_pytree(jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes))

        def packed(carry: LearnerState, drawn: tuple[jax.Array, Draws]) -> tuple[LearnerState, jax.Array]:
            carry, info = one(carry, drawn)
            return carry, ravel_pytree(info)[0]  # one row of a table is stored faster than many scalars

        def run(carry: LearnerState) -> tuple[LearnerState, jax.Array]:
            carry, infos = jax.lax.scan(packed, carry, jax.vmap(draw)(jax.random.split(key, steps)))
            return carry, self.mean(infos)

        state, info = jax.lax.cond(ready, run, lambda carry: (carry, none), state)
        return state, unravel(info)

    def mean(self, infos: jax.Array) -> jax.Array:
        """The mean of what updates log, [updates, values]; values of an actor that was skipped are NaN and do not count."""
        return (jnp.mean if self.sac.actor_every == 1 else jnp.nanmean)(infos, axis=0)

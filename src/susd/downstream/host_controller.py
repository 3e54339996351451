"""The high level over a host environment: the same learner, fed by a loop over batches of worlds instead of one scan."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from susd import replay
from susd.collect import batch_seed
from susd.downstream.controller import Controller, ControllerState
from susd.sac import SacState
from susd.tasks.base import SKILL_STEPS, HostTask
from susd.training.trainer import subkey
from susd.types import Info, Transition

Choose = Callable[[jax.Array, jax.Array], jax.Array]  # (x [W, S], key) -> decisions [W, size]


class HostEpisodes(NamedTuple):
    """Episodes of W worlds: decisions as replayed rows [W, decisions, ..], and the reward of every step, [W, horizon]."""

    rows: Transition
    rewards: np.ndarray


@dataclass(frozen=True)
class HostController(Controller):
    """A `Hierarchy` whose task has host worlds, one for each of the episodes that are run together."""

    task: HostTask  # type: ignore[assignment]  # functional tasks are run by the class above

    def episodes(
        self, choose: Choose, frozen: Any, seed: int, key: jax.Array, watch: Callable[[], None] = lambda: None
    ) -> HostEpisodes:
        """One episode in every world, from a seeded reset; `watch` is called after every step."""
        env, keys = self.task.environment, jax.random.split(key, self.decisions)
        obs = np.array(env.reset(seed), np.float32)
        rows, rewards = [], []
        for number in range(self.decisions):
            x, paid = obs, []
            decision = np.asarray(choose(jnp.asarray(x), keys[number]))
            for _ in range(self.interface.span):
                action = np.asarray(self._act(frozen, obs, decision))
                obs = np.array(env.step(action).obs, np.float32)
                paid.append(self.task.score())
                watch()
            done = np.full(len(obs), number == self.decisions - 1, np.float32)
            rows.append((x, decision, obs, np.sum(paid, axis=0)[:, None] / SKILL_STEPS, done))
            rewards += paid
        fields = (np.stack(column, axis=1) for column in zip(*rows, strict=True))
        return HostEpisodes(Transition(*fields), np.stack(rewards, axis=1))  # type: ignore[arg-type]

    def train(
        self, state: ControllerState, frozen: Any, start: Any, first: jax.Array, last: jax.Array
    ) -> tuple[ControllerState, Info]:
        """Episodes first .. last - 1 in whole rounds, with gradient steps; every round is drawn anew, `start` is None."""
        infos: list[Info] = []
        paid = 0.0
        for number in range(int(first) // self.num_envs, int(last) // self.num_envs):
            after = (number + 1) * self.num_envs - 1  # the number of the round's last episode, as in the scan
            key = jax.random.fold_in(subkey(jax.random.wrap_key_data(state.key), "collect"), after)
            seed, k_run = batch_seed(key, 0)
            trajectories = self.episodes(partial(self._sample, state.sac.actor), frozen, seed, k_run)
            rows = jax.tree.map(lambda x: jnp.asarray(x.reshape(-1, *x.shape[2:]), jnp.float32), trajectories.rows)
            state, info = self._absorb(state, rows, jnp.int32(after))
            paid += float(trajectories.rewards.sum()) / SKILL_STEPS
            if after >= self.warmup:
                infos.append(info)
        count = max(int(last) - int(first), 1)
        mean = jax.tree.map(lambda *values: sum(values) / len(values), *infos) if infos else {}
        return state, {**mean, "training_return": jnp.asarray(paid / count)}

    def evaluate(self, sac: SacState, frozen: Any, start: Any, keys: jax.Array) -> jax.Array:
        """Rewards [episodes, horizon] with mean decisions, one episode for every key."""
        return self._play(lambda x, _: self._mode(sac.actor, x), frozen, keys)

    def film(self, sac: SacState, frozen: Any, start: Any, key: jax.Array, every: int, size: int) -> np.ndarray:
        """Pictures [T, size, size, 3] of the first test episode, one of `every` so many steps."""
        env, frames, clock = self.task.environment, [], itertools.count()

        def watch() -> None:
            if next(clock) % every == 0:
                frames.append(env.render(0, size))

        seed, k_run = batch_seed(key, 0)
        self.episodes(lambda x, _: self._mode(sac.actor, x), frozen, seed, k_run, watch)
        return np.array(frames)

    def nothing(self, keys: jax.Array) -> jax.Array:
        """Rewards [episodes, horizon] of actions that are all zero, on the same episodes as `evaluate`."""
        idle = HostController(self.task, _Idle(self.task.environment.spec.action_size), self.sac, 1, 1, 1, 0)
        return idle._play(lambda x, _: jnp.zeros((len(x), idle.interface.size)), None, keys)

    def _play(self, choose: Choose, frozen: Any, keys: jax.Array) -> jax.Array:
        num_envs, found = self.task.environment.num_envs, []
        for turn in range(-(-len(keys) // num_envs)):
            seed, k_run = batch_seed(keys[0], turn)
            found.append(self.episodes(choose, frozen, seed, k_run).rewards)
        return jnp.asarray(np.concatenate(found)[: len(keys)])

    @cached_property
    def _act(self) -> Callable[..., jax.Array]:
        return jax.jit(jax.vmap(self.interface.act, in_axes=(None, 0, 0)))

    @cached_property
    def _sample(self) -> Callable[..., jax.Array]:
        return jax.jit(lambda actor, x, key: actor.sample(x, key)[0])

    @cached_property
    def _mode(self) -> Callable[..., jax.Array]:
        return jax.jit(lambda actor, x: actor.mode(x))

    @cached_property
    def _absorb(self) -> Callable[..., tuple[ControllerState, Info]]:
        """Store a round and take its gradient steps, once the replay is warm; compiled, and the state is donated."""

        def absorb(state: ControllerState, rows: Transition, number: jax.Array) -> tuple[ControllerState, Info]:
            buffer = replay.add(state.replay, rows)
            key = jax.random.fold_in(subkey(jax.random.wrap_key_data(state.key), "learn"), number)
            shapes = jax.eval_shape(self.learn, state.sac, buffer, key)[1]
            nothing = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
            learn = number >= self.warmup
            sac, info = jax.lax.cond(learn, lambda sac: self.learn(sac, buffer, key), lambda sac: (sac, nothing), state.sac)
            return ControllerState(sac, buffer, state.key), info

        return jax.jit(absorb, donate_argnums=0)

    @cached_property
    def compiled(self) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
        """`init`, `train` and `evaluate`; the loops are Python's, and what they call is compiled."""
        return jax.jit(self.init), self.train, self.evaluate


@dataclass(frozen=True)
class _Idle:
    """An interface that does nothing."""

    size: int
    span: int = SKILL_STEPS

    def act(self, frozen: Any, obs: jax.Array, decision: jax.Array) -> jax.Array:
        """Zero."""
        return jnp.zeros(self.size)

"""The compiled program of a run: one epoch = collect + learn, in one jitted call with donated buffers."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from susd import replay
from susd.collect import episodes, host_episodes
from susd.config import Config
from susd.envs.base import Environment, HostEnvironment, missing_members
from susd.errors import UserError, format_exception
from susd.learner import Learner, LearnerState
from susd.networks import Actor
from susd.replay import Replay
from susd.training.build import build_env, build_learner
from susd.types import Info, Policy, Transition


def subkey(key: jax.Array, name: str) -> jax.Array:
    """The named child of a key: adding a consumer never shifts the numbers of the others."""
    return jax.random.fold_in(key, zlib.crc32(name.encode()))


class TrainState(eqx.Module):
    """All of a run that changes. Episodes end with their epoch, so between epochs no environment state is alive."""

    learner: LearnerState
    replay: Replay
    key: jax.Array


@dataclass(frozen=True)
class Trainer:
    """Environment, learner and sizes; its methods are pure and compiled once."""

    config: Config
    env: Environment | HostEnvironment
    learner: Learner

    @classmethod
    def build(cls, config: Config, env: Environment | HostEnvironment | None = None) -> Trainer:
        """From a config; `env` replaces the configured environment by an object of the caller's."""
        env = env or build_env(config)
        if not isinstance(env, (Environment, HostEnvironment)):
            raise UserError(f"{type(env).__name__} is no environment: {missing_members(env)}")
        if isinstance(env, HostEnvironment):
            if config.seeds > 1:
                raise UserError(f"--seeds is {config.seeds}, but {env.spec.name} runs outside JAX; start one run per seed")
            if env.num_envs != config.episodes:
                raise UserError(f"--episodes is {config.episodes}, but the environment has {env.num_envs} worlds")
        trainer = cls(config, env, build_learner(config, env.spec))
        if config.buffer_size < trainer.chunk:
            raise UserError(
                f"--buffer-size is {config.buffer_size}; it must hold at least one epoch, {trainer.chunk} transitions here"
            )
        if config.warmup > trainer.capacity:
            raise UserError(f"--warmup is {config.warmup}, more than the replay's {trainer.capacity} transitions")
        return trainer

    @property
    def horizon(self) -> int:
        """Steps per episode."""
        return self.config.horizon or self.env.spec.horizon

    @property
    def chunk(self) -> int:
        """Transitions per epoch."""
        return self.config.episodes * self.horizon

    @property
    def capacity(self) -> int:
        """The replay's size: the configured one, rounded down to whole epochs."""
        return self.config.buffer_size // self.chunk * self.chunk

    @property
    def warmup_epochs(self) -> int:
        """Epochs that only collect, before the replay holds the warm-up."""
        return -(-self.config.warmup // self.chunk) - 1

    def replay_bytes(self) -> int:
        """Memory of the replay of all seeds."""
        spec = self.env.spec
        row = replay.row_numbers(spec.obs_size, spec.action_size, self.learner.method.skills.size)
        return 4 * row * self.capacity * self.config.seeds

    def policy(self, actor: Actor, sampled: bool = True) -> Policy:
        """The actor as a compiled function of observation and skill; sampled or mean actions."""
        return partial(self._act, actor, sampled)

    @cached_property
    def _act(self) -> Callable[..., jax.Array]:
        def act(actor: Actor, sampled: bool, obs: jax.Array, skill: jax.Array, key: jax.Array) -> jax.Array:
            x = self.learner.policy_input(obs, skill)
            return actor.sample(x, key)[0] if sampled else actor.mode(x)

        return jax.jit(act, static_argnums=1)

    def init(self, seed: jax.Array) -> TrainState:
        """The state before the first epoch, as a function of the seed alone."""
        key = jax.random.key_data(jax.random.key(seed))
        spec = self.env.spec
        buffer = replay.init(self.capacity, spec.obs_size, spec.action_size, self.learner.method.skills.size)
        return TrainState(self.learner.init(subkey(jax.random.wrap_key_data(key), "init")), buffer, key)

    def collect(self, state: TrainState, epoch: jax.Array) -> Transition:
        """The epoch's episodes, each with a fresh skill, as one chunk."""
        assert isinstance(self.env, Environment)
        key = jax.random.fold_in(subkey(jax.random.wrap_key_data(state.key), "collect"), epoch)
        skills = self.learner.method.skills.sample(subkey(key, "skills"), self.config.episodes)
        terminal = self.config.time_limit == "terminal"
        return episodes(self.env, self.policy(state.learner.sac.actor), skills, self.horizon, key, terminal)

    def learn(self, state: TrainState, chunk: Transition, epoch: jax.Array) -> tuple[TrainState, Info]:
        """Store the chunk and take the epoch's gradient steps, once the replay is warm."""
        buffer = replay.add(state.replay, chunk)
        key = jax.random.fold_in(subkey(jax.random.wrap_key_data(state.key), "learn"), epoch)
        ready = epoch >= self.warmup_epochs
        learner, info = self.learner.learn(state.learner, buffer, key, self.config.gradient_steps, ready)
        return TrainState(learner, buffer, state.key), info

    def epoch(self, state: TrainState, epoch: jax.Array) -> tuple[TrainState, Info]:
        """Collect and learn."""
        return self.learn(state, self.collect(state, epoch), epoch)

    @cached_property
    def start(self) -> Callable[[], TrainState]:
        """Compiled initial state of all seeds, with a leading axis of seeds."""
        seeds = jnp.arange(self.config.seed, self.config.seed + self.config.seeds)
        compiled = jax.jit(self._over_seeds(self.init, (0,)))  # the seeds are an argument: one program serves them all
        return lambda: compiled(seeds)

    def run_epoch(self, state: TrainState, epoch: int) -> tuple[TrainState, Info]:
        """One epoch of all seeds, compiled. The state's buffers are donated: the one passed in is gone afterwards."""
        if isinstance(self.env, HostEnvironment):
            return self._run_host_epoch(state, epoch)
        return self._epoch(state, jnp.int32(epoch))

    @cached_property
    def _epoch(self) -> Any:
        """The epoch, compiled ahead of time: an executable for these shapes that cannot recompile."""
        jitted = jax.jit(self._over_seeds(self.epoch, (0, None)), donate_argnums=0)
        return jitted.lower(jax.eval_shape(self.start), jax.ShapeDtypeStruct((), jnp.int32)).compile()

    def check_env(self) -> None:
        """Look at first observations, so that a broken environment is told before anything is compiled."""
        spec, expected = self.env.spec, [self.env.spec.obs_size]
        try:
            if isinstance(self.env, HostEnvironment):
                found, expected = np.asarray(self.env.reset(0)), [self.env.num_envs, *expected]
            else:
                found = jax.eval_shape(partial(_after_one_step, self.env))
        except UserError:
            raise
        except Exception as error:
            raise UserError(f"{spec.name} failed before the first step: {format_exception(error)}") from error
        if list(found.shape) != expected or not jnp.issubdtype(found.dtype, jnp.floating):
            given = f"{found.dtype} {list(found.shape)}"
            raise UserError(f"the observations of {spec.name} are {given}; by its spec they must be float32 {expected}")

    def compile(self) -> None:
        """Compile before the first epoch, so that the time it takes is known apart."""
        _ = self._host_learn if isinstance(self.env, HostEnvironment) else self._epoch

    def _over_seeds(self, function: Callable[..., Any], axes: tuple[int | None, ...]) -> Callable[..., Any]:
        """vmap over the leading axis of seeds; a single seed is squeezed instead, so that its matmuls stay plain."""
        if self.config.seeds > 1:
            return jax.vmap(function, in_axes=axes)

        def single(*args: Any) -> Any:
            squeezed = [jax.tree.map(lambda x: x[0], a) if axis == 0 else a for a, axis in zip(args, axes, strict=True)]
            return jax.tree.map(lambda x: x[None], function(*squeezed))

        return single

    @cached_property
    def _host_learn(self) -> Any:
        """The learning half of an epoch, compiled ahead of time as `_epoch` is."""
        state = jax.eval_shape(self.start)
        rows = jax.tree.map(lambda x: jax.ShapeDtypeStruct((self.chunk, *x.shape[2:]), x.dtype), state.replay.data)
        jitted = jax.jit(self._over_seeds(self.learn, (0, None, None)), donate_argnums=0)
        return jitted.lower(state, rows, jax.ShapeDtypeStruct((), jnp.int32)).compile()

    def collect_host(self, actor: Actor, key: jax.Array) -> tuple[Transition, float]:
        """`collect` in a host environment, and the seconds spent in it."""
        assert isinstance(self.env, HostEnvironment)
        seed = int(jax.random.randint(subkey(key, "reset"), (), 0, 2**31 - 1))
        sample, terminal = self.learner.method.skills.sample, self.config.time_limit == "terminal"
        return host_episodes(self.env, self.policy(actor), sample, self.horizon, seed, key, terminal)

    def _run_host_epoch(self, state: TrainState, epoch: int) -> tuple[TrainState, Info]:
        key = jax.random.fold_in(subkey(jax.random.wrap_key_data(state.key[0]), "collect"), epoch)
        chunk, seconds = self.collect_host(jax.tree.map(lambda x: x[0], state.learner.sac.actor), key)
        state, info = self._host_learn(state, chunk, jnp.int32(epoch))
        return state, {**info, "env_seconds": jnp.full(1, seconds)}


def _after_one_step(env: Environment) -> jax.Array:
    key = jax.random.key(0)
    return env.observe(env.step(env.reset(key), jnp.zeros(env.spec.action_size), key))

"""The compiled program of a run: one epoch is collect and learn, in one jitted call with donated buffers."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from susd import replay
from susd.collect import episodes, host_episodes
from susd.config import Config
from susd.envs import check_name, make
from susd.envs.base import Environment, HostEnvironment, missing_members
from susd.envs.registry import BUILT_IN
from susd.envs.vector import is_functional
from susd.errors import UserError, format_exception, shown
from susd.learner import Learner, LearnerState
from susd.networks import Actor
from susd.replay import Replay
from susd.runs import checkpoint
from susd.runs.folder import CHANGEABLE, RunFolder, config_hash
from susd.training import pipeline
from susd.training.compiler import compiler_options
from susd.training.devices import AXIS, ONE, Devices
from susd.training.overlap import Ahead
from susd.types import Info, Policy, Transition

RUN_OPTIONS = {"num_envs": "--episodes", "horizon": "--horizon", "positions": "--positions", "landmarks": "--landmarks"}


def subkey(key: jax.Array, name: str) -> jax.Array:
    """The named child of a key: adding a consumer never changes the random numbers of the others."""
    return jax.random.fold_in(key, zlib.crc32(name.encode()))


def build_env(config: Config) -> Environment | HostEnvironment:
    """The environment with its factorization; a host environment has one copy for each episode of an epoch."""
    options = dict(config.env_options)
    for name, flag in RUN_OPTIONS.items():
        if name in options:
            raise UserError(f"the option {name!r} of a run is {flag}; it cannot be {shown(options[name])}")
    for name in ("factors", "positions", "landmarks"):
        if text := getattr(config, name):
            if config.env in BUILT_IN and name != "factors":
                raise UserError(
                    f"--{name} is {shown(text)}, but it is for Gymnasium environments; {config.env} has its own"
                )
            options[name] = int(text) if text.isdecimal() and len(text) < 10 else text
    if config.env in BUILT_IN:
        return make(config.env, num_envs=config.episodes, **options)
    from susd.envs.gymnasium.adapter import GymnasiumVector  # they choose how MuJoCo renders, which JAX does not need
    from susd.envs.gymnasium.loader import takes_horizon

    check_name(config.env)
    if config.horizon and takes_horizon(config.env):
        options["horizon"] = config.horizon
    env = make(config.env, num_envs=config.episodes, **options)
    if config.horizon and isinstance(env, GymnasiumVector):
        env.set_horizon(config.horizon)
    return env


def restore(
    trainer: Trainer, folder: RunFolder, on_skip: Callable[[str], None], only: tuple[str, ...] = ("",)
) -> tuple[TrainState, dict[str, Any]]:
    """The state and the meta data of the last good checkpoint of a run; only the leaves below `only` are read."""
    like, made_by = trainer.shapes, learning_hash(trainer.config)
    state, meta, _ = checkpoint.restore_latest(folder.checkpoints, like, made_by, on_skip, only, of_run=True)
    return state, meta


def learning_hash(config: Config) -> str:
    """The hash of all options that decide what is learned, unlike the length of the run and how often it is saved."""
    return config_hash({name: value for name, value in config.changes().items() if name not in CHANGEABLE})


class TrainState(eqx.Module):
    """Everything that changes in a run. Episodes end with their epoch, so there is no environment state between epochs."""

    learner: LearnerState
    replay: Replay
    key: jax.Array
    collector: Actor | None = None  # with `overlap`: the actor that collects the next epoch's episodes


@dataclass(frozen=True)
class Trainer:
    """Environment, learner and sizes; its methods are pure and compiled once."""

    config: Config
    env: Environment | HostEnvironment
    learner: Learner
    devices: Devices = ONE

    @classmethod
    def build(cls, config: Config, env: Environment | HostEnvironment | None = None, devices: Devices = ONE) -> Trainer:
        """From a config; `env` is an environment object that replaces the configured one."""
        check_devices(config, devices)
        env = build_env(config) if env is None else env
        if not isinstance(env, (Environment, HostEnvironment)):
            raise UserError(f"{type(env).__name__} is not an environment: {missing_members(env)}")
        if is_functional(env):
            if config.overlap:
                where = f"{env.spec.name} runs inside JAX"
                raise UserError(
                    f"--overlap is on, but {where}; it is for environments outside JAX, such as kitchen and ant"
                )
        else:
            if config.seeds > 1:
                raise UserError(f"--seeds is {config.seeds}, but {env.spec.name} runs outside JAX; start one run per seed")
            if config.relabel and env.spec.ends_early:
                raise UserError(f"--relabel needs episodes of one length, but those of {env.spec.name} may end early")
            if env.num_envs != config.episodes:
                raise UserError(f"--episodes is {config.episodes}, but num_envs of the environment is {env.num_envs}")
            if devices.processes > 1:
                raise UserError(f"{env.spec.name} runs outside JAX, so it cannot be trained by several processes")
        trainer = cls(config, env, Learner.from_config(config, env.spec), devices)
        if config.buffer_size < trainer.chunk:
            raise UserError(
                f"--buffer-size is {config.buffer_size}; it must be at least {trainer.chunk}, the transitions of one epoch"
            )
        if config.warmup > trainer.capacity:
            raise UserError(
                f"--warmup is {config.warmup}; it must be at most {trainer.capacity}, the size of the replay buffer"
            )
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
        """The size of the replay buffer: the configured one, rounded down to a multiple of an epoch."""
        return self.config.buffer_size // self.chunk * self.chunk

    @property
    def warmup_epochs(self) -> int:
        """Epochs that only collect, until the replay buffer holds the warm-up."""
        return -(-self.config.warmup // self.chunk) - 1

    def replay_bytes(self) -> int:
        """Memory of the replay buffers of all seeds."""
        spec = self.env.spec
        row = replay.row_size(spec.obs_size, spec.action_size, self.learner.method.skills.size)
        return 4 * row * self.capacity * self.config.seeds

    def policy(self, actor: Actor, sampled: bool = True) -> Policy:
        """The actor as a compiled function of observation and skill; sampled or mean actions."""
        return partial(self._compiled_act, actor, sampled)

    @cached_property
    def _compiled_act(self) -> Callable[..., jax.Array]:
        return jax.jit(self._act, static_argnums=1)

    def _act(self, actor: Actor, sampled: bool, obs: jax.Array, skill: jax.Array, key: jax.Array) -> jax.Array:
        x = self.learner.policy_input(obs, skill)
        return actor.sample(x, key) if sampled else actor.mode(x)

    def init(self, seed: jax.Array) -> TrainState:
        """The state before the first epoch, as a function of the seed alone."""
        key = jax.random.key_data(jax.random.key(seed))
        spec = self.env.spec
        sizes = (spec.obs_size, spec.action_size, self.learner.method.skills.size)
        buffer = replay.init(self.capacity, *sizes, mesh=self._rows.mesh)
        learner = self.learner.init(subkey(jax.random.wrap_key_data(key), "init"))
        return TrainState(learner, buffer, key, learner.sac.actor if self.config.overlap else None)

    def collect(self, state: TrainState, epoch: jax.Array) -> Transition:
        """The episodes of an epoch, each with a new skill, as one chunk."""
        assert is_functional(self.env)
        key = jax.random.fold_in(subkey(jax.random.wrap_key_data(state.key), "collect"), epoch)
        skills = self._rows.split(self.learner.method.skills.sample(subkey(key, "skills"), self.config.episodes))
        terminal = self.config.time_limit == "terminal"
        return episodes(self.env, self.policy(state.learner.sac.actor), skills, self.horizon, key, terminal)

    def learn(self, state: TrainState, chunk: Transition, epoch: jax.Array) -> tuple[TrainState, Info]:
        """Store the chunk and, after the warm-up, take the gradient steps of the epoch."""
        buffer = replay.add(state.replay, chunk)
        key = jax.random.fold_in(subkey(jax.random.wrap_key_data(state.key), "learn"), epoch)
        ready = epoch >= self.warmup_epochs
        learn = partial(pipeline.learn, self.learner, AXIS) if self.devices.pipeline else self.learner.learn
        learner, info = learn(state.learner, buffer, key, self.config.gradient_steps, ready)
        return TrainState(learner, buffer, state.key), info

    def epoch(self, state: TrainState, epoch: jax.Array) -> tuple[TrainState, Info]:
        """Collect and learn."""
        return self.learn(state, self.collect(state, epoch), epoch)

    @cached_property
    def start(self) -> Callable[[], TrainState]:
        """Compiled initial state of all seeds, with a leading axis of seeds."""
        init = self._over_seeds(self.init, (0,))
        compiled = jax.jit(init, compiler_options=compiler_options(once=True), out_shardings=self.layout)
        return lambda: compiled(self._seeds)

    @cached_property
    def shapes(self) -> TrainState:
        """Shapes and types of the initial state."""
        found: TrainState = jax.eval_shape(self._over_seeds(self.init, (0,)), self._seeds)
        return found

    @cached_property
    def layout(self) -> TrainState | None:
        """How the state is placed on several devices: split by seeds, or the rows of the replay buffer of one seed."""
        if self.devices.mesh is None:
            return None
        if self.config.seeds > 1:
            return jax.tree.map(lambda _: self.devices.sharding(AXIS), self.shapes)
        rows, copies = self.devices.sharding(None, AXIS), self.devices.sharding()
        state = jax.tree.map(lambda _: copies, self.shapes)
        if self.devices.pipeline:
            return state
        return eqx.tree_at(lambda s: s.replay.data, state, jax.tree.map(lambda _: rows, state.replay.data))

    @property
    def _rows(self) -> Devices:
        """The devices that the rows of one run are split over; several seeds, or a pipeline, are split in other ways."""
        return self.devices if self.config.seeds == 1 and not self.devices.pipeline else ONE

    @property
    def _seeds(self) -> np.ndarray:
        """The argument of the initial state, so that its program is the same for all seeds."""
        return np.arange(self.config.seed, self.config.seed + self.config.seeds, dtype=np.int32)

    def run_epoch(self, state: TrainState, epoch: int) -> tuple[TrainState, Info]:
        """One epoch of all seeds, compiled. The buffers of `state` are donated: it cannot be used afterwards."""
        if not is_functional(self.env):
            return self._run_host_epoch(state, epoch)
        return self._epoch(state, np.int32(epoch))

    @cached_property
    def _epoch(self) -> Any:
        """The epoch, compiled ahead of time: an executable for these shapes that cannot recompile."""
        return self._compile(self.epoch, self.shapes, jax.ShapeDtypeStruct((), jnp.int32))

    def _compile(self, function: Callable[..., Any], state: TrainState, *others: Any) -> Any:
        """A function of the state, which is donated, and of arguments that seeds and devices share."""
        options: dict[str, Any] = {}
        if self.layout is not None:
            info = self.devices.sharding(AXIS) if self.config.seeds > 1 else self.devices.sharding()
            layout = self.layout if state.collector is not None else replace(self.layout, collector=None)
            inputs = (layout, *(self.devices.sharding() for _ in others))
            options = {"in_shardings": inputs, "out_shardings": (layout, info)}
        over_seeds = self._over_seeds(function, (0, *(None for _ in others)))
        split = self.devices.on_both(over_seeds) if self.devices.pipeline else over_seeds
        lowered = jax.jit(split, donate_argnums=0, **options).lower(state, *others)
        return lowered.compile(self.devices.compiler_options)

    def check_env(self) -> None:
        """Check the first observations, so that a broken environment is reported before anything is compiled."""
        spec, expected = self.env.spec, [self.env.spec.obs_size]
        try:
            if is_functional(self.env):
                found = jax.eval_shape(partial(_after_one_step, self.env))
            else:
                found, expected = np.asarray(self.env.reset(0)), [self.env.num_envs, *expected]
        except UserError:
            raise
        except Exception as error:
            raise UserError(f"{spec.name} failed before the first step: {format_exception(error)}") from error
        if list(found.shape) != expected or not jnp.issubdtype(found.dtype, jnp.floating):
            given = f"{found.dtype} {list(found.shape)}"
            raise UserError(f"the observations of {spec.name} are {given}; by its spec they must be float32 {expected}")

    def compile(self) -> None:
        """Compile before the first epoch, so that its time can be measured separately."""
        _ = self._epoch if is_functional(self.env) else self._host_learn

    def collect_first(self, state: TrainState, epoch: int) -> None:
        """Collect the episodes of the next epoch in a host environment already, while `compile` runs in another thread."""
        if not is_functional(self.env):
            actor = state.learner.sac.actor if state.collector is None else state.collector
            self._ahead.keep(actor, epoch, self.collect_host(self._host_policy(actor), self._collect_key(state, epoch)))

    def _over_seeds(self, function: Callable[..., Any], axes: tuple[int | None, ...]) -> Callable[..., Any]:
        """vmap over the leading axis of seeds; a single seed is squeezed instead, so that its products are not batched."""

        def single(*args: Any) -> Any:
            squeezed = [jax.tree.map(lambda x: x[0], a) if axis == 0 else a for a, axis in zip(args, axes, strict=True)]
            return jax.tree.map(lambda x: x[None], function(*squeezed))

        if self.config.seeds == 1:
            return single
        alone = self.config.seeds == self.devices.count
        return self.devices.over_seeds(single if alone else jax.vmap(function, in_axes=axes), axes)

    @cached_property
    def _host_learn(self) -> Any:
        """The gradient steps of an epoch, compiled ahead of time like `_epoch`."""
        state = replace(self.shapes, collector=None)
        rows = jax.tree.map(lambda x: jax.ShapeDtypeStruct((self.chunk, *x.shape[2:]), x.dtype), state.replay.data)
        return self._compile(self.learn, state, rows, jax.ShapeDtypeStruct((), jnp.int32))

    def collect_host(self, policy: Policy, key: jax.Array) -> tuple[Transition, float]:
        """`collect` in a host environment, and the seconds spent in it."""
        assert not is_functional(self.env)
        terminal = self.config.time_limit == "terminal"
        return host_episodes(self.env, policy, self._sample_skills, self.horizon, self._reset_seed(key), key, terminal)

    @cached_property
    def _sample_skills(self) -> Callable[[jax.Array, int], jax.Array]:
        """Skills drawn by one program: small ones take long to compile."""
        return jax.jit(self.learner.method.skills.sample, static_argnums=1, compiler_options=compiler_options())

    def _reset_seed(self, key: jax.Array) -> int:
        """The seed of the environment for the episodes of a key."""
        return int(_draw_seed(subkey(key, "reset")))

    def _run_host_epoch(self, state: TrainState, epoch: int) -> tuple[TrainState, Info]:
        if self.config.overlap:
            return self._run_overlapping_epoch(state, epoch)
        chunk, seconds = self._episodes(state, state.learner.sac.actor, epoch)
        state, info = self._host_learn(state, chunk, np.int32(epoch))
        return state, {**info, "env_seconds": jnp.full(1, seconds)}

    def _episodes(self, state: TrainState, actor: Actor, epoch: int) -> tuple[Transition, float]:
        """The episodes of an epoch and the seconds spent in the environment for them now: none if they exist already."""
        chunk = self._ahead.take(actor, epoch)
        return (
            self.collect_host(self._host_policy(actor), self._collect_key(state, epoch)) if chunk is None else (chunk, 0.0)
        )

    def _run_overlapping_epoch(self, state: TrainState, epoch: int) -> tuple[TrainState, Info]:
        """Learn, and meanwhile collect the episodes of the next epoch with the actor as it was before learning."""
        assert state.collector is not None
        chunk, seconds = self._episodes(state, state.collector, epoch)
        actor = jax.tree.map(jnp.copy, state.learner.sac.actor)  # the state itself is donated
        collect = partial(self.collect_host, key=self._collect_key(state, epoch + 1))
        ahead = self._ahead.collecting(actor, epoch + 1, self._host_policy(actor), collect)
        with ahead if epoch + 1 != self.config.epochs else nullcontext(lambda: 0.0) as env_seconds:
            state, info = self._host_learn(replace(state, collector=None), chunk, np.int32(epoch))
            seconds += env_seconds()
        return replace(state, collector=actor), {**info, "env_seconds": jnp.full(1, seconds)}

    @cached_property
    def _ahead(self) -> Ahead:
        return Ahead()

    def _host_policy(self, actor: Actor) -> Policy:
        """The policy of an actor with an axis of seeds; a host environment has one seed."""
        return partial(self._host_act, jax.tree.map(lambda x: x[0], self.devices.local(actor)), True)

    @cached_property
    def _host_act(self) -> Callable[..., jax.Array]:
        """As `policy`, but never inside another program, so that the compiler can have options."""
        return jax.jit(self._act, static_argnums=1, compiler_options=compiler_options())

    def _collect_key(self, state: TrainState, epoch: int) -> jax.Array:
        return jax.random.fold_in(subkey(jax.random.wrap_key_data(self.devices.local(state.key)[0]), "collect"), epoch)


@jax.jit
def _draw_seed(key: jax.Array) -> jax.Array:
    return jax.random.randint(key, (), 0, 2**31 - 1)


def check_devices(config: Config, devices: Devices) -> None:
    """Refuse a run that cannot be split into equal shares."""
    if devices.pipeline:
        return
    if config.seeds > 1:
        shares = {"--seeds": config.seeds}
    else:
        shares = {"--episodes": config.episodes, "--batch-size": config.batch_size}
    for flag, value in shares.items():
        if value % devices.count:
            raise UserError(f"{flag} is {value}; it must be a multiple of --devices, which is {devices.count}")


def _after_one_step(env: Environment) -> jax.Array:
    key = jax.random.key(0)
    return env.observe(env.step(env.reset(key), jnp.zeros(env.spec.action_size), key))

"""The high level: a SAC policy that decides what the frozen skill policy does for the next K steps of a task.

A flat policy is the same learner with another interface: it decides a primitive action for every single step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from susd import replay
from susd.replay import Replay
from susd.sac import Sac, SacBatch, SacState
from susd.skills import SkillSpace
from susd.tasks.base import SKILL_STEPS, Task
from susd.training.trainer import subkey
from susd.types import Info, Policy, Transition

GAUSSIAN_RANGE = 1.5  # of a decision over skills without a length of their own: the paper's [-1.5, 1.5]
REPORTED = 0.99  # discount per K steps of the returns that are reported: the paper's plots, whatever training uses


class ActionInterface(Protocol):
    """What a decision in [-1, 1]^size means to the world."""

    @property
    def size(self) -> int:
        """Numbers of one decision."""
        ...

    @property
    def span(self) -> int:
        """Steps that a decision lasts."""
        ...

    def act(self, frozen: Any, obs: jax.Array, decision: jax.Array) -> jax.Array:
        """The primitive action [A] in a state, under the decision and some frozen weights."""
        ...


@dataclass(frozen=True)
class Skills:
    """Decisions are skills, carried out by the mean actions of a frozen policy."""

    space: SkillSpace
    policy: Callable[[Any], Policy]  # weights -> policy with mean actions
    span: int = SKILL_STEPS

    @property
    def size(self) -> int:
        """Numbers of a skill."""
        return self.space.size

    def skill(self, decision: jax.Array) -> jax.Array:
        """The skill a decision stands for: the nearest of the space, or the decision stretched to the paper's range."""
        return GAUSSIAN_RANGE * decision if self.space.prior == "gaussian" else self.space.project(decision)

    def act(self, frozen: Any, obs: jax.Array, decision: jax.Array) -> jax.Array:
        """What the skill does here; a mean action needs no key."""
        return self.policy(frozen)(obs[None], self.skill(decision)[None], jax.random.key(0))[0]


@dataclass(frozen=True)
class Flat:
    """Decisions are primitive actions, one per step; there are no weights."""

    size: int
    span: int = 1

    def act(self, frozen: Any, obs: jax.Array, decision: jax.Array) -> jax.Array:
        """The decision itself."""
        return decision


class ControllerState(eqx.Module):
    """All that changes while a task is learned. Between two episodes no environment state is alive."""

    sac: SacState
    replay: Replay
    key: jax.Array


class Trajectory(NamedTuple):
    """One episode: its decisions as replayed rows [decisions, ..], the reward of each step [horizon], what was seen."""

    rows: Transition
    rewards: jax.Array
    seen: Any = None


def begin(task: Task, start: Any, key: jax.Array) -> Any:
    """The first state of an episode: in the given world, or in one drawn anew where that is None."""
    return task.reset(key) if start is None else task.begin(start, key)


@dataclass(frozen=True)
class Controller:
    """A task, an interface to it and SAC, joined; everything is pure. Gradient steps follow every round of episodes."""

    task: Task
    interface: ActionInterface
    sac: Sac
    gradient_steps: int  # for every episode
    batch_size: int
    capacity: int  # episodes that the replay holds, a multiple of `num_envs`
    warmup: int  # episodes before the first gradient step
    num_envs: int = 1  # episodes that are run side by side before their gradient steps

    @property
    def decisions(self) -> int:
        """Decisions of one episode."""
        return self.task.horizon // self.interface.span

    def init(self, seed: jax.Array) -> ControllerState:
        """The state before the first episode, as a function of the seed alone."""
        key = jax.random.key_data(jax.random.key(seed))
        # The replay's place for a skill holds the reward: the skill is the action here.
        buffer = replay.init(self.capacity * self.decisions, self.sac.inputs, self.sac.actions, 1)
        return ControllerState(self.sac.init(subkey(jax.random.wrap_key_data(key), "init")), buffer, key)

    def view(self, state: Any) -> jax.Array:
        """What the high level sees: the observation and what the task tells besides."""
        return jnp.concatenate([self.task.observe(state), self.task.extra(state)])

    def episode(
        self,
        choose: Callable[[jax.Array, jax.Array], jax.Array],
        frozen: Any,
        start: Any,
        key: jax.Array,
        see: Callable[[Any], Any] = lambda state: None,
    ) -> Trajectory:
        """One episode under `choose(x, key) -> decision`; the reward of a decision is the mean over K steps.

        `see` of the task's state after every step is kept, with a leading axis of steps.
        """
        k_begin, k_run = jax.random.split(key)

        def decide(state: Any, key: jax.Array) -> tuple[Any, tuple[Any, ...]]:
            k_choose, k_steps = jax.random.split(key)
            x = self.view(state)
            decision = choose(x, k_choose)

            def step(state: Any, key: jax.Array) -> tuple[Any, tuple[jax.Array, Any]]:
                action = self.interface.act(frozen, self.task.observe(state), decision)
                state, reward = self.task.step(state, action, key)
                return state, (reward, see(state))

            state, (rewards, seen) = jax.lax.scan(step, state, jax.random.split(k_steps, self.interface.span))
            # Divided by K also where a decision lasts one step: then returns of both interfaces have the same scale.
            return state, (x, decision, self.view(state), rewards.sum()[None] / SKILL_STEPS, rewards, seen)

        state = begin(self.task, start, k_begin)
        _, course = jax.lax.scan(decide, state, jax.random.split(k_run, self.decisions))
        x, decision, next_x, reward, rewards, seen = course
        done = (jnp.arange(self.decisions) == self.decisions - 1).astype(jnp.float32)
        seen = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), seen)
        return Trajectory(Transition(x, decision, next_x, reward, done), rewards.reshape(-1), seen)

    def collect(self, state: ControllerState, frozen: Any, start: Any, number: jax.Array) -> Trajectory:
        """The training episode of that number, with sampled decisions."""
        key = jax.random.fold_in(subkey(jax.random.wrap_key_data(state.key), "collect"), number)
        return self.episode(lambda x, k: state.sac.actor.sample(x[None], k)[0][0], frozen, start, key)

    def learn(self, sac: SacState, buffer: Replay, key: jax.Array) -> tuple[SacState, Info]:
        """The gradient steps that follow a round of episodes; info is their mean."""

        def one(sac: SacState, key: jax.Array) -> tuple[SacState, Info]:
            k_batch, k_update = jax.random.split(key)
            rows = replay.sample(buffer, k_batch, self.batch_size)
            return self.sac.update(sac, SacBatch(rows.obs, rows.action, rows.skill, rows.next_obs, rows.done), k_update)

        sac, infos = jax.lax.scan(one, sac, jax.random.split(key, self.gradient_steps * self.num_envs))
        return sac, jax.tree.map(lambda x: x.mean(axis=0), infos)

    def train(
        self, state: ControllerState, frozen: Any, start: Any, first: jax.Array, last: jax.Array
    ) -> tuple[ControllerState, Info]:
        """Episodes first .. last - 1 in whole rounds, with gradient steps; info is the mean over rounds that learned."""

        def one(
            number: jax.Array, carry: tuple[ControllerState, Info, jax.Array]
        ) -> tuple[ControllerState, Info, jax.Array]:
            state, total, paid = carry
            numbers = number * self.num_envs + jnp.arange(self.num_envs)
            trajectories = jax.vmap(lambda n: self.collect(state, frozen, start, n))(numbers)
            buffer = replay.add(state.replay, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), trajectories.rows))
            key = jax.random.fold_in(subkey(jax.random.wrap_key_data(state.key), "learn"), numbers[-1])
            sac, info = jax.lax.cond(
                numbers[-1] >= self.warmup, lambda sac: self.learn(sac, buffer, key), lambda sac: (sac, nothing), state.sac
            )
            total = jax.tree.map(jnp.add, total, info)
            return ControllerState(sac, buffer, state.key), total, paid + trajectories.rewards.sum() / SKILL_STEPS

        shapes = jax.eval_shape(self.learn, state.sac, state.replay, jax.random.key(0))[1]
        nothing = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        # A loop with bounds that are arguments: one compiled program for any number of episodes.
        rounds = first // self.num_envs, last // self.num_envs
        state, total, paid = jax.lax.fori_loop(*rounds, one, (state, nothing, jnp.zeros(())))
        learned = jnp.maximum(rounds[1] - jnp.maximum(rounds[0], self.warmup // self.num_envs), 1)
        info = jax.tree.map(lambda x: x / learned, total)
        return state, {**info, "training_return": paid / jnp.maximum(last - first, 1)}

    def evaluate(self, sac: SacState, frozen: Any, start: Any, keys: jax.Array) -> jax.Array:
        """Rewards [episodes, horizon] with mean decisions, one episode for every key."""
        return jax.vmap(lambda k: self.episode(lambda x, _: sac.actor.mode(x[None])[0], frozen, start, k).rewards)(keys)

    def film(self, sac: SacState, frozen: Any, start: Any, key: jax.Array, every: int, size: int) -> np.ndarray:
        """Pictures [T, size, size, 3] of a test episode, one of `every` so many steps."""

        def run(key: jax.Array) -> Any:
            return self.episode(lambda x, _: sac.actor.mode(x[None])[0], frozen, start, key, lambda state: state.world).seen

        num_envs = jax.tree.map(np.asarray, jax.jit(run)(key))
        return np.array(
            [
                self.task.environment.render(jax.tree.map(lambda leaf, at=at: leaf[at], num_envs), size)
                for at in range(0, self.task.horizon, every)
            ]
        )

    @cached_property
    def compiled(self) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
        """`init`, `train` and `evaluate`, jitted; the state given to `train` is donated."""
        return jax.jit(self.init), jax.jit(self.train, donate_argnums=0), jax.jit(self.evaluate)


def play(task: Task, policy: Callable[[Any], jax.Array], start: Any, keys: jax.Array) -> jax.Array:
    """Rewards [episodes, horizon] of a scripted policy, which sees the task's true state and acts in every step."""

    def episode(key: jax.Array) -> jax.Array:
        k_begin, k_run = jax.random.split(key)
        steps = jax.random.split(k_run, task.horizon)
        return jax.lax.scan(lambda s, k: task.step(s, policy(s), k), begin(task, start, k_begin), steps)[1]

    return jax.vmap(episode)(keys)


def returns(rewards: jax.Array) -> dict[str, jax.Array]:
    """Of rewards [.., horizon] both returns [..]: sums over decisions of their mean reward, one of them discounted."""
    means = rewards.reshape(*rewards.shape[:-1], -1, SKILL_STEPS).mean(axis=-1)
    weights = REPORTED ** jnp.arange(means.shape[-1], dtype=jnp.float32)
    return {"discounted": means @ weights, "undiscounted": means.sum(axis=-1)}

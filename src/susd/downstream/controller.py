"""The high-level policy: SAC that chooses what the frozen skill policy does for the next K steps of a task.

A flat policy is the same learner with another interface: it chooses an action of the environment in every step.
Training on a functional task is one compiled program, and so is its evaluation; all else steps the task through its batched
interface.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from susd import replay
from susd.collect import batch_seed
from susd.downstream.entity import EntitySac
from susd.downstream.interface import ActionInterface
from susd.downstream.vector import HostVectorTask, JaxVectorTask, VectorTask, first_state, success_in, view_of
from susd.downstream.views import ScaledActor, Views
from susd.replay import Replay
from susd.sac import Sac, SacBatch, SacState, action_noise
from susd.tasks.base import SKILL_STEPS, HostTask, Task
from susd.training.compiler import compiler_options
from susd.training.trainer import subkey
from susd.types import Info, Transition

# (view, key, number of the high-level action in its episode) -> high-level action; for one episode with a key for each
# action, or for a batch with one key for all
Choose = Callable[[Any, jax.Array, Any], jax.Array]
EXPLORE_STEPS = 50  # environment steps that a part of the high-level action is replaced for


class ControllerState(eqx.Module):
    """All that changes while a task is learned. Between two rounds of episodes there is no environment state."""

    sac: SacState
    views: Views | None  # statistics that scale what the networks see; None: views as they are
    replay: Replay
    key: jax.Array

    @property
    def policy(self) -> ScaledActor:
        """The high-level policy, for views as the task gives them."""
        return ScaledActor(self.sac.actor, self.views)


class Episodes(NamedTuple):
    """High-level transitions [.., high-level actions, ..] for the replay, and the reward of every step, [.., horizon].

    The replay's field for a skill holds the rewards: here the skill is the action.
    """

    transitions: Transition
    rewards: Any
    solved: Any  # [..] whether a step solved the task


class Scores(NamedTuple):
    """What test episodes gave."""

    rewards: np.ndarray  # [episodes, horizon]
    solved: np.ndarray  # [episodes]


Carry = tuple[ControllerState, Info, jax.Array]  # of the loop over rounds: the state, sums of info and of rewards


@dataclass(frozen=True)
class Controller:
    """A task, an interface to it and SAC. Gradient steps follow every round of `num_envs` parallel episodes."""

    task: Task | HostTask
    interface: ActionInterface
    sac: Sac | EntitySac
    gradient_steps: int  # for every episode
    batch_size: int
    capacity: int  # episodes that the replay holds, a multiple of `num_envs`
    warmup: int  # episodes before the first gradient step
    num_envs: int = 1
    horizon: int = 0  # environment steps of an episode; 0: those of the task
    scale_view: bool = False  # scale views by their statistics in the warm-up
    explore: float = 0.0  # share of the parts of high-level actions in training episodes that are uniform

    @property
    def steps(self) -> int:
        """Environment steps of one episode."""
        return self.horizon or self.task.horizon

    @property
    def length(self) -> int:
        """High-level actions of one episode."""
        return self.steps // self.interface.duration

    def init(self, seed: jax.Array) -> ControllerState:
        """The state before the first episode, as a function of the seed alone."""
        key = jax.random.key_data(jax.random.key(seed))
        buffer = replay.init(self.capacity * self.length, self.sac.inputs, self.sac.actions, self.sac.rewards)
        views = Views.init(self.sac.inputs) if self.scale_view else None
        return ControllerState(self.sac.init(subkey(jax.random.wrap_key_data(key), "init")), views, buffer, key)

    def train(self, state: ControllerState, frozen: Any, start: Any, first: int, last: int) -> tuple[ControllerState, Info]:
        """Run the training episodes first .. last - 1 with their gradient steps; `state` is donated.

        `info` is the mean over the rounds with gradient steps. Episodes of a functional task begin in the environment
        state `start`, or each in a new one where that is None, as in host environments.
        """
        if isinstance(self.task, HostTask):
            return self._train_host(state, frozen, first, last)
        return self._train_fused(state, frozen, start, jnp.int32(first), jnp.int32(last))

    # --- what functional and host tasks share -------------------------------------------------------------------------

    def learn(self, state: ControllerState, key: jax.Array) -> tuple[SacState, Info]:
        """The gradient steps that follow a round of episodes; info is their mean."""
        scale = (lambda view: view) if state.views is None else state.views.scale

        def draw(key: jax.Array) -> tuple[jax.Array, jax.Array]:
            k_rows, k_noise = jax.random.split(key)
            rows = replay.sample_rows(state.replay.size, k_rows, self.batch_size)
            return rows, action_noise(k_noise, self.batch_size, self.sac.actions)

        def one(sac: SacState, drawn: tuple[jax.Array, jax.Array]) -> tuple[SacState, Info]:
            rows = replay.take(state.replay, drawn[0])
            batch = SacBatch(scale(rows.obs), rows.action, rows.skill, scale(rows.next_obs), rows.done)
            return self.sac.update(sac, batch, drawn[1])

        drawn = jax.vmap(draw)(jax.random.split(key, self.gradient_steps * self.num_envs))
        sac, infos = jax.lax.scan(one, state.sac, drawn)
        return sac, jax.tree.map(lambda x: x.mean(axis=0), infos)

    def absorb(self, state: ControllerState, transitions: Transition, last: jax.Array) -> tuple[ControllerState, Info]:
        """Store a round of episodes, whose last one has the number `last`, and learn after the warm-up; else info is 0."""
        rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), transitions)
        views = state.views
        if views is not None:  # those of the warm-up, and of the round after which learning starts
            warm = last - self.num_envs < self.warmup
            views = jax.tree.map(partial(jnp.where, warm), views.add(rows.obs), views)
        state = ControllerState(state.sac, views, replay.add(state.replay, rows), state.key)
        key = jax.random.fold_in(subkey(jax.random.wrap_key_data(state.key), "learn"), last)
        zeros = self._no_info(state)
        sac, info = jax.lax.cond(last >= self.warmup, lambda: self.learn(state, key), lambda: (state.sac, zeros))
        return ControllerState(sac, views, state.replay, state.key), info

    def _no_info(self, state: ControllerState) -> Info:
        shapes = jax.eval_shape(self.learn, state, jax.random.key(0))[1]
        return jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)

    def sampled(self, actor: Any, key: jax.Array, count: int) -> Choose:
        """High-level actions of `count` training episodes: those of the policy, and for exploration uniform ones.

        Each part is uniform with probability `explore`, and stays so for EXPLORE_STEPS: a factor goes somewhere and stays
        there (temporally extended exploration; Dabney et al., ICLR 2021), while the others do what the policy wants.
        """
        if not self.explore:
            return lambda view, key, number: actor.sample(view, key)
        block = max(1, EXPLORE_STEPS // self.interface.duration)
        blocks, parts = -(-self.length // block), self.interface.parts
        k_which, k_uniform = jax.random.split(subkey(key, "explore"))
        which = jax.random.bernoulli(k_which, self.explore, (blocks, count, parts))
        which = jnp.repeat(which, self.interface.size // parts, axis=-1)
        uniform = jax.random.uniform(k_uniform, which.shape, minval=-1.0, maxval=1.0)

        def choose(view: jax.Array, key: jax.Array, number: Any) -> jax.Array:
            return jnp.where(which[number // block], uniform[number // block], actor.sample(view, key))

        return choose

    def _key_of(self, state: ControllerState, number: Any) -> jax.Array:
        """The key of the training episode of that number."""
        return jax.random.fold_in(subkey(jax.random.wrap_key_data(state.key), "collect"), number)

    # --- functional tasks: whole rounds in one program ----------------------------------------------------------------

    def episode(self, choose: Choose, frozen: Any, start: Any, key: jax.Array) -> Episodes:
        """One episode under `choose`, the reward of whose high-level actions is the mean over K steps."""
        task = self.task
        assert isinstance(task, Task)
        k_start, k_run = jax.random.split(key)

        def act(state: Any, now: tuple[jax.Array, jax.Array]) -> tuple[Any, tuple[Any, ...]]:
            key, number = now
            k_choose, k_steps = jax.random.split(key)
            view = view_of(task, state)
            high_action = choose(view, k_choose, number)

            def step(state: Any, key: jax.Array) -> tuple[Any, tuple[jax.Array, jax.Array]]:
                action = self.interface.act(frozen, task.observe(state), high_action)
                state, rewards = task.step_parts(state, action, key)
                return state, (rewards, success_in(task, state))

            state, (rewards, success) = jax.lax.scan(step, state, jax.random.split(k_steps, self.interface.duration))
            # Divided by SKILL_STEPS whatever the duration: then all interfaces have returns of one scale.
            total = rewards[:, : self.sac.rewards].sum(axis=0) / SKILL_STEPS
            return state, (view, high_action, view_of(task, state), total, rewards[:, 0], success)

        state = first_state(task, start, k_start)
        _, columns = jax.lax.scan(act, state, (jax.random.split(k_run, self.length), jnp.arange(self.length)))
        view, high_action, next_view, reward, rewards, success = columns
        last = jnp.arange(self.length) == self.length - 1
        done = (last & task.terminal).astype(jnp.float32)
        return Episodes(Transition(view, high_action, next_view, reward, done), rewards.reshape(-1), success.any())

    def collect(self, state: ControllerState, frozen: Any, start: Any, number: jax.Array) -> Episodes:
        """The training episode of that number, with sampled high-level actions."""
        key = self._key_of(state, number)
        choose = self.sampled(state.policy, key, 1)
        return self.episode(lambda view, *now: choose(view[None], *now)[0], frozen, start, key)

    def rounds(
        self, state: ControllerState, frozen: Any, start: Any, first: jax.Array, last: jax.Array
    ) -> tuple[ControllerState, Info]:
        """`train` of a functional task, as one pure function."""

        def one(index: jax.Array, carry: Carry) -> Carry:
            state, total, received = carry
            numbers = index * self.num_envs + jnp.arange(self.num_envs)
            episodes = jax.vmap(lambda number: self.collect(state, frozen, start, number))(numbers)
            state, info = self.absorb(state, episodes.transitions, numbers[-1])
            return state, jax.tree.map(jnp.add, total, info), received + episodes.rewards.sum() / SKILL_STEPS

        # The bounds of the loop are arguments: one compiled program for any number of episodes.
        bounds = first // self.num_envs, last // self.num_envs
        state, total, received = jax.lax.fori_loop(*bounds, one, (state, self._no_info(state), jnp.zeros(())))
        learned = jnp.maximum(bounds[1] - jnp.maximum(bounds[0], self.warmup // self.num_envs), 1)
        info = jax.tree.map(lambda x: x / learned, total)
        return state, {**info, "training_return": received / jnp.maximum(last - first, 1)}

    @cached_property
    def _train_fused(self) -> Callable[..., tuple[ControllerState, Info]]:
        return jax.jit(self.rounds, donate_argnums=0, compiler_options=compiler_options())

    @cached_property
    def _evaluate_fused(self) -> Callable[..., Any]:
        def scores(actor: Any, frozen: Any, start: Any, key: jax.Array) -> tuple[jax.Array, jax.Array]:
            found = self.episode(lambda view, *now: actor.mode(view[None])[0], frozen, start, key)
            return found.rewards, found.solved

        return jax.jit(jax.vmap(scores, in_axes=(None, None, None, 0)), compiler_options=compiler_options())

    # --- the batched interface: training and evaluation of host tasks, videos of both kinds ----------------------------

    def run(
        self,
        vector: VectorTask,
        choose: Choose,
        frozen: Any,
        keys: jax.Array,
        batch: int = 0,
        watch: Callable[[int], None] = lambda step: None,
    ) -> Episodes:
        """A batch of the episodes that `keys` stand for, under `choose`, as numpy.

        `watch` is called after every step with its number.
        """
        view, rows, rewards = vector.reset(keys, batch), [], []
        obs_size, first = self.task.environment.spec.obs_size, np.ones(len(view), bool)  # still in its first episode
        solved = np.zeros(len(view), bool)
        key = batch_seed(keys[0], batch)[1]
        for number in range(self.length):
            before, high_action = view, np.asarray(choose(view, key, number))
            total, running = np.zeros((len(view), self.sac.rewards), np.float32), np.ones(len(view), bool)
            reached, done = view, np.full(len(view), self.task.terminal and number == self.length - 1)
            for _ in range(self.interface.duration):
                step = vector.step(np.asarray(self._act(frozen, view[:, :obs_size], high_action)))
                view = step.view
                total += running[:, None] * step.rewards[:, : self.sac.rewards]
                rewards.append(first * step.rewards[:, 0])
                solved |= first & step.success
                reached = np.where(running[:, None], step.reached, reached)
                done |= running & step.terminated
                running &= ~step.ended  # the rest of the high-level action is in the next episode and does not count
                first &= ~step.ended
                watch(len(rewards) - 1)
            rows.append((before, high_action, reached, total / SKILL_STEPS, done.astype(np.float32)))
        columns = (np.stack(column, axis=1) for column in zip(*rows, strict=True))
        return Episodes(Transition(*columns), np.stack(rewards, axis=1), solved)  # type: ignore[arg-type]

    def evaluate(self, vector: VectorTask, actor: Any, frozen: Any, keys: jax.Array) -> Scores:
        """Test episodes with mean high-level actions, one for every key."""
        if isinstance(vector, JaxVectorTask):
            return Scores(*map(np.asarray, self._evaluate_fused(actor, frozen, vector.start, keys)))
        batches = range(-(-len(keys) // vector.num_envs))
        found = [self.run(vector, partial(self._mean, actor), frozen, keys, batch) for batch in batches]
        columns = ([episodes.rewards for episodes in found], [episodes.solved for episodes in found])
        return Scores(*(np.concatenate(column)[: len(keys)] for column in columns))

    def video(self, vector: VectorTask, actor: Any, frozen: Any, keys: jax.Array, every: int, size: int) -> np.ndarray:
        """Frames [T, size, size, 3] of the first test episode, one of `every` so many steps."""
        frames: list[np.ndarray] = []

        def watch(step: int) -> None:
            if step % every == 0:
                frames.append(vector.render(0, size))

        self.run(vector, partial(self._mean, actor), frozen, keys, watch=watch)
        return np.array(frames)

    def _train_host(self, state: ControllerState, frozen: Any, first: int, last: int) -> tuple[ControllerState, Info]:
        """`train` of a host task: the loop is Python's, and what it calls is compiled."""
        assert isinstance(self.task, HostTask)
        vector, infos, received = HostVectorTask(self.task), [], 0.0
        for index in range(first // self.num_envs, last // self.num_envs):
            number = (index + 1) * self.num_envs - 1  # of the last episode, as in `rounds`
            key = self._key_of(state, number)
            episodes = self.run(vector, partial(self._sample, state.policy, key), frozen, key[None])
            rows = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), episodes.transitions)
            state, info = self._absorb(state, rows, jnp.int32(number))
            received += float(episodes.rewards.sum()) / SKILL_STEPS
            if number >= self.warmup:
                infos.append(info)
        mean = jax.tree.map(lambda *values: sum(values) / len(values), *infos) if infos else {}
        return state, {**mean, "training_return": jnp.asarray(received / max(last - first, 1))}

    @cached_property
    def _act(self) -> Callable[..., jax.Array]:
        return jax.jit(jax.vmap(self.interface.act, in_axes=(None, 0, 0)))

    @cached_property
    def _sample(self) -> Callable[..., jax.Array]:
        def sample(actor: Any, episode: jax.Array, view: jax.Array, key: jax.Array, number: jax.Array) -> jax.Array:
            return self.sampled(actor, episode, len(view))(view, jax.random.fold_in(key, number), number)

        return jax.jit(sample)

    @cached_property
    def _mean(self) -> Callable[..., jax.Array]:
        return jax.jit(lambda actor, view, key, number: actor.mode(view))

    @cached_property
    def _absorb(self) -> Callable[..., tuple[ControllerState, Info]]:
        return jax.jit(self.absorb, donate_argnums=0, compiler_options=compiler_options())

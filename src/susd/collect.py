"""Transitions from an environment: in one compiled scan for training, in a loop over a batch for everything else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from susd.envs.base import Environment, HostEnvironment
from susd.envs.vector import JaxVector, vectorize
from susd.types import Policy, Transition


def rollout(env: Environment, policy: Policy, skills: jax.Array, steps: int, key: jax.Array) -> tuple[Any, Transition]:
    """Run W skills in W environments for `steps` steps from reset: all states [T + 1, W, ..] and transitions [T, W, ..]."""
    num_envs = skills.shape[0]
    k_reset, k_steps = jax.random.split(key)
    state = jax.vmap(env.reset)(jax.random.split(k_reset, num_envs))
    observe = jax.vmap(env.observe)

    def one(carry: tuple[Any, jax.Array], step_key: jax.Array) -> tuple[tuple[Any, jax.Array], tuple[Any, Transition]]:
        state, obs = carry
        k_policy, k_env = jax.random.split(step_key)
        action = policy(obs, skills, k_policy)
        state = jax.vmap(env.step)(state, action, jax.random.split(k_env, num_envs))
        next_obs = observe(state)
        return (state, next_obs), (state, Transition(obs, action, next_obs, skills, jnp.zeros(num_envs)))

    start = (state, observe(state))
    _, (states, transitions) = jax.lax.scan(one, start, jax.random.split(k_steps, steps))
    states = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), state, states)
    return states, transitions


def episodes(env: Environment, policy: Policy, skills: jax.Array, steps: int, key: jax.Array, terminal: bool) -> Transition:
    """One episode per skill as a flat chunk for the replay; with `terminal` the time limit ends the value."""
    transitions = rollout(env, policy, skills, steps, key)[1]
    last = jnp.arange(steps) == steps - 1
    done = jnp.broadcast_to((last & terminal)[:, None], (steps, skills.shape[0]))
    transitions = transitions._replace(done=done.astype(jnp.float32))
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), transitions)


class HostTrajectories(NamedTuple):
    """Trajectories of W environments: transitions [T, W, ..] as numpy, whose `done` is `terminated`."""

    transitions: Transition
    truncated: np.ndarray
    seconds: float  # spent in the environment


def host_rollout(
    env: HostEnvironment,
    policy: Policy,
    skills: np.ndarray,
    steps: int,
    seed: int,
    key: jax.Array,
    redraw: Callable[[int], np.ndarray] | None = None,
) -> HostTrajectories:
    """Run W skills in W environments for `steps` steps from a seeded reset; the policy should be a compiled one.

    An environment that ends early resets: with its row of `redraw(step)`, or with the same skill.
    """
    began = time.perf_counter()
    obs = env.reset(seed)
    seconds = time.perf_counter() - began
    found = _run(env, policy, skills, obs, _step_keys(key, steps), redraw)
    return found._replace(seconds=seconds + found.seconds)


@partial(jax.jit, static_argnums=1)
def _step_keys(key: jax.Array, steps: int) -> tuple[jax.Array, ...]:
    """The keys of a policy, one per step, in one program."""
    return tuple(jax.random.split(key, steps))


def _run(
    env: HostEnvironment,
    policy: Policy,
    skills: np.ndarray,
    obs: np.ndarray,
    keys: Iterable[jax.Array],
    redraw: Callable[[int], np.ndarray] | None = None,
    watch: Callable[[HostEnvironment], None] | None = None,
) -> HostTrajectories:
    """The loop of a rollout after the reset, with one key of the policy per step; `watch` is called in every state."""
    obs = np.array(obs, np.float32)  # a copy, here and below: an environment may reuse the array it returns
    skills, seconds = np.array(skills), 0.0
    rows: list[tuple[np.ndarray, ...]] = []  # the fields of a Transition, and truncated
    for step, key in enumerate(keys):
        if watch:
            watch(env)
        action = np.asarray(policy(obs, skills, key))
        began = time.perf_counter()
        result = env.step(action)
        seconds += time.perf_counter() - began
        next_obs, ended = np.array(result.next_obs, np.float32), result.terminated | result.truncated
        rows.append((obs, action, next_obs, skills.copy(), result.terminated.astype(np.float32), result.truncated.copy()))
        if redraw and ended.any():
            skills[ended] = redraw(step)[ended]
        obs = np.array(result.obs, np.float32)
    if watch:
        watch(env)
    *fields, truncated = (np.stack(column) for column in zip(*rows, strict=True))
    return HostTrajectories(Transition(*fields), truncated, seconds)  # type: ignore[arg-type]


def host_episodes(
    env: HostEnvironment,
    policy: Policy,
    sample_skills: Callable[[jax.Array, int], jax.Array],
    steps: int,
    seed: int,
    key: jax.Array,
    terminal: bool,
) -> tuple[Transition, float]:
    """`episodes` of a host environment, and the seconds spent in it; after an early end the next skill is a new one."""

    def draw(step: int) -> np.ndarray:
        return np.asarray(sample_skills(jax.random.fold_in(key, step + 1), env.num_envs))

    found = host_rollout(env, policy, draw(-1), steps, seed, key, redraw=draw)
    limit = found.truncated.copy()
    limit[-1] = True
    done = np.maximum(found.transitions.done, (limit & terminal).astype(np.float32))
    chunk = found.transitions._replace(done=done)  # type: ignore[arg-type]
    return jax.tree.map(lambda x: jnp.asarray(x.reshape(-1, *x.shape[2:])), chunk), found.seconds


def batch_seed(key: jax.Array, batch: int) -> tuple[int, jax.Array]:
    """The seed and the key of one batch of episodes in a host environment."""
    k_seed, k_run = jax.random.split(jax.random.fold_in(key, batch))
    return int(jax.random.randint(k_seed, (), 0, 2**31 - 1)), k_run


def rollout_skills(
    env: Environment | HostEnvironment,
    policy: Policy,
    skills: Any,
    steps: int,
    key: jax.Array,
    watch: Callable[[HostEnvironment], None] | None = None,
) -> Transition:
    """Transitions [T, N, ..] of N skills as numpy, each from reset for `steps` steps; the policy should be compiled.

    A functional environment runs all skills at once, a host environment in batches of its `num_envs`. Equal keys mean equal
    starts, whatever the skills. `watch` is called with the batched environment in every state, the first one included.
    """
    vector, skills, found = vectorize(env, len(skills)), np.asarray(skills), []
    for batch, first in enumerate(range(0, len(skills), vector.num_envs)):
        rows = np.arange(first, first + vector.num_envs) % len(skills)  # the last batch is filled up with earlier skills
        obs, keys = _start(vector, batch, steps, key)
        found.append(_run(vector, policy, skills[rows], obs, keys, watch=watch).transitions)
    return jax.tree.map(lambda *parts: np.concatenate(parts, axis=1)[:, : len(skills)], *found)


def _start(vector: HostEnvironment, batch: int, steps: int, key: jax.Array) -> tuple[np.ndarray, jax.Array]:
    """The first observations of a batch, and the keys of its policy."""
    if isinstance(vector, JaxVector):  # the keys of `rollout`, so that both give the same trajectories
        k_reset, k_steps = jax.random.split(key if batch == 0 else jax.random.fold_in(key, batch))
        pairs = jax.vmap(jax.random.split)(jax.random.split(k_steps, steps))
        return vector.reset_with_keys(k_reset, pairs[:, 1]), pairs[:, 0]
    seed, k_run = batch_seed(key, batch)
    return vector.reset(seed), jax.random.split(k_run, steps)

"""Transitions from an environment: a functional one in one scan, a host one in a loop over batches of worlds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from susd.envs.base import Environment, HostEnvironment
from susd.types import Policy, Transition


def rollout(env: Environment, policy: Policy, skills: jax.Array, steps: int, key: jax.Array) -> tuple[Any, Transition]:
    """Run W skills in W worlds for `steps` steps from reset: all states [T + 1, W, ..] and transitions [T, W, ..]."""
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
    """One episode per skill as a flat chunk for the replay; `terminal` says whether the time limit ends the value."""
    transitions = rollout(env, policy, skills, steps, key)[1]
    last = jnp.arange(steps) == steps - 1
    done = jnp.broadcast_to((last & terminal)[:, None], (steps, skills.shape[0]))
    transitions = transitions._replace(done=done.astype(jnp.float32))
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), transitions)


class HostTrajectories(NamedTuple):
    """What W host worlds did: transitions [T, W, ..] as numpy, whose `done` says terminated; and where the time went."""

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
    watch: Callable[[], None] | None = None,
) -> HostTrajectories:
    """Run W skills in W host worlds for `steps` steps from a seeded reset; the policy should be a compiled one.

    A world that ends early starts anew: with its row of `redraw(step)`, or with the same skill. `watch` is called in every
    state, the first one included.
    """
    began = time.perf_counter()
    obs = np.array(env.reset(seed), np.float32)  # a copy, here and below: a world may step in the array it gave out
    seconds = time.perf_counter() - began
    skills = np.array(skills)
    keys = jax.random.split(key, steps)
    rows: list[tuple[np.ndarray, ...]] = []  # the fields of a Transition, and truncated
    for step in range(steps):
        if watch:
            watch()
        action = np.asarray(policy(obs, skills, keys[step]))
        began = time.perf_counter()
        result = env.step(action)
        seconds += time.perf_counter() - began
        next_obs, ended = np.array(result.next_obs, np.float32), result.terminated | result.truncated
        rows.append((obs, action, next_obs, skills.copy(), result.terminated.astype(np.float32), result.truncated.copy()))
        if redraw and ended.any():
            skills[ended] = redraw(step)[ended]
        obs = np.array(result.obs, np.float32)
    if watch:
        watch()
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
    """`episodes` of a host environment, and the seconds spent in it; a world that ends early goes on with a new skill."""

    def draw(step: int) -> np.ndarray:
        return np.asarray(sample_skills(jax.random.fold_in(key, step + 1), env.num_envs))

    course = host_rollout(env, policy, draw(-1), steps, seed, key, redraw=draw)
    limit = course.truncated.copy()
    limit[-1] = True
    done = np.maximum(course.transitions.done, (limit & terminal).astype(np.float32))
    chunk = course.transitions._replace(done=done)  # type: ignore[arg-type]
    return jax.tree.map(lambda x: jnp.asarray(x.reshape(-1, *x.shape[2:])), chunk), course.seconds


def batch_seed(key: jax.Array, turn: int) -> tuple[int, jax.Array]:
    """The seed and the key with which host worlds run their turn of several."""
    k_seed, k_run = jax.random.split(jax.random.fold_in(key, turn))
    return int(jax.random.randint(k_seed, (), 0, 2**31 - 1)), k_run


def rollout_skills(
    env: Environment | HostEnvironment, policy: Policy, skills: jax.Array, steps: int, key: jax.Array
) -> Transition:
    """Transitions [T, N, ..] of N skills, each from reset for `steps` steps; host worlds take them in turns.

    Equal keys mean equal starts, whatever the skills. With a functional environment this can be compiled.
    """
    if not isinstance(env, HostEnvironment):
        return rollout(env, policy, skills, steps, key)[1]
    count, found = len(skills), []
    for turn, first in enumerate(range(0, count, env.num_envs)):
        rows = np.arange(first, first + env.num_envs) % count  # the last turn is filled up with skills that are run already
        seed, k_run = batch_seed(key, turn)
        found.append(host_rollout(env, policy, np.asarray(skills)[rows], steps, seed, k_run).transitions)
    return jax.tree.map(lambda *parts: np.concatenate(parts, axis=1)[:, :count], *found)

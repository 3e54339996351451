"""Transitions from an environment: a functional one in one scan, a host one in a loop over batches of worlds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from susd.envs.base import Environment, HostEnvironment
from susd.replay import Transition

Policy = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]  # (obs [W, S], skill [W, Z], key) -> action [W, A]


def rollout(env: Environment, policy: Policy, skills: jax.Array, steps: int, key: jax.Array) -> tuple[Any, Transition]:
    """Run W skills in W worlds for `steps` steps from reset: all states [T + 1, W, ..] and transitions [T, W, ..]."""
    worlds = skills.shape[0]
    k_reset, k_steps = jax.random.split(key)
    state = jax.vmap(env.reset)(jax.random.split(k_reset, worlds))
    observe = jax.vmap(env.observe)

    def one(carry: tuple[Any, jax.Array], step_key: jax.Array) -> tuple[tuple[Any, jax.Array], tuple[Any, Transition]]:
        state, obs = carry
        k_policy, k_env = jax.random.split(step_key)
        action = policy(obs, skills, k_policy)
        state = jax.vmap(env.step)(state, action, jax.random.split(k_env, worlds))
        next_obs = observe(state)
        return (state, next_obs), (state, Transition(obs, action, next_obs, skills, jnp.zeros(worlds)))

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


def host_episodes(
    env: HostEnvironment,
    policy: Policy,
    sample_skills: Callable[[jax.Array, int], jax.Array],
    steps: int,
    seed: int,
    key: jax.Array,
    terminal: bool,
) -> Transition:
    """`steps` steps of every host world from a seeded reset; a world that ends early starts anew with a new skill."""
    obs = np.array(env.reset(seed), np.float32)  # a copy, here and below: a world may step in the array it gave out
    skills = np.array(sample_skills(jax.random.fold_in(key, 0), env.worlds))
    rows: list[tuple[np.ndarray, ...]] = []  # the fields of a Transition
    for step in range(steps):
        k_policy, k_skill = jax.random.split(jax.random.fold_in(key, step + 1))
        action = np.asarray(policy(jnp.asarray(obs), jnp.asarray(skills), k_policy))
        result = env.step(action)
        ended = result.terminated | result.truncated
        limit = result.truncated | (step == steps - 1)
        done = result.terminated | (limit & terminal)
        rows.append((obs, action, np.array(result.next_obs, np.float32), skills.copy(), done.astype(np.float32)))
        if ended.any():
            skills[ended] = np.asarray(sample_skills(k_skill, env.worlds))[ended]
        obs = np.array(result.obs, np.float32)
    return Transition(*(jnp.asarray(np.concatenate(column)) for column in zip(*rows, strict=True)))

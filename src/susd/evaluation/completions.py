"""Completions: how often random skills happen to do a task that nobody asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from susd.collect import batch_seed
from susd.skills import SkillSpace
from susd.tasks.base import HostTask, Task
from susd.types import Policy

STEPS = 10_000  # of one repetition
REPETITIONS = 8
PERIOD = 50  # steps between two resets, each with a new skill


def count(task: Task, policy: Policy, skills: SkillSpace, key: jax.Array, steps: int = STEPS) -> jax.Array:
    """Steps with a reward above zero while random skills run for `steps` steps in all, from reset every 50."""
    num_envs = steps // PERIOD
    k_skills, k_reset, k_steps = jax.random.split(key, 3)
    drawn = skills.sample(k_skills, num_envs)
    state = jax.vmap(task.reset)(jax.random.split(k_reset, num_envs))

    def one(state: Any, step_key: jax.Array) -> tuple[Any, jax.Array]:
        k_policy, k_task = jax.random.split(step_key)
        action = policy(jax.vmap(task.observe)(state), drawn, k_policy)
        state, reward = jax.vmap(task.step)(state, action, jax.random.split(k_task, num_envs))
        return state, jnp.sum(reward > 0)

    return jax.lax.scan(one, state, jax.random.split(k_steps, PERIOD))[1].sum()


def count_all(
    tasks: Sequence[HostTask], policy: Policy, skills: SkillSpace, key: jax.Array, steps: int = STEPS
) -> np.ndarray:
    """`count` for several tasks on the same host environment, which are all paid for the same steps; [tasks]."""
    env, total = tasks[0].environment, np.zeros(len(tasks), np.int64)
    left = drawn = steps // PERIOD  # skills
    k_skills, k_turns = jax.random.split(key)
    all_skills = np.asarray(skills.sample(k_skills, drawn))
    turn = 0
    while left:
        rows = np.arange(drawn - left, drawn - left + env.num_envs) % drawn
        counted = min(left, env.num_envs)  # the last turn is filled up with skills that are counted already
        seed, k_run = batch_seed(k_turns, turn)
        obs, keys = env.reset(seed), jax.random.split(k_run, PERIOD)
        for step in range(PERIOD):
            obs = env.step(np.asarray(policy(obs, all_skills[rows], keys[step]))).obs
            total += [int(np.sum(task.score()[:counted] > 0)) for task in tasks]
        left, turn = left - counted, turn + 1
    return total


def summarise(counts: np.ndarray) -> dict[str, Any]:
    """Mean and population standard deviation over the repetitions, as the paper's table has them, and every count."""
    return {"mean": float(counts.mean()), "std": float(counts.std()), "counts": [int(c) for c in counts], "of": STEPS}

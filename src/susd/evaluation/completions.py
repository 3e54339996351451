"""Completions: how often random skills happen to do a task that nobody asked for."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from susd.collect import Policy
from susd.skills import SkillSpace
from susd.tasks.base import Task

STEPS = 10_000  # of one repetition
REPETITIONS = 8
PERIOD = 50  # steps between two resets, each with a new skill


def count(task: Task, policy: Policy, skills: SkillSpace, key: jax.Array, steps: int = STEPS) -> jax.Array:
    """Steps with a reward above zero while random skills run for `steps` steps in all, from reset every 50."""
    worlds = steps // PERIOD
    k_skills, k_reset, k_steps = jax.random.split(key, 3)
    drawn = skills.sample(k_skills, worlds)
    state = jax.vmap(task.reset)(jax.random.split(k_reset, worlds))

    def one(state: Any, step_key: jax.Array) -> tuple[Any, jax.Array]:
        k_policy, k_task = jax.random.split(step_key)
        action = policy(jax.vmap(task.observe)(state), drawn, k_policy)
        state, reward = jax.vmap(task.step)(state, action, jax.random.split(k_task, worlds))
        return state, jnp.sum(reward > 0)

    return jax.lax.scan(one, state, jax.random.split(k_steps, PERIOD))[1].sum()


def summarise(counts: np.ndarray) -> dict[str, Any]:
    """Mean and population standard deviation over the repetitions, as the paper's table has them, and every count."""
    return {"mean": float(counts.mean()), "std": float(counts.std()), "counts": [int(c) for c in counts], "of": STEPS}

"""Returns of episodes as they are reported, and what a task's returns are compared with: bound, expert, doing nothing."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from susd.downstream.vector import VectorTask, run_script
from susd.tasks.base import SKILL_STEPS

REPORTED = 0.99  # discount per SKILL_STEPS of the returns that are reported: the paper's plots, whatever training uses


def returns(rewards: Any) -> dict[str, jax.Array]:
    """Both returns [..] of rewards [.., horizon]: sums over blocks of SKILL_STEPS of their mean reward, one discounted."""
    weights = REPORTED ** (jnp.arange(rewards.shape[-1]) // SKILL_STEPS)
    rewards = jnp.asarray(rewards)
    return {"discounted": rewards @ weights / SKILL_STEPS, "undiscounted": rewards.sum(axis=-1) / SKILL_STEPS}


def mean_returns(rewards: np.ndarray) -> dict[str, float]:
    """Both returns, mean over episodes."""
    return {kind: float(values.mean()) for kind, values in returns(rewards).items()}


def references(vector: VectorTask, tests: jax.Array, steps: int) -> dict[str, dict[str, float]]:
    """The bound, and the mean returns of the scripted expert and of doing nothing in test episodes of `steps` steps.

    There is no bound, and no expert, where the task has none.
    """
    task, found = vector.task, {}
    if task.best is not None and steps <= len(task.best):
        found["bound"] = mean_returns(np.asarray(task.best[:steps], np.float32))
    idle = np.zeros((vector.num_envs, task.environment.spec.action_size), np.float32)
    scripts = {"expert": vector.expert} if task.expert is not None else {}
    for name, script in {**scripts, "do_nothing": lambda: idle}.items():
        found[name] = mean_returns(run_script(vector, script, tests, steps))
    return found

"""Completions of tasks whose rewards are known."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from susd.evaluation import completions
from susd.methods.registry import method
from susd.skills import SkillSpace
from susd.tasks import make_task, tasks


@dataclass(frozen=True)
class Counter:
    """A task with a reward in every step in which the first action is above one half."""

    name: str = "counter"

    def reset(self, key: jax.Array) -> jax.Array:
        return jnp.zeros(())

    def observe(self, state: jax.Array) -> jax.Array:
        return state[None]

    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        return state + 1, jnp.where(action[0] > 0.5, 3.0, -1.0)


def test_steps_with_a_reward_are_counted() -> None:
    skills = SkillSpace("one_hot", 1, 4)

    def policy(obs: jax.Array, z: jax.Array, key: jax.Array) -> jax.Array:
        """Only the first of the four discrete skills completes the task, and only in the second half of its 50 steps."""
        return z[:, :1] * (obs[:, :1] >= 25)

    task: Any = Counter()
    run = jax.jit(lambda key: completions.count(task, policy, skills, key))
    counts = np.array([int(run(jax.random.key(seed))) for seed in range(4)])
    assert (counts % 25 == 0).all()
    assert counts.mean() == pytest.approx(10_000 / 8, rel=0.2)
    summary = completions.summarise(counts)
    assert summary == {"mean": counts.mean(), "std": counts.std(), "counts": counts.tolist(), "of": 10_000}


def test_completable_tasks() -> None:
    completable = {name for name in tasks() if make_task(name).completable}
    assert completable == {name for name in tasks() if "-fp-" not in name}


def test_facts_and_tables() -> None:
    result = {"gunner-lim": completions.summarise(np.array([1, 3]))}
    assert list(completions.facts(result)) == [("gunner-lim", 10_000, "mean", 2.0), ("gunner-lim", 10_000, "std", 1.0)]
    (table,) = completions.report_tables({"results": [{"seed": 0, "epoch": 1, **result}]})
    assert table.rows == [("gunner-lim", "2.0", "1.0", "10000")]


def test_undefined_without_tasks() -> None:
    assert completions.undefined("ant", method("susd")) == "there is no task in ant"
    assert completions.undefined("gunner", method("susd")) == ""

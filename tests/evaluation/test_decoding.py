"""Decoding and completions on made-up data whose answers are known."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from susd.evaluation import completions, decoding
from susd.factors import Factorization
from susd.skills import SkillSpace
from susd.tasks import TASKS, make_task

FACTORS = Factorization.from_mapping({"seen": [0, 2], "hidden": [1, 3, 4]}, 5)


def data(num_envs: int = 40, steps: int = 50) -> np.ndarray:
    """Random states [W, T, S]; the hidden factor has variance 4."""
    return np.random.default_rng(0).normal(size=(num_envs, steps, 5)) * np.array([1.0, 2.0, 1.0, 2.0, 2.0])


def test_a_factor_that_is_in_the_code_is_read_and_the_other_is_not() -> None:
    obs = data()
    code = obs[..., [0, 2]] @ np.array([[3.0, 1.0], [-1.0, 2.0]]) + 7.0  # a linear code of the first factor alone
    result = decoding.decode(code, obs, FACTORS, (4, 24), seed=0, epochs=1500)
    assert result["per_factor"]["seen"] < 0.05
    assert result["per_factor"]["hidden"] == pytest.approx(4.0, rel=0.2)  # its variance: nothing better is possible
    assert result["error"] == pytest.approx(
        sum(result["per_factor"].values()) / 2
    )  # factors count the same, not dimensions
    assert result["error_of_the_mean"] == pytest.approx((1.0 + 4.0) / 2, rel=0.1)
    assert result["hidden"] == 24
    assert result["validation"]["24"] < result["validation"]["4"]
    assert (result["inputs"], result["states"]) == (2, 2000)


def test_whole_courses_go_to_one_share() -> None:
    num_envs = np.arange(20)
    code = np.broadcast_to(num_envs[:, None, None], (20, 3, 1)).astype(float)
    shares = decoding.split(code, code, seed=0)
    found = [set(np.asarray(share.obs).ravel().astype(int).tolist()) for share in shares]
    assert [len(f) for f in found] == [16, 2, 2]
    assert set.union(*found) == set(num_envs.tolist())
    assert not found[0] & found[1] | found[0] & found[2] | found[1] & found[2]
    train = np.asarray(shares[0].code)
    assert train.mean() == pytest.approx(0.0, abs=1e-5)
    assert train.std() == pytest.approx(1.0, rel=1e-5)


def test_decoders_of_several_widths_are_what_each_would_be_alone() -> None:
    obs = data(10, 20).astype(np.float32)
    train = decoding.Split(jnp.asarray(obs.reshape(-1, 5)[:, :2]), jnp.asarray(obs.reshape(-1, 5)))
    key = jax.random.key(1)
    run = jax.jit(lambda sizes: decoding.train_decoders(train, sizes, key, 3, batch=50)(train.code), static_argnums=0)
    np.testing.assert_allclose(run((3, 8))[0], run((3,))[0], atol=1e-5)


@dataclass(frozen=True)
class Counter:
    """A stand-in for a task: pays in every step in which the first action is above one half."""

    name: str = "counter"

    def reset(self, key: jax.Array) -> jax.Array:
        return jnp.zeros(())

    def observe(self, state: jax.Array) -> jax.Array:
        return state[None]

    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        return state + 1, jnp.where(action[0] > 0.5, 3.0, -1.0)


def test_completions_count_steps_with_a_reward() -> None:
    skills = SkillSpace("one_hot", 1, 4)

    def policy(obs: jax.Array, z: jax.Array, key: jax.Array) -> jax.Array:
        """Only the first of the four choices does the task, and only in the second half of its 50 steps."""
        return z[:, :1] * (obs[:, :1] >= 25)

    task: Any = Counter()
    run = jax.jit(lambda key: completions.count(task, policy, skills, key))
    counts = np.array([int(run(jax.random.key(seed))) for seed in range(4)])
    assert (counts % 25 == 0).all()
    assert counts.mean() == pytest.approx(10_000 / 8, rel=0.2)
    summary = completions.summarise(counts)
    assert summary == {"mean": counts.mean(), "std": counts.std(), "counts": counts.tolist(), "of": 10_000}


def test_tasks_say_whether_they_can_be_completed() -> None:
    completable = {name for name in TASKS if make_task(name).completable}
    assert completable == {name for name in TASKS if "-fp-" not in name}

"""Scripted experts, doing nothing and the highest rewards of every task, compared with the scores of the specification."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from reference import fast
from susd.downstream.returns import returns
from susd.downstream.vector import first_state
from susd.envs.base import HostStep
from susd.envs.multi_particle import fixed_layout
from susd.tasks import make_task, tasks
from susd.tasks.base import HostTask, Task
from susd.tasks.multi_particle import FoodPoison

LEVELS = ("easy", "medium", "hard", "difficult")
STARTS = ("centre", "0", "1", "2", "3")
LAYOUTS = (0, 1, 2, 3, 22)
TESTS = 256

Scores = dict[str, dict[str, float]]  # by layout, both returns


def play(task: Task, policy: Callable[[Any], jax.Array], start: Any, keys: jax.Array) -> jax.Array:
    """Rewards [episodes, horizon] of a policy that knows the true state and acts in every step, in one program."""

    def episode(key: jax.Array) -> jax.Array:
        k_start, k_run = jax.random.split(key)
        steps = jax.random.split(k_run, task.horizon)
        return jax.lax.scan(lambda s, k: task.step(s, policy(s), k), first_state(task, start, k_start), steps)[1]

    return jax.vmap(episode)(keys)


@cache
def measured(name: str) -> tuple[Scores, Scores]:
    """Mean returns of the expert and of doing nothing; all layouts run in one compiled program."""
    key, layouts = ("start", STARTS) if name.startswith("gunner") else ("layout_seed", LAYOUTS)
    task: Any = make_task(name)
    starts = [make_task(name, **{key: layout}).env.reset(jax.random.key(0)) for layout in layouts]

    def both(start: Any, tests: jax.Array) -> list[dict[str, jax.Array]]:
        nothing = jnp.zeros(task.env.spec.action_size)
        runs = [play(task, script, start, tests) for script in (task.expert, lambda _: nothing)]
        return [{kind: values.mean() for kind, values in returns(rewards).items()} for rewards in runs]

    tests = jax.random.split(jax.random.key(0), TESTS if task.random_episodes else 1)
    found = fast(jax.vmap(both, in_axes=(0, None)))(jax.tree.map(lambda *x: jnp.stack(x), *starts), tests)
    good, idle = ({str(x): {k: float(v[i]) for k, v in s.items()} for i, x in enumerate(layouts)} for s in found)
    return good, idle


def test_bounds_are_those_of_the_paper() -> None:
    """Discounted by 0.99 per high-level action: 9.56 for each agent, 56.2 / 37.1 / 18.4, 173.2, and 39.5 in the Kitchen."""
    expected = {"gunner-lim": 173.2, "gunner-unlim": 173.2}
    expected |= {f"kitchen-{task}": 39.5 for task in ("bip", "mip", "pos", "pot")}
    expected |= {f"multi_particle-seq-{level}": x for level, x in zip(LEVELS, (56.2, 37.1, 18.4), strict=False)}
    expected |= {f"multi_particle-fp-{level}": x for level, x in zip(LEVELS, (19.1, 47.8, 76.5, 95.6), strict=True)}
    assert set(expected) == set(tasks())
    for name, value in expected.items():
        task = make_task(name)
        best = task.best
        assert best is not None
        assert best.shape == (task.horizon,)
        assert best.sum() / 5 == task.bound
        assert best / 5 @ 0.99 ** (np.arange(len(best)) // 5) == pytest.approx(value, abs=0.05)
        both = returns(jnp.asarray(best, jnp.float32))
        assert float(both["undiscounted"]) == pytest.approx(task.bound)
        assert float(both["discounted"]) == pytest.approx(value, abs=0.05)


@pytest.mark.parametrize("name", ["gunner-unlim", "gunner-lim"])
def test_gunner_expert_from_every_start(name: str) -> None:
    for start, score in measured(name)[0].items():
        assert 394 < score["undiscounted"] < 400, start
        assert 170 < score["discounted"] < 173.2, start


@pytest.mark.parametrize(("level", "expected"), [("easy", 59.6), ("medium", 39.4), ("hard", 19.1)])
def test_sequential_expert_in_every_layout(level: str, expected: float) -> None:
    task = make_task(f"seq-{level}")
    for layout, score in measured(task.name)[0].items():
        assert expected - 0.05 < score["undiscounted"] < task.bound, layout


def reachable(layout: int, agent: int, food: bool) -> float:
    """The most an agent can score: nothing is faster than full force, which spans a box around its start."""
    start, station = fixed_layout(layout)[agent], fixed_layout(layout)[10 + agent]
    way, speed, score = 0.0, 0.0, 0.0
    for _ in range(50):
        way, speed = way + 0.1 * speed, 0.75 * speed + 0.5
        low, high = np.maximum(start - way, -1.0), np.minimum(start + way, 1.0)
        nearest = np.linalg.norm(np.clip(station, low, high) - station)
        farthest = np.linalg.norm(np.maximum(station - low, high - station))
        score += 1.0 if (nearest < 0.6 if food else farthest > 0.6) else -1.0
    return score / 5


@pytest.mark.slow
@pytest.mark.parametrize(("level", "specified"), list(zip(LEVELS, (18, 46, 70, 89), strict=True)))
def test_food_poison_expert_reaches_the_physical_limit(level: str, specified: float) -> None:
    """Its mean over indicators is within 1 % of the limit of every layout; the specification averages a few draws."""
    task = make_task(f"fp-{level}")
    assert isinstance(task, FoodPoison)
    tests = jax.random.split(jax.random.key(0), TESTS)
    indicators = np.asarray(fast(jax.vmap(lambda k: task.begin(None, jax.random.split(k)[0]).indicator))(tests))
    for layout, score in measured(task.name)[0].items():
        limits = {i: (reachable(int(layout), i, True), reachable(int(layout), i, False)) for i in task.agents}
        most = np.mean([sum(limits[i][int(row[i])] for i in task.agents) for row in indicators])
        assert 0.99 * most < score["undiscounted"] <= most + 1e-3, layout
    mean = np.mean([measured(task.name)[0][layout]["undiscounted"] for layout in "123"])
    assert mean > 0.98 * specified


@pytest.mark.slow
def test_doing_nothing() -> None:
    """Sequential: -1.5 to -3.8, by layout; food and poison: about zero; Gunner: what its start position gives."""
    for level in ("easy", "medium", "hard"):
        idle = measured(f"multi_particle-seq-{level}")[1]
        assert all(-3.8 < score["discounted"] < -1.5 for score in idle.values())
        assert len({score["discounted"] for score in idle.values()}) > 1
    medium = measured("multi_particle-seq-medium")[1]
    assert np.mean([medium[layout]["discounted"] for layout in "123"]) == pytest.approx(-2.4, abs=0.05)
    for level, agents in zip(LEVELS, (2, 5, 8, 10), strict=True):
        idle = measured(f"multi_particle-fp-{level}")[1]
        spread = 10 * np.sqrt(agents / TESTS)  # of the mean of that many fair draws, each worth ten points
        assert all(abs(score["undiscounted"]) < 4 * spread for score in idle.values())
    assert [score["undiscounted"] for score in measured("gunner-lim")[1].values()] == [0.0] * 5
    standing = measured("gunner-unlim")[1]["3"]["undiscounted"]  # in the last zone, for a quarter of the time
    assert standing == pytest.approx(251 / 5)


def test_expert_with_both_action_interfaces() -> None:
    key = jax.random.split(jax.random.key(0), 1)
    both = []
    for actions in ("planar", "five"):
        task: Any = make_task("seq-hard", actions=actions)
        both.append(np.asarray(fast(partial(play, task, task.expert, None))(key)))
    np.testing.assert_array_equal(*both)


def test_bound_and_expert_are_optional() -> None:
    class Bare(HostTask):
        horizon = 10

        def reward(self, step: HostStep) -> np.ndarray:
            return np.zeros(1)

    class Bounded(Bare):
        best = np.ones(10)

    assert (Bare("bare", None).bound, Bare("bare", None).expert, Bare("bare", None).parts) == (None, None, None)
    assert Bounded("bounded", None).bound == 2.0

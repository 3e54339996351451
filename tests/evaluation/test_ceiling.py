"""Planning in the simulator finds the known best return of a probe, and its result is stated beside the references."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conftest import call, refused
from susd.downstream.interface import FlatActions, SkillActions
from susd.envs.base import EnvSpec
from susd.errors import UserError
from susd.evaluation import ceiling
from susd.evaluation.ceiling import EVALUATION, Planner, facts, tables, undefined
from susd.factors import Factorization
from susd.methods.registry import method
from susd.skills import SkillSpace
from susd.tasks.base import Task

STEP = 0.25


class Square:
    """A point in a square, moved by its action from the centre."""

    spec = EnvSpec("square", 2, 2, 20, Factorization.from_mapping({"x": [0], "y": [1]}, 2), (), {})

    def reset(self, key: jax.Array) -> jax.Array:
        return jnp.zeros(2)

    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> jax.Array:
        return jnp.clip(state + STEP * action, -1.0, 1.0)

    def observe(self, state: jax.Array) -> jax.Array:
        return state

    def render(self, state: jax.Array, size: int = 400) -> np.ndarray:
        raise NotImplementedError


@dataclass(frozen=True)
class Corner(Task):
    """One point for every step in the upper left corner: of 20 steps the first two are needed to walk there."""

    horizon = 20

    @property
    def best(self) -> np.ndarray:
        return np.append(np.zeros(2), np.ones(18))

    def reward(self, env_state: jax.Array) -> jax.Array:
        return ((env_state[0] <= -0.6) & (env_state[1] >= 0.6)).astype(jnp.float32)


@dataclass(frozen=True)
class Spot(Task):
    """One point for every step near a spot two steps away, which is left at once unless the point stands still."""

    horizon = 20

    def reward(self, env_state: jax.Array) -> jax.Array:
        return (jnp.abs(env_state - jnp.array([0.5, 0.0])).max() < 0.12).astype(jnp.float32)


def plan(task: Task, interface: Any, **sizes: int) -> np.ndarray:
    keys = jax.random.split(jax.random.key(0), 2)
    return ceiling._plan(Planner(task, interface, **sizes), None, jnp.zeros(2), keys)


def test_planning_finds_the_best_return() -> None:
    task = Corner("corner", Square())
    rewards = plan(task, FlatActions(2), lookahead=4)
    assert rewards.shape == (2, 20)
    np.testing.assert_array_equal(rewards, np.tile(task.best, (2, 1)))


@pytest.mark.slow
def test_what_an_interface_cannot_do_is_not_found() -> None:
    """Standing still needs an action of zero: unit skills of five steps pass the spot, and return at best."""
    spot = Spot("spot", Square())
    still = plan(spot, FlatActions(2), lookahead=4, candidates=64, iterations=2)
    assert still.sum(axis=1).min() >= 17
    space = SkillSpace("sphere", 1, 2)
    unit = SkillActions(space, lambda frozen: lambda obs, skill, key: skill, duration=5)
    assert plan(spot, unit, lookahead=2, candidates=64, iterations=2).sum(axis=1).max() < 8


def test_nothing_counts_after_the_end_of_the_task() -> None:
    planner = Planner(Corner("corner", Square()), FlatActions(2), lookahead=5)
    state = planner.task.begin(jnp.array([-1.0, 1.0]), jax.random.key(0))
    value = jax.jit(partial(planner.value, None, state))
    for number, expected in ((0, 5.0), (18, 2.0)):
        assert float(value(jnp.int32(number), jax.random.key(0), jnp.zeros((5, 2)))) == expected


SCORES = {"discounted": 3.0, "undiscounted": 4.0}
RESULT = {
    "hop@0>skill": {"ceiling": SCORES, "bound": SCORES, "do_nothing": SCORES, "episodes": 1},
    "hop@0>goal": {
        "ceiling": {"discounted": 3.5, "undiscounted": 5.0},
        "bound": SCORES,
        "do_nothing": SCORES,
        "episodes": 1,
    },
}


def test_facts_tables_and_figure(tmp_path: Path) -> None:
    recorded = list(facts(RESULT))
    assert ("hop@0", 0, "skill_discounted", 3.0) in recorded
    assert ("hop@0", 0, "goal_undiscounted", 5.0) in recorded
    assert recorded.count(("hop@0", 0, "bound_discounted", 3.0)) == 1
    (table,) = tables({"results": [{"seed": 0, "epoch": 3, **RESULT}]})
    assert table.rows[1] == ("hop@0", "goals", "3.50", "5.00", "3.00", "-", "3.00", "1")
    ceiling.draw(tmp_path / "ceiling.png", Square.spec, RESULT, {})
    assert (tmp_path / "ceiling.png").stat().st_size > 5000


def test_mistakes_in_options() -> None:
    good = {"task": "unlim"}
    assert EVALUATION.check_options(good | {"interface": "skill,goal"})["lookahead"] == 8
    for given, message in (
        ({}, "has no default: name a task with --task"),
        ({"task": "hop"}, "unknown task 'hop'"),
        (good | {"interface": "flat"}, "--interface is 'flat'; choose skill, goal"),
        (good | {"candidates": 0}, "--candidates is 0; it must be from 1"),
        (good | {"episodes": 10**6}, "--episodes is 1000000"),
    ):
        with pytest.raises(UserError, match=message):
            EVALUATION.check_options(given)


def test_host_environments_are_refused() -> None:
    assert undefined("kitchen", method("susd")).endswith("must be pure JAX; kitchen runs outside JAX")
    assert undefined("gunner", method("diayn")) == undefined(Square.spec, method("susd")) == ""


@pytest.mark.slow
def test_evaluation_of_a_run(trained: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Path(shutil.copytree(trained("gunner", "--epochs", 3), tmp_path / "run"))
    sizes = ("--lookahead", 2, "--candidates", 3, "--iterations", 1)
    assert "which is one of multi_particle, not of gunner" in refused(
        capsys, "evaluate", run, "ceiling", "--task", "seq-easy"
    )
    assert "--layout is '7'" in refused(capsys, "evaluate", run, "ceiling", "--task", "lim", "--layout", 7)
    call("evaluate", run, "ceiling", "--task", "unlim", "--interface", "skill,goal", "--layout", "0", *sizes)
    assert "unlim@0" in capsys.readouterr().out
    call("evaluate", run, "ceiling", "--task", "lim", *sizes, "--json")
    report = json.loads(capsys.readouterr().out)
    (result,) = report["results"]
    assert set(result) == {"seed", "epoch", "unlim@0>skill", "unlim@0>goal", "lim@centre>skill"}
    one = result["unlim@0>goal"]
    assert one["bound"]["undiscounted"] == pytest.approx(400.0)
    assert one["do_nothing"]["discounted"] < one["expert"]["discounted"] < one["bound"]["discounted"]
    assert 0 <= one["ceiling"]["discounted"] <= one["bound"]["discounted"]
    assert one["episodes"] == 1
    assert (run / "figures" / "ceiling.png").is_file()


def test_goal_actions_need_an_embedding() -> None:
    from susd.downstream.interface import skill_interface

    learner = SimpleNamespace(method=None)
    trainer = SimpleNamespace(config=SimpleNamespace(method="dusdi"), policy=lambda actor, sampled: None, learner=learner)
    agent: Any = SimpleNamespace(trainer=trainer)
    with pytest.raises(UserError, match=r"--interface is 'goal', but .* unlike that of dusdi"):
        skill_interface(agent, agent, "goal")

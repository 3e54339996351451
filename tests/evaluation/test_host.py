"""Everything that is measured in functional environments is measured in host ones too, here in the Kitchen."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conftest import Command
from susd import load
from susd.collect import rollout_skills
from susd.downstream.controller import Controller, Flat, returns
from susd.downstream.host_controller import HostController
from susd.envs.base import EnvSpec, HostStep, Plane, Scaling
from susd.evaluation import completions, control, coverage
from susd.factors import Factorization
from susd.sac import Sac
from susd.skills import SkillSpace
from susd.tasks import make_task
from susd.tasks.base import HostTask

NUM_ENVS = 3


class Points:
    """Points that two actions move along two axes, each from a seeded start; observations are normalised."""

    num_envs = NUM_ENVS
    spec = EnvSpec(
        "points",
        2,
        2,
        10,
        Factorization.from_mapping({"x": [0], "y": [1]}, 2),
        (Plane("point", 0, 1, -10.0, 10.0, open=True), Plane("line", 0, 0, -10.0, 10.0)),
        {},
        scaling=Scaling((1.0, 0.0), (2.0, 4.0)),
    )

    def reset(self, seed: int) -> np.ndarray:
        self.place = np.random.default_rng(seed).uniform(-1, 1, (NUM_ENVS, 2))
        return self._see()

    def step(self, actions: np.ndarray) -> HostStep:
        self.place = self.place + actions
        never = np.zeros(NUM_ENVS, bool)
        return HostStep(self._see(), self._see(), never, never)

    def _see(self) -> np.ndarray:
        seen: np.ndarray = self.spec.scaling.normalise(self.place).astype(np.float32)  # type: ignore[union-attr]
        return seen

    def render(self, world: int = 0, size: int = 400) -> np.ndarray:
        return np.full((size, size, 3), 40 * world, np.uint8)


SPACE = SkillSpace("factor_sphere", 2, 1)


def follow(obs: Any, skill: Any, key: jax.Array) -> jax.Array:
    return jnp.asarray(skill)


def test_courses_take_turns_and_start_alike() -> None:
    skills = SPACE.sample(jax.random.key(0), 7)  # three turns of three worlds, the last one not full
    found = rollout_skills(Points(), follow, skills, 5, jax.random.key(1))
    assert found.next_obs.shape == (5, 7, 2)
    np.testing.assert_array_equal(found.skill[0], skills)
    moved = Points.spec.raw(found.next_obs) - Points.spec.raw(found.obs)
    np.testing.assert_allclose(moved, np.broadcast_to(skills, moved.shape), atol=1e-5)
    again = rollout_skills(Points(), follow, -skills, 5, jax.random.key(1))
    np.testing.assert_array_equal(found.obs[0], again.obs[0])
    assert len(np.unique(found.obs[0], axis=0)) == 7


def test_coverage_is_counted_in_raw_units_and_on_lines() -> None:
    raw = np.array([[0.1, 0.1], [0.1, 5.0], [9.0, 5.0], [0.1, 0.1]])
    obs = Points.spec.scaling.normalise(raw)[:, None]  # type: ignore[union-attr]
    assert np.asarray(coverage.visited_cells(Points.spec, jnp.asarray(obs))).tolist() == [3, 2]
    assert coverage.unique_positions(Points.spec, obs).tolist() == [3, 2]
    assert coverage.all_cells(Points.spec).tolist() == [2500, 50]


def test_control_of_host_worlds() -> None:
    measured = control.control_matrix(Points(), follow, SPACE, jax.random.key(0), steps=10, pairs=24)
    matrix = np.asarray(measured.matrix)
    assert matrix[0, 1] == matrix[1, 0] == 0  # a part of the skill moves its own axis only
    assert min(matrix[0, 0], matrix[1, 1]) > 0.5


class Right(HostTask):
    """Pays where x is above zero."""

    horizon = 10
    bound = 2.0

    def score(self) -> np.ndarray:
        return (self.env.place[:, 0] > 0).astype(np.float32)


def test_completions_of_host_tasks() -> None:
    tasks = [Right("right", Points()), Right("again", Points())]
    tasks[1] = Right("again", tasks[0].env)
    counts = completions.count_all(tasks, follow, SPACE, jax.random.key(0), steps=250)  # five skills in two turns
    assert counts[0] == counts[1]
    skills = np.asarray(SPACE.sample(jax.random.split(jax.random.key(0))[0], 5))
    assert abs(counts[0] - 50 * (skills[:, 0] > 0).sum()) <= 5  # after a step or two each point is on its side


def high_level(**sizes: Any) -> HostController:
    sac = Sac(inputs=2, actions=2, hidden=32, layers=1, activation="relu", precision="float32", learning_rate=3e-3,
              discount=0.9, tau=0.05, alpha_init=0.1, adaptive_alpha=True, target_entropy=-0.5)  # fmt: skip
    return HostController(
        **{
            **dict(task=Right("right", Points()), interface=Flat(2), sac=sac, gradient_steps=5, batch_size=32),
            **dict(capacity=60, warmup=6, num_envs=NUM_ENVS),
            **sizes,
        }  # type: ignore[arg-type]
    )


def test_a_high_level_learns_over_host_worlds() -> None:
    controller = high_level()
    init, train, evaluate = controller.compiled
    state, tests = init(jnp.int32(0)), jax.random.split(jax.random.key(5), 7)
    before = float(evaluate(state.sac, None, None, tests).mean())
    state, info = train(state, None, None, jnp.int32(0), jnp.int32(60))
    after = evaluate(state.sac, None, None, tests)
    assert after.shape == (7, 10)
    assert float(after.mean()) > max(0.85, before)
    assert np.isfinite(list(map(float, info.values()))).all()
    assert "critic_loss" in info
    assert 0 < float(returns(controller.nothing(tests))["undiscounted"].mean()) < 2  # it stays where it starts


def test_a_host_high_level_in_pieces_is_the_same() -> None:
    controller = high_level()
    init, train, _ = controller.compiled
    whole, _ = train(init(jnp.int32(1)), None, None, jnp.int32(0), jnp.int32(18))
    state, _ = train(init(jnp.int32(1)), None, None, jnp.int32(0), jnp.int32(9))
    pieces, _ = train(state, None, None, jnp.int32(9), jnp.int32(18))
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(pieces), strict=True):
        np.testing.assert_array_equal(a, b)
    assert isinstance(controller, Controller)


@pytest.fixture(scope="module")
def kitchen(trained: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of a tiny run, to be evaluated."""
    place = tmp_path_factory.mktemp("kitchen") / "run"
    shutil.copytree(trained("kitchen", "--epochs", 4), place)
    return place


def test_a_kitchen_run_resumes_bit_for_bit(susd: Command, kitchen: Path, tmp_path: Path) -> None:
    susd.train("kitchen", tmp_path / "run", "--epochs", 2)
    susd.resume(tmp_path / "run", "--epochs", 4)
    first, second = (json.loads(susd("show", run, "--json").stdout) for run in (kitchen, tmp_path / "run"))
    assert first["checksum"] == second["checksum"]
    assert first["metrics"]["env_seconds"] > 0
    assert load(kitchen).act(np.zeros(142), np.zeros(14)).shape == (4,)


def test_every_evaluation_works_in_the_kitchen(
    susd: Command, kitchen: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    from susd.evaluation import evaluate

    monkeypatch.setattr(completions, "REPETITIONS", 2)
    monkeypatch.setattr(completions.count_all, "__defaults__", (100,))
    coverage_result = evaluate.evaluate(kitchen, "coverage", steps=400)["results"][0]["trained, mean actions"]
    assert set(coverage_result["per_plane"]) == {"gripper", "pot", "butter", "meatball"}
    assert len(evaluate.evaluate_control(load(kitchen), pairs=2)[0]["matrix"]) == 7
    completed = evaluate.evaluate(kitchen, "completions")["results"][0]
    assert set(completed) >= {f"kitchen-{task}" for task in ("bip", "mip", "pos", "pot")}
    written = {path.name for path in evaluate.pictures(kitchen)}
    missing = {"skills.mp4"} if "no video: pictures of the kitchen need OpenGL" in capsys.readouterr().err else set()
    assert written == {"learning_curves.png", "trajectories.png", "skills.mp4"} - missing


def test_a_kitchen_task_is_learned_over_skills(susd: Command, kitchen: Path) -> None:
    sizes = ("--episodes", 4, "--num-envs", 2, "--eval-every", 2, "--eval-episodes", 2, "--gradient-steps", 1)
    result = json.loads(susd("downstream", kitchen, "--task", "kitchen-bip", *sizes, "--json").stdout)
    assert result["bound"]["undiscounted"] == 50
    assert result["do_nothing"] == {"discounted": 0.0, "undiscounted": 0.0}
    assert "expert" not in result
    assert result["env_steps"] == 4 * 250
    assert (kitchen / "downstream" / "bip-random-s0" / "curve.png").exists()


def test_tasks_of_the_kitchen_have_their_bound() -> None:
    assert make_task("kitchen-pot", num_envs=1).bound == 50

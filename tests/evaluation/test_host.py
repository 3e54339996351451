"""Every evaluation works in host environments, too; here in the Kitchen."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conftest import call, call_resume, call_train, checksum, metrics
from susd import load
from susd.collect import rollout_skills
from susd.envs.base import EnvSpec, HostStep, Plane, Scaling
from susd.envs.kitchen import Kitchen
from susd.evaluation import completions, control, coverage
from susd.factors import Factorization
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
        self.position = np.random.default_rng(seed).uniform(-1, 1, (NUM_ENVS, 2))
        return self._see()

    def step(self, actions: np.ndarray) -> HostStep:
        self.position = self.position + actions
        never = np.zeros(NUM_ENVS, bool)
        return HostStep(self._see(), self._see(), never, never)

    def _see(self) -> np.ndarray:
        seen: np.ndarray = self.spec.scaling.normalise(self.position).astype(np.float32)  # type: ignore[union-attr]
        return seen

    def render(self, index: int = 0, size: int = 400) -> np.ndarray:
        return np.full((size, size, 3), 40 * index, np.uint8)


SPACE = SkillSpace("factor_sphere", 2, 1)


def follow(obs: Any, skill: Any, key: jax.Array) -> jax.Array:
    return jnp.asarray(skill)


def test_skills_run_in_batches_from_equal_starts() -> None:
    skills = SPACE.sample(jax.random.key(0), 7)  # three batches of three environments, the last one not full
    found = rollout_skills(Points(), follow, skills, 5, jax.random.key(1))
    assert found.next_obs.shape == (5, 7, 2)
    np.testing.assert_array_equal(found.skill[0], skills)
    moved = Points.spec.raw(found.next_obs) - Points.spec.raw(found.obs)
    np.testing.assert_allclose(moved, np.broadcast_to(skills, moved.shape), atol=1e-5)
    again = rollout_skills(Points(), follow, -skills, 5, jax.random.key(1))
    np.testing.assert_array_equal(found.obs[0], again.obs[0])
    assert len(np.unique(found.obs[0], axis=0)) == 7


def test_coverage_in_raw_units_and_on_lines() -> None:
    raw = np.array([[0.1, 0.1], [0.1, 5.0], [9.0, 5.0], [0.1, 0.1]])
    obs = Points.spec.scaling.normalise(raw)[:, None]  # type: ignore[union-attr]
    assert np.asarray(coverage.visited_cells(Points.spec, jnp.asarray(obs))).tolist() == [3, 2]
    assert coverage.unique_positions(Points.spec, obs).tolist() == [3, 2]
    assert coverage.all_cells(Points.spec).tolist() == [2500, 50]


@pytest.mark.slow
def test_control() -> None:
    def observations(skills: Any, key: jax.Array) -> np.ndarray:
        return np.asarray(rollout_skills(Points(), follow, skills, 10, key).next_obs)

    measured = control.control_matrix(Points.spec.factorization, SPACE, observations, jax.random.key(0), pairs=24)
    matrix = np.asarray(measured.matrix)
    assert matrix[0, 1] == matrix[1, 0] == 0  # a part of the skill moves its own axis only
    assert min(matrix[0, 0], matrix[1, 1]) > 0.5


class Right(HostTask):
    """A reward where x is above zero."""

    horizon = 10

    def reward(self, step: HostStep) -> np.ndarray:
        return (self.env.position[:, 0] > 0).astype(np.float32)


def test_completions() -> None:
    tasks = [Right("right", Points()), Right("again", Points())]
    tasks[1] = Right("again", tasks[0].env)
    counts = completions.count_all(tasks, follow, SPACE, jax.random.key(0), steps=250)  # five skills in two batches
    assert counts[0] == counts[1]
    skills = np.asarray(SPACE.sample(jax.random.split(jax.random.key(0))[0], 5))
    assert abs(counts[0] - 50 * (skills[:, 0] > 0).sum()) <= 5  # after a step or two each point is on its side


@pytest.fixture(scope="module")
def kitchen(trained: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of a tiny run, to be evaluated."""
    run = tmp_path_factory.mktemp("kitchen") / "run"
    shutil.copytree(trained("kitchen", "--epochs", 4), run)
    return run


@pytest.mark.slow
def test_kitchen_resumes_bit_for_bit(kitchen: Path, tmp_path: Path) -> None:
    call_train("kitchen", tmp_path / "run", "--epochs", 2)
    call_resume(tmp_path / "run", "--epochs", 4)
    assert checksum(kitchen) == checksum(tmp_path / "run")
    assert metrics(kitchen)[2:] == metrics(tmp_path / "run")[2:]
    assert '"env_seconds"' in (kitchen / "metrics.jsonl").read_text()
    agent = load(kitchen)
    assert agent.act(np.zeros(142), np.zeros(agent.trainer.learner.method.skills.size)).shape == (4,)


@pytest.mark.slow
def test_every_evaluation_of_the_kitchen(kitchen: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from susd.evaluation import evaluate

    monkeypatch.setattr(completions, "REPETITIONS", 2)
    monkeypatch.setattr(completions.count_all, "__defaults__", (100,))
    with evaluate.loaded(kitchen) as agents:
        found = evaluate.evaluate(kitchen, "coverage", agents=agents, steps=200)["results"][0]["trained, mean actions"]
        assert set(found["per_plane"]) == {"gripper", "pot", "butter", "meatball"}
        parts = agents[0].trainer.learner.method.skills.parts
        assert len(control.measure(agents[0], pairs=2)["matrix"]) == parts > 1
        completed = evaluate.evaluate(kitchen, "completions", agents=agents)["results"][0]
        assert set(completed) >= {f"kitchen-{task}" for task in ("bip", "mip", "pos", "pot")}
        written = {path.name for path in evaluate.draw_figures(kitchen, agents=agents)}
    no_opengl = "no video" in (errors := capsys.readouterr().err) and "OpenGL" in errors
    assert written == {"learning_curves.png", "trajectories.png", "skills.mp4"} - ({"skills.mp4"} if no_opengl else set())


@pytest.mark.slow
def test_kitchen_task_over_skills(
    kitchen: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = np.zeros((16, 16, 3), np.uint8)
    monkeypatch.setattr(Kitchen, "render", lambda *_: drawn)  # drawn for real above; an episode takes half a minute
    sizes = ("--episodes", 4, "--num-envs", 2, "--eval-every", 2, "--eval-episodes", 2, "--gradient-steps", 1)
    call("downstream", kitchen, "--task", "kitchen-bip", *sizes, "--horizon", 50, "--json")
    result = json.loads(capsys.readouterr().out)
    assert result["bound"]["undiscounted"] == pytest.approx(10)
    assert result["do_nothing"] == {"discounted": 0.0, "undiscounted": 0.0}
    assert "expert" not in result
    assert result["env_steps"] == 4 * 50
    assert (kitchen / "downstream" / "bip-random-s0" / "curve.png").exists()


def test_bound_of_kitchen_tasks() -> None:
    assert make_task("kitchen-pot", num_envs=1).bound == 50

"""`susd downstream` from end to end: files, numbers, what is printed, determinism."""

import contextlib
import io
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import susd as package
from susd.cli.main import main
from susd.downstream.config import configure_downstream
from susd.downstream.train import TaskRun
from susd.envs import make
from susd.errors import UserError

Trained = Callable[..., Path]
SMALL = (
    *("--hidden", 8, "--batch-size", 8, "--gradient-steps", 2, "--eval-every", 4, "--eval-episodes", 3),
    *("--episodes", 10, "--num-envs", 1),
)
TINY: dict[str, Any] = {
    **{"hidden": 8, "phi_hidden": 8, "gradient_steps": 2, "batch_size": 8, "episodes": 2, "horizon": 10},
    **{"buffer_size": 2000, "warmup": 60, "epochs": 3},
}
CASES = {  # name -> environment, task, method, layout, steps of an episode, bound, seeds, more options
    "gunner": ("gunner", "gunner-lim", "susd", "centre", 1000, 173.2, 1, ()),
    "particles": ("multi_particle", "multi_particle-seq-easy", "susd", "1", 50, 56.2, 2, ("--seeds", 2)),
    "flat": (
        *("multi_particle", "multi_particle-fp-easy", "flat", "random", 50, 19.1, 1),
        ("--interface", "flat", "--layout", "random"),
    ),
}


@dataclass(frozen=True)
class Outcome:
    """What one command wrote and printed."""

    folder: Path
    stdout: str
    stderr: str


def command(folder: Path, *arguments: object) -> tuple[str, str]:
    """What `susd` prints on both streams, in this process and in a folder."""
    out, err = io.StringIO(), io.StringIO()
    streams = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
    with contextlib.chdir(folder), streams[0], streams[1], pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    assert ended.value.code == 0, err.getvalue()
    return out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("downstream")


@pytest.fixture(scope="module")
def outcome(root: Path, trained: Trained) -> Callable[[str], Outcome]:
    """The result of a case, computed once."""
    found: dict[str, Outcome] = {}

    def run(name: str) -> Outcome:
        env, task, method, layout, _, _, seeds, options = CASES[name]
        folder = root / name / "downstream" / f"{task.removeprefix(f'{env}-')}-{layout}-s0{'-1' * (seeds > 1)}"
        source: tuple[str, ...] = (name,)
        if method == "flat":
            folder, source = root / "runs" / f"flat-{task}-{layout}-s0", ()
        elif method == "susd":
            shutil.copytree(trained(env, "--epochs", 3), root / name)
        else:
            package.train(env, run=root / name, method=method, quiet=True, **TINY)
        typed = ("downstream", *source, "--task", task, *SMALL, *options)
        return Outcome(folder, *command(root, *typed))

    def cached(name: str) -> Outcome:
        if name not in found:
            found[name] = run(name)
        return found[name]

    return cached


def read(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    written = {"config.json", "metrics.jsonl", "curve.png", "episode.mp4", "policy", "result.json", ".lock"}
    assert {path.name for path in folder.iterdir()} == written
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    result = json.loads((folder / "result.json").read_text())
    assert json.loads((folder / "config.json").read_text()) == result["config"]
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")
    return result, rows


def comparable(result: dict[str, Any]) -> dict[str, Any]:
    """What must be equal whenever it is computed."""
    scores, sizes = ("final", "last_quarter", "bound", "expert", "do_nothing", "curve"), ("env_steps", "gradient_steps")
    return {name: result[name] for name in (*scores, *sizes, "config_hash")}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_files_and_output(outcome: Callable[[str], Outcome], root: Path, name: str) -> None:
    _, task, method, layout, steps, bound, count, _ = CASES[name]
    done = outcome(name)
    result, rows = read(done.folder)
    seeds = list(range(count))
    assert [(row["episode"], row["seed"]) for row in rows] == [(e, s) for e in (0, 4, 8, 10) for s in seeds]
    assert rows[-1]["env_steps"] == result["env_steps"] == 10 * steps
    assert rows[-1]["gradient_steps"] == result["gradient_steps"] == 20  # the warm-up is a tenth of ten episodes
    assert {"critic_loss", "entropy", "alpha", "training_return"} <= set(rows[-1])
    assert "critic_loss" not in rows[0]
    assert result["curve"]["episode"] == [0, 4, 8, 10]
    for kind in ("discounted", "undiscounted"):
        curve = np.array(result["curve"][kind])
        assert curve.tolist() == [[row[kind] for row in rows if row["seed"] == seed] for seed in seeds]
        assert result["final"][kind] == curve[:, -1].tolist()
        np.testing.assert_allclose(result["last_quarter"][kind], curve[:, 2:].mean(1))
        assert np.all(curve <= result["bound"][kind])
        assert result["do_nothing"][kind] < result["expert"][kind] <= result["bound"][kind]
    solvable = "seq" in task
    assert all(("success" in part) == solvable for part in (rows[0], result["final"], result["last_quarter"]))
    assert ("success" in done.stdout) == solvable
    if solvable:
        shares = [[row["success"] for row in rows if row["seed"] == seed] for seed in seeds]
        assert result["curve"]["success"] == shares
        assert {share for curve in shares for share in curve} <= {0.0, 1.0}  # of one test episode
    assert result["bound"]["discounted"] == pytest.approx(bound, abs=0.05)
    assert result["expert"]["discounted"] > 0.8 * bound
    assert (result["task"], result["method"], result["layout"], result["seeds"]) == (task, method, layout, seeds)
    assert result["test_episodes"] == (3 if name == "flat" else 1)
    assert {"versions", "commit", "command", "config_hash"} <= set(result["meta"])
    assert result["meta"]["config_hash"] == result["config_hash"]
    source, which = "no skills", "seeds 0 to 1" if count > 1 else "seed 0"
    if method == "flat":
        assert result["skills"] is None
    else:
        assert (result["skills"]["config"]["method"], result["skills"]["epoch"]) == (method, 3)
        assert result["skills"]["config"]["prior"] != "one_hot"
        source = f"skills of {name} ({method}, seed 0, epoch 3)"
    for part in ("bound", "scripted expert", "do nothing", "learned", f"{result['expert']['discounted']:.2f}"):
        assert part in done.stdout
    assert str(done.folder.relative_to(root) / "curve.png") in done.stdout
    how = f"{'flat' if method == 'flat' else 'skill'} actions, joint policy"
    assert (result["interface"], result["policy"]) == (how.split()[0], "joint")
    for part in (f"{task}, layout {layout}, {source}, {how}, {which}", "10/10", "left", "episodes/s"):
        assert part in done.stderr


@pytest.mark.slow
def test_finished_and_interrupted_results(outcome: Callable[[str], Outcome], root: Path) -> None:
    """A finished result is kept; an interrupted one is redone with equal numbers, also for a single seed."""
    folder = outcome("particles").folder
    result = read(folder)[0]
    typed = ("downstream", "particles", "--task", "seq-easy", *SMALL)
    with pytest.raises(UserError, match=r"already holds a finished result; replace it with --force"):
        package.downstream(root / "particles", "seq-easy", seeds=2)
    (folder / "result.json").unlink()
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"episode": 4')
    again, _ = command(root, *typed, "--seeds", 2, "--json")
    assert comparable(json.loads(again)) == comparable(read(folder)[0]) == comparable(result)
    assert command(root, *typed, "--seed", 1, "--quiet", "--out", "alone") == ("alone\n", "")
    assert read(root / "alone")[0]["curve"]["discounted"] == result["curve"]["discounted"][1:]


@pytest.mark.slow
def test_skills_are_those_of_the_agent(trained: Trained) -> None:
    """Mean actions of the run's last checkpoint, for the projected high-level action."""
    run = trained("gunner", "--epochs", 3)
    built = TaskRun.build(configure_downstream(run, "lim", layout=3))
    agent = package.load(run)
    obs, high_action = np.linspace(0, 1, 18, dtype=np.float32), np.linspace(-0.9, 0.8, 6, dtype=np.float32)
    skill = agent.trainer.learner.method.skills.project(jnp.asarray(high_action))
    assert agent.trainer.learner.method.skills.prior == "factor_sphere"
    action = built.controller.interface.act(built.frozen, jnp.asarray(obs), jnp.asarray(high_action))
    np.testing.assert_allclose(action, agent.act(obs, skill), rtol=1e-5, atol=1e-6)
    assert np.abs(action).max() > 1e-4


def test_flat_controller_has_the_same_budget() -> None:
    flat = TaskRun.build(configure_downstream(None, "seq-easy", interface="flat")).controller
    assert flat.sac.discount**5 == pytest.approx(0.99)
    assert (flat.sac.inputs, flat.sac.actions, flat.length) == (81, 20, 50)
    assert (flat.warmup, flat.capacity, flat.gradient_steps, flat.num_envs) == (999, 10_000, 2, 20)
    gunner = TaskRun.build(configure_downstream(None, "lim", interface="flat", episodes=5000, layout="3"))
    assert gunner.controller.capacity == 1000  # a million steps
    assert gunner.controller.warmup == 99
    np.testing.assert_allclose(gunner.start.agent, 0.8 * 4.99, rtol=1e-6)


@pytest.mark.parametrize(
    ("task", "layout", "count"), [("seq-easy", "22", 1), ("seq-easy", "random", 100), ("fp-easy", "1", 100)]
)
def test_start_and_test_episodes(task: str, layout: str, count: int) -> None:
    run = TaskRun.build(configure_downstream(None, task, interface="flat", layout=layout))
    assert len(run.tests) == count
    if layout == "random":
        assert run.start is None
    else:
        expected = make("multi_particle", layout_seed=int(layout)).reset(jax.random.key(0))
        np.testing.assert_array_equal(run.start.position, expected.position)

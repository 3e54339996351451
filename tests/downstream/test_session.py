"""Interrupted tasks: a resumed one equals an uninterrupted one bit for bit, with every high-level policy."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import susd as package
from conftest import call, refused
from susd.downstream import session
from susd.downstream.config import configure_downstream
from susd.downstream.session import CHECKPOINTS, TaskSession
from susd.downstream.train import TaskRun
from susd.errors import UserError
from susd.runs import checkpoint
from susd.training.session import Interrupted

Trained = Callable[..., Path]
SIZES: dict[str, Any] = {
    **{
        "hidden": 8,
        "batch_size": 8,
        "gradient_steps": 2,
        "episodes": 12,
        "eval_every": 4,
        "num_envs": 2,
        "eval_episodes": 2,
    },
    **{"layout": "random", "warmup": 20},
}
WAYS = {
    "flat": {"interface": "flat"},
    "joint": {"seeds": 2},
    "factored": {"interface": "goal", "policy": "factored", "explore": 0.3, "scale_view": True, "critic_norm": "layer"},
    "entity": {"interface": "goal", "policy": "entity"},
}


@pytest.fixture
def stops_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A signal arrives while the episode of that number is running."""
    numbers: list[int] = []
    episodes = TaskSession.episodes

    def run(self: TaskSession) -> Any:
        infos = episodes(self)
        self.stop.extend("SIGTERM" for number in numbers if self.done >= number)
        return infos

    monkeypatch.setattr(session, "SLICE", 2)
    monkeypatch.setattr(TaskSession, "episodes", run)
    return numbers


def build(run: Path, way: str) -> TaskRun:
    source = None if way == "flat" else run
    return TaskRun.build(configure_downstream(source, "multi_particle-seq-easy", **SIZES, **WAYS[way]))


def train(built: TaskRun, folder: Path) -> tuple[Any, ...]:
    """All that is equal whenever it is computed."""
    folder.mkdir(exist_ok=True)
    done = TaskSession.start(built, folder, True, [])
    done.train()
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert rows == [row for at in done.rows for row in at]
    for row in rows:
        del row["seconds"]
    return rows, checkpoint.digest(done.states)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_resumed_equals_uninterrupted(way: str, trained: Trained, tmp_path: Path, stops_at: list[int]) -> None:
    built = build(trained("multi_particle", "--epochs", 3), way)
    whole = train(built, tmp_path / "whole")
    stops_at.append(6)  # between two evaluations, after the warm-up
    with pytest.raises(Interrupted, match="stopped by SIGTERM after episode 6; saved"):
        train(built, tmp_path / "parts")
    stops_at.clear()
    with open(tmp_path / "parts" / "metrics.jsonl", "a") as file:
        file.write('{"episode": 4')
    assert train(built, tmp_path / "parts") == whole


@pytest.mark.slow
def test_command(tmp_path: Path, stops_at: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code of an interrupted task; resumed, it has the files of any other result."""
    monkeypatch.chdir(tmp_path)
    options = [word for name, value in SIZES.items() for word in (f"--{name.replace('_', '-')}", value)]
    typed = ("downstream", "--task", "multi_particle-seq-easy", "--interface", "flat", "--out", "out", "--quiet", *options)
    stops_at.append(6)
    call(*typed, code=130)
    assert not (tmp_path / "out" / "result.json").exists()
    stops_at.clear()
    call(*typed, "--resume")
    assert json.loads((tmp_path / "out" / "result.json").read_text())["curve"]["episode"] == [0, 4, 8, 12]
    assert not (tmp_path / "out" / CHECKPOINTS).exists()


def test_checkpoints_follow_evaluations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[int] = []
    monkeypatch.setattr(session, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(TaskSession, "save", lambda self: saved.append(self.done))
    train(build(tmp_path, "flat"), tmp_path / "out")
    assert saved == [4, 8]


def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    typed = ("downstream", "--task", "multi_particle-seq-easy", "--interface", "flat", "--out", "out", "--resume")
    assert refused(capsys, *typed) == "out holds no task that was started; start it without --resume"
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "config.json").write_text('{"task": "multi_particle-seq-hard"}')
    message = "out was started with task = 'multi_particle-seq-hard'; it cannot be resumed with 'multi_particle-seq-easy'"
    assert refused(capsys, *typed) == message
    (tmp_path / "out" / "config.json").write_text("[]")
    with pytest.raises(UserError, match="it must hold an object"):
        package.downstream(None, "multi_particle-seq-easy", interface="flat", out="out", resume=True)

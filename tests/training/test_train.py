"""The loop: a stopped and resumed run equals an uninterrupted one, and errors are reported and leave a good checkpoint."""

import errno
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import TINY, Command, call_resume, call_train, checksum, metrics, refused
from susd.runs import checkpoint
from susd.runs.signals import stop_signals
from susd.runs.status import status

Trained = Callable[..., Path]
FIRST, ALL = 25, 150  # epochs: long enough to be stopped in between
LONG = ("--eval-every", FIRST, "--epochs")
SHORT = ("--epochs", 8, "--eval-every", 3, "--checkpoint-every", 2, "--keep-checkpoints", 4)


def wait_for_epoch(run: Path, child: subprocess.Popen[str], epoch: int = 1) -> None:
    """Until the child has written the metrics of this epoch."""
    while not any(f'"epoch": {epoch},' in line for line in lines(run)):
        assert child.poll() is None, child.communicate()
        time.sleep(0.005)


def lines(run: Path) -> list[str]:
    return (run / "metrics.jsonl").read_text().splitlines() if (run / "metrics.jsonl").exists() else []


def epochs(run: Path) -> list[int]:
    return [row["epoch"] for row in metrics(run)]


# Resume equals uninterrupted.


@pytest.mark.slow  # tests/methods/test_registry.py has all methods
@pytest.mark.parametrize(
    ("env", "seeds", "every", "number"), [("gunner", 1, 7, signal.SIGINT), ("multi_particle", 2, 1000, signal.SIGTERM)]
)
def test_stopped_and_resumed_equals_uninterrupted(
    susd: Command, trained: Trained, tmp_path: Path, env: str, seeds: int, every: int, number: signal.Signals
) -> None:
    whole = trained(env, "--seeds", seeds, *LONG, ALL)
    run = tmp_path / "a run"  # a name that a shell must quote
    call_train(env, run, "--seeds", seeds, *LONG, FIRST, "--checkpoint-every", every)
    assert epochs(run)[-1] == FIRST
    assert checksum(run) != checksum(whole)
    with susd.start("train", "--run", run, "--resume", "--epochs", ALL, "--tensorboard") as child:
        wait_for_epoch(run, child, FIRST + 1)
        child.send_signal(number)
        _, errors = child.communicate(timeout=120)
    assert child.returncode == 130, errors
    assert "Traceback" not in errors
    stopped = epochs(run)[-1]
    assert FIRST < stopped < ALL
    command = f"susd train --run '{run}' --resume"
    last = f"susd: stopped by {number.name} after epoch {stopped}; saved. Resume with: {command}"
    assert errors.splitlines()[-1] == last
    assert checkpoint.epoch_of(checkpoint.checkpoints(run / "checkpoints")[0]) == stopped
    (events,) = (run / "tensorboard").iterdir()
    assert events.read_bytes().count(b"env_steps") == stopped - FIRST  # written although the run was stopped
    call_resume(run, "--epochs", ALL)
    assert checksum(run) == checksum(whole)
    assert metrics(run) == metrics(whole)
    assert epochs(run) == [epoch for epoch in range(1, ALL + 1) for _ in range(seeds)]
    assert {row["seed"] for row in metrics(run)} == set(range(seeds))


def test_second_ctrl_c_ends_at_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    before = signal.getsignal(signal.SIGINT)
    with stop_signals("this epoch") as stop:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert stop == ["SIGINT", "SIGINT"]
        now += 2.0
        signal.raise_signal(signal.SIGTERM)
        assert stop[-1] == "SIGTERM"
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert capsys.readouterr().err == "stopping after this epoch ..\n"
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.slow
def test_ctrl_c_while_compiling(susd: Command, trained: Trained, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with susd.start("train", "gunner", "--run", run, *TINY, *SHORT) as child:
        assert child.stderr is not None
        while "compiling" not in (line := child.stderr.readline()):
            assert line, "the child ended before compiling"
        child.send_signal(signal.SIGINT)
        errors = child.stderr.read()
        child.wait(timeout=120)
    assert child.returncode == 130, errors
    assert "Traceback" not in errors
    assert "after epoch 0; saved. Resume with: susd train --run" in errors.splitlines()[-1]
    call_resume(run)
    assert checksum(run) == checksum(trained("gunner", *SHORT))
    assert metrics(run) == metrics(trained("gunner", *SHORT))


@pytest.mark.slow
def test_second_process_is_refused(susd: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    arguments = ("--epochs", 10**6, "--eval-every", 10**6, "--checkpoint-every", 10**6)
    with susd.start("train", "gunner", "--run", run, *TINY, *arguments) as child:
        try:
            wait_for_epoch(run, child)
            config = (run / "config.json").read_bytes()
            error = refused(capsys, "train", "--run", run, "--resume", "--epochs", 2 * 10**6)
            assert error == f"run folder {run} is in use by process {child.pid}; wait for it to end or stop it"
            assert "already holds a run" in refused(capsys, "train", "gunner", "--run", run)
            assert (run / "config.json").read_bytes() == config
            assert child.poll() is None
        finally:
            child.kill()


def contents(run: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != ".lock"}


def test_finished_run_is_not_changed(trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = shutil.copytree(trained("gunner", *SHORT), tmp_path / "run")
    before = contents(run)
    call_resume(run)
    assert f"{run} is finished: 8 of 8 epochs" in capsys.readouterr().err
    assert contents(run) == before


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--epochs", 7), "--epochs is 7, but {run} is already at epoch 8"),
        (("--hidden", 16), "{run} was started with hidden = 8; it cannot be resumed with 16"),
        (("--seed", 1), "{run} was started with seed = 0; it cannot be resumed with 1"),
        (("multi_particle",), "{run} was started with env = 'gunner'; it cannot be resumed with 'multi_particle'"),
        (
            ("--env-option", "start=1"),
            "{run} was started with env_options = {{}}; it cannot be resumed with {{'start': 1}}",
        ),
    ],
)
def test_refused_changes_of_a_resumed_run(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[object, ...], expected: str
) -> None:
    run = shutil.copytree(trained("gunner", *SHORT), tmp_path / "run")
    before = contents(run)
    assert refused(capsys, "train", "--run", run, "--resume", "--quiet", *arguments) == expected.format(run=run)
    assert contents(run) == before


def test_epochs_of_checkpoints_and_metrics(trained: Trained) -> None:
    run = trained("gunner", *SHORT)
    assert [checkpoint.epoch_of(path) for path in checkpoint.checkpoints(run / "checkpoints")] == [8, 6, 4, 2]
    assert [row["epoch"] for row in metrics(run) if "coverage_average" in row] == [3, 6, 8]
    learned = [row["epoch"] for row in metrics(run) if "critic_loss" in row]
    assert learned == [3, 4, 5, 6, 7, 8]  # 60 transitions of warm-up, 20 each epoch
    assert [row["gradient_steps"] for row in metrics(run)] == [0, 0, 2, 4, 6, 8, 10, 12]
    assert [row["env_steps"] for row in metrics(run)] == [20 * epoch for epoch in range(1, 9)]


# Damage.


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def overwrite(path: Path) -> None:
    path.write_text("not a checkpoint")


@pytest.mark.slow
def test_damaged_checkpoints_are_skipped(trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = trained("gunner", *SHORT)
    run = shutil.copytree(whole, tmp_path / "run")
    paths = checkpoint.checkpoints(run / "checkpoints")[:3]
    for path, damage in zip(paths, (flip, cut, overwrite), strict=True):
        damage(path)
    found = status(run)
    assert (found["epoch"], found["checkpoint"]) == (2, str(run / "checkpoints" / "step-00000002.ckpt"))
    capsys.readouterr()
    call_resume(run)
    skipped = [line for line in capsys.readouterr().err.splitlines() if line.startswith("skipped: ")]
    for messages in (skipped, found["skipped"]):
        assert len(messages) == 3
        assert all(str(path) in text for text, path in zip(messages, paths, strict=True))
    assert checksum(run) == checksum(whole)
    assert metrics(run) == metrics(whole)


def test_all_checkpoints_damaged(trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = shutil.copytree(trained("gunner", *SHORT), tmp_path / "run")
    paths = checkpoint.checkpoints(run / "checkpoints")
    for path, damage in zip(paths, (flip, cut, overwrite, cut), strict=True):
        damage(path)
    before = (run / "metrics.jsonl").read_bytes()
    call_resume(run, code=2)
    *skipped, error = capsys.readouterr().err.splitlines()
    for line, path in zip(skipped, paths, strict=True):
        assert line.startswith("skipped: ")
        assert str(path) in line
    assert error.startswith(f"susd: error: no usable checkpoint in {run / 'checkpoints'}, all 4 are damaged")
    assert (run / "metrics.jsonl").read_bytes() == before  # so that the rows are there if the file can be repaired


def test_checkpoint_of_another_config(trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = shutil.copytree(trained("gunner", *SHORT), tmp_path / "run")
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"learning_rate": 0.5}))
    error = refused(capsys, "train", "--run", run, "--resume", "--epochs", 10, "--quiet")
    assert "not the config that step-00000008.ckpt was saved with: learning_rate is 0.5, but was 0.0005" in error
    (run / "config.json").write_text(json.dumps(config | {"hidden": 9}))
    assert "was saved with: hidden is 9, but was 8; restore the file" in refused(capsys, "evaluate", run, "coverage")


# Errors while training.


@pytest.mark.slow
def test_non_finite_values_stop_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    call_train("gunner", run, "--learning-rate", "1e9", "--epochs", 9, "--checkpoint-every", 1, code=3)
    last = capsys.readouterr().err.splitlines()[-1]
    good = checkpoint.checkpoints(run / "checkpoints")[0]
    assert "became non-finite in epoch" in last
    assert f"the last good checkpoint is {good}" in last
    assert checkpoint.epoch_of(good) in (2, 3)  # the third epoch is the first that learns
    assert checksum(run)
    rows = metrics(run)
    assert not any(value in ("nan", "inf", "-inf") for row in rows for value in row.values())


@pytest.mark.slow
def test_full_disk_while_training(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(trained("gunner", *SHORT), tmp_path / "run")
    fsync = os.fsync

    def full(descriptor: int) -> None:
        if ".ckpt" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    call_resume(run, "--epochs", 20, code=2)
    reason = f"susd: error: cannot write {run / 'checkpoints' / 'step-00000010.ckpt'}: the disk is full"
    assert capsys.readouterr().err.splitlines()[-1].startswith(reason)
    assert checksum(run) == checksum(trained("gunner", *SHORT))  # the old checkpoint is unchanged
    assert not list((run / "checkpoints").glob(".*"))


def test_signals_in_other_threads_are_ignored() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen: list[Any] = []

    def body() -> None:
        with stop_signals("this epoch") as stop:
            seen.extend([list(stop), signal.getsignal(signal.SIGINT)])

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert seen == [[], before]

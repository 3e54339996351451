"""The loop: a run that was stopped and resumed is the run that was not, and whatever goes wrong is said and survived."""

import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from conftest import TINY, Command, checksum, metrics
from susd.cli.main import main
from susd.cli.tables import show
from susd.runs import checkpoint
from susd.training.train import _stop_signals

Trained = Callable[..., Path]
# Environment, seeds and the method if it is another than SUSD; tests/test_methods.py has them all, in one process.
KINDS = [("gunner", 1, ""), ("gunner", 2, ""), ("multi_particle", 1, "csd"), ("multi_particle", 2, "")]
FIRST, ALL = 50, 300  # epochs: long enough to be stopped on the way
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


def message(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """What a command that is refused prints: one line, and the exit code 2."""
    with pytest.raises(SystemExit) as exited:
        main([str(argument) for argument in arguments])
    assert exited.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("susd: error: ")
    return error


# Resume equals uninterrupted.


@pytest.fixture(scope="module")
def whole(trained: Trained) -> Callable[[str, int, str], Path]:
    """The uninterrupted runs; they compile for long, so two are made at a time."""

    def train(kind: tuple[str, int, str]) -> Path:
        env, seeds, method = kind
        return trained(env, "--seeds", seeds, *LONG, ALL, *by(method))

    with ThreadPoolExecutor(2) as pool:
        runs = dict(zip(KINDS, pool.map(train, KINDS), strict=True))
    return lambda env, seeds, method: runs[env, seeds, method]


def by(method: str) -> tuple[str, ...]:
    """The option that chooses a method."""
    return ("--method", method) if method else ()


@pytest.mark.parametrize(
    ("env", "seeds", "method", "every", "number"),
    [
        (*KINDS[0], 7, signal.SIGINT),
        (*KINDS[1], 1000, None),
        (*KINDS[2], 1000, signal.SIGTERM),
        (*KINDS[3], 20, signal.SIGINT),
    ],
)
def test_a_run_in_pieces_equals_a_run_at_once(
    susd: Command,
    whole: Callable[[str, int, str], Path],
    tmp_path: Path,
    env: str,
    seeds: int,
    method: str,
    every: int,
    number: signal.Signals | None,
) -> None:
    run = tmp_path / "a run"  # a name that a shell must quote
    susd.train(env, run, "--seeds", seeds, *LONG, FIRST, *by(method), "--checkpoint-every", every)
    assert epochs(run)[-1] == FIRST
    assert checksum(run) != checksum(whole(env, seeds, method))
    if number is not None:
        with susd.start("train", "--run", run, "--resume", "--epochs", ALL, "--tensorboard") as child:
            wait_for_epoch(run, child, FIRST + 1)
            child.send_signal(number)
            _, errors = child.communicate(timeout=120)
        assert child.returncode == 130, errors
        assert "Traceback" not in errors
        stopped = epochs(run)[-1]
        assert FIRST < stopped < ALL
        last = f"susd: stopped by {number.name} after epoch {stopped}; saved. Go on with: susd train --run '{run}' --resume"
        assert errors.splitlines()[-1] == last
        assert checkpoint.epoch_of(checkpoint.checkpoints(run / "checkpoints")[0]) == stopped
        (events,) = (run / "tensorboard").iterdir()
        assert events.read_bytes().count(b"env_steps") == stopped - FIRST  # written out although the run was stopped
    susd.resume(run, "--epochs", ALL)
    assert checksum(run) == checksum(whole(env, seeds, method))
    assert metrics(run) == metrics(whole(env, seeds, method))
    assert epochs(run) == [epoch for epoch in range(1, ALL + 1) for _ in range(seeds)]
    assert {row["seed"] for row in metrics(run)} == set(range(seeds))


def test_an_echo_of_ctrl_c_is_none_but_a_second_one_ends_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    before = signal.getsignal(signal.SIGINT)
    with _stop_signals() as stop:
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


def test_ctrl_c_while_compiling_leaves_a_run_that_can_be_resumed(susd: Command, trained: Trained, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with susd.start("train", "gunner", "--run", run, *TINY, *SHORT) as child:
        assert child.stderr is not None
        while "compiling" not in (line := child.stderr.readline()):
            assert line, "it ended before it compiled"
        child.send_signal(signal.SIGINT)
        errors = child.stderr.read()
        child.wait(timeout=120)
    assert child.returncode == 130, errors
    assert "Traceback" not in errors
    assert "after epoch 0; saved. Go on with: susd train --run" in errors.splitlines()[-1]
    susd.resume(run)
    assert checksum(run) == checksum(trained("gunner", *SHORT))
    assert metrics(run) == metrics(trained("gunner", *SHORT))


def test_a_second_process_is_refused_and_changes_nothing(
    susd: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    arguments = ("--epochs", 10**6, "--eval-every", 10**6, "--checkpoint-every", 10**6)
    with susd.start("train", "gunner", "--run", run, *TINY, *arguments) as child:
        try:
            wait_for_epoch(run, child)
            config = (run / "config.json").read_bytes()
            error = message(capsys, "train", "--run", run, "--resume", "--epochs", 2 * 10**6)
            assert (
                error == f"susd: error: run folder {run} is in use by process {child.pid}; wait for it to end or stop it\n"
            )
            assert "already holds a run" in message(capsys, "train", "gunner", "--run", run)
            assert (run / "config.json").read_bytes() == config
            assert child.poll() is None
        finally:
            child.kill()


def contents(run: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != ".lock"}


def test_a_finished_run_is_left_as_it_is(trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = shutil.copytree(trained("gunner", *SHORT), tmp_path / "run")
    before = contents(run)
    with pytest.raises(SystemExit) as exited:
        main(["train", "--run", str(run), "--resume", "--no-eval", "--quiet"])
    assert exited.value.code == 0
    assert f"{run} is finished: 8 of 8 epochs" in capsys.readouterr().err
    assert contents(run) == before


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--epochs", 7), "--epochs is 7, but {run} has 8 epochs behind it already"),
        (("--hidden", 16), "{run} was started with hidden = 8; it cannot be resumed with 16"),
        (("--seed", 1), "{run} was started with seed = 0; it cannot be resumed with 1"),
        (("multi_particle",), "{run} was started with env = 'gunner'; it cannot be resumed with 'multi_particle'"),
        (
            ("--env-option", "start=1"),
            "{run} was started with env_options = {{}}; it cannot be resumed with {{'start': 1}}",
        ),
    ],
)
def test_only_a_longer_run_can_be_resumed(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[object, ...], expected: str
) -> None:
    run = shutil.copytree(trained("gunner", *SHORT), tmp_path / "run")
    before = contents(run)
    error = message(capsys, "train", "--run", run, "--resume", "--quiet", *arguments)
    assert error == f"susd: error: {expected.format(run=run)}\n"
    assert contents(run) == before


def test_the_last_checkpoints_are_kept_at_the_epochs_asked_for(trained: Trained) -> None:
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


def test_damaged_checkpoints_are_named_and_the_one_before_used(susd: Command, trained: Trained, tmp_path: Path) -> None:
    whole = trained("gunner", *SHORT)
    run = shutil.copytree(whole, tmp_path / "run")
    paths = checkpoint.checkpoints(run / "checkpoints")[:3]
    for path, damage in zip(paths, (flip, cut, overwrite), strict=True):
        damage(path)
    status = show(run)
    assert (status["epoch"], status["checkpoint"]) == (2, str(run / "checkpoints" / "step-00000002.ckpt"))
    skipped = [line for line in susd.resume(run).stderr.splitlines() if line.startswith("skipped: ")]
    for told in (skipped, status["skipped"]):
        assert len(told) == 3
        assert all(str(path) in text for text, path in zip(told, paths, strict=True))
    assert checksum(run) == checksum(whole)
    assert metrics(run) == metrics(whole)


def test_nothing_but_damaged_checkpoints_is_an_error(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(trained("gunner", *SHORT), tmp_path / "run")
    paths = checkpoint.checkpoints(run / "checkpoints")
    for path, damage in zip(paths, (flip, cut, overwrite, cut), strict=True):
        damage(path)
    before = (run / "metrics.jsonl").read_bytes()
    with pytest.raises(SystemExit) as exited:
        main(["train", "--run", str(run), "--resume", "--quiet"])
    assert exited.value.code == 2
    *skipped, error = capsys.readouterr().err.splitlines()
    for line, path in zip(skipped, paths, strict=True):
        assert line.startswith("skipped: ")
        assert str(path) in line
    assert error.startswith(f"susd: error: no usable checkpoint in {run / 'checkpoints'}, all 4 are damaged")
    assert (run / "metrics.jsonl").read_bytes() == before  # the rows are still there when someone repairs the file


def test_a_checkpoint_of_another_config_is_refused(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(trained("gunner", *SHORT), tmp_path / "run")
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"learning_rate": 0.5}))  # the same shapes, so only the hash tells
    error = message(capsys, "train", "--run", run, "--resume", "--epochs", 10, "--quiet")
    assert str(run / "checkpoints" / "step-00000008.ckpt") in error
    assert "was made by another config" in error
    (run / "config.json").write_text(json.dumps(config | {"hidden": 9}))
    assert "step-00000008.ckpt was made by another config" in message(capsys, "evaluate", run, "coverage")


# Things that go wrong on the way.


def test_what_is_not_finite_stops_the_run_and_keeps_the_last_good_checkpoint(susd: Command, tmp_path: Path) -> None:
    run = tmp_path / "run"
    result = susd.train("gunner", run, "--learning-rate", "1e30", "--epochs", 9, "--checkpoint-every", 1, code=3)
    last = result.stderr.splitlines()[-1]
    good = checkpoint.checkpoints(run / "checkpoints")[0]
    assert "became non-finite in epoch" in last
    assert f"the last good checkpoint is {good}" in last
    assert checkpoint.epoch_of(good) in (2, 3)  # the third epoch is the first that learns
    assert checksum(run)
    rows = metrics(run)
    assert not any(value in ("nan", "inf", "-inf") for row in rows for value in row.values())


FULL = """
import errno, os, sys
from susd.runs import checkpoint
from susd.cli.main import main


def full(_):
    raise OSError(errno.ENOSPC, "No space left on device")


checkpoint.os = type("Full", (), {**vars(os), "fsync": staticmethod(full)})
main(sys.argv[1:])
"""


def test_a_disk_that_fills_up_ends_with_a_sentence(susd: Command, trained: Trained, tmp_path: Path) -> None:
    run = shutil.copytree(trained("gunner", *SHORT), tmp_path / "run")
    arguments = [sys.executable, "-c", FULL, "train", "--run", str(run), "--resume", "--epochs", "20"]
    child = subprocess.run(arguments, env=susd.environment, capture_output=True, text=True, check=False)
    assert child.returncode == 2, child.stderr
    assert "Traceback" not in child.stderr
    reason = f"susd: error: cannot write checkpoint {run / 'checkpoints' / 'step-00000010.ckpt'}: the disk is full"
    assert child.stderr.splitlines()[-1].startswith(reason)
    assert checksum(run) == checksum(trained("gunner", *SHORT))  # what was there is still there
    assert not list((run / "checkpoints").glob(".*"))


def test_training_from_a_thread_leaves_signals_alone() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen: list[Any] = []

    def body() -> None:
        with _stop_signals() as stop:
            seen.extend([list(stop), signal.getsignal(signal.SIGINT)])

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert seen == [[], before]

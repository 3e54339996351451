"""kill -9 at any moment: the resumed run ends exactly like the one that was never killed."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import TINY, Command, call, call_train, checksum, metrics
from susd.errors import UserError
from susd.runs import checkpoint
from susd.runs.folder import RunFolder

EPOCHS, EVERY = 300, 3
ARGUMENTS = ("--epochs", EPOCHS, "--checkpoint-every", EVERY, "--eval-every", 150)


def command(run: Path) -> list[object]:
    """The command that starts or resumes a run."""
    if (run / "config.json").exists():
        return ["train", "--run", run, "--resume", "--no-eval"]
    return ["train", "gunner", "--run", run, *TINY, *ARGUMENTS, "--no-eval"]


def rows(run: Path) -> int:
    return (run / "metrics.jsonl").read_bytes().count(b"\n") if (run / "metrics.jsonl").exists() else 0


def check_whole(run: Path, whole: Path) -> None:
    """Equal to the uninterrupted run, without any other file."""
    assert checksum(run) == checksum(whole)
    assert metrics(run) == metrics(whole)
    assert [row["epoch"] for row in metrics(run)] == list(range(1, EPOCHS + 1))
    assert {path.name for path in run.rglob("*")} == {path.name for path in whole.rglob("*")}


@pytest.fixture(scope="module")
def whole(trained: Callable[..., Path]) -> Path:
    return trained("gunner", *ARGUMENTS)


DIE = """
import os, signal, sys
import susd.runs.folder
from susd.cli.main import main

moment, count = sys.argv[1], int(sys.argv[2])
replace, append = os.replace, susd.runs.folder.RunFolder.append_metrics


def die():
    global count
    count -= 1
    if count <= 0:
        os.kill(os.getpid(), signal.SIGKILL)


def dying_replace(source, target):
    wanted = str(target).endswith(".ckpt")
    if wanted and moment == "before the rename":
        die()
    replace(source, target)
    if wanted and moment == "after the rename":
        die()


def dying_append(folder, rows):
    append(folder, rows)
    if moment == "in a row of metrics":
        content = folder.metrics.read_bytes()
        if count == 1:
            folder.metrics.write_bytes(content[:-20])
        die()


os.replace, susd.runs.folder.RunFolder.append_metrics = dying_replace, dying_append
main(sys.argv[3:])
"""


def kill_while_writing(run: Path, susd: Command, moment: str, count: int) -> None:
    arguments = [sys.executable, "-c", DIE, moment, str(count), *map(str, command(run))]
    child = subprocess.run(arguments, env=susd.environment, capture_output=True, text=True, check=False)
    assert child.returncode == -signal.SIGKILL, child.stderr
    left = list((run / "checkpoints").glob(f".step-{2 * EVERY:08d}.ckpt.*.tmp"))
    assert len(left) == (moment == "before the rename")


def kill_at_random(run: Path, susd: Command, moment: str, dice: random.Random) -> bool:
    """While the command starts, or a little after it has written rows; False if it has ended before."""
    before = rows(run)
    with susd.start(*command(run), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        if moment == "start":
            time.sleep(dice.uniform(0.1, 3.0))
        else:  # a resumed run may first drop rows
            while child.poll() is None and rows(run) == before:
                time.sleep(0.002)
            time.sleep(dice.uniform(0.0, 0.15))
        child.kill()
    return child.returncode == -signal.SIGKILL and rows(run) < EPOCHS


@pytest.mark.slow
def test_killed_again_and_again(susd: Command, whole: Path, tmp_path: Path) -> None:
    """At the worst moments, then at random ones."""
    run, dice = tmp_path / "run", random.Random(0)
    for moment, count in (("before the rename", 3), ("in a row of metrics", 5), ("after the rename", 2)):
        kill_while_writing(run, susd, moment, count)
    assert 0 < rows(run) < 10 * EVERY
    kills = 0
    for moment in ("start", "train", "train"):
        kills += kill_at_random(run, susd, moment, dice)
        for path in checkpoint.checkpoints(run / "checkpoints"):
            checkpoint.digest_of(path)  # every file with the name of a checkpoint is complete
    assert kills >= 2
    call(*command(run), "--quiet")
    check_whole(run, whole)


@pytest.mark.slow
def test_killed_before_the_folder_is_complete(susd: Command, tmp_path: Path) -> None:
    run = tmp_path / "run"
    code = (
        "import os, signal, susd.runs.folder; susd.runs.folder.write_json = lambda *_: os.kill(os.getpid(), signal.SIGKILL)"
    )
    code += "\nimport sys; from susd.cli.main import main; main(sys.argv[1:])"
    arguments = ["train", "gunner", "--run", str(run), *TINY, "--epochs", "2"]
    child = subprocess.run([sys.executable, "-c", code, *arguments], env=susd.environment, check=False)
    assert child.returncode == -signal.SIGKILL
    assert run.exists()
    with pytest.raises(UserError, match=r"has no config\.json"):
        RunFolder.open(run)
    call_train("gunner", run, "--epochs", 2)
    assert rows(run) == 2
    assert not [path for path in run.rglob("*") if path.name.endswith(".tmp")]
    assert os.path.getsize(run / "config.json") > 0

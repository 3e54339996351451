"""The command line for a new user: mistakes are answered with one sentence, and commands do what their help says."""

import json
import os
import pty
import re
import resource
import shutil
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import susd.training.train
from conftest import TINY, Command, call, checksum, metrics, refused

GOLDEN = Path(__file__).parent.parent / "golden"
Trained = Callable[..., Path]


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory that must stay empty, in which no training starts."""
    monkeypatch.setattr(susd.training.train.Session, "start", lambda *_: pytest.fail("the training has started"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


# Mistakes.

MISTAKES: dict[str, tuple[str, ...]] = {  # what is typed after `susd train`, and what the answer must contain
    "": ("name an environment", "gunner, multi_particle"),
    "maze": ("'maze'", "gunner, multi_particle"),
    "gunner extra": ("extra",),
    "gunner --hiden 3": ("--hiden",),
    "gunner --method metraa": ("'metraa'", "susd"),
    "gunner --preset fast": ("'fast'", "paper, quick"),
    "gunner --prior cube": ("--prior", "'cube'", "sphere, factor_sphere, factor_ball, gaussian"),
    "gunner --precision float8": ("--precision", "'float8'", "float32, default, bfloat16"),
    "gunner --env-option start": ("'start'", "NAME=VALUE"),
    "gunner --env-option start=9": ("'start'", "9", "centre, 0, 1, 2, 3"),
    "gunner --env-option layout=random": ("'layout'", "start, factors"),
    "multi_particle --env-option layout=spiral": ("'layout'", "'spiral'", "fixed, random"),
    "multi_particle --env-option layout_seed=-1": ("'layout_seed'", "-1", "an integer"),
    "multi_particle --env-option layout_seed=²": ("'layout_seed'", "'²'", "an integer"),
    "multi_particle --env-option actions=six": ("'actions'", "'six'", "five", "planar"),
    "gunner --factors 5": ("'factors'", "5", "3, 4, 2, 1"),
    "gunner --factors a=0:6,b=6:19": ("factor 'b'", "index 18", "0 to 17"),
    "gunner --factors a=-1:6,b=6:18": ("factor 'a'", "index -1", "0 to 17"),
    "gunner --factors a=0:7,b=6:18": ("index 6", "'a'", "'b'"),
    "gunner --factors a=0:6,b=7:18": ("index 6", "no factor"),
    "gunner --factors a=0:6,a=6:18": ("'a'", "twice"),
    "gunner --factors a=0:18,b=18:18": ("'b'", "empty"),
    "gunner --factors a=0:x": ("'a'", "'0:x'", "integer"),
    "gunner --factors nonsense": ("'nonsense'", "3, 4, 2, 1"),
    "gunner --share-agent gun": ("--share-agent", "'gun'", "ammo, target"),
    "gunner --hidden 0": ("--hidden", "0", "at least 1"),
    "gunner --hidden -8": ("--hidden", "-8", "at least 1"),
    "gunner --hidden 8.5": ("--hidden", "'8.5'", "integer"),
    "gunner --hidden eight": ("--hidden", "'eight'", "integer"),
    "gunner --layers 0": ("--layers", "0", "at least 1"),
    "gunner --epochs 0": ("--epochs", "0", "at least 1"),
    "gunner --epochs -1": ("--epochs", "-1", "at least 1"),
    "gunner --episodes 0": ("--episodes", "0", "at least 1"),
    "gunner --horizon -1": ("--horizon", "-1", "at least 0"),
    "gunner --batch-size 0": ("--batch-size", "0", "at least 1"),
    "gunner --gradient-steps 0": ("--gradient-steps", "0", "at least 1"),
    "gunner --skill-dim 0": ("--skill-dim", "0", "at least 1"),
    "gunner --keep-checkpoints 0": ("--keep-checkpoints", "0", "at least 1"),
    "gunner --checkpoint-every 0": ("--checkpoint-every", "0", "at least 1"),
    "gunner --seeds 0": ("--seeds", "0", "at least 1"),
    "gunner --seeds 2000": ("--seeds", "2000", "at most 1024"),
    "gunner --seed -1": ("--seed", "-1", "at least 0"),
    "gunner --seed 2147483647 --seeds 2": ("--seed", "2147483647", "--seeds", "2"),
    "gunner --learning-rate fast": ("--learning-rate", "'fast'", "finite number"),
    "gunner --learning-rate nan": ("--learning-rate", "'nan'", "finite number"),
    "gunner --learning-rate inf": ("--learning-rate", "'inf'", "finite number"),
    "gunner --learning-rate -1": ("--learning-rate", "-1", "at least 0"),
    "gunner --discount 1.5": ("--discount", "1.5", "at most 1"),
    "gunner --buffer-size 10": ("--buffer-size", "10", "400"),
    "gunner --buffer-size 4000 --warmup 5000": ("--warmup", "5000", "4000"),
    "gunner --buffer-size 2000000000": ("GiB of memory", "2000000000 transitions", "available", "--buffer-size"),
    "gunner --batch-size 2000000000": ("GiB of memory", "available", "--batch-size"),
    "gunner --gradient-steps 2000000000": ("--gradient-steps", "2000000000", "at most 1000000"),
    "gunner --hidden 65536 --layers 16": ("GiB of memory", "available", "network sizes"),
    "gunner --resume": ("--run",),
    "--resume --run missing": ("there is no run folder missing",),
    "gunner --resume --run .": ("not a run folder", "config.json"),
}


@pytest.mark.parametrize("typed", MISTAKES)
def test_mistakes_come_before_any_work(empty: Path, capsys: pytest.CaptureFixture[str], typed: str) -> None:
    sentence = refused(capsys, "train", *typed.split())
    for part in MISTAKES[typed]:
        assert part in sentence
    assert len(sentence) < 400
    assert list(empty.iterdir()) == []


@pytest.mark.parametrize("below", ["file", "file/run", "file/deeper/run"])
def test_impossible_folder(empty: Path, capsys: pytest.CaptureFixture[str], below: str) -> None:
    (empty / "file").write_text("mine")
    assert refused(capsys, "train", "gunner", "--run", below) == f"cannot make run folder {below}: file is not a folder"
    assert [path.name for path in empty.iterdir()] == ["file"]
    assert (empty / "file").read_text() == "mine"


def test_folder_without_permission(
    empty: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # a superuser may write anywhere
    assert "no permission to write in" in refused(capsys, "train", "gunner", "--run", "a/b")
    assert list(empty.iterdir()) == []


def test_disk_is_too_small(empty: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")(2**30, 2**30 - 2**20, 2**20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    sentence = refused(capsys, "train", "gunner", "--run", "a/b")
    assert re.search(rf"may take 0\.\d+ GiB, but only 0\.00 GiB are free at {empty};", sentence)
    assert list(empty.iterdir()) == []


@pytest.mark.slow
def test_folder_with_a_run(trained: Trained, capsys: pytest.CaptureFixture[str]) -> None:
    run = trained("gunner", "--epochs", 3)
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    assert refused(capsys, "train", "gunner", "--run", run).startswith(
        f"{run} already holds a run; continue it with --resume"
    )
    assert before == {path: path.stat().st_mtime_ns for path in run.rglob("*")}


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_missing_package(
    empty: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX" if name == "tensorboard" else name, None)
    sentence = refused(capsys, "train", "gunner", f"--{name}")
    assert sentence == f"--{name} needs a package that is missing: pip install 'susd[{name}]'"
    assert list(empty.iterdir()) == []


def test_other_folders_are_refused(empty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, "show", "nowhere").startswith("there is no run folder nowhere; skills of the package are ")
    assert refused(capsys, "evaluate", "no/where", "coverage") == "there is no run folder no/where"
    assert "is not a run folder" in refused(capsys, "evaluate", ".", "control")
    assert "'covrage'" in refused(capsys, "evaluate", ".", "covrage")
    assert "RUN, NAME" in refused(capsys, "evaluate")
    assert "'trian'" in refused(capsys, "trian", "gunner")
    assert list(empty.iterdir()) == []


def test_run_without_checkpoints(trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = shutil.copytree(trained("gunner", "--epochs", 3), tmp_path / "run")
    shutil.rmtree(run / "checkpoints")
    assert refused(capsys, "evaluate", run, "coverage") == f"no checkpoint in {run / 'checkpoints'}"
    call("show", run)
    assert "nothing saved yet" in capsys.readouterr().out


# Help.


def test_help_is_fast() -> None:
    heavy = {"jax", "numpy", "gymnasium", "matplotlib", "rich", "equinox"}
    code = "import sys; from susd.cli.main import parser; parser().format_help(); "
    code += f"sys.exit(', '.join({heavy} & set(sys.modules)) or 0)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert loaded.returncode == 0, loaded.stderr
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "susd.cli.main", "--help"], stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(times) < 0.4  # 0.17 s of one core when nothing else runs


def test_help_of_train(capsys: pytest.CaptureFixture[str]) -> None:
    call("train", "--help")
    text = capsys.readouterr().out
    assert "usage: susd train ENV [options]" in text
    for flag in ("--preset", "--epochs", "--seed ", "--seeds", "--factors", "--run", "--resume", "--constraint", "--prior"):
        assert flag in text
    assert max(len(line) for line in text.splitlines()) <= int(os.environ.get("COLUMNS", "80"))


def test_help_without_command_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    call(code=2)
    assert "COMMAND" in capsys.readouterr().out
    call("--version")
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", capsys.readouterr().out)


# Commands from end to end.


@pytest.fixture(scope="module")
def gunner(tmp_path_factory: pytest.TempPathFactory, child_environment: dict[str, str]) -> tuple[Path, str, str]:
    """What the simplest command writes and prints."""
    command = Command(tmp_path_factory.mktemp("gunner"), child_environment)
    done = command("train", "gunner", *TINY, "--epochs", 4, "--tensorboard", "--eval-every", 2)
    return command.folder, done.stdout, done.stderr


@pytest.mark.slow
def test_training_ends_with_tables_and_figures(gunner: tuple[Path, str, str]) -> None:
    folder, output, errors = gunner
    run = folder / "runs" / "gunner-susd-s0"
    assert [path.name for path in (folder / "runs").iterdir()] == [run.name]
    for part in ("susd on gunner, preset quick, seed 0", "4 epochs of 20 steps", "4/4", "coverage", "evaluating"):
        assert part in errors
    *listed, last = [line.strip() for line in output.splitlines() if line.strip().startswith("runs/")]
    assert last == output.splitlines()[-1] == "runs/gunner-susd-s0"
    names = ["coverage.json", "control.json", "coverage.png", "control.png", "learning_curves.png", "trajectories.png"]
    assert [path.rpartition("/")[2] for path in listed] == [*names, "skills.mp4"]
    for path in listed:
        content = (folder / path).read_bytes()
        magic = {"png": b"\x89PNG", "json": b"{", "mp4": b"ftyp"}[path.rpartition(".")[2]]
        assert magic in content[:12]
        assert len(content) > 500
    for label in ("trained, mean actions", "untrained, sampled actions", "random actions", "of 12", "own factor"):
        assert label in output
    assert max(len(line) for line in output.splitlines()) <= 80
    assert not any(line != line.rstrip() for line in output.splitlines())
    assert len(metrics(run)) == 4
    (events,) = (run / "tensorboard").iterdir()
    assert events.read_bytes().count(b"env_steps") == 4
    assert json.loads((run / "meta.json").read_text())["versions"]["jax"]


def test_show(trained: Trained, capsys: pytest.CaptureFixture[str]) -> None:
    run = trained("gunner", "--epochs", 3)
    capsys.readouterr()
    call("show", run, "--json")
    status = json.loads(capsys.readouterr().out)
    assert (status["epoch"], status["epochs"], status["finished"], status["env"]) == (3, 3, True, "gunner")
    assert re.fullmatch(r"[0-9a-f]{32}", status["checksum"])
    assert status["metrics"]["epoch"] == 3
    call("show", run)
    lines = capsys.readouterr().out.splitlines()
    assert any(re.fullmatch(r"  epoch +3 of 3, finished", line) for line in lines)
    assert any(line.endswith(status["checksum"]) for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["coverage", "control"])
def test_evaluations_are_deterministic(
    gunner: tuple[Path, str, str], tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process and in the child that trained."""
    run = Path(shutil.copytree(gunner[0] / "runs" / "gunner-susd-s0", tmp_path / "gunner-susd-s0"))
    at_the_end = json.loads((run / "evaluation" / f"{what}.json").read_text())
    (run / "figures" / f"{what}.png").unlink()
    length = ("--steps", 20_000) if what == "coverage" else ()  # by default more than at the end of training
    call("evaluate", run, what, *length, "--json")
    again = capsys.readouterr().out
    assert again.count("\n") == 1
    assert json.loads(again) == at_the_end == json.loads((run / "evaluation" / f"{what}.json").read_text())
    assert (run / "figures" / f"{what}.png").exists()
    call("evaluate", run, what, "--seed", 1)
    assert str(run / "evaluation" / f"{what}.json") in capsys.readouterr().out
    other = json.loads((run / "evaluation" / f"{what}.json").read_text())
    assert other["evaluation_seed"] == 1
    assert other["results"] != at_the_end["results"]
    (result,) = at_the_end["results"]
    assert (result["seed"], result["epoch"]) == (0, 4)
    if what == "coverage":
        assert {"trained, mean actions", "untrained, mean actions", "random actions"} < set(result)
        assert result["random actions"]["steps"] == other["results"][0]["random actions"]["steps"] == 20_000
        longer = other["results"][0]["random actions"]["longer"]
        assert longer["steps"] == 100_000
        assert longer["unique"]["average"] > other["results"][0]["random actions"]["unique"]["average"]
        assert result["random actions"]["cells"]["average"] > result["untrained, mean actions"]["cells"]["average"]
    else:
        assert result["factors"] == ["agent", "ammo", "target"]
        assert np.shape(result["matrix"]) == (3, 3)


@pytest.mark.slow
def test_tables_of_two_seeds(trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = shutil.copytree(trained("multi_particle", "--seeds", 2, "--epochs", 3), tmp_path / "run")
    call("evaluate", run, "coverage", "--steps", 400)
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == ["seed", "policy", "cells", "worst", "unique", "worst"]
    for seed in (0, 1):
        assert sum(line.startswith(f"  {seed} ") for line in lines) == 5 + 3  # of both tables
    assert max(len(line) for line in lines[:-1]) <= 80
    results = json.loads((run / "evaluation" / "coverage.json").read_text())["results"]
    assert [result["seed"] for result in results] == [0, 1]
    assert results[0]["trained, mean actions"] != results[1]["trained, mean actions"]


@pytest.mark.parametrize("broken", ["evaluate", "draw_figures", "load_all", "_video", "learning_curves"])
def test_nothing_after_training_fails_the_command(
    broken: str, trained: Trained, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What is impossible is said in one line; the rest is done, and the path of the run is the last line."""
    run = Path(shutil.copytree(trained("gunner", "--epochs", 3), tmp_path / "run"))

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no luck\nat all")

    report = {"evaluation": "control", "results": [{"seed": 0, "spread": {"agent": 1.0}}]}
    monkeypatch.setattr("susd.evaluation.evaluate.evaluate", lambda *_, **__: report)
    for drawn in ("_trajectories", "_video"):
        monkeypatch.setattr(f"susd.evaluation.evaluate.{drawn}", lambda *_, drawn=drawn: run / f"{drawn}.png")
    monkeypatch.setattr(f"susd.evaluation.evaluate.{broken}", fail)
    monkeypatch.setattr(susd.training.train, "train", lambda *_, **__: run)
    call("train", "gunner", "--run", run)
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1] == str(run)
    lines = [line for line in printed.err.splitlines() if line.startswith("no ")]
    assert lines
    assert all(re.match(r"no [a-z ]+: RuntimeError: no luck( |$)", line) for line in lines)
    assert ("_video.png" in printed.out) == (broken in ("evaluate", "learning_curves"))


def test_free_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = susd.training.train.configure("gunner", seed=3)
    names = []
    for _ in range(3):
        path = susd.training.train.free_folder(config)
        path.mkdir(parents=True)
        names.append(str(path))
    assert names == ["runs/gunner-susd-s3", "runs/gunner-susd-s3-2", "runs/gunner-susd-s3-3"]


@pytest.mark.slow
def test_bar_in_a_terminal_of_80_columns(susd: Command) -> None:
    leader, follower = pty.openpty()
    environment = susd.environment | {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    arguments = ("train", "gunner", "--run", "run", *TINY, "--epochs", 3, "--no-eval")
    child = susd.start(*arguments, stdout=follower, stderr=follower, env=environment)
    os.close(follower)
    output = b""
    while True:
        try:
            if not (part := os.read(leader, 4096)):
                break
        except OSError:  # on Linux: the other side is closed
            break
        output += part
    os.close(leader)
    assert child.wait() == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output.decode())  # colours are removed, other controls end a line
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\r", plain)
    lines = [line.strip() for line in re.split(r"[\r\n]+", text) if line.strip()]
    assert lines[0] == "susd on gunner, preset quick, seed 0"
    assert any(re.search(r"━ 3/3  0:00:00 left  steps/s \S+  grad/s \S+  coverage \d+%", line) for line in lines)
    assert lines[-1] == "run"
    assert max(map(len, lines)) <= 80


@pytest.mark.slow
def test_quiet_child_gives_the_same_run(susd: Command, trained: Trained, tmp_path: Path) -> None:
    done = susd.train("gunner", "run", "--epochs", 3, "--quiet")
    assert (done.stdout, done.stderr) == ("run\n", "")
    assert checksum(tmp_path / "run") == checksum(trained("gunner", "--epochs", 3))


# Recordings.


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gunner", "multi_particle_raw50", "mp_fp_hard"])
def test_verify_recordings(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    call("verify", GOLDEN / f"{name}.npz")
    printed = capsys.readouterr()
    assert printed.err == ""
    result = json.loads(printed.out)
    assert result["max_obs_error"] <= 1e-5
    assert (result["reward_mismatches"], result["flag_mismatches"]) == (0, 0)
    assert result["steps"] > 0


@pytest.mark.parametrize(
    ("array", "count"), [("obs", "max_obs_error"), ("reward", "reward_mismatches"), ("done", "flag_mismatches")]
)
def test_verify_finds_differences(tmp_path: Path, capsys: pytest.CaptureFixture[str], array: str, count: str) -> None:
    with np.load(GOLDEN / "gunner_lim.npz") as archive:
        arrays = {name: archive[name].copy() for name in archive.files}
    first = (0,) * arrays[array].ndim
    arrays[array][first] = 1 - arrays[array][first]
    np.savez(tmp_path / "mine.npz", **arrays)
    call("verify", tmp_path / "mine.npz", "--as", "gunner_lim", code=1)
    result = json.loads(capsys.readouterr().out)
    assert result[count] > 1e-5


def test_verify_refuses_other_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with np.load(GOLDEN / "gunner.npz") as archive:
        arrays = {name: archive[name] for name in archive.files}
    np.savez(tmp_path / "gunner_part.npz", **{name: value for name, value in arrays.items() if name != "action"})
    np.savez(tmp_path / "gunner_cut.npz", **arrays | {"obs": arrays["obs"][:, :-1]})
    (tmp_path / "gunner_text.npz").write_text("text")
    (tmp_path / "other.npz").write_text("text")
    assert "'action' is missing" in refused(capsys, "verify", tmp_path / "gunner_part.npz")
    assert "'obs' has the shape" in refused(capsys, "verify", tmp_path / "gunner_cut.npz")
    assert "is not an .npz file of plain arrays" in refused(capsys, "verify", tmp_path / "gunner_text.npz")
    assert "does not exist" in refused(capsys, "verify", tmp_path / "gunner.npz")
    assert "'other' names no known recording" in refused(capsys, "verify", tmp_path / "other.npz")
    assert "'pong'" in refused(capsys, "verify", GOLDEN / "gunner.npz", "--as", "pong")

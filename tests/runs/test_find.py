"""A run is a folder or a name; what comes with the package is copied before anything is written."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import susd
from conftest import call, refused
from susd.config import configure
from susd.errors import UserError
from susd.runs import find
from susd.runs.folder import RunFolder


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with the skills `tiny`; the current folder is an empty one."""
    folder = tmp_path / "package"
    make_run(folder / "tiny")
    (folder / "tiny" / "manifest.json").write_text("{}")
    monkeypatch.setattr(find, "SHIPPED", folder)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return folder


def make_run(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(configure("gunner").to_json()))
    (path / "meta.json").write_text(f'{{"name": "{path}"}}')
    return path


def test_a_name_is_looked_up_in_three_places(package: Path) -> None:
    assert find.run_path("tiny") == package / "tiny"
    assert RunFolder.open(Path("tiny")).path == package / "tiny"
    Path("tiny").mkdir()
    assert find.run_path("tiny") == package / "tiny"  # a folder without a run
    make_run(Path("runs/tiny"))
    assert find.run_path("tiny") == Path("runs/tiny")
    shutil.rmtree("tiny")
    make_run(Path("tiny"))
    assert find.run_path("tiny") == Path("tiny")
    assert list(find.shipped()) == ["tiny"]


@pytest.mark.parametrize("path", ["x/tiny", "./tiny/../tiny", "..", ".", "runs/tiny", "/tiny", "~tiny", ""])
def test_a_path_is_a_path(package: Path, path: str) -> None:
    make_run(package.parent / "runs" / "tiny")
    assert find.run_path(path) == Path(path)


def test_names_are_part_of_the_error(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, "show", "tinny") == "there is no run folder tinny; skills of the package are tiny"
    assert refused(capsys, "show", "./x/tinny") == "there is no run folder x/tinny"


def test_results_go_to_a_copy(package: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in package.rglob("*")}
    assert find.results_path("tiny") == Path("runs/tiny")
    assert not Path("runs").exists()
    assert find.writable_run("tiny") == Path("runs/tiny")
    Path("runs/tiny/evaluation").mkdir()
    assert find.writable_run("tiny") == Path("runs/tiny")  # it is kept
    assert find.writable_run(package / "tiny") == Path("runs/tiny")  # also by its path
    assert sorted(os.listdir("runs/tiny")) == ["config.json", "evaluation", "manifest.json", "meta.json"]
    assert before == {path: path.stat().st_mtime_ns for path in package.rglob("*")}
    assert find.writable_run(make_run(Path("mine"))) == Path("mine")


def test_no_copy_over_other_files(package: Path) -> None:
    Path("runs/tiny").mkdir(parents=True)
    Path("runs/tiny/thesis.txt").write_text("mine")
    with pytest.raises(UserError, match=r"runs/tiny already exists; delete it or choose"):
        find.writable_run("tiny")
    assert os.listdir("runs/tiny") == ["thesis.txt"]


@pytest.fixture
def skills(trained: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with real skills `tiny`, which must stay as it is."""
    folder = tmp_path / "package"
    susd.push(trained("gunner", "--epochs", 3), folder / "tiny")
    monkeypatch.setattr(find, "SHIPPED", folder)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    yield folder
    assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_commands_write_into_the_copy(skills: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call("show", "tiny")
    assert "3 of 3, finished" in capsys.readouterr().out
    assert susd.load("tiny").epoch == 3
    call("export", "tiny", "--out", "elsewhere")
    assert not Path("runs").exists()  # reading copies nothing
    call("evaluate", "tiny", "control")
    assert "runs/tiny/evaluation/control.json" in capsys.readouterr().out
    assert Path("runs/tiny/figures/control.png").is_file()
    call("report", "tiny")
    assert Path("runs/tiny/report/report.html").is_file()
    assert "Control" in Path("runs/tiny/report/report.html").read_text()


@pytest.mark.slow
def test_tasks_go_to_the_copy(skills: Path) -> None:
    quick = ("--episodes", 4, "--num-envs", 2, "--eval-every", 4, "--warmup", 1, "--hidden", 8, "--horizon", 50, "--quiet")
    call("downstream", "tiny", "--task", "unlim", *quick, "--out", "elsewhere")
    assert not Path("runs").exists()
    call("downstream", "tiny", "--task", "unlim", *quick)
    (result,) = Path("runs/tiny/downstream").iterdir()
    assert (result / "result.json").is_file()
    assert Path("runs/tiny/config.json").is_file()

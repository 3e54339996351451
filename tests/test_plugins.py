"""Code that only a run folder names is never imported without consent."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import call, refused
from experiments.run_folders import make_run
from susd import plugins
from susd.errors import UserError
from susd.experiments.extract import facts_of_run, records_of
from susd.training.agent import load
from susd.training.train import train

CODE = """
from pathlib import Path

Path({marker!r}).touch()
make = CARD = X = 3
"""


@pytest.fixture
def marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that exists once the code of `theirs.py` has run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    found = tmp_path / "was imported"
    (tmp_path / "theirs.py").write_text(CODE.format(marker=str(found)))
    yield found
    sys.modules.pop("theirs", None)


NAMES = {
    "env": "theirs.py:make",
    "method": "theirs.py:CARD",
    "module": "gymnasium:theirs:Their-v0",
}


def folder(tmp_path: Path, kind: str) -> Path:
    run = make_run(tmp_path / "run", **{"env" if kind == "module" else kind: NAMES[kind]})
    shutil.rmtree(run / "downstream")
    return run


@pytest.mark.parametrize("kind", NAMES)
def test_readers_ask(tmp_path: Path, marker: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    run, code = folder(tmp_path, kind), "the module 'theirs'" if kind == "module" else f"the file '{tmp_path}/theirs.py'"
    before = sorted(run.rglob("*"))
    commands = [("evaluate", run, "control"), ("train", "--run", run, "--resume")]
    if kind != "method":
        commands.append(("downstream", run, "--task", "reward"))
    for command in commands:
        message = refused(capsys, *command)
        assert message == (
            f"{run} names {NAMES[kind]!r}: using it would run the code of {code}; "
            "if you trust that code, add --trust (in Python trust=True)"
        )
    for read in (load, lambda path: train(run=path, resume=True)):
        with pytest.raises(UserError, match="add --trust"):
            read(run)
    call("show", run)
    facts_of_run(run)
    assert not marker.exists()
    assert sorted(run.rglob("*")) == before
    message = refused(capsys, "evaluate", run, "control", "--trust")
    assert "add --trust" not in message
    assert marker.exists()


def test_what_is_named_is_run(tmp_path: Path, marker: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = folder(tmp_path, "env")
    message = refused(capsys, "train", tmp_path / "theirs.py:other", "--run", run, "--resume")
    assert "add --trust" in message
    assert not marker.exists()
    message = refused(capsys, "train", "theirs.py:make", "--run", run, "--resume")
    assert message == "theirs.py:make is a int; it must be a class or function that makes one"
    assert marker.exists()


def test_trust_of_names(tmp_path: Path, marker: Path) -> None:
    names = ["gunner", "theirs.py:make", "gymnasium:Reacher-v5", "workshop"]
    for trust in (True, ["theirs.py:make"], (str(tmp_path / "theirs.py:make"),), plugins.also(False, None, names[1])):
        plugins.check_trust(names, trust, "a run")
    for trust in (False, [], ["theirs.py:X"], plugins.also(["gunner"], "susd")):
        with pytest.raises(UserError, match=r"a run names 'theirs\.py:make'"):
            plugins.check_trust(names, trust, "a run")
    plugins.load_file("theirs.py:X")
    plugins.load_file("theirs.py:make")
    plugins.check_trust(names, False, "a run")  # it runs here already


def test_results_of_an_evaluation_in_a_file(tmp_path: Path, marker: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run")
    result = run / "evaluation" / "control.json"
    result.write_text(result.read_text().replace('"control"', '"theirs.py:X"'))
    message = refused(capsys, "report", run)
    assert message.startswith(f"{result} names 'theirs.py:X': using it would run the code of the file")
    assert not marker.exists()
    assert not (run / "report").exists()
    assert records_of(run, trust=True)  # the object is no evaluation, so that all its numbers are facts
    assert marker.exists()

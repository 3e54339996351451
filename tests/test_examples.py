"""The scripts in examples/ run, with tiny settings."""

import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "examples"
SCRIPTS = sorted(FOLDER.glob("*.py"))
TINY = {"epochs": 2, "episodes": 2, "horizon": 20, "gradient_steps": 2, "warmup": 1, "buffer_size": 400, "batch_size": 8}
TINY |= {"hidden": 8, "phi_hidden": 8}
TASK = {"episodes": 4, "num_envs": 2, "eval_every": 4, "gradient_steps": 1, "batch_size": 8, "hidden": 8, "warmup": 1}
PRINTED = {
    "compare_methods": "the comparison is in comparison/report.html",
    "own_environment": "the contract holds: True",
    "own_method": "of 2500 cells",
    "steer_skills": "reverse the part of target: agent changes by",
}


def test_examples_are_short() -> None:
    assert [script.stem for script in SCRIPTS] == sorted(PRINTED)
    assert all(len(script.read_text().splitlines()) < 60 for script in SCRIPTS)
    listed = (FOLDER / "README.md").read_text()
    assert all(f"`{script.name}`" in listed for script in SCRIPTS)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_figures")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_example(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    options = TINY | ({f"task.{name}": value for name, value in TASK.items()} if script.stem == "compare_methods" else {})
    monkeypatch.setattr(sys, "argv", [str(script), *(f"{name}={value}" for name, value in options.items())])
    runpy.run_path(str(script), run_name="__main__")
    assert PRINTED[script.stem] in capsys.readouterr().out

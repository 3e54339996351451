"""Extensions from outside the package: the code of the guides, as files (FILE.py:NAME) and as an installed package."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from conftest import call
from susd.envs.base import HostEnvironment, HostStep
from susd.tasks.base import HostTask

GUIDES = Path(__file__).parent.parent / "docs" / "extend"
FILES = {
    name: text
    for page in sorted(GUIDES.glob("*.md"))
    for name, text in re.findall(r"<!-- file (\S+\.py) -->\n```python\n(.*?)```", page.read_text(), re.DOTALL)
}
TRAIN = {
    **{"epochs": 3, "episodes": 2, "horizon": 10, "buffer_size": 2000, "warmup": 60, "hidden": 8, "phi_hidden": 8},
    **{"gradient_steps": 2, "batch_size": 8},
}
TASK = {"episodes": 20, "num_envs": 10, "eval_every": 10, "gradient_steps": 1, "hidden": 8, "batch_size": 8, "warmup": 20}
SHORT, TASK_OPTIONS = (
    [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    for options in (TRAIN, TASK)
)
ENTRY_POINTS = re.findall(r'^\[project\.entry-points\."(.+)"\]\n(.+)$', (GUIDES / "index.md").read_text(), re.MULTILINE)
SUITE = f"""
seeds = [0]
evaluations = {{ motion = {{ skills = 4 }} }}
train = {{ {", ".join(f"{name} = {value}" for name, value in TRAIN.items())} }}
downstream = {{ {", ".join(f"{name} = {value}" for name, value in TASK.items())} }}

[environments.workshop]
tasks = ["workshop-light"]
layouts = ["random"]

[methods.penalty]

[methods.susd]
density_hidden = 8
tasks = []
"""
MORE = """
from my_fast_task import Light

def light(env):
    return Light("light", env)
"""
# All commands in one process of a user whose package is installed.
SESSION = f"""
import gc, json, sys
import inline, sharing
from susd.cli.main import main

def susd(*arguments):
    try:
        main(arguments)
    except SystemExit as end:
        assert not end.code, (arguments, end.code)

if __name__ == "__main__":  # `susd check` spawns a process, which imports this file
    gc.set_threshold(50_000, 10, 10)
    inline.install()
    sharing.install()
    susd("methods")
    susd("config", "workshop", "--method", "penalty")
    susd("check", "workshop", "--steps", "100")
    susd("train", "workshop", "--method", "penalty", "--run", "run", "--no-eval", *{SHORT!r})
    susd("evaluate", "run", "motion", "--skills", "4")
    susd("downstream", "run", "--task", "workshop-light", *{TASK_OPTIONS!r})
    susd("report", "run")
    susd("suite", "run", "toy.toml", "--workers", "1")
    susd("report", "results/toy")
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of modules with the metadata of an installed package."""
    folder = tmp_path_factory.mktemp("package")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    info = folder / "my_extension-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-extension\nVersion: 1.0\n")
    points = "\n".join(f"[{group}]\n{line.replace(chr(34), '')}\n" for group, line in ENTRY_POINTS)
    (info / "entry_points.txt").write_text(points)
    return folder


def test_guides_have_one_file_each() -> None:
    assert set(FILES) == {
        *("my_env.py", "my_fast_env.py", "my_method.py", "my_evaluation.py"),
        *("my_task.py", "my_fast_task.py", "my_host_task.py"),
    }
    assert 60 <= len(FILES["my_method.py"].splitlines()) <= 90
    groups = [group for group, _ in ENTRY_POINTS]
    assert groups == [f"susd.{kind}" for kind in ("environments", "methods", "tasks", "evaluations")]
    for group, line in ENTRY_POINTS:  # the same lines as on the pages of the guides
        guide = {"susd.environments": "environment", "susd.methods": "method", "susd.tasks": "task"}.get(
            group, "evaluation"
        )
        assert line in (GUIDES / f"{guide}.md").read_text()


@pytest.mark.slow
def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Method, environment, task and evaluation by FILE.py:NAME, through train, evaluate, downstream and report."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    run = ("--run", "runs/w", "--no-eval", "--quiet")
    call("train", "my_fast_env.py:FastWorkshop", "--method", "my_method.py:CARD", *run, *SHORT)
    call("evaluate", "runs/w", "my_evaluation.py:EVALUATION", "--skills", 4)
    assert "Motion: distance" in capsys.readouterr().out
    call("downstream", "runs/w", "--task", "my_fast_task.py:Light", "--quiet", *TASK_OPTIONS)
    result = json.loads(Path(capsys.readouterr().out.strip(), "result.json").read_text())
    assert result["bound"]["undiscounted"] == pytest.approx(20)
    assert result["do_nothing"]["undiscounted"] == pytest.approx(5)  # the lamp stays half bright
    assert 9 < result["expert"]["undiscounted"] < 10  # and becomes bright
    assert result["final"]["success"] == [0.0]  # nobody moved the box
    call("report", "runs/w")
    assert "motion" in Path(capsys.readouterr().out.strip()).read_text()


def test_tasks_satisfy_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every task of the guides, as a class, as a factory and as an entry; and the rewards of the host tasks."""
    from susd.envs import make
    from susd.tasks import make_task
    from susd.tasks.own import check_task

    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "more.py").write_text(MORE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    fast, slow = make("my_fast_env.py:FastWorkshop"), make("my_env.py:make", num_envs=2, parallel="none")
    for task in ("my_fast_task.py:Bright", "my_fast_task.py:Light", "my_fast_task.py:TASK", "more.py:light"):
        check_task(make_task(task, fast))
    tidy, hold = (make_task(f"{task}", slow) for task in ("my_task.py:Tidy", "my_host_task.py:Hold"))
    for task in (tidy, hold):
        check_task(task)
    assert isinstance(slow, HostEnvironment)
    assert isinstance(tidy, HostTask)
    assert isinstance(hold, HostTask)
    first = slow.reset(0)
    hold.begin()
    for number in range(1, 8):
        seen = np.array(first)
        seen[:, 0], seen[:, 6] = (0.5, -0.5), (0.9, 0.7)
        step = HostStep(seen, seen, np.array([False, number == 4]), np.zeros(2, bool))
        assert tidy.reward(step).tolist() == [2.0, 0.0]
        assert hold.reward(step).tolist() == [float(number >= 5), 0.0]  # the second was reset in the fourth step
    assert hold.extra().tolist() == [[1.0], [0.6]]


@pytest.mark.slow
def test_package(package: Path, tmp_path: Path, child_environment: dict[str, str]) -> None:
    """The same by name, as entry points of an installed package, and through a suite."""
    (tmp_path / "toy.toml").write_text(SUITE)
    (tmp_path / "session.py").write_text(SESSION)
    environment = {**child_environment, "PYTHONPATH": os.pathsep.join([str(package), str(Path(__file__).parent)])}
    command = [sys.executable, "session.py"]
    child = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900)
    assert child.returncode == 0, child.stderr
    assert re.search(r"^penalty ", child.stdout, re.MULTILINE)  # susd methods
    assert re.search(r"--discount +0\.9 +environment ", child.stdout)  # susd config: the preset of the EnvEntry
    assert "The contract holds." in child.stdout
    jobs = [json.loads(line) for line in (tmp_path / "results" / "toy" / "facts.jsonl").read_text().splitlines()]
    done = {(job["label"], job["phase"]) for job in jobs}
    assert {("penalty", phase) for phase in ("train", "motion", "downstream")} <= done
    assert {("susd", "train"), ("susd", "motion")} <= done
    assert {job["environment"] for job in jobs} == {"workshop"}
    for page in (tmp_path / "run" / "report" / "report.html", tmp_path / "results" / "toy" / "report.html"):
        text = page.read_text()
        assert "Penalty" in text
        assert "Workshop" in text
        assert "Motion" in text

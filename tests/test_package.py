"""The package as users get it: what the wheel holds, that it runs when installed, and its types."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DATA = (
    "susd/py.typed",
    "susd/experiments/suites/smoke.toml",
    "susd/experiments/suites/2d.toml",
    "susd/experiments/suites/paper.toml",
    "susd/report/page.html",
    "susd/report/paper.csv",
    "susd/envs/mujoco/scaling.json",
    "susd/pretrained/gunner/manifest.json",
    "susd/pretrained/gunner/checkpoints/step-00000600.ckpt",
)
SCRIPT = """
import numpy as np
import susd

run = susd.train("gunner", epochs=2)
agent = susd.load(run)
skill = agent.sample_skill(seed=0)
action = agent.act(np.zeros(18), skill)
control = susd.evaluate(run, "control")
result = susd.downstream(run, "unlim")
page = susd.report([run])
shared = susd.pull(susd.push(run, "mine"))
files = susd.export("gunner", "numpy")
dataset = susd.record(run, 5)
config = susd.config("gunner", method="metra")
env = susd.make("gunner")
checked = susd.check("gunner")
factors = susd.Factorization.parse("agent=0:2", size=2)
space: susd.SkillSpace = susd.SkillSpace("sphere", 1, 2)
try:
    susd.train(config)
except susd.UserError as error:
    print(error)
reveal_type((run, agent, action, config, control, result, page, checked, factors))
"""


def executed(*command: object, **options: object) -> str:
    child = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=600, **options)
    assert child.returncode == 0, child.stdout + child.stderr
    return child.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    executed(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (built,) = folder.glob("*.whl")
    return built


def test_wheel_has_data_files(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert not set(DATA) - set(names)
    source = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    assert source == {name for name in names if name.endswith(".py")}


@pytest.mark.slow
def test_wheel_runs_when_installed(wheel: Path, tmp_path: Path, child_environment: dict[str, str]) -> None:
    """In a new environment, whose dependencies are those of this one; `make dist` installs them too."""
    import numpy

    executed(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    executed(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel)
    (packages,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(str(Path(numpy.__file__).parent.parent))
    susd = tmp_path / "venv" / "bin" / "susd"
    options = {"cwd": tmp_path, "env": child_environment}
    assert executed(susd, "--version", **options) == "0.1.0\n"
    assert re.search(r"^metra ", executed(susd, "methods", **options), re.MULTILINE)
    assert re.search(r"--discount +0\.5 +environment", executed(susd, "config", "gunner", **options))
    assert "smoke" in executed(susd, "suite", "list", **options)
    home = executed(python, "-c", "import susd; print(susd.__file__)", **options)
    assert Path(home.strip()).is_relative_to(tmp_path)


@pytest.mark.slow
def test_types_of_a_script(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "wrong.py").write_text('import susd\n\nsusd.train(3)\nsusd.load()\nsusd.evaluate("run")\n')
    command = [sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml", "--cache-dir", ROOT / ".mypy_cache"]
    environment = {name: value for name, value in os.environ.items() if name != "MYPYPATH"}
    output = executed(*command, "script.py", cwd=tmp_path, env=environment)
    revealed = re.search(r'Revealed type is "(.*)"', output)
    assert revealed is not None, output
    for name in ("pathlib.Path", "susd.training.agent.Agent", "susd.config.Config", "susd.factors.Factorization"):
        assert name in revealed[1]
    wrong = subprocess.run([*command, "wrong.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert [line.split(":")[1] for line in wrong.stdout.splitlines() if ": error:" in line] == ["3", "4", "5"]

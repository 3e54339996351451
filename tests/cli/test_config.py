"""`susd config` prints every option that a run will use, and where its value comes from."""

import json
import subprocess
import sys

import pytest

from conftest import refused
from susd.cli.main import main
from susd.config import GROUPS, configure, resolve


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as exited:
        main(["config", *arguments])
    result = capsys.readouterr()
    assert (exited.value.code, result.err) == (0, "")
    return result.out


@pytest.mark.parametrize("method", ["susd", "metra"])
def test_json(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("kitchen", "--method", method, "--env-option", "layout=released", "--seed", "3", "--json")
    found = json.loads(printed(capsys, *arguments))
    changes = {"method": method, "env_options": {"layout": "released"}, "seed": 3}
    expected = {name: setting for name, setting in resolve("kitchen", **changes).items() if setting.used}
    assert found == {name: {"value": s.value, "layer": s.layer, "help": s.help} for name, s in expected.items()}
    assert {name: row["value"] for name, row in found.items()} == configure("kitchen", **changes).to_json()


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "multi_particle", "--method", "dusdi", "--preset", "paper", "--no-scale-skill")
    lines = [line for line in text.splitlines() if line]
    assert [line for line in lines if not line.startswith(" ")] == list(GROUPS.values())
    rows = {line.split()[0]: line.split() for line in lines if line.startswith(" ")}
    assert rows["ENV"][:3] == ["ENV", "multi_particle", "you"]
    assert rows["--env-option"][:3] == ["--env-option", "actions=five", "environment"]
    assert rows["--alpha-init"][:6] == ["--alpha-init", "0.3", "method", "initial", "temperature", "(entropy"]
    assert rows["--scale-skill"][:3] == ["--scale-skill", "no", "you"]
    assert rows["--tau"][:3] == ["--tau", "0.005", "default"]
    assert "--weight" not in rows
    assert len(rows) == len(configure("multi_particle", "paper", method="dusdi").to_json())


def test_refusals(capsys: pytest.CaptureFixture[str]) -> None:
    assert "'maze'" in refused(capsys, "config", "maze")
    assert "--weight is 'none'" in refused(capsys, "config", "gunner", "--method", "lsd", "--weight", "none")
    assert "ENV" in refused(capsys, "config")


HEAVY = ("jax", "numpy", "equinox", "optax", "matplotlib", "gymnasium", "rich")
CHILD = f"""
import sys
from susd.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as exited:
    loaded = [name for name in {HEAVY!r} if name in sys.modules]
    print(exited.code, *loaded, file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [("--help", 0), ("train --help", 0), ("config --help", 0), ("config gunner --hidden 0", 2), ("train maze", 2)],
)
def test_help_and_limits_import_nothing_heavy(arguments: str, code: int) -> None:
    child = subprocess.run([sys.executable, "-c", CHILD, *arguments.split()], capture_output=True, text=True, check=True)
    assert child.stderr.splitlines()[-1] == str(code)

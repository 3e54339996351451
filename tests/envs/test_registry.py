"""The registry of environments: built-in entries as data, and entry points of installed packages."""

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from susd import plugins
from susd.config import configure
from susd.envs import check_name, choices, make
from susd.envs.registry import EnvEntry, env_entry, environments
from susd.envs.vector import is_functional
from susd.errors import UserError

PACKAGE = """
import gymnasium
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from susd.envs import EnvEntry
from susd.envs.base import EnvSpec, HostStep
from susd.factors import Factorization

FACTORS = Factorization(("all",), ((0, 1),), 2)
ENTRY = EnvEntry("ignored", "A Point", "toy_envs:Point", presets={"quick": {"epochs": 7}})


class Point:
    spec = EnvSpec("point", 2, 2, 5, FACTORS, (), {})

    def __init__(self, speed=1.0):
        self.speed = speed

    def reset(self, key):
        return jnp.zeros(2)

    def step(self, state, action, key):
        return state + self.speed * action

    def observe(self, state):
        return state

    def render(self, state, size=400):
        return np.zeros((size, size, 3), np.uint8)


class Batch:
    spec = Point.spec

    def __init__(self, num_envs=3):
        self.num_envs = num_envs

    def reset(self, seed):
        return np.zeros((self.num_envs, 2), np.float32)

    def step(self, actions):
        never = np.zeros(self.num_envs, bool)
        return HostStep(actions, actions, never, never)

    def render(self, index=0, size=400):
        return np.zeros((size, size, 3), np.uint8)


class Single(gymnasium.Env):
    observation_space = action_space = spaces.Box(-1, 1, (2,))

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package with one environment of each kind, and one that cannot be imported."""
    (tmp_path / "toy_envs.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(tmp_path)
    paths = {"point": "toy_envs:ENTRY", "batch": "toy_envs:Batch", "single": "toy_envs:Single", "lost": "no_such:Env"}
    points = {name: EntryPoint(name, path, "susd.environments") for name, path in paths.items()}
    monkeypatch.setattr(plugins, "registered", lambda kind: points if kind == "environments" else {})
    env_entry.cache_clear()
    yield
    env_entry.cache_clear()
    sys.modules.pop("toy_envs", None)


def test_built_in_environments() -> None:
    entries = environments()
    assert list(entries) == ["gunner", "multi_particle", "kitchen", "ant", "half_cheetah"]
    assert {entry.title for entry in entries.values()} == {"2D-Gunner", "Multi-Particle", "Kitchen", "Ant", "HalfCheetah"}
    assert all(entry.paper_steps > 0 for entry in entries.values())
    assert configure("kitchen").episodes == entries["kitchen"].presets["quick"]["episodes"] == 16


@pytest.mark.usefixtures("package")
def test_entry_points() -> None:
    entry = env_entry("point")
    assert entry == EnvEntry("point", "A Point", "toy_envs:Point", presets={"quick": {"epochs": 7}})
    assert "point, batch, single" in choices()
    point = make("point", speed=2.0)
    assert is_functional(point)
    assert point.speed == 2.0  # type: ignore[attr-defined]
    assert make("batch", num_envs=4).num_envs == 4  # type: ignore[union-attr]
    single = make("single", num_envs=2)
    assert single.spec.name == "single"
    np.testing.assert_array_equal(single.reset(0), np.zeros((2, 2)))  # type: ignore[arg-type]


@pytest.mark.usefixtures("package")
def test_broken_entry_point_is_named() -> None:
    check_name("lost")  # imports nothing
    with pytest.raises(UserError, match=r"entry point 'lost' of susd\.environments cannot be imported: "):
        make("lost")
    assert make("gunner").spec.name == "gunner"  # the others still work


def test_names_do_not_import_jax() -> None:
    code = "import sys; from susd.envs import choices, environments; choices(); environments(); "
    code += "sys.exit(any(name in sys.modules for name in ('jax', 'gymnasium', 'mujoco')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

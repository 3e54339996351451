"""`susd check` reports what is wrong with an environment: each of these has one fault."""

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import refused
from susd.cli.main import main
from susd.config import configure
from susd.tools.check import check, format_check

FILE = '''
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from susd.envs.base import EnvSpec, HostStep
from susd.factors import Factorization

FACTORS = Factorization.from_mapping({"a": [0, 1], "b": [2]}, 3)


class Room(gymnasium.Env):
    """Two lamps and a heater; `fault` names what is wrong."""

    observation_space = spaces.Dict([("lamps", spaces.Box(-9, 9, (2,))), ("heat", spaces.Box(-9, 9, (2,)))])
    action_space = spaces.Box(-2, 2, (3,))

    def __init__(self, fault="", life=0):
        self.fault, self.life, self.count = fault, life, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state, self.clock = self.np_random.uniform(-1, 1, 4), 0
        return self.seen(), {}

    def seen(self):
        lamps, heat = self.state[:2].copy(), self.state[2:].copy()
        if self.fault == "constant":
            heat[1] = 3
        if self.fault == "redundant":
            heat[1] = 2 * lamps[0] + 1
        if self.fault == "small":
            heat *= 1e-4
        if self.fault == "uneven":
            heat[1] *= 1e-4
        if self.fault == "far":
            heat[0] *= 10
        if self.fault == "talks":
            print("brr")
        if self.fault == "nan" and abs(lamps[0]) > 1.5:
            heat[0] = np.nan
        if self.fault == "random":
            self.count += 1
            heat[0] += 1e-3 * self.count
        return {"lamps": lamps, "heat": heat}

    def step(self, action):
        self.clock += 1
        self.state[:3] = np.clip(self.state[:3] + 0.1 * action, -2, 2)
        self.state[3] = 0.9 * self.state[3] + 0.1 * action[0] * action[1]
        return self.seen(), 0.0, self.clock == self.life, False, {}


def integers():
    room = Room()
    room.observation_space = spaces.Dict([("lamps", spaces.Box(-9, 9, (2,), np.int64)), ("heat", spaces.Box(-9, 9, (2,)))])
    return room


def limited():
    return gymnasium.wrappers.TimeLimit(Room(), 30)


class Pure:
    """A functional environment."""

    def __init__(self, fault=""):
        self.fault = fault
        self.spec = EnvSpec("pure", 4 if fault == "size" else 3, 3, 20, FACTORS, (), {})

    def reset(self, key):
        if self.fault == "trace" and jax.random.uniform(key) > 2:
            raise ValueError("cannot be")
        return jnp.zeros(3)

    def step(self, state, action, key):
        return jnp.sqrt(state + 0.1 * action) if self.fault == "nan" else jnp.clip(state + 0.1 * action, -1, 1)

    def observe(self, state):
        return state[:2] if self.fault == "shape" else state

    def render(self, state, size=400):
        return np.zeros((size, size, 3), np.float32 if self.fault == "image" else np.uint8)


class Batch:
    """A host environment."""

    spec = EnvSpec("batch", 3, 2, 20, FACTORS, (), {})

    def __init__(self, num_envs, fault=""):
        self.num_envs, self.fault = num_envs, fault

    def reset(self, seed):
        self.state = np.random.default_rng(seed).uniform(-1, 1, (self.num_envs, 3)).astype(np.float32)
        return self.state.astype(np.float64) if self.fault == "type" else self.state

    def step(self, actions):
        self.state[:, :2] = np.clip(self.state[:, :2] + 0.1 * actions, -1, 1)
        self.state[:, 2] = self.state[:, 0] * self.state[:, 1]
        never = np.zeros(self.num_envs, bool)
        after = self.state + 1 if self.fault == "lost" else self.state
        return (self.state, after) if self.fault == "tuple" else HostStep(self.state, after, never, never)

    def render(self, index=0, size=400):
        return np.zeros((size, size, 3), np.uint8)
'''


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rooms") / "rooms.py"
    path.write_text(FILE)
    return path


def checked(file: Path, name: str, steps: int = 400, **options: Any) -> dict[str, Any]:
    return check(configure(f"{file}:{name}", episodes=4, env_options=options), steps)


def test_valid_environments(file: Path) -> None:
    for name, kind in (("Room", "Gymnasium"), ("Pure", "functional"), ("Batch", "host")):
        result = checked(file, name)
        assert result["ok"], result
        assert result["kind"] == kind
        assert result["steps_per_second"] > 0
        assert [line["name"] for line in result["checks"] if line["name"] != "rendering"] == [
            "specification",
            "first step",
            "random actions",
            "extreme actions",
            "equal seeds",
        ]
        shown = format_check(result)
        assert shown.endswith("The contract holds.")
        assert "FAIL" not in shown
    room = checked(file, "Room")
    assert [factor["name"] for factor in room["factors"]] == ["lamps", "heat"]
    assert all(factor["changing"] == 1 for factor in room["factors"])
    assert [text.partition(":")[0] for text in room["warnings"]] == ["There will be no videos"]


@pytest.mark.parametrize(
    ("name", "options", "failed", "sentence"),
    [
        ("Room", {"fault": "nan"}, "random actions", "its index 2 (position 0 of entry 'heat') is nan"),
        ("Room", {"fault": "random"}, "equal seeds", "differ in step 0: index 2 of environment 0 is"),
        ("Room", {"fault": "far"}, "extreme actions", "at index 2, but its bounds are -9 to 9"),
        ("integers", {}, "first step", "entry 'lamps' has the type float64, but its space says int64"),
        ("Pure", {"fault": "trace"}, "first step", "TracerBoolConversionError: Attempted boolean conversion"),
        ("Pure", {"fault": "size"}, "specification", "the factors cover 3 dimensions, but spec.obs_size is 4"),
        (
            "Pure",
            {"fault": "shape"},
            "first step",
            "the observations of reset are float32 (4, 2); they must be float32 (4, 3)",
        ),
        ("Pure", {"fault": "nan"}, "random actions", "next_obs of step 1"),
        ("Pure", {"fault": "image"}, "rendering", "returned float32 (64, 64, 3); it must return uint8"),
        ("Batch", {"fault": "type"}, "first step", "the observations of reset are float64"),
        ("Batch", {"fault": "lost"}, "first step", "environment 0 did not end, but its obs and next_obs differ"),
        ("Batch", {"fault": "tuple"}, "first step", "step returned a tuple; it must return a HostStep"),
    ],
)
def test_contract_violations(name: str, options: dict[str, Any], failed: str, sentence: str, file: Path) -> None:
    result = checked(file, name, **options)
    lines = [line for line in result["checks"] if not line["ok"]]
    assert not result["ok"]
    assert failed in [line["name"] for line in lines]
    assert any(sentence in line["text"] for line in lines), lines
    assert f"FAIL  {failed}: " in format_check(result)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"fault": "constant"}, "Factor 'heat': 1 of 2 dimensions are constant (index 3); remove them."),
        (
            {"fault": "redundant"},
            "1 pair of observations is redundant (correlation of indices 0 and 3 (1.00000)); keep one of",
        ),
        ({"fault": "small"}, "below 0.01; scale its dimensions to about 1."),
        ({"fault": "small"}, "The scales of 'heat' ("),
        ({"fault": "uneven"}, "Within factor 'heat' the standard deviations of index 3 ("),
        ({"life": 5}, "episodes terminated after 5.0 steps on average, of 200;"),
    ],
)
def test_warnings(options: dict[str, Any], sentence: str, file: Path) -> None:
    result = checked(file, "Room", **options)
    assert result["ok"]
    assert any(sentence in text for text in result["warnings"]), result["warnings"]


def test_own_time_limit(file: Path) -> None:
    warnings = checked(file, "limited", steps=800)["warnings"]
    sentence = "A time limit of the environment truncated 24 episodes after 30.0 steps on average, of 200; set horizon"
    assert any(text.startswith(sentence) for text in warnings), warnings


def test_factor_that_changes_only_at_resets() -> None:
    result = check(configure("gymnasium:Reacher-v5", episodes=2, factors="arm=0:4+6:10,target=4:6"), 200)
    assert result["ok"]
    assert [factor["changing"] for factor in result["factors"]] == [1, 0]
    assert any(text.startswith("Factor 'target' changes only at resets") for text in result["warnings"])


def test_command(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for fault, code in (("", 0), ("type", 1)):
        with pytest.raises(SystemExit) as exited:
            main(["check", f"{file}:Batch", "--env-option", f"fault={fault}", "--steps", "50", "--json"])
        assert exited.value.code == code
        result = json.loads(capsys.readouterr().out)
        assert result["ok"] == (code == 0)
        assert result["num_envs"] == 8
    with pytest.raises(SystemExit):
        main(["check", f"{file}:Room", "--env-option", "fault=talks", "--json"])
    printed = capsys.readouterr()
    assert json.loads(printed.out)["ok"]
    assert printed.err.startswith("brr\n")
    assert "--steps is 3" in refused(capsys, "check", f"{file}:Batch", "--steps", 3)
    assert "option 'factors' is 'a=0:3'" in refused(capsys, "check", f"{file}:Batch", "--factors", "a=0:3")
    assert "index 3 belongs to no factor" in refused(capsys, "check", f"{file}:Room", "--factors", "a=0:3")


def test_training_checks_before_compiling(
    file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    message = refused(capsys, "train", f"{file}:Pure", "--env-option", "fault=shape")
    assert message.endswith("the observations of pure are float32 [2]; by its spec they must be float32 [3]")
    message = refused(capsys, "train", f"{file}:Pure", "--env-option", "fault=trace")
    assert message.startswith("pure failed before the first step: ")
    assert "rooms.py:" in message
    assert "entry 'lamps' has the type float64" in refused(capsys, "train", f"{file}:integers")
    for env in ("ant", f"{file}:Room"):
        message = refused(capsys, "train", env, "--env-option", "num_envs=3")
        assert message == "the option 'num_envs' of a run is --episodes; it cannot be 3"
    assert not list(tmp_path.iterdir())

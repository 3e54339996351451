"""`susd check` reports what is wrong with an environment: each of these has one fault."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import Command, call, refused
from susd.config import configure
from susd.envs.base import EnvSpec
from susd.factors import Factorization
from susd.tools.check import check, format_check
from susd.tools.diagnostics import RandomSteps, find_problems

MIXED = Factorization.from_mapping({"a": [0], "b": [1, 2]}, 3)
APART = Factorization.from_mapping({"a": [0, 1], "b": [2]}, 3)

FILE = '''
import os
import time

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
        if "talks" in self.fault:
            print("brr")
        if self.fault == "exits":
            os._exit(7)
        if self.fault == "hangs":
            print("hanging", flush=True)
            time.sleep(1000)
        if "nan" in self.fault and abs(lamps[0]) > 1.5:
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
        (
            {"fault": "constant"},
            "Factor 'heat', 1 of its 2 dimensions (index 3): not reached by random actions",
        ),
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
    sentence = "A time limit of the environment truncated 24 episodes after 30.0 steps on average, of 200; set --horizon"
    assert any(text.startswith(sentence) for text in warnings), warnings


def test_factor_that_changes_only_at_resets() -> None:
    result = check(configure("gymnasium:Reacher-v5", episodes=2, factors="arm=0:4+6:10,target=4:6"), 200)
    assert result["ok"]
    assert [factor["changing"] for factor in result["factors"]] == [1, 0]
    assert any(text.startswith("Factor 'target': not reached by random actions") for text in result["warnings"])


@pytest.mark.slow
def test_command(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    call("check", f"{file}:Room", "--env-option", "fault=talks,nan", "--env-option", "parallel=none", "--json", code=1)
    printed = capfd.readouterr()
    result = json.loads(printed.out)
    assert (result["ok"], result["num_envs"]) == (False, 8)
    assert printed.err.startswith("brr\n")
    assert "--steps is 3" in refused(capfd, "check", f"{file}:Batch", "--steps", 3)
    assert "index 3 belongs to no factor" in refused(capfd, "check", f"{file}:Room", "--factors", "a=0:3")


def test_environment_that_ends_its_process(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    message = refused(capfd, "check", f"{file}:Room", "--env-option", "fault=exits")
    assert message == f"{file}:Room ended its process with exit code 7 during the check; it must never do that"


@pytest.mark.slow
def test_sigterm(file: Path, susd: Command) -> None:
    """The command ends as documented, and the process of the environment with it."""
    options = ("--env-option", "fault=hangs", "--env-option", "parallel=none")
    with susd.start("check", f"{file}:Room", *options, start_new_session=True) as child:
        assert child.stderr is not None
        assert child.stderr.readline() == "hanging\n"
        child.send_signal(signal.SIGTERM)
        output, errors = child.communicate(timeout=60)
    errors = errors.replace("hanging\n", "")  # more than one environment may hang
    assert (child.returncode, output, errors) == (130, "", "susd: interrupted\n")
    deadline = time.monotonic() + 60
    while _alive(child.pid):  # the tracker of multiprocessing takes a moment
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


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


def steps_of(obs: np.ndarray, starts: np.ndarray) -> Any:
    """Steps of one environment through observations [T + 1, S]."""
    never = np.zeros((len(obs) - 1, 1), bool)
    return RandomSteps(starts, obs[:-1, None], obs[1:, None], never, never, 1.0)


@pytest.mark.parametrize(
    ("resets_change", "bounds", "part"),
    [
        (False, None, "Factor 'b': all 1 dimensions are constant (index 2)"),
        (False, (0.0, 0.0), "Factor 'b': all 1 dimensions are constant (index 2)"),
        (False, (-np.inf, np.inf), "Factor 'b': all 1 dimensions are constant (index 2)"),
        (False, (0.0, 1.0), "Factor 'b': not reached by random actions in 30 steps. Skills may reach it"),
        (True, None, "Factor 'b': not reached by random actions in 30 steps. Skills may reach it"),
    ],
)
def test_what_random_actions_do_not_reach(resets_change: bool, bounds: Any, part: str) -> None:
    """Constant is only what neither resets nor bounds suggest to change; nothing else is to be removed."""
    random = np.random.default_rng(0)
    obs, starts = random.normal(size=(31, 3)), random.normal(size=(4, 3))
    obs[:, 2], starts[:, 2] = 0.0, np.arange(4) * resets_change
    declared = None if bounds is None else tuple(np.array([-np.inf, -np.inf, end]) for end in bounds)
    found = find_problems(EnvSpec("mine", 3, 1, 30, APART, (), {}), steps_of(obs, starts), declared)
    about = [text for text in found if text.startswith("Factor 'b'")]
    assert about[0].startswith(part)
    assert ("remove" in about[0]) == ("constant" in part)
    partly = find_problems(EnvSpec("mine", 3, 1, 30, MIXED, (), {}), steps_of(obs, starts), declared)
    assert any("1 of 2 dimensions are constant" in x or "1 of its 2 dimensions (index 2): not reached" in x for x in partly)

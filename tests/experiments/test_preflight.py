"""Everything in a suite is checked before anything runs: one sentence, exit code 2, nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import call, refused
from susd.experiments import scheduler

FILE = """
import gymnasium
import numpy as np
from gymnasium import spaces


class Slider(gymnasium.Env):
    observation_space, action_space = spaces.Box(-1, 1, (3,)), spaces.Box(-1, 1, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(3), {}

    def step(self, action):
        return np.zeros(3), 0.0, False, False, {}


class Broken(Slider):
    def reset(self, *, seed=None, options=None):
        raise RuntimeError("no power")
"""
SUSD = "\n[methods.susd]\n"
GUNNER = "[environments.gunner]\n"
OWN = '[environments.own]\nenv = "mine.py:{}"\n'.format
SUITES = {
    "coverage of text": (
        'evaluations = {coverage = {steps = "lots"}}\n' + GUNNER + SUSD,
        "steps of evaluation 'coverage' is 'lots'",
    ),
    "coverage of a boolean": (
        "evaluations = {coverage = {steps = true}}\n" + GUNNER + SUSD,
        "steps of evaluation 'coverage' is",
    ),
    "negative decoding": ("evaluations = {decoding = {steps = -5}}\n" + GUNNER + SUSD, "--steps is -5"),
    "decoding of 10^300": (
        f"evaluations = {{decoding = {{steps = 1{'0' * 18}}}}}\n" + GUNNER + SUSD,
        "steps of evaluation",
    ),
    "tolerance nan": (
        "evaluations = {zero-shot = {tolerance = nan}}\n" + GUNNER + SUSD,
        "holds nan: it is not a finite number",
    ),
    "unknown goal": ('evaluations = {zero-shot = {goal = "door=1"}}\n' + GUNNER + SUSD, "the goal names 'door'"),
    "other task": ('evaluations = {ceiling = {task = "fp-easy"}}\n' + GUNNER + SUSD, "which is one of multi_particle"),
    "other layout": ('evaluations = {ceiling = {task = "lim", layout = "9"}}\n' + GUNNER + SUSD, "--layout is '9'"),
    "no positions": ("evaluations = {coverage = {}}\n" + OWN("Slider") + SUSD, "has no position whose coverage"),
    "own options": (
        "evaluations = {control = {}}\n" + OWN("Slider") + "train = {env_options = {speed = 3}}" + SUSD,
        "'speed'",
    ),
    "missing environment": (OWN("Missing") + SUSD, "'Missing'"),
    "missing file": ('[environments.own]\nenv = "none.py:X"\n' + SUSD, "file 'none.py' does not exist"),
    "unknown id": (
        '[environments.own]\nenv = "gymnasium:Nothing-v0"\n' + SUSD,
        "Gymnasium has no environment 'Nothing-v0'",
    ),
    "factors": (GUNNER + SUSD + 'factors = "a=0:2"', "belongs to no factor"),
    "environment's option": ("train = {env_options = {start = 9}}\n" + GUNNER + SUSD, "option 'start' cannot be 9"),
    "horizon": ("train = {env_options = {horizon = 9}}\n" + GUNNER + SUSD, "'horizon' of a run is --horizon"),
    "shared factor": (GUNNER + SUSD + 'share_agent = "gun"', "'gun'"),
    "buffer": (GUNNER + SUSD + "buffer_size = 10", "--buffer-size is 10"),
    "memory": (GUNNER + SUSD + "hidden = 65536\nlayers = 16", "GiB of memory"),
    "label of 400": (GUNNER + f"[methods.{'x' * 400}]\nmethod = 'susd'", "a name has at most 64 letters"),
    "environment of 400": (f"[environments.{'x' * 400}]\nenv = 'gunner'\n" + SUSD, "a name has at most 64 letters"),
}


@pytest.mark.parametrize("name", SUITES)
def test_refused_before_the_first_job(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scheduler, "start_process", lambda *_: pytest.fail("a job has started"))
    monkeypatch.chdir(tmp_path)
    text, part = SUITES[name]
    (tmp_path / "mine.py").write_text(FILE)
    (tmp_path / "suite.toml").write_text(text)
    sentence = refused(capsys, "suite", "run", "suite.toml")
    assert part in sentence, sentence
    assert len(sentence) < 600
    assert {path.name for path in tmp_path.iterdir()} <= {"mine.py", "suite.toml", "__pycache__"}


def test_broken_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It is reported with its traceback."""
    monkeypatch.setattr(scheduler, "start_process", lambda *_: pytest.fail("a job has started"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(FILE)
    (tmp_path / "suite.toml").write_text(OWN("Broken") + SUSD)
    call("suite", "run", "suite.toml", code=2)
    assert "environment 0 of mine.py:Broken failed in the reset" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()

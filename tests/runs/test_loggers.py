"""TensorBoard and Weights & Biases receive the values; a missing package is named."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from susd.errors import UserError
from susd.runs.atomic import write_json
from susd.runs.loggers import check_loggers, open_loggers

CONFIG = {"method": "susd", "seed": 0}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_json(tmp_path / "config.json", CONFIG)
    return tmp_path


def test_tensorboard_receives_values(run: Path) -> None:
    with open_loggers(run, tensorboard=False, wandb=False) as loggers:
        assert loggers == []
    with open_loggers(run, tensorboard=True, wandb=False) as (logger,):
        logger.write({"epoch": 1, "some/loss": np.float32(0.5), "note": "text"})
    (events,) = (run / "tensorboard").iterdir()
    assert b"some/loss" in events.read_bytes()
    assert b"note" not in events.read_bytes()


def test_wandb_receives_values_and_is_closed(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    log = SimpleNamespace(log=lambda row, step: calls.append((row, step)), finish=lambda: calls.append("end"))
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **options: calls.append(options) or log))

    def interrupted() -> None:
        with open_loggers(run, tensorboard=False, wandb=True) as (logger,):
            logger.write({"epoch": 3, "loss": jnp.float32(0.5), "note": "text"})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (calls[0]["config"], calls[0]["resume"]) == (CONFIG, "allow")
    assert calls[1:] == [({"loss": 0.5}, 3), "end"]


@pytest.mark.parametrize(("module", "name"), [("tensorboardX", "tensorboard"), ("wandb", "wandb")])
def test_missing_package_is_named(run: Path, monkeypatch: pytest.MonkeyPatch, module: str, name: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    wanted = {"tensorboard": name == "tensorboard", "wandb": name == "wandb"}
    with pytest.raises(UserError, match=re.escape(f"pip install 'susd[{name}]'")):
        check_loggers(**wanted)
    with pytest.raises(UserError, match=re.escape(f"pip install 'susd[{name}]'")), open_loggers(run, **wanted):
        pass

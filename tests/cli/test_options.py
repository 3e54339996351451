"""Absurd values of every option of every command: one sentence, exit code 2, nothing written."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import susd.training.train
from conftest import refused
from susd.cli.common import SPECIAL, flag_of, integer, number, path
from susd.cli.main import parser
from susd.config import Config, check_option
from susd.downstream.config import FROM_RUN, DownstreamConfig
from susd.errors import UserError
from susd.evaluation.registry import evaluation, names

HUGE, LONG = "9" * 401, "x" * 20_000
ABSURD: dict[type, tuple[str, ...]] = {
    int: (HUGE, "9" * 5000, f"-{HUGE}", "1e3", "3.5", "nan", "", LONG, "١.٥"),
    float: ("1e300", "-1e300", HUGE, "9" * 5000, "nan", "inf", "-inf", "", LONG, "1,5"),
    str: (LONG, "a\nb", "\x1b[31m", "no-such-thing" * 30),
}
PATHS = ("", " ", "y" * 300, f"a/{'y' * 300}/b", "z/" * 3000, "a\nb")
RUN = [spec for spec in dataclasses.fields(Config) if spec.name not in SPECIAL]
TASK = [spec for spec in dataclasses.fields(DownstreamConfig) if spec.name not in FROM_RUN]
# Read when the environment is made, by `train`.
OF_THE_ENVIRONMENT = ("factors", "share_agent", "skill_factors", "positions", "landmarks")
NEEDED = {  # what each command needs, in addition to the option that is wrong
    "train": ("gunner",),
    "config": ("gunner",),
    "check": ("gunner",),
    "bench": ("env", "gunner"),
    "doctor": ("gunner",),
    "methods": (),
    "evaluate": ("nowhere", "coverage"),
    "downstream": ("nowhere", "--task", "lim"),
    "report": (),
    "show": (),
    "verify": (),
    "explore": ("nowhere",),
    "atlas": ("nowhere",),
    "skills": (),
    "push": ("nowhere", "there"),
    "pull": ("nowhere",),
    "export": ("nowhere",),
    "record": ("nowhere", "--episodes", "2"),
    "suite run": ("smoke",),
    "suite show": ("smoke",),
    "suite list": (),
    "suite slurm": ("smoke",),
    "suite merge": ("smoke",),
}


@pytest.fixture(autouse=True)
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A working directory that stays empty; no training starts."""
    monkeypatch.setattr(susd.training.train.Session, "start", lambda *_: pytest.fail("the training has started"))
    monkeypatch.chdir(tmp_path)
    yield
    assert list(tmp_path.iterdir()) == []


def commands(top: argparse.ArgumentParser | None = None, name: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command with its parser, and those of verbs."""
    top = top or parser()
    inner = [action for action in top._actions if isinstance(action, argparse._SubParsersAction)]
    if not inner:
        yield name, top
    for action in inner:
        for verb, one in action.choices.items():
            yield from commands(one, f"{name} {verb}".strip())


def wrong_values(action: argparse.Action) -> tuple[str, ...]:
    kinds: dict[Any, tuple[str, ...]] = {integer: ABSURD[int], number: ABSURD[float], path: PATHS}
    return kinds.get(action.type, ABSURD[str] if action.nargs is None or action.nargs == "?" else ())


def own_actions(one: argparse.ArgumentParser) -> list[argparse.Action]:
    """The arguments of a command without those of every run, which `config` is tested with, and without switches."""
    shared = {flag_of(spec.name) for spec in (*RUN, *TASK)}
    return [a for a in one._actions if a.nargs != 0 and not shared & set(a.option_strings) and a.dest != "help"]


@pytest.mark.parametrize(("name", "one"), list(commands()), ids=[name for name, _ in commands()])
def test_own_options_of_commands(name: str, one: argparse.ArgumentParser, capsys: pytest.CaptureFixture[str]) -> None:
    for action in own_actions(one):
        for value in wrong_values(action):
            if action.option_strings:
                typed = [*NEEDED[name], f"{action.option_strings[-1]}={value}"]
            else:
                places = [a.dest for a in one._actions if not a.option_strings]
                typed = [*NEEDED[name]]
                typed[places.index(action.dest) : places.index(action.dest) + 1] = [value]
            sentence = refused(capsys, *name.split(), *typed)
            assert len(sentence) < 1000, (name, action.dest)


def sentences(capsys: pytest.CaptureFixture[str], spec: dataclasses.Field[Any], *before: str) -> None:
    for value in ABSURD.get(type(spec.default), ()):
        sentence = refused(capsys, *before, f"{flag_of(spec.name)}={value}")
        assert spec.name in sentence or flag_of(spec.name) in sentence
        assert len(sentence) < 1000


@pytest.mark.parametrize("start", range(4))
def test_options_of_runs(start: int, capsys: pytest.CaptureFixture[str]) -> None:
    for spec in [spec for spec in RUN if spec.name not in OF_THE_ENVIRONMENT][start::4]:
        sentences(capsys, spec, "config", "gunner")


def test_options_of_the_environment(capsys: pytest.CaptureFixture[str]) -> None:
    for spec in RUN:
        if spec.name in OF_THE_ENVIRONMENT:
            sentences(capsys, spec, "train", "gunner")
    for value in (
        f"start={HUGE}",
        f"start={'9' * 5000}",
        "start=" + "[" * 100_000,
        "=1",
        "x",
        f"{LONG}=1",
        f"start={LONG}",
    ):
        assert len(refused(capsys, "train", "gunner", f"--env-option={value}")) < 1000
    assert "--horizon" in refused(capsys, "train", "gunner", "--env-option", "horizon=5")


@pytest.mark.parametrize("spec", [*RUN, *TASK], ids=lambda spec: spec.name)
def test_python_values(spec: dataclasses.Field[Any]) -> None:
    """No value whatever raises anything but a UserError of one line."""
    values = (
        None,
        object(),
        [],
        {},
        b"x",
        float("nan"),
        10**5000,
        -(10**5000),
        "\0",
        "\ud800",
        {1: 2},
        {"a": object()},
        1j,
    )
    for value in values:
        if isinstance(value, type(spec.default)) and not isinstance(value, int | float):
            continue  # text may be a name
        with pytest.raises(UserError) as caught:
            check_option(spec, value)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", names())
def test_options_of_evaluations(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for option in evaluation(name).options:
        for value in ABSURD[type(option.default)]:
            if (name, option.name, value) == ("ceiling", "layout", ABSURD[str][-1]):
                continue  # a name, which is looked up in the run's environment
            sentence = refused(capsys, "evaluate", "nowhere", name, f"--{option.name.replace('_', '-')}={value}")
            assert "nowhere" not in sentence, "the option comes first"
            assert len(sentence) < 1000


def test_values_that_are_only_too_large(capsys: pytest.CaptureFixture[str]) -> None:
    for typed, part in {
        "bench env gunner --num-envs 1000000000000": "--num-envs is 1000000000000; it must be from 1 to 10000000",
        "bench env gunner --seconds 1e9": "--seconds is 1000000000.0; it must be more than 0, and at most 86400",
        "bench update gunner --num-envs 3": "it is for `susd bench env`",
        "bench epoch gunner --buffer-size 2000000000": "GiB of memory",
        "bench env ant --num-envs 1000000": "'num_envs' cannot be 1000000; allowed: an integer from 1 to 100000",
        "check gunner --steps 1000000000000": "--steps is 1000000000000",
        "suite run smoke --workers 1000000000000": "--workers is 1000000000000",
        "train ant --env-option threads=1000000": "'threads' cannot be 1000000; allowed: an integer from 0 to 1024",
        f"train gymnasium:{'A' * 300}-v0": "Gymnasium has no environment",
        f"train {'a' * 300}.py:make": "a name has at most 255",
    }.items():
        assert part in refused(capsys, *typed.split()), typed

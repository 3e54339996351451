"""`--positions` and `--landmarks`: coverage in Gymnasium environments without a file."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from susd.config import configure
from susd.envs import make
from susd.envs.base import Plane
from susd.errors import UserError
from susd.training.trainer import build_env

PENDULUM = "gymnasium:Pendulum-v1"  # cos, sin within -1 to 1, and the speed within -8 to 8


def spec(**options: Any) -> Any:
    return make(PENDULUM, num_envs=1, **options).spec


def test_text_and_mapping() -> None:
    tip = Plane("tip", 0, 1, -1.0, 1.0)
    assert spec(positions="tip=0:2").planes == (tip,)
    assert spec(positions="tip=0:2@-1:1, speed=2").planes == (tip, Plane("speed", 2, 2, -8.0, 8.0))
    assert spec(positions="speed=2:3@-2.5:4").planes[0].is_line
    assert spec(positions={"tip": (0, 1, -1, 1)}).planes == (tip,)
    assert spec(landmarks="up=0,fast=2").landmarks == {"up": 0, "fast": 2}
    assert (spec().planes, spec().landmarks) == ((), {})


def test_options_of_a_run() -> None:
    config = configure(PENDULUM, positions="tip=0:2", landmarks="up=0", factors="tip=0:2,speed=2", horizon=30, episodes=1)
    made = build_env(config).spec
    assert (made.horizon, made.planes[0].name, made.landmarks) == (30, "tip", {"up": 0})
    assert type(config).from_json(config.to_json()) == config
    assert "positions" not in configure(PENDULUM).to_json()  # those of the environment


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"positions": "tip"}, "cannot read 'tip'"),
        ({"positions": "tip=0:3"}, "one or two indices"),
        ({"positions": "tip=2:1"}, "one or two indices"),
        ({"positions": "tip=-1:1"}, "one or two indices"),
        ({"positions": "tip=0:2@1"}, "one or two indices"),
        ({"positions": "tip=0:2@"}, "one or two indices"),
        ({"positions": "tip=2:4"}, "the observation has 3 dimensions"),
        ({"positions": "tip=0:2@1:-1"}, "low must be below high"),
        ({"positions": "tip=0:2@nan:1"}, "low must be below high"),
        ({"positions": "tip=0:2,tip=1:3"}, "named twice"),
        ({"positions": 5}, "cannot be 5"),
        ({"landmarks": "up=x"}, "it must be an index"),
        ({"landmarks": "up=3"}, "an integer from 0 to 2"),
        ({"landmarks": "up"}, "cannot read 'up'"),
    ],
    ids=str,
)
def test_mistakes(options: dict[str, Any], part: str) -> None:
    with pytest.raises(UserError) as caught:
        spec(**options)
    assert part in str(caught.value)


def test_unbounded_observations_need_a_box() -> None:
    with pytest.raises(UserError, match=r"no finite bounds at 0:2 of 'arm'; write the box, for example arm=0:2@-1:1"):
        make("gymnasium:Reacher-v5", num_envs=1, positions="arm=0:2")
    assert make("gymnasium:Reacher-v5", num_envs=1, positions="arm=0:2@-1:1").spec.planes[0].high == 1.0


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="ab=:,@+-.019 ", max_size=12))
def test_any_text(text: str) -> None:
    """It is read, or refused with a sentence."""
    for option in ("positions", "landmarks"):
        with contextlib.suppress(UserError):
            made = spec(**{option: text})
            assert made.planes or made.landmarks


def test_one_name_for_the_horizon() -> None:
    for name in (PENDULUM, "gunner"):
        with pytest.raises(UserError, match=r"'horizon' of a run is --horizon; it cannot be 5"):
            build_env(configure(name, env_options={"horizon": 5}))
    with pytest.raises(UserError, match="--positions is 'a=0:2', but it is for Gymnasium environments; gunner has its own"):
        build_env(configure("gunner", positions="a=0:2"))

"""The measurements during training: which are defined for which parts of the skill."""

import dataclasses
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import pytest

from evaluation.two_points import TwoPoints
from susd.config import configure
from susd.envs.base import EnvSpec
from susd.evaluation.online import build_online
from susd.training.agent import part_names
from susd.training.trainer import Trainer

SMALL: dict[str, Any] = {"hidden": 4, "phi_hidden": 4, "episodes": 2, "buffer_size": 100, "warmup": 16}


class Owned(TwoPoints):
    """Point a has its position, not its flag, of its own; b has nothing."""

    @cached_property
    def spec(self) -> EnvSpec:
        return dataclasses.replace(super().spec, own={"a": (1, 2)})


@pytest.mark.parametrize(
    ("env", "options", "names", "ratio"),
    [
        (TwoPoints(), {}, ("a", "b"), True),
        (TwoPoints(), {"method": "metra"}, ("all",), False),
        (Owned(), {}, ("a", "b"), True),  # two parts, of which one has a factor that is measured
        (Owned(), {"phi_input": "own"}, ("a",), False),
    ],
)
def test_control_where_every_factor_has_a_part(
    env: Any, options: dict[str, Any], names: tuple[str, ...], ratio: bool
) -> None:
    trainer = Trainer.build(configure("points", **SMALL, **options), env)
    assert part_names(trainer) == names
    measure = build_online(trainer)
    assert measure is not None
    found = measure(trainer.start(), 0)
    assert ("control_ratio" in found) == ratio
    assert found["coverage_average"].shape == (1,)
    assert all(jnp.isfinite(value).all() for value in found.values())

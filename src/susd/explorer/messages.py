"""Requests of the page, checked: what comes from outside is data of unknown shape. See PROTOCOL.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from susd.errors import UserError

PLAYERS = ("skill", "raw", "expert", "policy")
MOST_STEPS = 64  # of one request
MOST_REPLAYED = 20_000  # steps of a link
MOST_SEED = 2**31 - 1
LONGEST_TEXT = 300


@dataclass(frozen=True)
class Sizes:
    """What the vectors of a request must fit to."""

    parts: int
    dim: int
    actions: int


@dataclass(frozen=True)
class Episode:
    """How an episode starts; the task is "" without one."""

    seed: int = 0
    layout: str = ""
    task: str = ""


@dataclass(frozen=True)
class Target:
    """A goal of one part: a point in the space of phi, or a point in the drawing."""

    phi: np.ndarray | None = None
    to: tuple[float, float] | None = None


@dataclass(frozen=True)
class Control:
    """What acts in the next steps."""

    player: str
    skill: np.ndarray
    goals: tuple[Target | None, ...]
    sampled: bool = False
    raw: np.ndarray | None = None
    policy: str = ""


def integer(what: str, value: Any, low: int, high: int) -> int:
    """An integer in a range."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise UserError(f"{what} is {_shown(value)}; it must be an integer from {low} to {high}")
    return value


def text(what: str, value: Any) -> str:
    """A short text; None is ""."""
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > LONGEST_TEXT:
        raise UserError(f"{what} is {_shown(value)}; it must be a text of at most {LONGEST_TEXT} characters")
    return value


def boolean(what: str, value: Any) -> bool:
    """True or false; None is false."""
    if value is not None and not isinstance(value, bool):
        raise UserError(f"{what} is {_shown(value)}; it must be true or false")
    return bool(value)


def mapping(what: str, value: Any) -> Mapping[str, Any]:
    """An object."""
    if not isinstance(value, dict):
        raise UserError(f"{what} is {_shown(value)}; it must be an object")
    return value


def sequence(what: str, value: Any, longest: int) -> list[Any]:
    """A list that is not too long."""
    if not isinstance(value, list) or len(value) > longest:
        raise UserError(f"{what} is {_shown(value)}; it must be a list of at most {longest} items")
    return value


def vector(what: str, value: Any, size: int) -> np.ndarray:
    """Finite numbers of moderate size."""
    numbers = sequence(what, value, size)
    if len(numbers) != size or not all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in numbers):
        raise UserError(f"{what} is {_shown(value)}; it must be {size} numbers")
    if not all(-1e6 <= x <= 1e6 for x in numbers):  # False for nan, too
        raise UserError(f"{what} is {_shown(value)}; its numbers must be finite and at most a million")
    return np.array(numbers, np.float32)


def read_episode(value: Any) -> Episode:
    """The start of an episode."""
    given = mapping("the episode", value)
    seed = integer("the seed", given.get("seed", 0), 0, MOST_SEED)
    return Episode(seed, text("the layout", given.get("layout")), text("the task", given.get("task")))


def read_control(value: Any, sizes: Sizes) -> Control:
    """What acts; a vector that the player does not need may be absent."""
    given = mapping("the control", value)
    player = text("the player", given.get("player")) or "skill"
    if player not in PLAYERS:
        raise UserError(f"the player is {_shown(player)}; it must be one of {', '.join(PLAYERS)}")
    size = sizes.parts * sizes.dim
    needed = player == "skill" or given.get("skill") is not None
    return Control(
        player=player,
        skill=vector("the skill", given.get("skill"), size) if needed else np.zeros(size, np.float32),
        goals=_goals(given.get("goals"), sizes),
        sampled=boolean("sampled", given.get("sampled")),
        raw=vector("the raw action", given.get("raw"), sizes.actions) if player == "raw" else None,
        policy=text("the policy", given.get("policy")),
    )


def read_segments(value: Any, sizes: Sizes) -> list[tuple[Control, int]]:
    """The controls of a replay, each with its steps."""
    segments = []
    for item in sequence("the segments", value, MOST_REPLAYED):
        given = mapping("a segment", item)
        steps = integer("the steps of a segment", given.get("steps"), 1, MOST_REPLAYED)
        segments.append((read_control(given.get("control"), sizes), steps))
    if (total := sum(steps for _, steps in segments)) > MOST_REPLAYED:
        raise UserError(f"the segments have {total} steps; a link can have at most {MOST_REPLAYED}")
    return segments


def _goals(value: Any, sizes: Sizes) -> tuple[Target | None, ...]:
    if value is None:
        return (None,) * sizes.parts
    given = sequence("the goals", value, sizes.parts)
    if len(given) != sizes.parts:
        raise UserError(f"there are {len(given)} goals; there must be {sizes.parts}, one for each part")
    return tuple(None if item is None else _target(mapping("a goal", item), sizes) for item in given)


def _target(given: Mapping[str, Any], sizes: Sizes) -> Target:
    if given.get("phi") is not None:
        return Target(phi=vector("phi of a goal", given["phi"], sizes.dim))
    x, y = vector("the point of a goal", given.get("to"), 2).tolist()
    return Target(to=(x, y))


def _shown(value: Any) -> str:
    """A value for a message, shortened."""
    shown = repr(value) if not isinstance(value, (list, dict)) else f"a {type(value).__name__} of {len(value)}"
    return shown if len(shown) <= 80 else f"{shown[:77]}..."

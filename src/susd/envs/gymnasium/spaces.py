"""Gymnasium's spaces as plain vectors: observations to float32 numbers, actions from [-1, 1]. Imports no JAX."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from susd.errors import UserError


@dataclass(frozen=True)
class _Entry:
    """One leaf of an observation: where it is found, and where its numbers go."""

    keys: tuple[str, ...]
    space: Any
    start: int
    size: int

    @property
    def name(self) -> str:
        return "/".join(self.keys)

    def read(self, obs: Any) -> np.ndarray:
        """Its numbers in an observation; what does not fit its space is a ValueError in words."""
        called = f"entry {self.name!r}" if self.keys else "it"
        for key in self.keys:
            try:
                obs = obs[key]
            except (KeyError, TypeError, IndexError):
                raise ValueError(f"{called} is missing") from None
        array = np.asarray(obs)
        if array.shape != (self.space.shape or ()):
            raise ValueError(f"{called} has the shape {array.shape}, but its space says {self.space.shape or ()}")
        if array.dtype.kind not in "biuf":
            raise ValueError(f"{called} has the type {array.dtype}; it must hold numbers")
        if array.dtype.kind == "f" and self.space.dtype.kind != "f":
            raise ValueError(f"{called} has the type {array.dtype}, but its space says {self.space.dtype}")
        if isinstance(self.space, spaces.Discrete):
            choice = array - self.space.start
            if not 0 <= choice < self.size:
                raise ValueError(f"{called} is {obs!r}, but its space is {self.space}")
            return np.arange(self.size) == choice
        return array.reshape(-1)

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The least and the largest that each of its numbers may be."""
        if isinstance(self.space, spaces.Box):
            return self.space.low.reshape(-1), self.space.high.reshape(-1)
        return np.zeros(self.size), np.ones(self.size)


class Observations:
    """Observations of a space as vectors of `size` numbers; `factors` has the indices of each entry of a Dict."""

    def __init__(self, space: Any, env: str) -> None:
        self._entries = tuple(_entries(space, env, (), 0))
        self.size = self._entries[-1].start + self._entries[-1].size if self._entries else 0
        if not self.size:
            raise UserError(f"{env} has an empty observation space: {space}")
        names = [e.name for e in self._entries if e.size]
        if double := [name for name in names if names.count(name) > 1]:
            raise UserError(f"{env} has two observations that are called {double[0]!r}; give one of them another key")
        self.factors = {e.name or "state": range(e.start, e.start + e.size) for e in self._entries if e.size}
        lows, highs = zip(*(entry.bounds for entry in self._entries), strict=True)
        self.low, self.high = np.concatenate(lows).astype(np.float64), np.concatenate(highs).astype(np.float64)

    def read(self, obs: Any) -> np.ndarray:
        """The vector, float32; a ValueError says in words what is wrong with an observation."""
        vector = np.empty(self.size, np.float32)
        with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite and is refused below
            for entry in self._entries:
                vector[entry.start : entry.start + entry.size] = entry.read(obs)
        finite = np.isfinite(vector)
        if not finite.all():
            index = int(np.argmin(finite))
            owner = next(e for e in self._entries if e.start <= index < e.start + e.size)
            where = f" (number {index - owner.start} of entry {owner.name!r})" if owner.keys else ""
            raise ValueError(f"its index {index}{where} is {vector[index]}")
        return vector


def _entries(space: Any, env: str, keys: tuple[str, ...], start: int) -> Iterator[_Entry]:
    """The leaves of a space, in the order of its keys."""
    if isinstance(space, spaces.Dict):
        for key, inner in space.spaces.items():
            for entry in _entries(inner, env, (*keys, key), start):
                yield entry
                start = entry.start + entry.size
    elif isinstance(space, (spaces.Box, spaces.MultiBinary)):
        yield _Entry(keys, space, start, int(np.prod(space.shape)))
    elif isinstance(space, spaces.Discrete):
        yield _Entry(keys, space, start, int(space.n))
    else:
        where = f" under {'/'.join(keys)!r}" if keys else ""
        raise UserError(
            f"{env} has observations of the kind {type(space).__name__}{where}; allowed are Box, Discrete, MultiBinary "
            "and Dict. gymnasium.wrappers.TransformObservation can change them"
        )


class Actions:
    """Actions in [-1, 1] as those of a Box."""

    def __init__(self, space: Any, env: str) -> None:
        if isinstance(space, spaces.Discrete):
            raise UserError(f"{env} has {space.n} discrete actions; susd needs continuous ones, a Box")
        if not isinstance(space, spaces.Box) or space.dtype.kind != "f":
            raise UserError(f"{env} has the actions {space}; susd needs a Box of floating-point numbers")
        bounds = np.stack([space.low.reshape(-1), space.high.reshape(-1)]).astype(np.float64)
        bad = ~np.isfinite(bounds).all(0)
        if bad.any() or not bounds.size:
            index = int(np.argmax(bad))
            what = f"index {index} goes from {bounds[0, index]} to {bounds[1, index]}" if bounds.size else "there are none"
            raise UserError(f"{env} has actions without bounds: {what}; declare a finite low and high in its action_space")
        self.size = bounds.shape[1]
        self._shape, self._dtype = space.shape, space.dtype
        self._low, self._high = bounds

    def write(self, action: np.ndarray) -> np.ndarray:
        """The environment's action for one in [-1, 1]; what lies outside is cut off."""
        share = (np.clip(action, -1.0, 1.0).astype(np.float64) + 1.0) / 2.0
        scaled = self._low * (1.0 - share) + self._high * share  # exact at both ends
        return scaled.reshape(self._shape).astype(self._dtype)

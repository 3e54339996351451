"""Gymnasium's spaces as vectors: observations as float32, actions from [-1, 1]. Imports no JAX."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from susd.errors import UserError, shown


@dataclass(frozen=True)
class _Entry:
    """One leaf of an observation: its keys, and its slice of the vector."""

    keys: tuple[str, ...]
    space: Any
    start: int
    size: int

    @property
    def name(self) -> str:
        return "/".join(self.keys)

    def find(self, obs: Any) -> np.ndarray:
        """Its array in an observation, whatever its shape; a ValueError if there is none."""
        for key in self.keys:
            try:
                obs = obs[key]
            except (KeyError, TypeError, IndexError):
                raise ValueError(f"entry {self.name!r} is missing") from None
        return np.asarray(obs)

    def read(self, obs: Any, batch: tuple[int, ...] = ()) -> np.ndarray:
        """Its values in an observation, or in a batch of them; a ValueError if they do not fit its space."""
        called, array = f"entry {self.name!r}" if self.keys else "it", self.find(obs)
        shape = (*batch, *(self.space.shape or ()))
        if array.shape != shape:
            raise ValueError(f"{called} has the shape {array.shape}, but its space says {shape}")
        if array.dtype.kind not in "biuf":
            raise ValueError(f"{called} has the type {array.dtype}; it must be numeric")
        if array.dtype.kind == "f" and self.space.dtype.kind != "f":
            raise ValueError(f"{called} has the type {array.dtype}, but its space says {self.space.dtype}")
        if isinstance(self.space, spaces.Discrete):
            value = np.asarray(array - self.space.start)
            if not ((value >= 0) & (value < self.size)).all():
                raise ValueError(f"{called} is {shown(array.tolist())}, but its space is {self.space}")
            return np.arange(self.size) == value[..., None]
        return array.reshape(*batch, -1)

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The smallest and the largest value of each dimension."""
        if isinstance(self.space, spaces.Box):
            return self.space.low.reshape(-1), self.space.high.reshape(-1)
        return np.zeros(self.size), np.ones(self.size)


class Observations:
    """Observations of a space as vectors of `size` dimensions; `factors` has the indices of each entry of a Dict."""

    def __init__(self, space: Any, env: str) -> None:
        self._entries = tuple(_entries(space, env, (), 0))
        self.size = self._entries[-1].start + self._entries[-1].size if self._entries else 0
        if not self.size:
            raise UserError(f"{env} has an empty observation space: {space}")
        names = [e.name for e in self._entries if e.size]
        if repeated := [name for name in names if names.count(name) > 1]:
            raise UserError(f"{env} has two observations named {repeated[0]!r}; rename one of the keys")
        self.factors = {e.name or "state": range(e.start, e.start + e.size) for e in self._entries if e.size}
        lows, highs = zip(*(entry.bounds for entry in self._entries), strict=True)
        self.low, self.high = np.concatenate(lows).astype(np.float64), np.concatenate(highs).astype(np.float64)

    def read(self, obs: Any, batch: tuple[int, ...] = ()) -> np.ndarray:
        """The vector, float32; a ValueError says what is wrong with an observation."""
        vector = np.empty((*batch, self.size), np.float32)
        with np.errstate(over="ignore"):  # values too large for float32 become infinite and are refused below
            for entry in self._entries:
                vector[..., entry.start : entry.start + entry.size] = entry.read(obs, batch)
        finite = np.isfinite(vector)
        if not finite.all():
            place = tuple(np.argwhere(~finite)[0])
            index = int(place[-1])
            owner = next(e for e in self._entries if e.start <= index < e.start + e.size)
            where = f" (position {index - owner.start} of entry {owner.name!r})" if owner.keys else ""
            raise ValueError(f"its index {index}{where} is {vector[place]}")
        return vector

    def is_native(self, obs: Any) -> bool:
        """Whether an observation, or a batch of them, has the form of the space and not yet that of a vector."""
        if isinstance(obs, Mapping):
            return True
        if len(self._entries) > 1 or self._entries[0].keys:
            return False
        space = self._entries[0].space
        try:
            array, shape = np.asarray(obs), space.shape or ()
        except ValueError:  # nested lists of different lengths
            return False
        if isinstance(space, spaces.Discrete):  # as a vector it is one-hot
            return array.dtype.kind in "iu" and array.ndim <= 1
        return array.shape == shape or array.shape[1:] == shape

    def flatten(self, obs: Any) -> np.ndarray:
        """The vector [S] of an observation, or those of a batch, [B, S]; a UserError says what does not fit."""
        try:
            first = next(entry for entry in self._entries if entry.size)
            extra = first.find(obs).ndim - len(first.space.shape or ())
            return self.read(obs, first.find(obs).shape[:1] if extra == 1 else ())
        except ValueError as error:
            raise UserError(f"the observation does not fit the environment's space: {error}") from None


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
            f"{env} has observations of type {type(space).__name__}{where}; allowed are Box, Discrete, MultiBinary "
            "and Dict. gymnasium.wrappers.TransformObservation can convert them"
        )


class Actions:
    """The action space, a Box, rescaled to [-1, 1]."""

    def __init__(self, space: Any, env: str) -> None:
        if isinstance(space, spaces.Discrete):
            raise UserError(f"{env} has {space.n} discrete actions; susd needs continuous actions, a Box")
        if not isinstance(space, spaces.Box) or space.dtype.kind != "f":
            raise UserError(f"{env} has the action space {space}; susd needs a Box of floating-point type")
        bounds = np.stack([space.low.reshape(-1), space.high.reshape(-1)]).astype(np.float64)
        bad = ~np.isfinite(bounds).all(0)
        if bad.any() or not bounds.size:
            index = int(np.argmax(bad))
            what = f"index {index} is from {bounds[0, index]} to {bounds[1, index]}" if bounds.size else "it is empty"
            raise UserError(f"{env} has an action space without finite bounds: {what}; declare a finite low and high")
        self.size = bounds.shape[1]
        self._shape, self._dtype = space.shape, space.dtype
        self._low, self._high = bounds

    def write(self, action: np.ndarray) -> np.ndarray:
        """The environment's action for one in [-1, 1], or for a batch [.., A]; values outside are clipped."""
        share = (np.clip(action, -1.0, 1.0).astype(np.float64) + 1.0) / 2.0
        scaled = self._low * (1.0 - share) + self._high * share  # exact at both ends
        return scaled.reshape(*action.shape[:-1], *self._shape).astype(self._dtype)

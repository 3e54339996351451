"""Factorization: named index sets that partition an observation into the factors s^1 .. s^N."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from susd.errors import UserError, shown

LARGEST = 10**7  # dimensions of an observation


def _index(name: str, value: object) -> int:
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise UserError(f"factor {name!r}: {shown(value)} is not an index; indices are integers") from None


def _check_size(size: object) -> None:
    if type(size) is not int or not 1 <= size <= LARGEST:
        raise UserError(f"the size of the observation is {shown(size)}; it must be an integer from 1 to {LARGEST}")


@dataclass(frozen=True)
class Factorization:
    """A partition of the indices 0 .. size-1 of an observation into named factors."""

    names: tuple[str, ...]
    indices: tuple[tuple[int, ...], ...]
    size: int

    def __post_init__(self) -> None:
        for what, value in (("names", self.names), ("indices", self.indices)):
            if not isinstance(value, tuple):
                raise UserError(f"the {what} of the factors are {shown(value)}; they must be a tuple")
        if not self.names:
            raise UserError("a factorization needs at least one factor")
        _check_size(self.size)
        if len(self.names) != len(self.indices):
            raise UserError(f"{len(self.names)} factor names for {len(self.indices)} index sets")
        owner: dict[int, str] = {}
        for name, indices in zip(self.names, self.indices, strict=True):
            if not isinstance(name, str) or not name.isprintable():
                raise UserError(f"a factor has the name {shown(name)}; names are text")
            if not name:
                raise UserError("a factor has an empty name")
            if self.names.count(name) > 1:
                raise UserError(f"factor {name!r} is named twice")
            if not isinstance(indices, tuple) or any(type(index) is not int for index in indices):
                raise UserError(f"factor {name!r} has the indices {shown(indices)}; they must be a tuple of integers")
            if not indices:
                raise UserError(f"factor {name!r} is empty; every factor needs at least one index")
            for index in indices:
                if not 0 <= index < self.size:
                    raise UserError(
                        f"factor {name!r}: index {shown(index)} is outside the observation, which has indices 0 to "
                        f"{self.size - 1}"
                    )
                if index in owner:
                    raise UserError(f"index {index} is in factor {owner[index]!r} and again in factor {name!r}")
                owner[index] = name
        missing = [index for index in range(self.size) if index not in owner]
        if missing:
            raise UserError(
                f"observation index {missing[0]} belongs to no factor ({len(missing)} missing in total: {missing[:10]}); "
                f"factors must cover 0 to {self.size - 1}"
            )

    @classmethod
    def from_mapping(cls, factors: Mapping[str, Sequence[int]], size: int) -> Factorization:
        """From `{"agent": [0, 1], "ammo": [2]}`."""
        if not isinstance(factors, Mapping):
            raise UserError(f"the factors are {shown(factors)}; they must be a mapping from names to indices")
        for name, indices in factors.items():
            if isinstance(indices, str) or not isinstance(indices, Iterable):
                raise UserError(f"factor {name!r} is {shown(indices)}; it must be a list of indices, such as [0, 1]")
        return cls(tuple(factors), tuple(tuple(_index(name, i) for i in factors[name]) for name in factors), size)

    @classmethod
    def from_boundaries(cls, boundaries: Sequence[int], names: Sequence[str]) -> Factorization:
        """From contiguous blocks, e.g. boundaries (0, 6, 13, 18) for three factors."""
        for what, values in (("boundaries", boundaries), ("names", names)):
            if not isinstance(values, Sequence) or isinstance(values, str | bytes):
                raise UserError(f"the {what} are {shown(values)}; they must be a list")
        edges = [_index("boundaries", edge) for edge in boundaries]
        if edges and not -LARGEST < min(edges) <= max(edges) < LARGEST:
            raise UserError(f"the boundaries are {shown(boundaries)}; an observation has less than {LARGEST} dimensions")
        blocks = tuple(tuple(range(a, b)) for a, b in pairwise(edges))
        return cls(tuple(names), blocks, edges[-1] if edges else 0)

    @classmethod
    def parse(cls, text: str, size: int) -> Factorization:
        """From the form of the command line: `agent=0:6,ammo=6:13`; index sets are joined with `+`: `a=0:2+4`."""
        if not isinstance(text, str):
            raise UserError(f"the factors are {shown(text)}; they must be text, such as agent=0:6,ammo=6:13")
        _check_size(size)
        factors: dict[str, list[int]] = {}
        for part in text.split(","):
            name, equals, ranges = part.partition("=")
            name = name.strip()
            if not equals or not name or not ranges:
                raise UserError(f"cannot read factor {shown(part)}; write NAME=START:STOP, for example agent=0:6,ammo=6:13")
            if name in factors:
                raise UserError(f"factor {name!r} is named twice")
            factors[name] = []
            for piece in ranges.split("+"):
                start, colon, stop = piece.partition(":")
                try:
                    first = int(start)
                    last = int(stop) if colon else first + 1
                except ValueError:
                    message = f"factor {name!r}: cannot read {shown(piece)}; write START:STOP with integers"
                    raise UserError(message) from None
                if last - first > size:
                    raise UserError(
                        f"factor {name!r}: {shown(piece)} is longer than the observation, which has {size} dimensions"
                    )
                factors[name].extend(range(first, last))
        return cls.from_mapping(factors, size)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of dimensions of each factor."""
        return tuple(len(indices) for indices in self.indices)

    @cached_property
    def owners(self) -> tuple[str, ...]:
        """[S] the name of the factor that each dimension of the observation belongs to."""
        names = {index: name for name, indices in zip(self.names, self.indices, strict=True) for index in indices}
        return tuple(names[index] for index in range(self.size))

    @cached_property
    def membership(self) -> np.ndarray:
        """[N, S] matrix with a 1 where dimension d of the observation belongs to factor i."""
        matrix = np.zeros((len(self), self.size), np.float32)
        for row, indices in zip(matrix, self.indices, strict=True):
            row[list(indices)] = 1.0
        return matrix

    def to_json(self) -> dict[str, list[int]]:
        """The mapping that `from_mapping` reads back."""
        return {name: list(indices) for name, indices in zip(self.names, self.indices, strict=True)}

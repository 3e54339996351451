"""Parsing and checking the options of an environment."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence

from susd.errors import UserError, shown
from susd.factors import Factorization

MOST, MOST_SEED = 10**9, 2**31 - 1
MOST_ENVS, MOST_THREADS = 100_000, 1024  # of a host environment
FactorOption = int | str | Mapping[str, Sequence[int]] | Factorization


def one_of(option: str, value: object, allowed: Iterable[str]) -> str:
    """The value as text if it is one of the allowed ones."""
    choices = tuple(allowed)
    text = value if isinstance(value, str) else _digits(value)
    if text not in choices:
        raise UserError(f"option {option!r} cannot be {shown(value)}; allowed: {', '.join(choices)}")
    return text


def non_negative_integer(option: str, value: object, most: int = MOST_SEED) -> int:
    """The value as an integer from 0 to `most`; text such as "3" is parsed."""
    if not (digits := _digits(value)) or int(digits) > most:
        raise UserError(f"option {option!r} cannot be {shown(value)}; allowed: an integer from 0 to {most}")
    return int(digits)


def positive_integer(option: str, value: object, most: int = MOST) -> int:
    """The value as an integer from 1 to `most`."""
    if not (digits := _digits(value)) or not 1 <= int(digits) <= most:
        raise UserError(f"option {option!r} cannot be {shown(value)}; allowed: an integer from 1 to {most}")
    return int(digits)


def _digits(value: object) -> str:
    """The digits of a non-negative integer or of text that stands for one; empty for anything else, or very many."""
    if isinstance(value, str):
        return value if value.isdecimal() and len(value) < 100 else ""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return ""
    return "" if isinstance(value, bool) or not 0 <= number < 10**100 else str(number)


def boolean(option: str, value: object) -> bool:
    """True or False; the texts `true` and `false` are parsed."""
    text = str(value).lower() if isinstance(value, str | bool) else ""
    if text not in ("true", "false"):
        raise UserError(f"option {option!r} cannot be {shown(value)}; allowed: true, false")
    return text == "true"


def factorization(value: object, size: int, named: Mapping[int, Factorization]) -> Factorization:
    """A factorization from the number of factors of a named one, a mapping, text (`a=0:6,b=6:18`) or itself."""
    known = ", ".join(str(count) for count in named)
    if isinstance(value, Factorization):
        if value.size != size:
            raise UserError(f"option 'factors' covers {value.size} dimensions, but the observation has {size}")
        return value
    if isinstance(value, Mapping):
        return Factorization.from_mapping(value, size)
    if isinstance(value, str) and "=" in value:
        return Factorization.parse(value, size)
    if (digits := _digits(value)) and int(digits) in named:
        return named[int(digits)]
    own = f"agent=0:{size // 2},rest={size // 2}:{size}" if size > 1 else "state=0:1"
    raise UserError(f"option 'factors' cannot be {shown(value)}; allowed: {known}, or a user-defined one such as {own}")

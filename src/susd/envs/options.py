"""Parsing and checking the options of an environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from susd.errors import UserError
from susd.factors import Factorization

MOST = 10**9
FactorOption = int | str | Mapping[str, Sequence[int]] | Factorization


def one_of(option: str, value: object, allowed: Iterable[str]) -> str:
    """The value as text if it is one of the allowed ones."""
    choices = tuple(allowed)
    text = str(value)
    if isinstance(value, bool) or text not in choices:
        raise UserError(f"option {option!r} cannot be {value!r}; allowed: {', '.join(choices)}")
    return text


def non_negative_integer(option: str, value: object) -> int:
    """The value as an integer >= 0; text such as "3" is parsed."""
    if isinstance(value, bool) or not str(value).isdecimal():
        raise UserError(f"option {option!r} cannot be {value!r}; allowed: an integer from 0 up")
    return int(str(value))


def positive_integer(option: str, value: object) -> int:
    """The value as an integer from 1 to a billion."""
    if isinstance(value, bool) or not str(value).isdecimal() or not 1 <= int(str(value)) <= MOST:
        raise UserError(f"option {option!r} cannot be {value!r}; allowed: an integer from 1 to {MOST}")
    return int(str(value))


def boolean(option: str, value: object) -> bool:
    """True or False; the texts `true` and `false` are parsed."""
    text = str(value).lower()
    if text not in ("true", "false"):
        raise UserError(f"option {option!r} cannot be {value!r}; allowed: true, false")
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
    if not isinstance(value, bool) and str(value).isdecimal() and int(str(value)) in named:
        return named[int(str(value))]
    own = f"agent=0:{size // 2},rest={size // 2}:{size}" if size > 1 else "state=0:1"
    raise UserError(f"option 'factors' cannot be {value!r}; allowed: {known}, or a user-defined one such as {own}")

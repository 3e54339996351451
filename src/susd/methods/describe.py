"""`susd methods`: the methods as a list, and how two of them differ, from their cards and presets."""

from __future__ import annotations

import dataclasses
import textwrap
from typing import Any

from susd.config import Config, configure
from susd.errors import UserError
from susd.methods.registry import METHODS

TEXTS = ("objective", "constraint", "weight", "reward", "prior")
WIDTH = 100


def listing() -> list[dict[str, Any]]:
    """Every method: name, what it is, where it comes from, what it is a variant of, its priors and its own options."""
    return [
        {
            "name": card.name,
            "summary": card.summary,
            "source": card.source,
            "variant_of": card.base or None,
            "fixed": dict(card.fixed),
            "priors": list(card.priors),
            "options": sorted(card.options - set(card.fixed)),
            **{text: getattr(card, text) for text in TEXTS},
        }
        for card in METHODS.values()
    ]


def table() -> str:
    """The list for a person: methods with their sources, variants with what they fix."""
    lines = []
    for card in METHODS.values():
        beside = ", ".join(f"{_flag(name)} {value}" for name, value in card.fixed.items()) or card.source
        lines += [f"{card.name:15} {card.summary}", f"{'':15} {beside}"]
    return "\n".join([*lines, "", "susd train ENV --method NAME; compare two with: susd methods diff metra susd"])


def difference(first: str, second: str, env: str = "gunner") -> dict[str, Any]:
    """Where two methods differ: the texts of their cards, and their options in both presets in one environment."""
    for name in (first, second):
        if name not in METHODS:
            raise UserError(f"method {name!r} is unknown; choose among {', '.join(METHODS)}")
    cards = METHODS[first], METHODS[second]
    result: dict[str, Any] = {"methods": [first, second], "env": env}
    texts = {text: [getattr(card, text) for card in cards] for text in TEXTS}
    result["texts"] = {text: pair for text, pair in texts.items() if pair[0] != pair[1]}
    for preset in ("paper", "quick"):
        configs = [configure(env, preset, method=card.name) for card in cards]
        values = {spec.name: [_value(config, spec.name) for config in configs] for spec in dataclasses.fields(Config)}
        result[preset] = {name: pair for name, pair in values.items() if pair[0] != pair[1] and name != "method"}
    return result


def _value(config: Config, name: str) -> Any:
    """An option's value, or None where the method does not have it."""
    return getattr(config, name) if config.has(name) else None


def difference_table(result: dict[str, Any]) -> str:
    """The difference for a person."""
    first, second = result["methods"]
    lines = []
    for text, pair in result["texts"].items():
        lines.append(text)
        for name, words in zip((first, second), pair, strict=True):
            indent = f"  {name:15} "
            lines += textwrap.wrap(words, WIDTH, initial_indent=indent, subsequent_indent=" " * len(indent))
    for preset in ("paper", "quick"):
        heading = f"preset {preset}, {result['env']}"
        lines += ["", f"{heading:32} {first:16} {second}"]
        lines += [f"  {_flag(name):30} {_text(a):16} {_text(b)}" for name, (a, b) in result[preset].items()]
        if not result[preset]:
            lines.append("  no difference")
    return "\n".join(lines).strip()


def _text(value: Any) -> str:
    if value in (None, ""):
        return "-" if value is None else "default"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")

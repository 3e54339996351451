"""`susd methods`: list the methods, or compare two of them by their cards and presets."""

from __future__ import annotations

import argparse
import dataclasses
import json
import textwrap
from typing import Any

from susd.cli.common import Commands, flag_of, format_value
from susd.config import PRESETS, Config, configure
from susd.envs import check_name
from susd.errors import UserError, shown
from susd.methods.registry import method, methods

TEXTS = ("objective", "constraint", "weight", "reward", "prior")
WIDTH = 100


def add(commands: Commands) -> None:
    """The command and its options."""
    command = commands.add_parser(
        "methods", help="list the methods, or compare two of them", usage="susd methods [diff A B] [options]"
    )
    command.add_argument("diff", nargs="*", metavar="diff A B", help="compare two methods, e.g. diff metra susd")
    command.add_argument("--env", metavar="ENV", help="with diff: the environment whose presets are compared [gunner]")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """List the methods, or compare two of them."""
    if not options.diff:
        if options.env:
            raise UserError(
                f"--env is {shown(options.env)}, but the list is the same in every environment; use it with `diff A B`"
            )
        print(json.dumps(list_methods()) if options.json else format_methods())
        return 0
    if options.diff[0] != "diff" or len(options.diff) != 3:
        raise UserError(f"susd methods takes nothing or `diff A B`, not {shown(' '.join(options.diff))}")
    env = options.env or "gunner"
    check_name(env)
    result = compare(options.diff[1], options.diff[2], env)
    print(json.dumps(result) if options.json else format_comparison(result))
    return 0


def list_methods() -> list[dict[str, Any]]:
    """Every method with the texts of its card, its options and priors, and the options that define a variant."""
    return [
        {
            "name": card.name,
            "title": card.title,
            "summary": card.summary,
            "source": card.source,
            "variant_of": card.base or None,
            "fixed": dict(card.fixed),
            "priors": list(card.priors),
            "options": sorted(card.options - set(card.fixed)),
            **{text: getattr(card, text) for text in TEXTS},
        }
        for card in methods().values()
    ]


def format_methods() -> str:
    """The list as text: methods with their source, variants with the options that define them."""
    lines = []
    for card in methods().values():
        details = ", ".join(f"{flag_of(name)} {value}" for name, value in card.fixed.items()) or card.source
        lines += [f"{card.name:15} {card.summary}", f"{'':15} {details}".rstrip()]
    return "\n".join([*lines, "", "susd train ENV --method NAME; compare two with: susd methods diff metra susd"])


def compare(first: str, second: str, env: str = "gunner") -> dict[str, Any]:
    """The differences of two methods: the texts of their cards, and their options in both presets in one environment."""
    cards = method(first), method(second)
    result: dict[str, Any] = {"methods": [first, second], "env": env}
    texts = {text: [getattr(card, text) for card in cards] for text in TEXTS}
    result["texts"] = {text: pair for text, pair in texts.items() if pair[0] != pair[1]}
    for preset in PRESETS:
        configs = [configure(env, preset, method=name) for name in (first, second)]
        values = {spec.name: [_used(config, spec.name) for config in configs] for spec in dataclasses.fields(Config)}
        result[preset] = {name: pair for name, pair in values.items() if pair[0] != pair[1] and name != "method"}
    return result


def _used(config: Config, name: str) -> Any:
    """The value of an option, or None where the method does not use it."""
    return getattr(config, name) if config.has(name) else None


def format_comparison(result: dict[str, Any]) -> str:
    """The differences of two methods as text."""
    first, second = result["methods"]
    lines = []
    for text, pair in result["texts"].items():
        lines.append(text)
        for name, words in zip((first, second), pair, strict=True):
            indent = f"  {name:15} "
            lines += textwrap.wrap(words, WIDTH, initial_indent=indent, subsequent_indent=" " * len(indent))
    for preset in PRESETS:
        heading = f"preset {preset}, {result['env']}"
        lines += ["", f"{heading:32} {first:16} {second}"]
        for name, (a, b) in result[preset].items():
            lines.append(f"  {flag_of(name):30} {format_value(a):16} {format_value(b)}")
        if not result[preset]:
            lines.append("  no difference")
    return "\n".join(lines).strip()

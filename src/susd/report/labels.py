"""Titles, order and appearance of what a report compares, from the registries of methods and environments.

A label is the name of a method, `flat`, or the name of a method with an ending that distinguishes its runs, such as
`metra-same-size`. Results of tasks have another ending where skills are not used in the paper's way: `susd-goal-entity`.
"""

from __future__ import annotations

import colorsys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from susd.downstream.config import WAYS
from susd.envs.registry import environments
from susd.errors import UserError
from susd.experiments.extract import FLAT, RANDOM
from susd.methods.registry import Card, methods

OURS, PAPER = "susd", "paper"
FLAT_TITLE, FLAT_COLOUR = "no skills", "#000000"
OTHER_COLOUR = "#7f7f7f"  # of a label that is no method's
LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (6, 1.5)), (0, (3, 1, 1, 1, 1, 1)), (0, (1, 2)))
MARKERS = "os^DvPX"
SHADES = (0.0, 0.45, -0.35, 0.25, -0.2, 0.6, -0.5, 0.1, -0.1, 0.35)  # of one colour: lighter, darker


@dataclass(frozen=True)
class Look:
    """How a label is drawn."""

    colour: str
    marker: str
    line: Any
    filled: bool

    @property
    def dots(self) -> dict[str, Any]:
        """As options of a scatter plot."""
        face = self.colour if self.filled else "white"
        return {"marker": self.marker, "facecolor": face, "edgecolor": self.colour, "linewidth": 0.9}


def base(label: str) -> str:
    """A label without the ending for pretraining on random layouts."""
    return label.removesuffix(RANDOM)


def pretrained(label: str) -> str:
    """The layouts that a label was pretrained on: fixed or random."""
    return "random" if label.endswith(RANDOM) else "fixed"


@cache
def split_way(label: str) -> tuple[str, tuple[str, ...]]:
    """A label without its endings for how a task uses the skills, and those endings: `susd` and (`goal`, `entity`)."""
    plain, _, ending = label.rpartition("-")
    if not plain or ending not in WAYS or label in methods():
        return label, ()
    inner, ways = split_way(plain)
    return inner, (*ways, ending)


def paper_label(label: str) -> str:
    """A label with the ending for the preset `paper`, where other runs of the environment have another."""
    plain, ways = split_way(base(label))
    return "-".join([plain.removesuffix(f"-{PAPER}"), PAPER, *ways]) + label[len(base(label)) :]


def environment_title(environment: str) -> str:
    """The title of an environment; its name if it is not registered."""
    known = environments()
    return known[environment].title if environment in known else environment


@cache
def card_of(label: str) -> Card | None:
    """The method of a label: the longest registered name that it starts with."""
    names = [name for name in methods() if label == name or label.startswith(f"{name}-")]
    return methods()[max(names, key=len)] if names else None


def title_of(label: str) -> str:
    """The title of its method, with the rest of the label: METRA (same size), or SUSD, goal actions, entity-wise."""
    plain, ways = split_way(label)
    card, title = card_of(plain), FLAT_TITLE if plain == FLAT else plain
    if card is not None:
        rest = plain.removeprefix(card.name).strip("-").replace("-", " ")
        title = f"{card.title} ({rest})" if rest else card.title
    return ", ".join([title, *(WAYS[way] for way in ways)])


def is_variant(label: str) -> bool:
    """Whether a label is an ablation or a control: a variant of a method, or a method with other options."""
    plain = split_way(label)[0]
    card = card_of(plain)
    return card is not None and (bool(card.base) or plain != card.name)


def is_rival(label: str) -> bool:
    """Whether SUSD is compared with it: everything but SUSD and its variants."""
    card = card_of(label)
    return card is None or card.code != OURS


def in_order(labels: Iterable[str]) -> list[str]:
    """Methods as they are registered, other labels, no skills, then variants as they are registered."""
    names = list(methods())

    def key(label: str) -> tuple[bool, bool, int, str]:
        card, variant = card_of(label), is_variant(label)
        return (
            variant,
            label not in names if variant else label == FLAT,
            names.index(card.name) if card else len(names),
            label,
        )

    return sorted(set(labels), key=key)


def looks(labels: Iterable[str]) -> dict[str, Look]:
    """A look for each label: no two have the same colour; methods have filled markers, variants hollow ones."""
    found: dict[str, Look] = {}
    for label in in_order(labels):
        card, filled = card_of(label), not is_variant(label)
        colour = card.colour if card else FLAT_COLOUR if label == FLAT else OTHER_COLOUR
        turn = sum(look.filled == filled for look in found.values())
        line = LINES[(turn + (not filled)) % len(LINES)]
        found[label] = Look(_unused(colour, found), MARKERS[turn % len(MARKERS)], line, filled)
    return found


def _unused(colour: str, found: Mapping[str, Look]) -> str:
    """The colour, or the first of its shades, that no label has."""
    used = {look.colour.lower() for look in found.values()}
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    hue, light, saturation = colorsys.rgb_to_hls(red, green, blue)
    turns = ((turn, shade) for turn in range(64) for shade in SHADES)
    for turn, shade in turns:
        mixed = light + shade * (1 - light if shade > 0 else light)
        rgb = colorsys.hls_to_rgb((hue + turn / 19) % 1, mixed, max(saturation, 0.5) if turn else saturation)
        made = colour if not turn and not shade else "#" + "".join(f"{round(255 * part):02x}" for part in rgb)
        if made.lower() not in used:
            return made
    raise UserError(f"the results have more than {len(used)} labels, which no colours distinguish; report fewer together")

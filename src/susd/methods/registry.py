"""The methods by name. Each method describes itself on a card in its own file; this module finds the cards.

Built-in methods are the modules of this package that have `CARDS`. An installed package adds methods with entry points of
the group `susd.methods`, each a Card or a tuple of Cards, and FILE.py:NAME is a card in a Python file. Collecting the cards
imports JAX; importing this module does not.
"""

from __future__ import annotations

import colorsys
import dataclasses
import pkgutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from susd import plugins
from susd.errors import UserError

if TYPE_CHECKING:
    from susd.config import Config
    from susd.envs.base import EnvSpec
    from susd.methods.base import Method

Values = Mapping[str, Any]
SPARE_COLOURS = (
    "#8C564B",
    "#E31A1C",
    "#5E4FA2",
    "#80CDC1",
    "#FB9A99",
    "#BCBD22",
)  # for cards without a colour of their own


@dataclass(frozen=True)
class Unless:
    """The options `without` have no effect where `option` is `value`, for a reason that completes "but ..".

    Where only some skill priors remain possible, `priors` lists them.
    """

    option: str
    value: Any
    without: frozenset[str]
    reason: str
    priors: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Card:
    """What the rest of the package needs to know about a method, or about a variant that fixes some of its options."""

    name: str  # on the command line
    title: str  # in reports
    summary: str
    implementation: str | type[Any]  # module:class, or the class itself; it has from_config(config, spec)
    source: str = ""  # the paper
    objective: str = ""
    constraint: str = "none"
    weight: str = "none"
    reward: str = ""
    options: frozenset[str] = frozenset()  # of those that only some methods have
    priors: tuple[str, ...] = ("sphere", "gaussian")
    unless: tuple[Unless, ...] = ()
    base: str = ""  # of a variant: the method whose code it runs
    fixed: Values = field(default_factory=dict)  # of a variant: the options that define it
    paper: Values = field(default_factory=dict)  # defaults in the preset `paper`
    own: Mapping[str, Values] = field(default_factory=dict)  # the same by environment
    quick: Values = field(default_factory=dict)  # defaults in the preset `quick`, on top of the preset's own
    quick_own: Mapping[str, Values] = field(default_factory=dict)  # the same by environment
    colour: str = ""  # in every chart; empty: one that no other method has
    metrics: Mapping[str, str] = field(default_factory=dict)  # name in the log -> title of its learning curve
    directions: bool = True  # differences of the embedding are directions for skills
    order: int = 100  # in lists; the built-in methods come first

    @property
    def code(self) -> str:
        """The method whose code it runs."""
        return self.base or self.name

    @property
    def without_goals(self) -> str:
        """Why no skill of the method leads to a goal, or ""."""
        if self.directions:
            return ""
        return f"goals need an embedding whose differences are directions for skills, unlike that of {self.name}"

    @property
    def prior(self) -> str:
        """Where its skills come from, in words."""
        factored = "factors" in self.options and self.fixed.get("embedding") != "state"
        return f"{'one part per factor' if factored else 'one part'}: {' or '.join(self.priors)}"

    def rules(self, values: Values) -> list[Unless]:
        """The rules that apply to these values of options."""
        return [rule for rule in self.unless if values.get(rule.option) == rule.value]

    def active(self, values: Values) -> frozenset[str]:
        """The method's options that have an effect, given the values of other options."""
        return self.options.difference(*(rule.without for rule in self.rules(values)))

    def variant(self, name: str, title: str, summary: str, fixed: Values, **changes: Any) -> Card:
        """The card of a variant with these options fixed; presets in `changes` are added to the method's own."""
        presets = {key: {**getattr(self, key), **changes.get(key, {})} for key in ("paper", "quick")}
        named = {"name": name, "title": title, "summary": summary, "base": self.name, "fixed": fixed}
        return dataclasses.replace(self, **{**named, **changes, **presets})


@cache
def methods() -> dict[str, Card]:
    """All methods by name: the built-in ones, then those of installed packages."""
    found: dict[str, Card] = {}
    added = (card for entry in plugins.registered("methods") for card in _entry_cards(entry))
    for card in (*_built_in(), *added):
        if card.name in found:
            raise UserError(f"method {card.name!r} of an installed package has the name of another method")
        found[card.name] = _coloured(card, found.values())
    return found


def method(name: str) -> Card:
    """The card of a method: built-in, of an installed package, or FILE.py:NAME."""
    for card in _built_in():  # without importing any installed package
        if card.name == name:
            return card
    known = methods()
    if name in known:
        return known[name]
    if plugins.is_file(name):
        return _coloured(_checked(plugins.load_file(name), name), known.values())
    raise UserError(f"method {name!r} is unknown; choose one of {', '.join(known)}, or FILE.py:NAME")


def build_method(config: Config, spec: EnvSpec) -> Method:
    """The method of a config, sized for an environment."""
    card = method(config.method)
    implementation: Any = card.implementation
    if isinstance(implementation, str):
        module, _, name = implementation.partition(":")
        implementation = getattr(import_module(module), name)
    built: Method = implementation.from_config(config, spec)
    return built


@cache
def method_options() -> frozenset[str]:
    """The options of `Config` that only some methods have; every other option belongs to the shared learner."""
    return frozenset().union(*(card.options for card in _built_in()))


def methods_with(option: str) -> str:
    """The methods in which an option can be changed, for a sentence."""
    cards = methods().values()
    return ", ".join(card.name for card in cards if option in card.active(card.fixed) and option not in card.fixed)


@cache
def _built_in() -> tuple[Card, ...]:
    """The cards of this package's modules."""
    package = import_module("susd.methods")
    modules = [import_module(f"{package.__name__}.{found.name}") for found in pkgutil.iter_modules(package.__path__)]
    cards = (card for module in modules for card in getattr(module, "CARDS", ()))
    return tuple(sorted(cards, key=lambda card: card.order))


def _entry_cards(entry: str) -> list[Card]:
    """The cards behind an entry point."""
    found = plugins.load("methods", entry)
    cards = found if isinstance(found, tuple) else (found,)
    return [_checked(card, f"entry point {entry!r} of susd.methods") for card in cards]


def _checked(card: Any, where: str) -> Card:
    """Refuse what is not a card, and a card with options or priors that do not exist."""
    from susd.config import Config
    from susd.skills import PRIORS

    if not isinstance(card, Card):
        raise UserError(f"{where} has the type {type(card).__name__}; it must be a susd.extend.Card")
    known = {spec.name for spec in dataclasses.fields(Config)}
    presets = (card.fixed, card.paper, card.quick, *card.own.values(), *card.quick_own.values())
    for option in sorted(card.options.union(*presets)):
        if option not in known:
            raise UserError(f"method {card.name!r} names the option {option!r}, which does not exist")
    for prior in card.priors:
        if prior not in PRIORS:
            raise UserError(f"method {card.name!r} names the prior {prior!r}; choose among {', '.join(PRIORS)}")
    return card


def _coloured(card: Card, others: Iterable[Card]) -> Card:
    """The card with a colour that no other card has."""
    taken = {other.colour.lower() for other in others}
    if card.colour and card.colour.lower() not in taken:
        return card
    rgb = (colorsys.hsv_to_rgb(0.618 * n % 1, 0.8, 0.3 + 0.6 * (n % 5) / 4) for n in range(1000))
    more = ("#" + "".join(f"{round(255 * part):02X}" for part in colour) for colour in rgb)
    free = next(colour for colour in (*SPARE_COLOURS, *more) if colour.lower() not in taken)
    return dataclasses.replace(card, colour=free)

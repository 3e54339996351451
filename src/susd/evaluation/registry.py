"""What an evaluation is, and the evaluations by name. Imports no JAX until an evaluation is used.

A built-in evaluation is a module of this package that defines EVALUATION; it is named after its module. Other packages
register theirs under the entry-point group `susd.evaluations`, and FILE.py:NAME names an Evaluation in a file.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from susd import plugins
from susd.config import MOST_TEXT
from susd.errors import UserError, shown
from susd.runs.tables import Table, seed_table

if TYPE_CHECKING:
    from susd.envs.base import EnvSpec
    from susd.methods.registry import Card
    from susd.training.agent import Agent  # noqa: F401 (in the type of `measure`)

Result = dict[str, Any]  # of one training seed, as JSON
Artifacts = dict[str, Any]  # arrays that the figure needs and the JSON does not hold
Fact = tuple[str, int, str, float]  # subject, step, metric, value
OF_SEED = ("seed", "epoch")  # entries of a result that say which agent was evaluated
LARGEST = 10**15  # of any number; an evaluation may allow less
NOT_EVALUATIONS = ("registry", "evaluate", "online", "state_goals")  # the other modules of this package


@dataclass(frozen=True)
class Option:
    """An option of an evaluation: `--name-with-hyphens` on the command line, of the type of its default."""

    name: str
    default: int | float | str
    help: str
    check: Callable[[Any], None] = lambda value: None  # raises a UserError that names the value and what is allowed

    def check_type(self, evaluation: str, value: Any) -> None:
        """Refuse a value of another type than that of the default, and one that no program can work with."""
        kind: Any = type(self.default)
        if type(value) is not kind and not (kind is float and type(value) is int):
            kinds = {int: "an integer", float: "a number", str: "text"}
            raise UserError(f"{self.name} of evaluation {evaluation!r} is {shown(value)}; it must be {kinds[kind]}")
        if kind is str:
            fits, allowed = len(value) <= MOST_TEXT and value.isprintable(), f"at most {MOST_TEXT} characters of text"
        else:
            fits, allowed = abs(value) <= LARGEST, f"a number from -{LARGEST:g} to {LARGEST:g}"
        if not fits:  # also where the value is not a number
            raise UserError(f"{self.name} of evaluation {evaluation!r} is {shown(value)}; it must be {allowed}")


def no_figure(path: Path, spec: EnvSpec, result: Result, artifacts: Artifacts) -> None:
    """The `draw` of an evaluation without a figure."""


def value_tables(report: Result) -> list[Table]:
    """All values of a report; the `tables` of an evaluation that does not define its own."""
    values = [(one["seed"], (path, f"{value:.6g}")) for one in report["results"] for path, value in _numbers(one)]
    return [seed_table(str(report["evaluation"]), ("value of", ""), values)]


def value_facts(result: Result) -> Iterator[Fact]:
    """Every number as a fact: the path to it is the subject, its name the metric."""
    for path, value in _numbers(result):
        subject, _, metric = path.rpartition(">")
        yield subject, 0, metric, value


def _numbers(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{path}{name}>")
        elif isinstance(value, int | float) and (path or name not in OF_SEED):
            yield f"{path}{name}", float(value)


def any_run(spec: EnvSpec, card: Card, options: Mapping[str, Any]) -> None:
    """The `check_run` of an evaluation whose options mean the same in every run."""


def always_defined(env: str | EnvSpec, card: Card) -> str:
    """The `undefined` of an evaluation that every run has."""
    return ""


@dataclass(frozen=True)
class Evaluation:
    """One evaluation: how it is measured, drawn, tabulated, recorded and reported, what it costs, where it is defined."""

    name: str
    title: str
    summary: str  # one line
    measure: Callable[..., Result | tuple[Result, Artifacts]]  # (agent: Agent, seed: int, **options), of one training seed
    draw: Callable[[Path, EnvSpec, Result, Artifacts], Any] = no_figure  # the first seed, as PNG
    tables: Callable[[Result], list[Table]] = value_tables  # of the whole report, with all seeds
    facts: Callable[[Result], Iterator[Fact]] = value_facts  # of the result of one seed, without OF_SEED
    options: tuple[Option, ...] = ()
    seconds: float = 60.0  # what it roughly takes on one core
    undefined: Callable[[str | EnvSpec, Card], str] = always_defined  # (environment, method): why it has no value, or ""
    check_run: Callable[[EnvSpec, Card, Mapping[str, Any]], None] = (
        any_run  # raises a UserError for options that do not fit
    )
    accumulates: bool = False  # a report keeps the entries of earlier calls over the same weights that a new one lacks
    section: str = ""  # module:function of its section of the report; "" for the generic section

    def check_options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The values of all options; a UserError for one that is unknown, has another type or is not allowed."""
        known = {option.name: option for option in self.options}
        for name, value in given.items():
            if name not in known:
                has = f"its options are {', '.join(known)}" if known else "it has no options"
                raise UserError(f"evaluation {self.name!r} has no option {name!r}; {has}")
            known[name].check_type(self.name, value)
        values = {name: option.default for name, option in known.items()} | dict(given)
        for name, option in known.items():
            option.check(values[name])
        return values


def env_name(env: str | EnvSpec) -> str:
    """The name of an environment that is given by its name or by its spec."""
    return env if isinstance(env, str) else env.name


def names() -> tuple[str, ...]:
    """The built-in and registered evaluations."""
    return (*_built_in(), *(name for name in plugins.registered("evaluations") if name not in _built_in()))


def evaluation(name: str) -> Evaluation:
    """The evaluation of that name, or the object of FILE.py:NAME."""
    if not isinstance(name, str):
        raise UserError(f"the evaluation is {shown(name)}; it must be the name of one: {', '.join(names())}")
    if name in _built_in():
        found = import_module(f"susd.evaluation.{_built_in()[name]}").EVALUATION
    elif plugins.is_file(name):
        found = plugins.load_file(name)
    elif name in plugins.registered("evaluations"):
        found = plugins.load("evaluations", name)
    else:
        raise UserError(f"unknown evaluation {shown(name)}; there are: {', '.join(names())}, FILE.py:NAME")
    if not isinstance(found, Evaluation):
        raise UserError(f"{name!r} is of type {type(found).__name__}, not an Evaluation")
    return found


@cache
def _built_in() -> dict[str, str]:
    """Name -> module."""
    modules = (module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
    return {module.replace("_", "-"): module for module in modules if module not in NOT_EVALUATIONS}

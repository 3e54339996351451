"""What the recorded configs say about results: the label to compare them under, and where they differ from the paper.

Names of runs are chosen by who runs them, so that `metra` has two skill dimensions in one suite and six in another. A
report compares by what was trained.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from susd.config import Config, configure
from susd.downstream.config import DownstreamConfig, preset_options
from susd.errors import UserError
from susd.experiments.extract import RANDOM
from susd.report.labels import split_way
from susd.tasks.registry import task_entry

SAME_SIZE = {"gunner": 6, "multi_particle": 20, "kitchen": 14}  # skill dimensions of SUSD
SAME, ONE_LAYOUT = "-same-size", "-one-layout"
# Options that are compared in other ways, or change no result.
OF_RUN = ("env", "method", "preset", "seed", "seeds", "epochs", "eval_every", "checkpoint_every", "env_options")
OF_TASK = (
    "task",
    "run",
    "env",
    "preset",
    "layout",
    "seed",
    "skill_seed",
    "seeds",
    "interface",
    "policy",
    "episodes",
    "flat",
)
DEFAULT = "its default"  # of an option of the environment that is not given
WIDTHS = ("hidden", "phi_hidden", "density_hidden")  # options whose difference leaves the protocol the same, if it is said
Reasons = tuple[str, ...]


def defaults(config: type[Config] | type[DownstreamConfig]) -> dict[str, Any]:
    """The default of every option."""
    return {spec.name: {} if spec.default is dataclasses.MISSING else spec.default for spec in dataclasses.fields(config)}


def canonical(label: str, environment: str, trained: Mapping[str, Any]) -> str:
    """The label by what was trained: an ending for skills as large as SUSD's, and for random layouts."""
    plain, ways = split_way(label.removesuffix(RANDOM))
    method, size = str(trained.get("method", "susd")), trained.get("skill_dim", 2)
    plain = plain.removesuffix(ONE_LAYOUT)
    if plain in (method, f"{method}-{size}"):
        plain = method
        if method in ("metra", "csd", "lsd", "diayn") and size == SAME_SIZE.get(environment):
            plain += SAME
    options = trained.get("env_options") or {}
    random = label.endswith(RANDOM) or options.get("layout") == "random"
    return "-".join([plain, *ways]) + (RANDOM if random else "")


def run_reasons(environment: str, trained: Mapping[str, Any]) -> Reasons:
    """What distinguishes the options of a run from those of the preset `paper`."""
    preset = trained.get("preset", Config.preset)
    if preset != "paper":
        return (f"preset {preset}",)
    try:
        wanted = configure(environment, "paper", method=trained.get("method", "susd")).to_json()
    except UserError as error:
        return (str(error),)
    return (*_differences(wanted, defaults(Config) | dict(trained), OF_RUN), *_of_environment(environment, wanted, trained))


def _of_environment(environment: str, wanted: Mapping[str, Any], trained: Mapping[str, Any]) -> Reasons:
    """Options of the environment that are not those of the preset; labels say on which layouts a run is pretrained."""
    theirs, ours = (dict(of.get("env_options") or {}) for of in (wanted, trained))
    names = [name for name in theirs | ours if (environment, name) != ("multi_particle", "layout")]
    return tuple(
        f"{name} {_shown(ours.get(name, DEFAULT))} instead of {_shown(theirs.get(name, DEFAULT))}"
        for name in names
        if ours.get(name, DEFAULT) != theirs.get(name, DEFAULT)
    )


def task_reasons(config: Mapping[str, Any]) -> Reasons:
    """What distinguishes the options of a task from those of the preset `paper`."""
    if config.get("preset") != "paper":
        return (f"preset {config.get('preset', 'unknown')} of the task",)
    usual = defaults(DownstreamConfig)
    try:
        wanted = usual | preset_options("paper", task_entry(str(config["task"])), "joint")
    except UserError as error:
        return (str(error),)
    return _differences(wanted, usual | dict(config), OF_TASK)


def _differences(wanted: Mapping[str, Any], found: Mapping[str, Any], ignored: tuple[str, ...]) -> Reasons:
    names = [name for name in wanted if name not in ignored and name in found and found[name] != wanted[name]]
    return tuple(f"{name} {_shown(found[name])} instead of {_shown(wanted[name])}" for name in names)


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def widths(reasons: Iterable[str]) -> list[str]:
    """The reasons that are only about the size of networks."""
    return [reason for reason in reasons if reason.partition(" ")[0] in WIDTHS]


def units(reasons: Iterable[str]) -> str:
    """The sizes of networks that differ from the paper's, in words: 256 units."""
    return " and ".join(f"{size} units" for size in dict.fromkeys(reason.split()[1] for reason in widths(reasons)))

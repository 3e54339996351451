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
from susd.experiments.metrics_store import Fact
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
Reasons = tuple[str, ...]


def trained_configs(configs: Mapping[str, Any], facts: Iterable[Fact]) -> dict[str, dict[str, Any]]:
    """The config of every run, as far as a folder of results holds it; options at their defaults may be absent."""
    found: dict[str, dict[str, Any]] = {}
    for fact in facts:
        entry = configs.get(fact.config_hash)
        if not isinstance(entry, dict) or not isinstance(entry.get("config"), dict):
            continue
        config = entry["config"]
        trained = config.get("config" if fact.phase == "train" else "trained")
        if isinstance(trained, dict) and (fact.phase == "train" or fact.run not in found):
            found[fact.run] = trained
    return found


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


def relabelled(facts: list[Fact], trained: Mapping[str, dict[str, Any]]) -> list[Fact]:
    """The facts with labels, runs and jobs named by what was trained."""
    names: dict[tuple[str, str], tuple[str, str]] = {}
    found = []
    for fact in facts:
        key = fact.run, fact.label
        if fact.run in trained and key not in names:
            run_label, _, seed = fact.run.partition("/")[2].rpartition("-s")
            config = trained[fact.run]
            run = f"{fact.environment}/{canonical(run_label, fact.environment, config)}-s{seed}"
            names[key] = run, canonical(fact.label, fact.environment, config)
        if (key in names and (run := names[key][0]) != fact.run) or (key in names and names[key][1] != fact.label):
            run, label = names[key]
            fact = dataclasses.replace(fact, run=run, label=label, job=run + fact.job.removeprefix(fact.run))
        found.append(fact)
    return found


def run_reasons(environment: str, trained: Mapping[str, Any]) -> Reasons:
    """What distinguishes the options of a run from those of the preset `paper`."""
    preset = trained.get("preset", Config.preset)
    if preset != "paper":
        return (f"preset {preset}",)
    try:
        wanted = configure(environment, "paper", method=trained.get("method", "susd")).to_json()
    except UserError as error:
        return (str(error),)
    defaults = {spec.name: spec.default for spec in dataclasses.fields(Config)}
    return _differences(wanted, defaults | dict(trained), OF_RUN)


def task_reasons(config: Mapping[str, Any]) -> Reasons:
    """What distinguishes the options of a task from those of the preset `paper`."""
    if config.get("preset") != "paper":
        return (f"preset {config.get('preset', 'unknown')} of the task",)
    defaults = {spec.name: spec.default for spec in dataclasses.fields(DownstreamConfig)}
    try:
        wanted = defaults | preset_options("paper", task_entry(str(config["task"])), "joint")
    except UserError as error:
        return (str(error),)
    return _differences(wanted, defaults | dict(config), OF_TASK)


def _differences(wanted: Mapping[str, Any], found: Mapping[str, Any], ignored: tuple[str, ...]) -> Reasons:
    names = [name for name in wanted if name not in ignored and name in found and found[name] != wanted[name]]
    return tuple(f"{name} {_shown(found[name])} instead of {_shown(wanted[name])}" for name in names)


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)

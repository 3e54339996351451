"""The options of `susd downstream RUN --task TASK`, their presets and the folder of a result. Imports no JAX."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from susd import plugins
from susd.config import MAX_SEED, check_option, option, sac_option
from susd.errors import UserError, shown
from susd.paths import short_name, user_path
from susd.runs.find import results_path
from susd.runs.folder import RunFolder
from susd.tasks.registry import BUILT_IN, REWARD, SKILL_STEPS, TaskEntry, names, task_entry

INTERFACES = ("skill", "goal", "flat")
POLICIES = ("joint", "factored", "entity")
CONTEXTS = ("mean", "none")
USUAL = (INTERFACES[0], POLICIES[0])  # the paper's
WAYS = {"goal": "goal actions", "factored": "factored policy", "entity": "entity-wise"}  # the others, in words
FROM_RUN = ("run", "env", "env_options", "env_horizon")  # fields that are no options of the command line
RETURNS = ("discounted", "undiscounted")
SUCCESS = "success"  # the share of test episodes that were solved, in tasks that say when
LAYOUTS = {entry.env: entry.layouts for entry in BUILT_IN}
LAYOUT_HELP = "; ".join(f"{env}: {layouts.describe} (default {layouts.default})" for env, layouts in LAYOUTS.items())


@dataclass(frozen=True)
class DownstreamConfig:
    """One task learned over one skill policy, or without skills. The defaults are the `quick` preset."""

    task: str = option(
        "",
        f"task: {', '.join(names())}, without the environment's name if you like; {REWARD}: the environment's own; or "
        "FILE.py:NAME",
    )
    run: str = option("", "run folder of the skills")
    env: str = option("", "environment; from the run, or the one that the task names")
    env_options: dict[str, Any] = field(default_factory=dict, metadata={"help": "options of the environment without a run"})
    env_horizon: int = option(0, "steps of an episode of the environment without a run; 0: as it defines it", low=0)
    interface: str = option(
        "skill",
        "what a high-level action is: a skill (the paper's), a goal in the space of phi, or without skills (flat) an "
        "action of the environment in every step",
        INTERFACES,
    )
    policy: str = option(
        "joint",
        "high-level policy: one network and one value, one network with a value for each factor's part of the action "
        "(factored), or one small network that all factors share (entity)",
        POLICIES,
    )
    context: str = option(
        "mean", "what the entity-wise policy sees of other factors: the mean of their embeddings, or none", CONTEXTS
    )
    preset: str = option("quick", "preset that the other options start from", ("quick", "paper"))
    layout: str = option("", f"start of the episodes; {LAYOUT_HELP}")
    skill_seed: int = option(0, "seed of RUN whose skills are used; default: its first", low=0, high=MAX_SEED)
    seed: int = option(0, "random seed of the high-level policy", low=0, high=MAX_SEED)
    seeds: int = option(1, "high-level policies that are trained, with the seeds seed, seed+1, ..", low=1, high=1024)

    horizon: int = option(0, "environment steps of an episode; 0: as the task defines it", low=0, high=10**7)
    skill_steps: int = option(SKILL_STEPS, "environment steps per high-level action over skills", low=1, high=10_000)
    episodes: int = option(10_000, "training episodes", low=1, high=10**9)
    gradient_steps: int = option(2, "gradient steps per episode", low=1, high=1_000_000)
    num_envs: int = option(20, "parallel episodes of a round, which the gradient steps follow", low=1, high=10_000)
    batch_size: int = sac_option("batch_size", 64)
    warmup: int = option(10_000, "high-level actions before the first gradient step; at most a tenth of all", low=1)
    scale_view: bool = option(False, "scale what the policy observes to unit variance, as measured in the warm-up")
    explore: float = option(
        0.0,
        "share of the parts of high-level actions in training episodes that are uniform, not the policy's",
        low=0.0,
        high=1.0,
    )

    hidden: int = sac_option("hidden", 128)
    layers: int = sac_option("layers", 2)
    critic_norm: str = sac_option("critic_norm", "none")
    actor_activation: str = sac_option("actor_activation", "relu")
    precision: str = sac_option("precision", "float32")
    learning_rate: float = sac_option("learning_rate", 1e-3)
    discount: float = option(0.99, f"discount factor per {SKILL_STEPS} environment steps", low=0.0, high=1.0)
    tau: float = sac_option("tau", 0.005)
    alpha_init: float = sac_option("alpha_init", 0.1)
    target_entropy: float = sac_option("target_entropy", -0.5)

    eval_every: int = option(500, "training episodes between two evaluations", low=1)
    eval_episodes: int = option(100, "test episodes; one if nothing is random", low=1, high=10_000)

    def __post_init__(self) -> None:
        for spec in dataclasses.fields(self):
            check_option(spec, getattr(self, spec.name))
        if self.seed + self.seeds - 1 > MAX_SEED:
            raise UserError(f"--seed is {self.seed} and --seeds {self.seeds}; the last seed must be at most {MAX_SEED}")
        for name in ("episodes", "eval_every"):
            if (value := getattr(self, name)) % self.num_envs:
                flag = name.replace("_", "-")
                raise UserError(f"--{flag} is {value}; it must be a multiple of --num-envs, which is {self.num_envs}")
        if self.policy != "joint" and self.interface == "flat":
            raise UserError(
                f"--policy is {self.policy!r}, but the actions of --interface flat belong to no factor; choose joint"
            )
        if self.horizon % self.skill_steps:
            raise UserError(
                f"--horizon is {self.horizon}; it must be a multiple of --skill-steps, which is {self.skill_steps}"
            )
        self.entry.layout_options(self.layout)

    @property
    def entry(self) -> TaskEntry:
        """The task."""
        return task_entry(self.task, self.env)

    def to_json(self) -> dict[str, Any]:
        """As a plain mapping."""
        return dataclasses.asdict(self)


PAPER: dict[str, Any] = {
    "episodes": 10_000,
    "gradient_steps": 50,
    "num_envs": 1,
    "batch_size": 256,
    "warmup": 1000,
    "hidden": 1024,
    "actor_activation": "tanh",
    "learning_rate": 1e-4,
    "eval_every": 250,
}
PRESETS: dict[str, dict[str, Any]] = {"quick": {}, "paper": PAPER}  # of all tasks; a TaskEntry may add to them
# An entity-wise policy learns from every factor of a transition: fewer episodes, more and smaller gradient steps.
ENTITY: dict[str, Any] = {
    "episodes": 1500,
    "gradient_steps": 6,
    "batch_size": 32,
    "warmup": 5000,
    "alpha_init": 0.01,
    "eval_every": 100,
}


def preset_options(preset: Any, entry: TaskEntry, policy: Any = "joint") -> dict[str, Any]:
    """The options of a preset for a task and a high-level policy."""
    if not isinstance(preset, str) or preset not in PRESETS:
        raise UserError(f"--preset is {shown(preset)}; choose one of {', '.join(PRESETS)}")
    of_policy = ENTITY if (preset, policy) == ("quick", "entity") else {}
    of_task = [entry.presets.get(name, {}) for name in (preset, f"{preset}-{policy}")]
    return {**PRESETS[preset], **of_policy, **of_task[0], **of_task[1]}


def configure_downstream(run: str | Path | None, task: str, **changes: Any) -> DownstreamConfig:
    """The preset with the given options changed; the task must be one of the run's environment."""
    trained = {} if run is None else RunFolder.open(user_path("the run", run)).config
    entry = task_entry(task, trained.get("env", ""))
    known = {spec.name for spec in dataclasses.fields(DownstreamConfig)} - set(FROM_RUN)
    if unknown := sorted(set(changes) - known):
        raise UserError(f"option {unknown[0]!r} is unknown; options are {', '.join(sorted(known))}")
    if type(layout := changes.get("layout")) is int:  # the seed of a layout
        changes["layout"] = shown(layout)
    for spec in dataclasses.fields(DownstreamConfig):
        if spec.name in changes:
            check_option(spec, changes[spec.name])
    values = preset_options(changes.get("preset", "quick"), entry, changes.get("policy", "joint"))
    values |= {**changes, "run": "" if run is None else str(run)}
    values["task"] = task if plugins.is_file(task) else entry.name
    values["env"] = entry.env
    values["layout"] = str(values.get("layout", "")) or entry.layouts.default
    check_interface(entry, values, changes)
    if run is not None:
        if not same_env(trained["env"], entry.env):
            raise UserError(f"task {entry.name!r} is one of {entry.env}, but {run} was trained on {trained['env']}")
        seeds = range(trained["seed"], trained["seed"] + trained["seeds"])
        if values.get("interface") != "flat" and values.setdefault("skill_seed", seeds[0]) not in seeds:
            raise UserError(f"--skill-seed is {values['skill_seed']}; {run} has {seeds[0]} to {seeds[-1]}")
    return DownstreamConfig(**values)


def check_interface(entry: TaskEntry, values: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse what the interface and the policy cannot do, and options that were given but have no effect with them."""
    flat = values.get("interface") == "flat"
    if not values["run"] and not flat:
        raise UserError("no run is given: name the run whose skills are used, or learn without skills: --interface flat")
    if not entry.env:
        raise UserError(f"task {entry.name!r} names no environment: name a run, whose environment is used")
    for name in ("skill_seed", "skill_steps"):
        if flat and name in given:
            raise UserError(f"--{name.replace('_', '-')} is {given[name]}; a flat policy has no skills")
    if given.get("critic_norm", "none") != "none" and values.get("policy", "joint") == "entity":
        raise UserError(
            f"--critic-norm is {given['critic_norm']!r}, but --policy entity has none; choose joint or factored"
        )
    if "context" in given and values.get("policy", "joint") != "entity":
        raise UserError(f"--context is {given['context']!r}, but only --policy entity has one")


def same_env(name: str, other: str) -> bool:
    """Whether two names mean the same environment."""
    return plugins.same_name(name) == plugins.same_name(other)


def folder_of(config: DownstreamConfig) -> Path:
    """The folder of a result: RUN/downstream/TASK-LAYOUT[-goal][-entity]-sSEED, or below runs/ for a flat policy."""
    entry, last = config.entry, config.seed + config.seeds - 1
    seeds = f"s{config.seed}" + (f"-{last}" if config.seeds > 1 else "")
    if config.interface == "flat":
        name = entry.name
        if task_entry(config.task).env != entry.env:  # one of any environment
            env = re.sub(r"[^A-Za-z0-9_.+-]+", "-", config.env.rpartition("/")[2])
            name = f"{short_name(env)}-{name}"
        return Path("runs") / f"flat-{name}-{config.layout}-{seeds}"
    first = RunFolder.open(Path(config.run)).config["seed"]
    other = f"-skills{config.skill_seed}" if config.skill_seed != first else ""
    how = "".join(f"-{value}" for value in (config.interface, config.policy) if value not in USUAL)
    return results_path(config.run) / "downstream" / f"{entry.short}-{config.layout}{how}-{seeds}{other}"

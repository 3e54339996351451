"""`susd downstream RUN --task TASK`: learn a task over the skills of a run, or without skills, and write what came of it.

    config.json  metrics.jsonl  curve.png  episode.mp4  result.json

`result.json` is written last, so a folder that has one holds a finished result. JAX is imported where it is needed.
"""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from susd.config import MAX_SEED, check_option, option
from susd.errors import UserError
from susd.runs.folder import RunFolder, describe_machine, make_folder, write_json
from susd.tasks import TASKS, full_name

Result = dict[str, Any]
KINDS = ("discounted", "undiscounted")  # of returns
LAYOUTS = {"gunner": "centre, 0, 1, 2 or 3", "multi_particle": "the seed of a layout, such as 1, 2 or 3, or random"}
LAYOUTS["kitchen"] = "random, which is all there is"
DEFAULT_LAYOUTS = {"gunner": "centre", "multi_particle": "1", "kitchen": "random"}


@dataclass(frozen=True)
class DownstreamConfig:
    """One task learned over one skill policy, or flat. The defaults are the `quick` preset; PRESETS has the others."""

    task: str = option("", f"the task: {', '.join(TASKS)}; the environment's name may be left out")
    run: str = option("", "run folder of the skills")
    flat: bool = option(False, "learn without skills: a primitive action in every step, with the same budget")
    preset: str = option("quick", "preset the other options start from", ("quick", "paper"))
    layout: str = option("", "multi_particle: a layout's seed (default 1) or random; gunner: start at 0 to 3 or centre")
    skill_seed: int = option(0, "which seed of RUN acts; default: its first", low=0, high=MAX_SEED)
    seed: int = option(0, "seed of the high level", low=0, high=MAX_SEED)
    seeds: int = option(1, "learn this many times, with the seeds seed, seed+1, ..", low=1, high=1024)

    episodes: int = option(10_000, "training episodes", low=1, high=10**9)
    gradient_steps: int = option(2, "gradient steps for every episode", low=1)
    num_envs: int = option(20, "episodes run side by side before their gradient steps", low=1, high=10_000)
    batch_size: int = option(64, "transitions per gradient step", low=1)
    warmup: int = option(10_000, "decisions before the first gradient step; at most a tenth of all", low=1)

    hidden: int = option(128, "units per hidden layer of actor and critics", low=1, high=65536)
    layers: int = option(2, "hidden layers", low=1, high=16)
    actor_activation: str = option("relu", "hidden units of the actor", ("tanh", "relu"))
    precision: str = option("float32", "matmuls of actor and critics", ("float32", "bfloat16"))
    learning_rate: float = option(1e-3, "Adam's rate for all networks and the temperature", low=0.0)
    discount: float = option(0.99, "discount per decision of 5 steps", low=0.0, high=1.0)
    tau: float = option(0.005, "target network rate", low=0.0, high=1.0)
    alpha_init: float = option(0.1, "initial entropy coefficient; it adapts", low=1e-12)
    target_entropy: float = option(-0.5, "target entropy per number of a decision", high=0.69)

    eval_every: int = option(500, "training episodes between two evaluations", low=1)
    eval_episodes: int = option(100, "test episodes; one where nothing is random", low=1, high=10_000)

    def __post_init__(self) -> None:
        for spec in dataclasses.fields(self):
            check_option(spec, getattr(self, spec.name))
        if self.seed + self.seeds - 1 > MAX_SEED:
            raise UserError(f"--seed is {self.seed} and --seeds {self.seeds}; the last seed must be at most {MAX_SEED}")
        for name in ("episodes", "eval_every"):
            if getattr(self, name) % self.num_envs:
                flag, number = name.replace("_", "-"), getattr(self, name)
                raise UserError(f"--{flag} is {number}; it must be a multiple of --num-envs, which is {self.num_envs}")
        if self.task not in TASKS:
            raise UserError(f"unknown task {self.task!r}; there are: {', '.join(TASKS)}")
        layout_options(self.env, self.layout)

    @property
    def env(self) -> str:
        """The environment of the task."""
        return TASKS[self.task].env

    def to_json(self) -> dict[str, Any]:
        """As a plain mapping."""
        return dataclasses.asdict(self)


# By environment; * is for all. An episode of 2D-Gunner is twenty times as long as one of Multi-Particle.
PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "quick": {
        "*": {},
        "gunner": {
            "episodes": 2400,
            "gradient_steps": 10,
            "batch_size": 128,
            "warmup": 20_000,
            "discount": 0.9,
            "eval_every": 120,
        },
        "kitchen": {
            "episodes": 1600,
            "gradient_steps": 20,
            "num_envs": 16,
            "batch_size": 128,
            "eval_every": 160,
            "eval_episodes": 16,
        },
    },
    "paper": {
        "*": {
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
    },
}


def preset_options(preset: Any, env: str) -> dict[str, Any]:
    """What a preset says for an environment."""
    if preset not in PRESETS:
        raise UserError(f"--preset is {preset!r}; choose one of {', '.join(PRESETS)}")
    return PRESETS[preset]["*"] | PRESETS[preset].get(env, {})


def layout_options(env: str, layout: str) -> dict[str, Any]:
    """The options of an environment that stand for a layout."""
    if env == "gunner" and layout in ("centre", "0", "1", "2", "3"):
        return {"start": layout}
    if env == "multi_particle" and layout == "random":
        return {"layout": "random"}
    if env == "kitchen" and layout == "random":
        return {}
    if env == "multi_particle" and layout.isdecimal() and int(layout) <= MAX_SEED:
        return {"layout": "fixed", "layout_seed": int(layout)}
    raise UserError(f"--layout is {layout!r}; for {env} it is {LAYOUTS[env]}")


def configure_downstream(run: str | Path | None, task: str, **changes: Any) -> DownstreamConfig:
    """The preset with the given options changed; refuses a task of another environment than the run's."""
    name = full_name(task)
    options = preset_options(changes.get("preset", "quick"), TASKS[name].env)
    known = {spec.name for spec in dataclasses.fields(DownstreamConfig)}
    if unknown := sorted(set(changes) - known):
        raise UserError(f"option {unknown[0]!r} is unknown; options are {', '.join(sorted(known))}")
    values = {**options, **changes, "task": name, "run": "" if run is None else str(run)}
    values["layout"] = str(values.get("layout", "")) or DEFAULT_LAYOUTS[TASKS[name].env]
    if run is None and not values.get("flat"):
        raise UserError("name the run whose skills are to be used, or learn without skills with --flat")
    if run is not None:
        trained = RunFolder.open(Path(run)).config
        if trained["env"] != TASKS[name].env:
            raise UserError(f"task {name!r} is one of {TASKS[name].env}, but {run} was trained on {trained['env']}")
        first, count = trained["seed"], trained["seeds"]
        if "skill_seed" in changes and (values.get("flat") or changes["skill_seed"] not in range(first, first + count)):
            have = "a flat policy has no skills" if values.get("flat") else f"{run} has {first} to {first + count - 1}"
            raise UserError(f"--skill-seed is {changes['skill_seed']}; {have}")
        values.setdefault("skill_seed", 0 if values.get("flat") else first)
    elif "skill_seed" in changes:
        raise UserError(f"--skill-seed is {changes['skill_seed']}; a flat policy has no skills")
    return DownstreamConfig(**values)


def folder_of(config: DownstreamConfig) -> Path:
    """Where a result goes: RUN/downstream/TASK-LAYOUT-sSEED, or below runs/ for a flat policy."""
    last = config.seed + config.seeds - 1
    seeds = f"s{config.seed}" + (f"-{last}" if config.seeds > 1 else "")
    if config.flat:
        return Path("runs") / f"flat-{config.task}-{config.layout}-{seeds}"
    first = RunFolder.open(Path(config.run)).config["seed"]
    other = f"-skills{config.skill_seed}" if config.skill_seed != first else ""
    return Path(config.run) / "downstream" / f"{config.task.partition('-')[2]}-{config.layout}-{seeds}{other}"


def downstream(
    run: str | Path | None,
    task: str,
    *,
    out: str | Path | None = None,
    force: bool = False,
    quiet: bool = True,
    **options: Any,
) -> Result:
    """Learn a task over the frozen skills of a run (None with flat=True) and return what `result.json` says.

    Options are those of `DownstreamConfig`; `out` replaces the folder below the run, `force` an existing result.
    """
    return run_downstream(configure_downstream(run, task, **options), out, force, quiet)


def run_downstream(
    config: DownstreamConfig, out: str | Path | None = None, force: bool = False, quiet: bool = True, film: bool = True
) -> Result:
    """The whole of it, as a function of the config: learn with every seed, measure, draw, film, write the files."""
    place = folder_of(config) if out is None else Path(out)
    if (place / "result.json").exists() and not force:
        raise UserError(f"{place} already holds a finished result; look at it there or run anew with --force")
    from susd.downstream.train import TaskRun

    trial = TaskRun.build(config)
    make_folder(place)
    meta = describe_machine(trial.identity, shlex.join(sys.argv))
    with RunFolder(place, config.to_json(), meta).lock():
        # Of a result that is replaced, or of a run that was cut short:
        for name in ("result.json", "metrics.jsonl", "curve.png", "episode.mp4"):
            (place / name).unlink(missing_ok=True)
        write_json(place / "config.json", config.to_json())
        result = trial.learn(place, quiet, film) | {"meta": meta}
        _draw(place / "curve.png", result)
        write_json(place / "result.json", result)
    return result


def _draw(path: Path, result: Result) -> None:
    from susd.viz import figures

    references: dict[str, float] = {
        name: result[name]["discounted"] for name in ("bound", "expert", "do_nothing") if name in result
    }
    curves = dict(zip(result["seeds"], result["curve"]["discounted"], strict=True))
    whose = "no skills" if result["method"] == "flat" else f"skills of {result['method']}"
    title = f"{result['task']}, layout {result['layout']}, {whose}"
    figures.task_curves(path, result["curve"]["episode"], curves, references, title)


def table(result: Result, place: Path) -> str:
    """A result for a person."""
    lines: list[tuple[str, ...]] = [("", *KINDS)]
    labels = {"bound": "bound", "expert": "scripted expert", "do_nothing": "do nothing"}
    scores: list[tuple[str, Mapping[str, float]]] = [
        (labels[name], result[name]) for name in ("bound", "expert") if name in result
    ]
    many = len(result["seeds"]) > 1
    for index, seed in enumerate(result["seeds"]):
        for name, label in (("final", "learned"), ("last_quarter", "  mean of the last quarter")):
            numbers = {kind: result[name][kind][index] for kind in KINDS}
            scores.append((f"{label}, seed {seed}" if many else label, numbers))
    scores.append((labels["do_nothing"], result["do_nothing"]))
    lines += [(label, *(f"{numbers[kind]:.2f}" for kind in KINDS)) for label, numbers in scores]
    width = max(len(line[0]) for line in lines)
    rows = [f"  {label:{width}}  {one:>10}  {other:>12}" for label, one, other in lines]
    each = f"{result['env_steps']} steps, {result['gradient_steps']} gradient steps"
    title = f"Return of {result['task']}, layout {result['layout']}, over {result['test_episodes']} test episodes ({each})"
    files = [str(place / name) for name in ("result.json", "curve.png", "episode.mp4") if (place / name).exists()]
    return "\n".join([title, *rows, *(f"  {file}" for file in files)])

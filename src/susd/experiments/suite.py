"""A suite: a small TOML file that declares runs, evaluations and tasks, and the jobs it stands for. Imports no JAX.

    about = "what it is for"
    seeds = [0, 1, 2]
    train = { preset = "quick" }                  # options of every run
    evaluations = { coverage = {}, decoding = { steps = 20000 } }
    downstream = { episodes = 1000 }              # options of every task

    [environments.multi_particle]
    tasks = ["seq-easy", "fp-easy"]
    layouts = ["1", "2", "3"]
    layouts_per_seed = 1                          # seed 0 in layout 1, seed 1 in layout 2, ..; default: all in all
    first_seed_layouts = ["random"]               # besides, for the first seed alone

    [methods.susd]
    [methods.metra-same-size]
    method = "metra"                              # the method, where the name is not one
    skill_dim = { gunner = 6, multi_particle = 20 }  # an option may differ between environments
    [controls.susd-w]                             # like methods, but begun after all of them

Any key of a method that is not one of KEYS is an option of its runs.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from susd.config import MAX_SEED, Config, configure
from susd.envs import ENVIRONMENTS
from susd.errors import UserError
from susd.methods.catalog import METHODS
from susd.runlog import config_hash
from susd.tasks import TASKS, full_name
from susd.transfer import DEFAULT_LAYOUTS, DownstreamConfig, preset_options

SHIPPED = Path(__file__).parent / "suites"
EVALUATIONS = ("coverage", "control", "decoding", "completions")
TOP = ("about", "seeds", "train", "evaluations", "downstream", "environments", "methods", "controls")
KEYS = ("method", "environments", "seeds", "evaluations", "tasks", "layouts", "layouts_per_seed", "flat")
WORLD = ("tasks", "layouts", "layouts_per_seed", "first_seed_layouts", "train", "downstream", "evaluations")


@dataclass(frozen=True)
class Job:
    """One command: train a run, evaluate it, or learn a task over it."""

    name: str  # RUN/train, RUN/coverage, RUN/fp-easy@1
    run: str  # ENVIRONMENT/LABEL-sSEED: the folder of the run below the suite's
    label: str
    phase: str  # train, an evaluation, or downstream
    config: dict[str, Any]  # of training or of the task; of an evaluation its options
    trained: Config | None  # the run that it needs or makes; None for a flat policy
    pictured: bool = False  # whether the run's trajectories are drawn and kept with the results

    @property
    def needs(self) -> str | None:
        """The job that must be finished before."""
        return None if self.phase == "train" or self.trained is None else f"{self.run}/train"

    @property
    def environment(self) -> str:
        """The environment's name."""
        return self.run.partition("/")[0]

    @property
    def method(self) -> str:
        """The method's name, or flat."""
        return "flat" if self.trained is None else self.trained.method

    @property
    def seed(self) -> int:
        """The seed of the run; a flat policy has one too."""
        return int(self.run.rpartition("-s")[2])

    @property
    def hash(self) -> str:
        """Equal for jobs that do the same; the run is known by what was asked of it, not by its folder."""
        trained = None if self.trained is None else self.trained.changes()
        return config_hash({"phase": self.phase, "config": self.config, "trained": trained})

    @property
    def kind(self) -> str:
        """Jobs of one kind take about the same time: only seed and layout differ."""
        same = {
            name: value
            for name, value in self.config.items()
            if name not in ("seed", "skill_seed", "layout", "env_options")
        }
        size = None if self.trained is None else [self.trained.method, self.trained.hidden, self.trained.skill_dim]
        return config_hash({"phase": self.phase, "config": same, "size": size, "environment": self.environment})


@dataclass(frozen=True)
class Suite:
    """A checked suite file with its jobs, in the order in which they are started."""

    name: str
    about: str
    text: str  # the file
    jobs: tuple[Job, ...]

    def only(self, patterns: Sequence[str]) -> Suite:
        """The jobs whose names match one of the patterns (`gunner/*`, `*/susd-s0/*`), and what they need."""
        for pattern in patterns:
            if not any(fnmatchcase(job.name, pattern) for job in self.jobs):
                raise UserError(
                    f"--only {pattern!r} matches no job of {self.name}; jobs are named like {self.jobs[0].name}"
                )
        chosen = [job for job in self.jobs if any(fnmatchcase(job.name, pattern) for pattern in patterns)]
        wanted = {job.name for job in chosen} | {job.needs for job in chosen}
        return dataclasses.replace(self, jobs=tuple(job for job in self.jobs if job.name in wanted))


def names() -> list[str]:
    """The suites that come with the package."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def load(name: str) -> Suite:
    """A suite by its name, or one's own by the path of its file; everything is checked before any job runs."""
    path = Path(name) if name.endswith(".toml") else SHIPPED / f"{name}.toml"
    if not path.is_file():
        raise UserError(f"there is no suite {name!r}; there are {', '.join(names())}, or give the path of a .toml file")
    try:
        text = path.read_text(encoding="utf-8")
        declared = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"cannot read the suite {path}: {error}") from error
    try:
        jobs = tuple(_jobs(declared))
    except UserError as error:
        raise UserError(f"suite {path.name}: {error}") from None
    if not jobs:
        raise UserError(f"suite {path.name} has no jobs")
    return Suite(path.stem, str(declared.get("about", "")), text, jobs)


def _jobs(declared: dict[str, Any]) -> list[Job]:
    """All jobs: methods, then what only first seeds are tested on, then controls; and in each of them seed by seed.

    So a suite that is stopped half-way has whole seeds of all methods.
    """
    _known("the file", declared, TOP)
    worlds = _table(declared, "environments")
    for name, world in worlds.items():
        _known(f"environments.{name}", world, WORLD)
        if name not in ENVIRONMENTS:
            raise UserError(f"environment {name!r} is unknown; there are {', '.join(ENVIRONMENTS)}")
    stages: list[list[Job]] = [[], [], []]
    for stage, table in ((0, "methods"), (2, "controls")):
        entries = _table(declared, table)
        for index in range(max((len(_seeds(declared, entry)) for entry in entries.values()), default=0)):
            for env, world in worlds.items():
                for label, entry in entries.items():
                    if env in _among(entry, "environments", worlds) and index < len(_seeds(declared, entry)):
                        for job in _of_run(declared, env, world, label, entry, index):
                            later = job.config.get("layout") in _list(world, "first_seed_layouts")
                            stages[1 if later and stage == 0 else stage].append(job)
    jobs = [job for stage_jobs in stages for job in stage_jobs]
    names = [job.name for job in jobs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"job {twice[0]!r} is declared twice")
    return jobs


def _of_run(
    declared: dict[str, Any], env: str, world: dict[str, Any], label: str, entry: dict[str, Any], index: int
) -> Iterator[Job]:
    """Training, evaluations and tasks of one method with one seed in one environment."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", label):
        raise UserError(f"method entry {label!r}: a name has letters, digits and . _ + - only")
    seed = _seeds(declared, entry)[index]
    run = f"{env}/{label}-s{seed}"
    trained = None
    if not _flag(entry, "flat"):
        options = {name: _for_env(value, env, name) for name, value in entry.items() if name not in KEYS}
        method = entry.get("method", label)
        if method not in METHODS:
            raise UserError(f"method {method!r} of {label!r} is unknown; there are {', '.join(METHODS)}")
        options = _table(declared, "train") | _table(world, "train") | options
        try:
            trained = configure(env, **(options | {"method": method, "seed": seed}))
        except UserError as error:
            raise UserError(f"methods.{label}: {error}") from None
        yield Job(f"{run}/train", run, label, "train", trained.to_json(), trained, pictured=index == 0)
        yield from _evaluations(declared, world, label, entry, run, trained)
    elif extra := sorted(set(entry) - set(KEYS)):
        raise UserError(f"methods.{label} is flat and trains no run, so it has no {extra[0]!r}")
    yield from _tasks(declared, env, world, label, entry, run, trained, index)


def _evaluations(
    declared: dict[str, Any], world: dict[str, Any], label: str, entry: dict[str, Any], run: str, trained: Config
) -> Iterator[Job]:
    wanted = _table(declared, "evaluations") | _table(world, "evaluations")
    for what in _among(entry, "evaluations", wanted):
        if what not in EVALUATIONS:
            raise UserError(f"evaluation {what!r} is unknown; there are {', '.join(EVALUATIONS)}")
        _known(f"evaluations.{what}", wanted[what], ("steps",) if what in ("coverage", "decoding") else ())
        yield Job(f"{run}/{what}", run, label, what, dict(wanted[what]), trained)


def _tasks(
    declared: dict[str, Any],
    env: str,
    world: dict[str, Any],
    label: str,
    entry: dict[str, Any],
    run: str,
    trained: Config | None,
    index: int,
) -> Iterator[Job]:
    options = _table(declared, "downstream") | _table(world, "downstream")
    _known("downstream", options, tuple(spec.name for spec in dataclasses.fields(DownstreamConfig)))
    options = preset_options(options.get("preset", "quick"), env) | options
    layouts = [str(x) for x in _list(entry, "layouts") or _list(world, "layouts") or [DEFAULT_LAYOUTS.get(env, "")]]
    count = entry.get("layouts_per_seed", world.get("layouts_per_seed", len(layouts)))
    if not isinstance(count, int) or not 1 <= count <= len(layouts):
        raise UserError(f"layouts_per_seed is {count!r}; it must be from 1 to {len(layouts)}, the number of layouts")
    mine = [layouts[(index * count + i) % len(layouts)] for i in range(count)]
    if index == 0 and "layouts" not in entry:
        mine += [str(layout) for layout in _list(world, "first_seed_layouts") if str(layout) not in mine]
    for task in _list(entry, "tasks") if "tasks" in entry else _list(world, "tasks"):
        full = full_name(str(task))
        if TASKS[full].env != env:
            raise UserError(f"task {task!r} is one of {TASKS[full].env}, not of {env}")
        for layout in mine:
            seed = int(run.rpartition("-s")[2])
            given = {"task": full, "layout": layout, "seed": seed, "flat": trained is None}
            given |= {"skill_seed": 0 if trained is None else seed}
            config = DownstreamConfig(**(options | given))
            short = full.partition("-")[2]
            yield Job(f"{run}/{short}@{layout}", run, label, "downstream", config.to_json(), trained)


def _known(where: str, table: Any, allowed: tuple[str, ...]) -> None:
    if not isinstance(table, dict):
        raise UserError(f"{where} is {table!r}; it must be a table")
    if unknown := [name for name in table if name not in allowed]:
        raise UserError(f"{where} has the unknown key {unknown[0]!r}; it may have {', '.join(allowed) or 'none'}")


def _table(where: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = where.get(name, {})
    if not isinstance(value, dict):
        raise UserError(f"{name} is {value!r}; it must be a table")
    return value


def _list(where: Mapping[str, Any], name: str) -> list[Any]:
    value = where.get(name, [])
    if not isinstance(value, list):
        raise UserError(f"{name} is {value!r}; it must be a list")
    return value


def _among(entry: dict[str, Any], name: str, all_of_them: Mapping[str, Any]) -> list[str]:
    """What a method asks for, or all that is declared."""
    if not isinstance(entry, dict):
        raise UserError(f"a method is {entry!r}; it must be a table")
    wanted = _list(entry, name) if name in entry else list(all_of_them)
    if unknown := [x for x in wanted if x not in all_of_them]:
        raise UserError(f"{name} has {unknown[0]!r}, which is not declared; there are {', '.join(all_of_them) or 'none'}")
    return wanted


def _seeds(declared: dict[str, Any], entry: dict[str, Any]) -> list[int]:
    seeds = entry["seeds"] if isinstance(entry, dict) and "seeds" in entry else declared.get("seeds", [0])
    valid = isinstance(seeds, list) and all(type(seed) is int and 0 <= seed <= MAX_SEED for seed in seeds)
    if not valid or not seeds or len(set(seeds)) != len(seeds):
        raise UserError(f"seeds is {seeds!r}; it must be a list of different whole numbers from 0 to {MAX_SEED}")
    return seeds


def _flag(entry: dict[str, Any], name: str) -> bool:
    value = entry.get(name, False)
    if not isinstance(value, bool):
        raise UserError(f"{name} is {value!r}; it must be true or false")
    return value


def _for_env(value: Any, env: str, name: str) -> Any:
    """The value of an option for an environment; a table of environments has one for each."""
    if isinstance(value, dict) and name != "env_options":
        if env not in value:
            raise UserError(f"{name} has no value for {env}; it has some for {', '.join(value) or 'none'}")
        return value[env]
    return value

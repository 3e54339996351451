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

    [environments.workshop]
    env = "my_env.py:make"                        # what it is, where the name is not that of an environment

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
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from susd.config import MAX_SEED, Config, configure
from susd.downstream.config import DEFAULT_LAYOUTS, DownstreamConfig, preset_options
from susd.envs import check_name
from susd.errors import UserError
from susd.evaluation import DEFAULT_STEPS, EVALUATIONS, NO_EMBEDDING, ZERO_SHOT
from susd.methods.registry import METHODS
from susd.runs.folder import config_hash
from susd.tasks import TASKS, full_name
from susd.tasks.goals import RULES

SHIPPED = Path(__file__).parent / "suites"
TOP = ("about", "seeds", "train", "evaluations", "downstream", "environments", "methods", "controls")
KEYS = ("method", "environments", "seeds", "evaluations", "tasks", "layouts", "layouts_per_seed", "flat")
WORLD = ("env", "tasks", "layouts", "layouts_per_seed", "first_seed_layouts", "train", "downstream", "evaluations")
NAME = r"[A-Za-z0-9][A-Za-z0-9_.+-]*"  # of an environment or a method: it becomes a folder


@dataclass(frozen=True)
class Job:
    """One command: train a run, evaluate it, or learn a task over it."""

    name: str  # RUN/train, RUN/coverage, RUN/fp-easy@1
    run: str  # ENVIRONMENT/LABEL-sSEED: the folder of the run below the suite's
    environment: str
    label: str
    seed: int  # of the run; a flat policy has one too
    phase: str  # train, an evaluation, or downstream
    config: dict[str, Any]  # of training or of the task; of an evaluation its options
    trained: Config | None  # the run that it needs or makes; None for a flat policy
    pictured: bool = False  # whether the run's trajectories are drawn and kept with the results

    @property
    def needs(self) -> str | None:
        """The job that must be finished before."""
        return None if self.phase == "train" or self.trained is None else f"{self.run}/train"

    @property
    def method(self) -> str:
        """The method's name, or flat."""
        return "flat" if self.trained is None else self.trained.method

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
    declared: tuple[Job, ...]  # all of the file, also where `jobs` is a part

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
    return Suite(path.stem, str(declared.get("about", "")), text, jobs, jobs)


def _jobs(declared: dict[str, Any]) -> list[Job]:
    """All jobs: methods, then what only first seeds are tested on, then controls; and in each of them seed by seed.

    So a suite that is stopped half-way has whole seeds of all methods.
    """
    _known("the file", declared, TOP)
    worlds = _table(declared, "environments")
    for name, world in worlds.items():
        _known(f"environments.{name}", world, WORLD)
        check_name(str(world.get("env", name)))
        if not re.fullmatch(NAME, name):
            raise UserError(f"environment {name!r}: a name has letters, digits and . _ + - only; say what it is with `env`")
    stages: list[list[Job]] = [[], [], []]
    for stage, table in ((0, "methods"), (2, "controls")):
        entries = _table(declared, table)
        for label in entries:
            _known(f"{table}.{label}", entries[label])
        for index in range(max((len(_seeds(declared, entry)) for entry in entries.values()), default=0)):
            for env, world in worlds.items():
                for label, entry in entries.items():
                    if env in _among(entry, "environments", worlds) and index < len(_seeds(declared, entry)):
                        try:
                            jobs = list(_Run(declared, env, world, label, entry, index).jobs())
                        except UserError as error:
                            raise UserError(f"{table}.{label}: {error}") from None
                        for job in jobs:
                            later = stage == 0 and job.config.get("layout") in _list(world, "first_seed_layouts")
                            stages[1 if later else stage].append(job)
    found = [job for jobs in stages for job in jobs]
    if twice := [name for name, count in Counter(job.name for job in found).items() if count > 1]:
        raise UserError(f"job {twice[0]!r} is declared twice")
    return found


@dataclass(frozen=True)
class _Run:
    """One method with one seed in one environment, as it is declared."""

    suite: dict[str, Any]
    env: str
    world: dict[str, Any]
    label: str
    entry: dict[str, Any]
    index: int  # of the seed

    def jobs(self) -> Iterator[Job]:
        """Training, evaluations and tasks."""
        if not re.fullmatch(NAME, self.label):
            raise UserError("a name has letters, digits and . _ + - only")
        options = {name: _for_env(value, self.env, name) for name, value in self.entry.items() if name not in KEYS}
        trained = None
        if not _flag(self.entry, "flat"):
            method = self.entry.get("method", self.label)
            if method not in METHODS:
                raise UserError(f"method {method!r} is unknown; there are {', '.join(METHODS)}")
            options = self._options("train") | options | {"method": method, "seed": self.seed}
            trained = configure(self.source, **options)
            train = self._job("train", "train", trained.to_json(), trained)
            yield dataclasses.replace(train, pictured=self.index == 0)
            yield from self._evaluations(trained)
        elif options:
            raise UserError(f"it is flat and trains no run, so it has no {min(options)!r}")
        yield from self._tasks(trained)

    @property
    def source(self) -> str:
        """The environment that is meant by its name in the file."""
        return str(self.world.get("env", self.env))

    @property
    def seed(self) -> int:
        return _seeds(self.suite, self.entry)[self.index]

    def _options(self, name: str) -> dict[str, Any]:
        """What is said for all, overruled by what is said for the environment."""
        return _table(self.suite, name) | _table(self.world, name)

    def _job(self, what: str, phase: str, config: dict[str, Any], trained: Config | None) -> Job:
        run = f"{self.env}/{self.label}-s{self.seed}"
        return Job(f"{run}/{what}", run, self.env, self.label, self.seed, phase, config, trained)

    def _evaluations(self, trained: Config) -> Iterator[Job]:
        wanted = self._options("evaluations")
        for what in _among(self.entry, "evaluations", wanted):
            if what not in (*EVALUATIONS, ZERO_SHOT):
                raise UserError(f"evaluation {what!r} is unknown; there are {', '.join((*EVALUATIONS, ZERO_SHOT))}")
            _known(f"evaluations.{what}", wanted[what], ("steps",) if what in (*DEFAULT_STEPS, ZERO_SHOT) else ())
            if what == ZERO_SHOT and self.source not in RULES:
                raise UserError(f"zero-shot goals are defined in {' and '.join(RULES)}, not in {self.source}")
            if what == ZERO_SHOT and METHODS[trained.method].code in NO_EMBEDDING:
                continue  # it has no phi to find the way with, and is run for the other evaluations
            yield self._job(what, what, dict(wanted[what]), trained)

    def _tasks(self, trained: Config | None) -> Iterator[Job]:
        options = self._options("downstream")
        _known("downstream", options, tuple(spec.name for spec in dataclasses.fields(DownstreamConfig)))
        options = preset_options(options.get("preset", "quick"), self.source) | options
        options |= {"seed": self.seed, "flat": trained is None, "skill_seed": 0 if trained is None else self.seed}
        layouts = self._layouts()
        for task in _list(self.entry, "tasks") if "tasks" in self.entry else _list(self.world, "tasks"):
            full = full_name(str(task))
            if TASKS[full].env != self.source:
                raise UserError(f"task {task!r} is one of {TASKS[full].env}, not of {self.source}")
            for layout in layouts:
                config = DownstreamConfig(**(options | {"task": full, "layout": layout})).to_json()
                yield self._job(f"{full.partition('-')[2]}@{layout}", "downstream", config, trained)

    def _layouts(self) -> list[str]:
        """Those that this seed is tested in."""
        declared = _list(self.entry, "layouts") or _list(self.world, "layouts") or [DEFAULT_LAYOUTS.get(self.source, "")]
        layouts = [str(layout) for layout in declared]
        count = self.entry.get("layouts_per_seed", self.world.get("layouts_per_seed", len(layouts)))
        if not isinstance(count, int) or not 1 <= count <= len(layouts):
            raise UserError(f"layouts_per_seed is {count!r}; it must be from 1 to {len(layouts)}, the number of layouts")
        mine = [layouts[(self.index * count + i) % len(layouts)] for i in range(count)]
        first = [] if self.index or "layouts" in self.entry else map(str, _list(self.world, "first_seed_layouts"))
        return [*mine, *(layout for layout in first if layout not in mine)]


def _known(where: str, table: Any, allowed: tuple[str, ...] | None = None) -> None:
    if not isinstance(table, dict):
        raise UserError(f"{where} is {table!r}; it must be a table")
    if allowed is not None and (unknown := [name for name in table if name not in allowed]):
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
    wanted = _list(entry, name) if name in entry else list(all_of_them)
    if unknown := [x for x in wanted if x not in all_of_them]:
        raise UserError(f"{name} has {unknown[0]!r}, which is not declared; there are {', '.join(all_of_them) or 'none'}")
    return wanted


def _seeds(declared: dict[str, Any], entry: dict[str, Any]) -> list[int]:
    seeds = entry.get("seeds", declared.get("seeds", [0]))
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

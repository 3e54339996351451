"""From the tables of a suite file to its jobs: one for each training, evaluation and task."""

from __future__ import annotations

import dataclasses
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from susd import plugins
from susd.config import MAX_SEED, Config, configure
from susd.downstream.config import FROM_RUN, DownstreamConfig, preset_options, same_env
from susd.envs import check_name
from susd.errors import UserError, shown
from susd.evaluation.registry import evaluation
from susd.experiments.extract import FLAT, task_label, way_of_task
from susd.methods.registry import method
from susd.runs.folder import config_hash
from susd.tasks.registry import TaskEntry, task_entry

MAX_JOBS, MAX_SEEDS = 10_000, 1000  # of a file, and of an entry
TOP_KEYS = (
    "about",
    "seeds",
    "train",
    "evaluations",
    "downstream",
    "environments",
    "methods",
    "controls",
    "scale",
    "scales",
)
PARTS = ("environments", "methods", "controls", "evaluations")  # of a file; a scale may have some entries of each
WAYS = ("interface", "policy")  # options of a task that may be a list of values, each of which is run
METHOD_KEYS = ("method", "environments", "seeds", "evaluations", "tasks", "layouts", "layouts_per_seed", "ways", *WAYS)
LAYOUT_KEYS = ("layouts", "layouts_per_seed", "every_seed_layouts", "first_seed_layouts")
ENV_KEYS = ("env", "tasks", *LAYOUT_KEYS, "train", "downstream", "evaluations")
TASK_KEYS = tuple(
    spec.name
    for spec in dataclasses.fields(DownstreamConfig)
    if spec.name not in (*FROM_RUN, "task", "layout", "seed", "skill_seed")
)
# Options of tasks that earlier versions did not have, with the values that stand for those versions.
LATER = {
    "interface": "skill",
    "policy": "joint",
    "context": "mean",
    "horizon": 0,
    "skill_steps": 5,
    "env_options": {},
    "env_horizon": 0,
    "critic_norm": "none",
}
NAME = r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}"  # of an environment or a method: it becomes a folder

MOST_NAME = 200  # bytes of the name of a job, which names files


@dataclass(frozen=True)
class Job:
    """One unit of work: train a run, evaluate it, or learn a task over it."""

    name: str  # RUN/train, RUN/coverage, RUN/fp-easy@1, RUN/fp-easy@1-goal
    run: str  # ENVIRONMENT/LABEL-sSEED: the folder of the run inside that of the suite
    environment: str
    label: str
    seed: int  # of the run, or of the policy that is learned in a task
    phase: str  # train, downstream or the name of an evaluation
    config: dict[str, Any]  # of training or of the task; of an evaluation its options
    trained: Config | None  # the run that it needs or produces; None for a flat policy
    evaluation: str = ""  # the evaluation as it is declared, perhaps FILE.py:NAME
    draws: bool = False  # whether the trajectories of the run are drawn and kept with the results

    @property
    def needs(self) -> str | None:
        """The job that must be finished before this one."""
        return None if self.phase == "train" or self.trained is None else f"{self.run}/train"

    @property
    def method(self) -> str:
        """The name of the method, or flat."""
        return FLAT if self.trained is None else method(self.trained.method).name

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the result: the config and, for what uses a run, the options that were set for the run."""
        trained = None if self.trained is None else self.trained.changes()
        config = _as_recorded(self.config) if self.phase == "downstream" else self.config
        return {"phase": self.phase, "config": config, "trained": trained}

    @property
    def hash(self) -> str:
        """Equal for jobs with the same result, whatever the folder."""
        return config_hash(self.identity)

    @property
    def kind(self) -> str:
        """Equal for jobs that take about the same time: only seed and layout differ."""
        same = {
            name: value
            for name, value in self.config.items()
            if name not in ("seed", "skill_seed", "layout", "env_options")
        }
        size = None if self.trained is None else [self.trained.method, self.trained.hidden, self.trained.skill_dim]
        return config_hash({"phase": self.phase, "config": same, "size": size, "environment": self.environment})


def _as_recorded(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config of a task without later options at their usual values: results recorded before them remain valid."""
    flat = config["interface"] == FLAT
    without = {name for name, usual in LATER.items() if config[name] == usual or (flat and name == "interface")}
    if task_entry(config["task"]).env == config["env"]:
        without.add("env")  # the task says it
    return {name: value for name, value in config.items() if name not in without} | {"flat": flat}


def jobs_of(declared: dict[str, Any]) -> list[Job]:
    """All jobs: methods, then the layouts of first seeds, then controls; and in each of them seed by seed.

    So a suite that is stopped half-way has complete seeds of all methods.
    """
    check_keys("the file", declared, TOP_KEYS)
    environments = table_of(declared, "environments")
    for name, settings in environments.items():
        check_keys(f"environments.{name}", settings, ENV_KEYS)
        check_name(str(settings.get("env", name)))
        if not re.fullmatch(NAME, name):
            raise UserError(
                f"environment {shown(name)}: a name has at most 64 letters, digits and . _ + -; "
                "declare the environment with `env`"
            )
    stages: list[list[Job]] = [[], [], []]
    for stage, kind in ((0, "methods"), (2, "controls")):
        for run in _runs(declared, kind, environments):
            try:
                jobs = list(run.jobs())
            except UserError as error:
                raise UserError(f"{kind}.{shown(run.label)[1:-1]}: {error}") from None
            if sum(map(len, stages)) + len(jobs) > MAX_JOBS:
                raise UserError(f"it has more than {MAX_JOBS} jobs; declare several suites")
            for job in jobs:
                later = stage == 0 and job.config.get("layout") in list_of(run.settings, "first_seed_layouts")
                stages[1 if later else stage].append(job)
    found = [job for jobs in stages for job in jobs]
    if repeated := [name for name, count in Counter(job.name for job in found).items() if count > 1]:
        raise UserError(f"job {repeated[0]!r} is declared twice")
    if too_long := [job.name for job in found if len(os.fsencode(job.name)) > MOST_NAME]:
        raise UserError(
            f"job {shown(too_long[0])} has a name of more than {MOST_NAME} bytes; shorten the names it is made of"
        )
    _check_evaluations(declared, environments, found)
    return found


def _runs(declared: dict[str, Any], kind: str, environments: dict[str, Any]) -> Iterator[_Run]:
    """The runs of `methods` or `controls`, the first seeds of all before the second ones."""
    entries = table_of(declared, kind)
    for label in entries:
        check_keys(f"{kind}.{label}", entries[label])
    for index in range(max((len(_seeds(declared, entry)) for entry in entries.values()), default=0)):
        for env, settings in environments.items():
            for label, entry in entries.items():
                if env in subset_of(entry, "environments", environments) and index < len(_seeds(declared, entry)):
                    yield _Run(declared, env, settings, label, entry, index)


def _check_evaluations(declared: dict[str, Any], environments: dict[str, Any], jobs: Sequence[Job]) -> None:
    """Refuse an evaluation that is undefined in every run of an environment that asks for it."""
    for where, source in [("", declared), *((f" in {name}", settings) for name, settings in environments.items())]:
        for name in table_of(source, "evaluations"):
            trained = [job for job in jobs if job.phase == "train" and (not where or where == f" in {job.environment}")]
            if trained and not any(job.evaluation == name for job in jobs):
                runs = [job.trained for job in trained if job.trained is not None]
                reasons = [evaluation(name).undefined(run.env, method(run.method)) for run in runs]
                if all(reasons):
                    raise UserError(f"evaluation {name!r}{where} is undefined: {reasons[0]}")


@dataclass(frozen=True)
class _Run:
    """One method with one seed in one environment, as it is declared."""

    suite: dict[str, Any]
    env: str
    settings: dict[str, Any]  # of the environment
    label: str
    entry: dict[str, Any]  # of the method
    index: int  # of the seed

    def jobs(self) -> Iterator[Job]:
        """Training, evaluations and tasks."""
        if not re.fullmatch(NAME, self.label):
            raise UserError("a name has at most 64 letters, digits and . _ + -")
        options = {name: _for_env(value, self.env, name) for name, value in self.entry.items() if name not in METHOD_KEYS}
        trained = None
        if _values(self.entry, "interface") != [FLAT]:
            name = str(self.entry.get("method", self.label))
            method(name)  # refuses an unknown one
            options = self._options("train") | options | {"method": name, "seed": self.seed}
            trained = configure(self.source, **options)
            train = self._job("train", "train", trained.to_json(), trained)
            yield dataclasses.replace(train, draws=self.index == 0)
            yield from self._evaluations(trained)
        elif options:
            raise UserError(f"its interface is flat and it trains no run, so it has no option {min(options)!r}")
        yield from self._tasks(trained)

    @property
    def source(self) -> str:
        """The environment that the name in the file stands for."""
        return str(self.settings.get("env", self.env))

    @property
    def seed(self) -> int:
        return _seeds(self.suite, self.entry)[self.index]

    def _options(self, name: str) -> dict[str, Any]:
        """The options of the whole file, overridden by those of the environment."""
        return table_of(self.suite, name) | table_of(self.settings, name)

    def _job(self, what: str, phase: str, config: dict[str, Any], trained: Config | None) -> Job:
        run = f"{self.env}/{self.label}-s{self.seed}"
        return Job(f"{run}/{what}", run, self.env, self.label, self.seed, phase, config, trained)

    def _evaluations(self, trained: Config) -> Iterator[Job]:
        wanted = self._options("evaluations")
        for declared in subset_of(self.entry, "evaluations", wanted):
            check_keys(f"evaluations.{declared}", wanted[declared])
            found = evaluation(declared)
            found.check_options(wanted[declared])
            if not found.undefined(self.source, method(trained.method)):
                job = self._job(found.name, found.name, dict(wanted[declared]), trained)
                yield dataclasses.replace(job, evaluation=declared)

    def _tasks(self, trained: Config | None) -> Iterator[Job]:
        own = {"tasks": _for_env(self.entry["tasks"], self.env, "tasks")} if "tasks" in self.entry else self.settings
        for declared in list_of(own, "tasks"):
            given = dict(declared) if isinstance(declared, dict) else {"task": declared}
            name = str(given.pop("task", ""))
            task = task_entry(name, self.source)
            if not same_env(task.env, self.source):
                raise UserError(f"task {name!r} is one of {task.env}, not of {self.source}")
            values = self._task_options(given, trained)
            values |= {"task": name if plugins.is_file(name) else task.name, "env": task.env}
            for interface, policy in self._ways(values):
                self._check_way(interface, policy, values, trained)
                preset = preset_options(values.get("preset", "quick"), task, policy)
                way = {"interface": interface, "policy": policy}
                for number in range(self._high_level_seeds(values)):
                    for layout in self._layouts(task, number):
                        yield self._task(task, preset | values | way | {"layout": layout}, trained, number)

    def _task_options(self, given: dict[str, Any], trained: Config | None) -> dict[str, Any]:
        """The options of the file and the environment, overridden by those of the method and by the task's own."""
        options = self._options("downstream") | {key: value for key, value in self.entry.items() if key in WAYS} | given
        check_keys("downstream", options, TASK_KEYS)
        if trained is None:  # in the same environment as the runs
            options |= {"interface": FLAT, "policy": self.entry.get("policy", "joint")}
            options["env_options"] = table_of(self._options("train"), "env_options")
            options["env_horizon"] = self._options("train").get("horizon", 0)
        return options

    def _ways(self, values: Mapping[str, Any]) -> list[tuple[Any, Any]]:
        """The interfaces and policies of a task: the pairs that are declared, or all combinations."""
        if "ways" not in self.entry:
            return list(product(_values(values, "interface"), _values(values, "policy")))
        pairs = _for_env(self.entry["ways"], self.env, "ways")
        if not isinstance(pairs, list) or not pairs or not all(isinstance(p, list) and len(p) == 2 for p in pairs):
            raise UserError(f"ways is {shown(pairs)}; it must be a list of pairs [interface, policy]")
        return [(interface, policy) for interface, policy in pairs]

    def _high_level_seeds(self, values: Mapping[str, Any]) -> int:
        count = values.get("seeds", 1)
        if type(count) is not int or count < 1:
            raise UserError(f"downstream has seeds = {count!r}; it must be a number of high-level policies, at least 1")
        return count

    def _task(self, task: TaskEntry, values: dict[str, Any], trained: Config | None, number: int) -> Job:
        """The job of one high-level seed, by its number. Without skills nothing else differs, so each seed is used once."""
        first = self.seed if trained is not None else self.seed * self._high_level_seeds(values)
        values.pop("seeds", None)
        if values["policy"] != "entity":
            values.pop("context", None)  # it has no effect
        seed, way = first + number, way_of_task(values["interface"], values["policy"])
        config = DownstreamConfig(**values, seed=seed, skill_seed=0 if trained is None else self.seed).to_json()
        what = f"{task.short}@{values['layout']}{way}" + (f"-s{seed}" if number else "")
        job = self._job(what, "downstream", config, trained)
        return dataclasses.replace(job, seed=seed, label=task_label(self.label, values["interface"], values["policy"]))

    def _check_way(self, interface: Any, policy: Any, values: Mapping[str, Any], trained: Config | None) -> None:
        """Refuse interfaces and policies that are not defined for the runs."""
        if trained is None:
            return
        card = method(trained.method)
        if interface == FLAT:
            raise UserError("interface has 'flat', which needs no run; give it an entry of its own, [methods.flat]")
        if interface == "goal" and card.without_goals:
            raise UserError(f"interface is 'goal', but {card.without_goals}")
        if policy != "joint" and ("factors" not in card.options or trained.embedding == "state"):
            raise UserError(f"policy is {policy!r}, but the skills of {card.name} have one part")
        policies = [*_values(values, "policy"), *_values(self._options("downstream"), "policy")]
        if "context" in values and "entity" not in policies:
            raise UserError(f"downstream has context = {values['context']!r}, but only policy = 'entity' has one")

    def _layouts(self, task: TaskEntry, number: int) -> list[str]:
        """The layouts that this seed is tested in with the high-level seed of that number.

        With `layouts_per_seed` they rotate with both, so that a square of seeds has every pair of seed and layout once.
        """
        declared = list_of(self.entry, "layouts") or list_of(self.settings, "layouts") or [task.layouts.default]
        layouts = [str(layout) for layout in declared]
        count = self.entry.get("layouts_per_seed", self.settings.get("layouts_per_seed", len(layouts)))
        if not isinstance(count, int) or not 1 <= count <= len(layouts):
            raise UserError(f"layouts_per_seed is {count!r}; it must be from 1 to {len(layouts)}, the number of layouts")
        mine = [layouts[(self.index * count + number + i) % len(layouts)] for i in range(count)]
        more = [] if "layouts" in self.entry else list_of(self.settings, "every_seed_layouts")
        if not self.index and "layouts" not in self.entry:
            more = [*more, *list_of(self.settings, "first_seed_layouts")]
        return list(dict.fromkeys([*mine, *map(str, more)]))


def check_keys(where: str, section: Any, allowed: tuple[str, ...] | None = None) -> None:
    """Refuse what is no table, or has other keys than those allowed."""
    if not isinstance(section, dict):
        raise UserError(f"{where} is {section!r}; it must be a table")
    if allowed is not None and (unknown := [name for name in section if name not in allowed]):
        raise UserError(f"{where} has the unknown key {unknown[0]!r}; allowed are {', '.join(allowed)}")


def table_of(where: Mapping[str, Any], name: str) -> dict[str, Any]:
    """An entry that must be a table; empty where it is missing."""
    value = where.get(name, {})
    if not isinstance(value, dict):
        raise UserError(f"{name} is {value!r}; it must be a table")
    return value


def list_of(where: Mapping[str, Any], name: str) -> list[Any]:
    """An entry that must be a list; empty where it is missing."""
    value = where.get(name, [])
    if not isinstance(value, list):
        raise UserError(f"{name} is {value!r}; it must be a list")
    return value


def subset_of(entry: dict[str, Any], name: str, declared: Mapping[str, Any]) -> list[str]:
    """What a method asks for, or all that is declared."""
    wanted = list_of(entry, name) if name in entry else list(declared)
    if unknown := [x for x in wanted if x not in declared]:
        raise UserError(f"{name} has {unknown[0]!r}, which is not declared; declared are {', '.join(declared) or 'none'}")
    return wanted


def _seeds(declared: dict[str, Any], entry: dict[str, Any]) -> list[int]:
    seeds = entry.get("seeds", declared.get("seeds", [0]))
    if isinstance(seeds, list) and len(seeds) > MAX_SEEDS:
        raise UserError(f"seeds has {len(seeds)} entries; at most {MAX_SEEDS} are possible")
    valid = isinstance(seeds, list) and all(type(seed) is int and 0 <= seed <= MAX_SEED for seed in seeds)
    if not valid or not seeds or len(set(seeds)) != len(seeds):
        raise UserError(f"seeds is {seeds!r}; it must be a list of different integers from 0 to {MAX_SEED}")
    return seeds


def _values(where: Mapping[str, Any], name: str) -> list[Any]:
    """The values of an option that may be a list; without it, the default."""
    default = next(spec.default for spec in dataclasses.fields(DownstreamConfig) if spec.name == name)
    value = where.get(name, default)
    found = value if isinstance(value, list) else [value]
    if not found or len(set(map(str, found))) != len(found):
        raise UserError(f"{name} is {value!r}; it must be a value or a list of different values")
    return found


def _for_env(value: Any, env: str, name: str) -> Any:
    """The value of an option for an environment; a table of environments has one for each."""
    if isinstance(value, dict) and name != "env_options":
        if env not in value:
            raise UserError(f"{name} has no value for {env}; it has values for {', '.join(value) or 'none'}")
        return value[env]
    return value

"""A suite: a TOML file that declares runs, evaluations and downstream tasks, and the jobs that follow from it.

    about = "what it is for"
    seeds = [0, 1, 2]
    train = { preset = "quick" }                  # options of every run
    evaluations = { coverage = {}, decoding = { steps = 20000 } }
    downstream = { episodes = 1000 }              # options of every task

    [environments.multi_particle]
    tasks = ["seq-easy", "fp-easy"]
    layouts = ["1", "2", "3"]
    layouts_per_seed = 1                          # seed 0 in layout 1, seed 1 in 2, ..; the next high-level seed is one on
    first_seed_layouts = ["random"]               # in addition, for the first seed only; as `every_seed_layouts`

    [environments.workshop]
    env = "my_env.py:make"                        # the environment, where the name is not that of one

    [methods.susd]
    interface = ["skill", "goal"]                 # tasks over the same runs with each; as `policy` = ["joint", "entity"]
    [methods.metra-same-size]
    method = "metra"                              # the method, where the name is not that of one
    skill_dim = { gunner = 6, multi_particle = 20 }  # an option may differ between environments
    [methods.flat]
    interface = "flat"                            # tasks without skills
    [controls.susd-w]                             # like methods, but run after all of them

    [methods.dusdi]
    ways = { gunner = [["skill", "joint"], ["goal", "factored"]] }  # pairs of interface and policy instead
    tasks = { gunner = ["lim"] }                  # instead of those of the environment

    scale = "afternoon"                           # which of the scales below is run; `--scale` chooses another
    [scales.afternoon]                            # a part of the file; see SCALE_KEYS
    seeds = [0]
    methods = ["susd", "flat"]
    controls = []
    [scales.cluster]                              # everything

Any key of a method that is not one of METHOD_KEYS is an option of its runs. Methods, environments, tasks and evaluations
may be built in, registered by an installed package, or FILE.py:NAME. A task may be a table with options of its own:
`tasks = [{ task = "my_task.py:Tidy", horizon = 100 }]`.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any

from susd import plugins
from susd.config import MAX_SEED, Config, configure
from susd.downstream.config import FROM_RUN, DownstreamConfig, preset_options, same_env
from susd.envs import check_name
from susd.errors import UserError, shown
from susd.evaluation.registry import evaluation
from susd.experiments.extract import FLAT, task_label, way_of_task
from susd.methods.registry import method
from susd.paths import user_path
from susd.runs.folder import config_hash
from susd.runs.untrusted import read_toml
from susd.tasks.registry import TaskEntry, task_entry

MAX_JOBS, MAX_SEEDS = 10_000, 1000  # of a file, and of an entry
SHIPPED = Path(__file__).parent / "suites"
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
SCALE_KEYS = ("about", "seeds", "downstream", "tasks", *PARTS)
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


@dataclass(frozen=True)
class Suite:
    """A checked suite file with its jobs, in the order in which they are started."""

    name: str
    about: str
    text: str  # the file
    jobs: tuple[Job, ...]
    declared: tuple[Job, ...]  # all of the file, also where `jobs` is a part
    scale: str = ""  # the one that was chosen; empty for a file without scales
    scales: tuple[str, ...] = ()  # all of the file

    def only(self, patterns: Sequence[str]) -> Suite:
        """The jobs whose names match one of the patterns (`gunner/*`, `*/susd-s0/*`), and the jobs that these need."""
        for pattern in patterns:
            if not any(fnmatchcase(job.name, pattern) for job in self.jobs):
                raise UserError(
                    f"--only {shown(pattern)} matches no job of {self.name}; jobs are named like {self.jobs[0].name}"
                )
        chosen = [job for job in self.jobs if any(fnmatchcase(job.name, pattern) for pattern in patterns)]
        wanted = {job.name for job in chosen} | {job.needs for job in chosen}
        return dataclasses.replace(self, jobs=tuple(job for job in self.jobs if job.name in wanted))


def names() -> list[str]:
    """The suites of the package."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def load(name: str, scale: str = "") -> Suite:
    """A suite of the package by its name, or your own by the path of its file; all of it is checked before any job runs.

    `scale` is one of those of the file instead of the one that it chooses itself.
    """
    path = user_path("the suite", name) if name.endswith(".toml") else SHIPPED / user_path("the suite", f"{name}.toml")
    if not path.is_file():
        raise UserError(f"there is no suite {name!r}; choose one of {', '.join(names())}, or give the path of a .toml file")
    try:
        text, declared = read_toml(path)
    except UserError as error:
        raise UserError(f"cannot read the suite: {error}") from error
    try:
        scale = _chosen_scale(declared, scale)
        jobs = tuple(_jobs(_scaled(declared, scale)))
    except UserError as error:
        raise UserError(f"suite {path.name}: {error}") from None
    if not jobs:
        raise UserError(f"suite {path.name} has no jobs")
    if scale:  # jobs of other processes read the file that is kept with the results
        text = re.sub(r'^scale = "[^"]*"', f'scale = "{scale}"', text, count=1, flags=re.MULTILINE)
    about, scales = str(declared.get("about", "")), tuple(_section(declared, "scales"))
    return Suite(path.stem, about, text, jobs, jobs, scale, scales)


def _chosen_scale(declared: dict[str, Any], wanted: str) -> str:
    """The scale to run; empty where the file has none."""
    scales = _section(declared, "scales")
    if not scales:
        if wanted or "scale" in declared:
            raise UserError(f"scale is {shown(wanted or declared['scale'])}, but the file has no [scales]")
        return ""
    chosen = wanted or declared.get("scale", "")
    if chosen not in scales or "scale" not in declared:
        raise UserError(f"scale is {shown(chosen)}; it must be one of {', '.join(scales)}")
    return str(chosen)


def _scaled(declared: dict[str, Any], scale: str) -> dict[str, Any]:
    """The part of a file that a scale runs. No option of a run differs, so that a larger scale continues a smaller one."""
    if not scale:
        return declared
    chosen = declared["scales"][scale]
    _check_keys(f"scales.{scale}", chosen, SCALE_KEYS)
    found = declared | ({"seeds": chosen["seeds"]} if "seeds" in chosen else {})
    for part in (part for part in PARTS if part in chosen):
        everything = _section(declared, part)
        found[part] = {name: everything[name] for name in _subset(chosen, part, everything)}
    environments, tasks, options = (
        _section(found, "environments"),
        _section(chosen, "tasks"),
        _section(chosen, "downstream"),
    )
    _subset({"tasks": list(tasks)}, "tasks", environments)
    found["environments"] = {
        name: settings
        | {"tasks": tasks.get(name, _list(settings, "tasks"))}
        | {"downstream": _section(settings, "downstream") | options}
        for name, settings in environments.items()
    }
    for kind in ("methods", "controls"):
        entries = _section(found, kind).items()
        found[kind] = {label: _in_environments(entry, environments) for label, entry in entries}
    return found


def _in_environments(entry: dict[str, Any], environments: Mapping[str, Any]) -> dict[str, Any]:
    """An entry without the environments that a scale leaves out."""
    if "environments" not in entry:
        return entry
    return entry | {"environments": [name for name in _list(entry, "environments") if name in environments]}


def _jobs(declared: dict[str, Any]) -> list[Job]:
    """All jobs: methods, then the layouts of first seeds, then controls; and in each of them seed by seed.

    So a suite that is stopped half-way has complete seeds of all methods.
    """
    _check_keys("the file", declared, TOP_KEYS)
    environments = _section(declared, "environments")
    for name, settings in environments.items():
        _check_keys(f"environments.{name}", settings, ENV_KEYS)
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
                later = stage == 0 and job.config.get("layout") in _list(run.settings, "first_seed_layouts")
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
    entries = _section(declared, kind)
    for label in entries:
        _check_keys(f"{kind}.{label}", entries[label])
    for index in range(max((len(_seeds(declared, entry)) for entry in entries.values()), default=0)):
        for env, settings in environments.items():
            for label, entry in entries.items():
                if env in _subset(entry, "environments", environments) and index < len(_seeds(declared, entry)):
                    yield _Run(declared, env, settings, label, entry, index)


def _check_evaluations(declared: dict[str, Any], environments: dict[str, Any], jobs: Sequence[Job]) -> None:
    """Refuse an evaluation that is undefined in every run of an environment that asks for it."""
    for where, source in [("", declared), *((f" in {name}", settings) for name, settings in environments.items())]:
        for name in _section(source, "evaluations"):
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
        return _section(self.suite, name) | _section(self.settings, name)

    def _job(self, what: str, phase: str, config: dict[str, Any], trained: Config | None) -> Job:
        run = f"{self.env}/{self.label}-s{self.seed}"
        return Job(f"{run}/{what}", run, self.env, self.label, self.seed, phase, config, trained)

    def _evaluations(self, trained: Config) -> Iterator[Job]:
        wanted = self._options("evaluations")
        for declared in _subset(self.entry, "evaluations", wanted):
            _check_keys(f"evaluations.{declared}", wanted[declared])
            found = evaluation(declared)
            found.check_options(wanted[declared])
            if not found.undefined(self.source, method(trained.method)):
                job = self._job(found.name, found.name, dict(wanted[declared]), trained)
                yield dataclasses.replace(job, evaluation=declared)

    def _tasks(self, trained: Config | None) -> Iterator[Job]:
        own = {"tasks": _for_env(self.entry["tasks"], self.env, "tasks")} if "tasks" in self.entry else self.settings
        for declared in _list(own, "tasks"):
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
        _check_keys("downstream", options, TASK_KEYS)
        if trained is None:  # in the same environment as the runs
            options |= {"interface": FLAT, "policy": self.entry.get("policy", "joint")}
            options["env_options"] = _section(self._options("train"), "env_options")
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
        """The job of one high-level seed, by its number."""
        values.pop("seeds", None)
        if values["policy"] != "entity":
            values.pop("context", None)  # it has no effect
        seed, way = self.seed + number, way_of_task(values["interface"], values["policy"])
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
        declared = _list(self.entry, "layouts") or _list(self.settings, "layouts") or [task.layouts.default]
        layouts = [str(layout) for layout in declared]
        count = self.entry.get("layouts_per_seed", self.settings.get("layouts_per_seed", len(layouts)))
        if not isinstance(count, int) or not 1 <= count <= len(layouts):
            raise UserError(f"layouts_per_seed is {count!r}; it must be from 1 to {len(layouts)}, the number of layouts")
        mine = [layouts[(self.index * count + number + i) % len(layouts)] for i in range(count)]
        more = [] if "layouts" in self.entry else _list(self.settings, "every_seed_layouts")
        if not self.index and "layouts" not in self.entry:
            more = [*more, *_list(self.settings, "first_seed_layouts")]
        return list(dict.fromkeys([*mine, *map(str, more)]))


def _check_keys(where: str, section: Any, allowed: tuple[str, ...] | None = None) -> None:
    if not isinstance(section, dict):
        raise UserError(f"{where} is {section!r}; it must be a table")
    if allowed is not None and (unknown := [name for name in section if name not in allowed]):
        raise UserError(f"{where} has the unknown key {unknown[0]!r}; allowed are {', '.join(allowed)}")


def _section(where: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = where.get(name, {})
    if not isinstance(value, dict):
        raise UserError(f"{name} is {value!r}; it must be a table")
    return value


def _list(where: Mapping[str, Any], name: str) -> list[Any]:
    value = where.get(name, [])
    if not isinstance(value, list):
        raise UserError(f"{name} is {value!r}; it must be a list")
    return value


def _subset(entry: dict[str, Any], name: str, declared: Mapping[str, Any]) -> list[str]:
    """What a method asks for, or all that is declared."""
    wanted = _list(entry, name) if name in entry else list(declared)
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

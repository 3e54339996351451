"""The downstream tasks as data: built-in ones, those of installed packages, and FILE.py:NAME. Imports no JAX.

To add a task, write a subclass of `Task` or `HostTask`. In a file it is `susd downstream RUN --task FILE.py:NAME`, for the
environment of the run. A `TaskEntry` gives it an environment of its own, layouts and presets: here, in a file, or under the
entry-point group `susd.tasks` of your own package. The task `reward` is the environment's own reward.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from susd import plugins
from susd.envs import make
from susd.envs import registry as environments
from susd.errors import UserError, format_exception, shown

if TYPE_CHECKING:
    from susd.envs.base import Environment, HostEnvironment
    from susd.tasks.base import HostTask, Task

Options = Mapping[str, Any]
MAX_LAYOUT_SEED = 2**31 - 1
REWARD = "reward"  # the name of the task whose reward is the environment's own
SKILL_STEPS = 5  # environment steps per high-level action in the paper (K); reported returns are in these units


@dataclass(frozen=True)
class Layouts:
    """Where the episodes of a task may start, by the name that `--layout` gives."""

    default: str = "random"
    describe: str = "random"  # the layouts in words, for help and errors
    options: Callable[[str], Options | None] = {"random": {}}.get  # layout -> options of the environment; None: unknown
    random: frozenset[str] = frozenset({"random"})  # the layouts that draw a new start for every episode


@dataclass(frozen=True)
class TaskEntry:
    """A task: its environment, its class, and what distinguishes it from other tasks of that class."""

    name: str  # by convention the name of the environment, a hyphen, and a short name
    env: str  # a name that `susd.make` takes; empty: the environment of the run
    source: str | Callable[..., Task | HostTask]  # module:class, or the class
    options: Options = field(default_factory=dict)  # keyword arguments of the class
    layouts: Layouts = field(default_factory=Layouts)
    presets: Mapping[str, Options] = field(default_factory=dict)  # preset, or preset-policy -> options of DownstreamConfig

    @property
    def short(self) -> str:
        """The name without that of the environment: `seq-easy` for `multi_particle-seq-easy`."""
        return self.name.removeprefix(f"{self.env}-")

    def layout_options(self, layout: str) -> dict[str, Any]:
        """The options of the environment for a layout; an unknown one is a UserError."""
        found = self.layouts.options(layout)
        if found is None:
            raise UserError(f"--layout is {shown(layout)}; for {self.env} it is {self.layouts.describe}")
        return dict(found)


def _particle_layout(layout: str) -> Options | None:
    if layout == "random":
        return {"layout": "random"}
    if layout.isdecimal() and len(layout) <= 10 and int(layout) <= MAX_LAYOUT_SEED:
        return {"layout": "fixed", "layout_seed": int(layout)}
    return None


_STARTS = Layouts(
    "centre", "centre, 0, 1, 2 or 3", {start: {"start": start} for start in ("centre", "0", "1", "2", "3")}.get, frozenset()
)
_SEEDS = Layouts("1", "the seed of a layout, such as 1, 2 or 3, or random", _particle_layout)
_SEQUENTIAL = {"easy": (1, 3), "medium": (0, 2, 8), "hard": (0, 1, 7, 9)}
_SEQUENTIAL_PRESETS = {"quick-entity": {"episodes": 3000}}  # what counts is to finish all, which happens rarely at first
_FOOD_POISON = {
    "easy": (1, 6),
    "medium": (0, 2, 4, 6, 9),
    "hard": (0, 1, 2, 3, 4, 6, 7, 9),
    "difficult": tuple(range(10)),
}
# An episode of 2D-Gunner is twenty times as long as one of Multi-Particle, and one of the Kitchen five times.
_GUNNER_QUICK = {
    "episodes": 800,
    "gradient_steps": 20,
    "batch_size": 256,
    "warmup": 20_000,
    "scale_view": True,
    "explore": 0.2,
    "discount": 0.9,
    "eval_every": 40,
}
_KITCHEN_QUICK = {
    "episodes": 1600,
    "gradient_steps": 20,
    "num_envs": 16,
    "batch_size": 128,
    "eval_every": 160,
    "eval_episodes": 16,
}
# Meant to keep a policy of the Kitchen from losing a task that it has found; better than the usual settings with one seed.
_STEADY = {"learning_rate": 3e-4, "critic_norm": "layer"}

BUILT_IN: tuple[TaskEntry, ...] = (
    *(
        TaskEntry(
            f"gunner-{short}",
            "gunner",
            "susd.tasks.gunner:GunnerTask",
            {"limited": limited},
            _STARTS,
            {"quick": _GUNNER_QUICK},
        )
        for short, limited in (("unlim", False), ("lim", True))
    ),
    *(
        TaskEntry(
            f"multi_particle-{kind}-{level}",
            "multi_particle",
            f"susd.tasks.multi_particle:{source}",
            {"agents": agents},
            _SEEDS,
            _SEQUENTIAL_PRESETS if kind == "seq" else {},
        )
        for kind, source, levels in (("seq", "Sequential", _SEQUENTIAL), ("fp", "FoodPoison", _FOOD_POISON))
        for level, agents in levels.items()
    ),
    *(
        TaskEntry(
            f"kitchen-{short}",
            "kitchen",
            "susd.tasks.kitchen:KitchenTask",
            {"predicate": short},
            Layouts(),
            {"quick": _KITCHEN_QUICK, "quick-joint": _STEADY, "quick-factored": _STEADY},
        )
        for short in ("bip", "mip", "pos", "pot")
    ),
)


def names() -> tuple[str, ...]:
    """The names of all tasks; nothing of other packages is imported."""
    return (*(entry.name for entry in BUILT_IN), *plugins.registered("tasks"))


def tasks() -> dict[str, TaskEntry]:
    """All tasks by name: the built-in ones and those of installed packages."""
    return {name: _entry(name) for name in names()}


def task_entry(name: str, env: str = "") -> TaskEntry:
    """The task of a full name, a short name (`seq-easy` for `multi_particle-seq-easy`), `reward` or FILE.py:NAME.

    `env` is the environment of tasks that name none.
    """
    if not isinstance(name, str):
        raise UserError(f"the task is {shown(name)}; it must be the name of one: {', '.join(names())}")
    if plugins.is_file(name):
        return _from_file(name, env)
    if name == REWARD:
        if env in environments.BUILT_IN:
            raise UserError(
                f"{env} has no reward of its own, so it has no task {REWARD!r}; choose one of {', '.join(names())}"
            )
        return TaskEntry(REWARD, env, "susd.tasks.own:environment_reward")
    if name in names():
        return _entry(name)
    matches = [entry for entry in tasks().values() if entry.short == name]
    if len(matches) != 1:
        raise UserError(f"unknown task {shown(name)}; choose one of {', '.join(names())}, {REWARD} or FILE.py:NAME")
    return matches[0]


def make_task(name: str, env: Environment | HostEnvironment | None = None, **options: Any) -> Task | HostTask:
    """The task of that name, on a given environment or on a new one with the given options."""
    entry = task_entry(name)
    if env is not None and options:
        raise UserError(f"task {entry.name!r}: give an environment or options for one ({', '.join(options)}), not both")
    if env is None:
        if not entry.env:
            raise UserError(f"task {entry.name!r} names no environment; give one")
        env = make(entry.env, **options)
    elif entry.env and env.spec.name != entry.env and not entry.env.rpartition(":")[0].endswith(".py"):
        raise UserError(f"task {entry.name!r} needs the environment {entry.env!r}, not {env.spec.name!r}")
    task: Task | HostTask = _constructor(entry)(entry.name, env, **entry.options)
    return task


def _constructor(entry: TaskEntry) -> Callable[..., Task | HostTask]:
    if callable(entry.source):
        return entry.source
    module, _, attribute = entry.source.partition(":")
    try:
        constructor: Callable[..., Task | HostTask] = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UserError(f"task {entry.name!r}: {entry.source} cannot be imported: {format_exception(error)}") from error
    return constructor


@cache
def _entry(name: str) -> TaskEntry:
    """A task by its full name; the name of an entry point is the name of its task."""
    for entry in BUILT_IN:
        if entry.name == name:
            return entry
    return replace(_checked(f"entry point {name!r} of susd.tasks", plugins.load("tasks", name)), name=name)


def _from_file(name: str, env: str) -> TaskEntry:
    """The task in a file: an entry, or a class or factory for the environment `env`.

    Where an entry has its environment in a file too, that path is relative to the folder of the first.
    """
    found = plugins.load_file(name)
    if not isinstance(found, TaskEntry):
        from susd.tasks import own  # imports JAX

        own.check_source(name, found)
        return TaskEntry(name.rpartition(":")[2], env, partial(own.build_task, found))
    if not found.env:
        return replace(found, env=env)
    path, _, factory = found.env.rpartition(":")
    if not path.endswith(".py"):
        return found
    return replace(found, env=f"{Path(name.rpartition(':')[0]).parent / path}:{factory}")


def _checked(what: str, found: Any) -> TaskEntry:
    if not isinstance(found, TaskEntry):
        raise UserError(f"{what} is a {type(found).__name__}; it must be a susd.extend.TaskEntry")
    return found

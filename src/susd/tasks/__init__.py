"""The downstream tasks by name. Nothing here imports JAX until a task is made."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from susd.envs import make
from susd.errors import UserError

if TYPE_CHECKING:
    from susd.envs.base import Environment, HostEnvironment
    from susd.tasks.base import HostTask, Task


@dataclass(frozen=True)
class Entry:
    """Where a task comes from: its environment's name, module:class, and the facts that set it apart."""

    env: str
    source: str
    facts: dict[str, Any] = field(default_factory=dict)


_SEQUENTIAL = {"easy": (1, 3), "medium": (0, 2, 8), "hard": (0, 1, 7, 9)}
_FOOD_POISON = {
    "easy": (1, 6),
    "medium": (0, 2, 4, 6, 9),
    "hard": (0, 1, 2, 3, 4, 6, 7, 9),
    "difficult": tuple(range(10)),
}

TASKS: dict[str, Entry] = {
    "gunner-unlim": Entry("gunner", "susd.tasks.gunner:GunnerTask", {"limited": False}),
    "gunner-lim": Entry("gunner", "susd.tasks.gunner:GunnerTask", {"limited": True}),
    **{
        f"multi_particle-{kind}-{level}": Entry("multi_particle", f"susd.tasks.multi_particle:{source}", {"agents": agents})
        for kind, source, levels in (("seq", "Sequential", _SEQUENTIAL), ("fp", "FoodPoison", _FOOD_POISON))
        for level, agents in levels.items()
    },
    **{
        f"kitchen-{short}": Entry("kitchen", "susd.tasks.kitchen:KitchenTask", {"predicate": short})
        for short in ("bip", "mip", "pos", "pot")
    },
}


def full_name(name: str) -> str:
    """The registered name for a full or short one: `seq-easy` is `multi_particle-seq-easy`."""
    matches = [full for full in TASKS if name in (full, full.partition("-")[2])]
    if len(matches) != 1:
        raise UserError(f"unknown task {name!r}; there are: {', '.join(TASKS)}")
    return matches[0]


def make_task(name: str, env: Environment | HostEnvironment | None = None, **options: Any) -> Task | HostTask:
    """The task of that name, on a given environment or on a new one with the options."""
    full = full_name(name)
    entry = TASKS[full]
    if env is not None and options:
        raise UserError(f"task {full!r}: give an environment or options for one ({', '.join(options)}), not both")
    world = make(entry.env, **options) if env is None else env
    if world.spec.name != entry.env:
        raise UserError(f"task {full!r} needs the environment {entry.env!r}, not {world.spec.name!r}")
    module, _, attribute = entry.source.partition(":")
    task: Task | HostTask = getattr(import_module(module), attribute)(full, world, **entry.facts)
    return task

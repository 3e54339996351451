"""What the page must know about a run before the first frame: the message `hello` of PROTOCOL.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from susd.config import Config
from susd.downstream.config import same_env
from susd.downstream.policy import saved_policies
from susd.envs.base import Environment, EnvSpec, HostEnvironment, Plane
from susd.envs.gymnasium.adapter import GymnasiumVector
from susd.envs.registry import BUILT_IN as BUILT_IN_ENVS
from susd.envs.registry import env_entry
from susd.envs.render import TEN
from susd.envs.vector import is_functional
from susd.errors import UserError
from susd.explorer.own_tasks import NONE, OwnTasks
from susd.methods.registry import method as find_method
from susd.plugins import same_name
from susd.skills import SkillSpace
from susd.tasks.base import HostTask, Task
from susd.tasks.registry import REWARD, TaskEntry, make_task, tasks
from susd.training.agent import Agent, part_names
from susd.viz.figures import line_colours

VERSION = 1
DRAWN = ("gunner", "multi_particle")  # environments that the page draws itself, from their observations
STARTS = {"centre": "centre", "0": "bottom left", "1": "bottom right", "2": "top left", "3": "top right"}
LAYOUT_SEEDS = range(6)  # of Multi-Particle, offered in the page
GAUSSIAN_RADIUS = 2.5  # of the disc of a Gaussian part: 96 % of a two-dimensional normal distribution are inside
GUNNER_ACTIONS = {"agent": ("agent x", "agent y"), "picker": ("picker x", "picker y"), "grip": ("grip",), "gun": ("gun",)}


def describe(
    agent: Agent, path: Path | None, scene: dict[str, Any], note: str = "", own: OwnTasks = NONE
) -> dict[str, Any]:
    """The whole message; `path` is the run folder, `scene` how its environment is drawn, `own` the tasks of the user."""
    config, spec = agent.trainer.config, agent.trainer.env.spec
    card = find_method(config.method)
    clicked = scene["kind"] != "plots" and not card.without_goals
    return {
        "type": "hello",
        "version": VERSION,
        "run": {
            "name": path.name if path else config.env,
            "title": f"{_title(config.env)} · {card.title}",
            "method": config.method,
            "method_title": card.title,
            "colour": card.colour,
            "seed": agent.seed,
            "epoch": agent.epoch,
            "env_title": _title(config.env),
            "path": str(path) if path else config.env,
            "note": note,
        },
        "env": describe_env(spec),
        "prior": agent.trainer.learner.method.skills.prior,
        "parts": describe_parts(agent),
        "scene": scene | ({"ground": config.env in BUILT_IN_ENVS} if scene["kind"] == "bodies" else {}),
        "handles": _handles(agent) if clicked else [],
        "layouts": describe_layouts(config, agent.trainer.env),
        "tasks": describe_tasks(config, agent.trainer.env, path, agent.seed, own.names),
        "can": {
            "goals": not card.without_goals,
            "influence": agent.trainer.learner.method.skills.parts > 1,  # else it is all that another skill changes
            "gallery": bool(spec.planes),
            "maps": not card.without_goals,
            "raw": True,
            "sampled": True,
            "layouts": True,
            "link": True,
            "python": True,
        },
        "reasons": {"goals": card.without_goals, "tasks": own.reason},
    }


def factor_colours(spec: EnvSpec) -> list[str]:
    """The colours of figures; Multi-Particle's agents have those in which they are drawn."""
    names = spec.factorization.names
    if spec.name == "multi_particle" and len(names) % len(TEN) == 0:
        per = len(names) // len(TEN)
        return ["#{:02x}{:02x}{:02x}".format(*TEN[index // per]) for index in range(len(names))]
    return line_colours(len(names))


def shown_planes(spec: EnvSpec) -> tuple[Plane, ...]:
    """The positions that the page draws: those of the environment, and in 2D-Gunner that of the picker."""
    picker = (Plane("picker", 10, 11, spec.planes[0].low, spec.planes[0].high),) if spec.name == "gunner" else ()
    return (*spec.planes, *picker)


def describe_env(spec: EnvSpec) -> dict[str, Any]:
    """Factors, planes and actions."""
    names, indices = spec.factorization.names, spec.factorization.indices
    owner = {index: number for number, of in enumerate(indices) for index in of}
    groups = _action_groups(spec)
    return {
        "name": spec.name,
        "horizon": spec.horizon,
        "obs_size": spec.obs_size,
        "scaled": spec.scaling is not None,
        "factors": [
            {"name": name, "indices": list(of), "own": _own(spec, name), "colour": colour}
            for name, of, colour in zip(names, indices, factor_colours(spec), strict=True)
        ],
        "planes": [
            {name: getattr(plane, name) for name in ("name", "x", "y", "low", "high", "open")} | {"factor": owner[plane.x]}
            for plane in shown_planes(spec)
        ],
        "actions": [{"name": name} for _, of in groups for name in of],
        "action_groups": [
            {"name": name, "indices": list(range(first, first + len(of)))}
            for (name, of), first in zip(groups, _starts([of for _, of in groups]), strict=True)
        ],
    }


def describe_parts(agent: Agent) -> list[dict[str, Any]]:
    """One control for each part of the skill."""
    space, spec = agent.trainer.learner.method.skills, agent.trainer.env.spec
    names, factors = part_names(agent.trainer), list(spec.factorization.names)
    colours = factor_colours(spec)
    found = []
    for number, name in enumerate(names):
        factor = factors.index(name) if name in factors else None
        kind, radius = part_kind(space)
        colour = colours[factor] if factor is not None else colours[0]
        found.append(
            {
                "name": name,
                "kind": kind,
                "dim": space.dim,
                "at": number * space.dim,
                "radius": radius,
                "factor": factor,
                "colour": colour,
            }
        )
    return found


def part_kind(space: SkillSpace) -> tuple[str, float]:
    """How a part is steered, and the radius of its disc or ring or the range of its sliders."""
    if space.discrete:
        return "buttons", 1.0
    radius = GAUSSIAN_RADIUS if space.prior == "gaussian" else 1.0
    if space.dim != 2 or (space.prior == "sphere" and space.parts > 1):
        return "sliders", radius
    return ("disc" if space.paced or space.prior == "gaussian" else "ring"), radius


def layouts_of(config: Config) -> TaskEntry | None:
    """The task whose layouts are those of the environment; None where it has none of its own."""
    return next((entry for entry in tasks().values() if same_env(entry.env, config.env)), None)


def describe_layouts(config: Config, env: Environment | HostEnvironment) -> dict[str, Any]:
    """The starts to choose from; "" is that of the run."""
    choices: dict[str, str] = {}
    if config.env == "gunner":
        choices = STARTS
    elif config.env == "multi_particle":
        choices = {str(seed): f"layout {seed}" for seed in LAYOUT_SEEDS} | {"random": "random"}
    return {
        "default": "",
        "choices": [{"value": "", "label": "as trained"}] * bool(choices)
        + [{"value": value, "label": label} for value, label in choices.items()],
        "seeds": not is_functional(env) or config.env == "multi_particle",
    }


def describe_tasks(
    config: Config, env: Environment | HostEnvironment, path: Path | None, seed: int, own: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """The tasks of the environment, with the high-level policies that were learned over this seed of the run."""
    saved = [policy for policy in saved_policies(path) if policy.skill_seed == seed] if path else []
    found = []
    for name in (*_task_names(config, env), *own):
        task = make_task(name, env)
        best = task.best
        found.append(
            {
                "name": name,
                "title": "The environment's own reward" if name == REWARD else _task_title(task.name, config.env),
                "summary": (type(task).__doc__ or "").strip().partition("\n")[0],
                "horizon": task.horizon,
                "layout": _default_layout(name, config),
                "expert": task.expert is not None,
                "best": None if best is None else float(best.max()),
                "policies": [policy.to_json() for policy in saved if same_name(policy.task) == same_name(name)],
            }
        )
    return found


def task_of(name: str, config: Config, env: Environment | HostEnvironment, own: Sequence[str] = ()) -> Task | HostTask:
    """One of the tasks of `describe_tasks`, on an environment."""
    known = [*_task_names(config, env), *own]
    if name not in known:
        raise UserError(f"there is no task {name!r} here; tasks of {config.env} are {', '.join(known) or 'none'}")
    return make_task(name, env)


def _task_names(config: Config, env: Environment | HostEnvironment) -> list[str]:
    own = callable(getattr(env, "reward", None)) or isinstance(env, GymnasiumVector)
    found = [name for name, entry in tasks().items() if same_env(entry.env, config.env)]
    return found + [REWARD] * (own and config.env not in BUILT_IN_ENVS)


def _task_title(name: str, env: str) -> str:
    return name.removeprefix(f"{env}-")


def _default_layout(name: str, config: Config) -> str:
    """The layout in which a task is usually learned, if the page can choose it."""
    entry = tasks().get(name)
    return entry.layouts.default if entry and config.env in DRAWN else ""


def _handles(agent: Agent) -> list[dict[str, Any]]:
    """What a click in the drawing can mean for each part: the position of its factor, or where its gun points."""
    spec = agent.trainer.env.spec
    owners, parts = spec.factorization.owners, part_names(agent.trainer)
    points = {owners[plane.x]: (plane.x, None if plane.is_line else plane.y) for plane in reversed(spec.planes)}
    angles: dict[str, int] = {}
    if spec.name == "gunner":
        points = {owners[10]: (10, 11), owners[4]: (4, 5)}  # the picker, and where the two are one factor the agent
        angles = {owners[17]: 17}
    found: list[dict[str, Any]] = []
    for number, part in enumerate(parts):
        if part in points or (len(parts) == 1 and points):
            x, y = points.get(part) or points[owners[spec.planes[0].x]]
            found.append({"part": number, "kind": "point", "x": x, "y": y})
        elif part in angles:
            found.append({"part": number, "kind": "angle", "index": angles[part], "origin": [4, 5]})
    return found


def _action_groups(spec: EnvSpec) -> list[tuple[str, tuple[str, ...]]]:
    """Actions by what they move, with their names."""
    if spec.name == "gunner":
        return list(GUNNER_ACTIONS.items())
    if spec.name == "multi_particle":
        per, slots = spec.action_size // len(TEN), ("x", "y") if spec.action_size == 20 else ("-", "+x", "-x", "+y", "-y")
        return [(f"agent {i}", tuple(f"agent {i} {slot}" for slot in slots[:per])) for i in range(len(TEN))]
    names = [f"action {index + 1}" for index in range(spec.action_size)]
    return [("all", tuple(names))]


def _starts(groups: list[tuple[str, ...]]) -> list[int]:
    return [sum(map(len, groups[:number])) for number in range(len(groups))]


def _own(spec: EnvSpec, name: str) -> list[int] | None:
    return None if spec.own is None else list(spec.own.get(name, ()))


def _title(env: str) -> str:
    """The name to show; that of a file is shown without its folder."""
    entry = env_entry(env)
    return entry.title if entry else Path(env).name if ".py:" in env else env

"""The data of an atlas whose environment and networks run in the browser: the two-dimensional environments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from susd.downstream.policy import restore_policy, saved_policies
from susd.envs.base import Environment, HostEnvironment
from susd.envs.gunner import STARTS, Gunner
from susd.envs.multi_particle import MultiParticle, fixed_layout
from susd.explorer.describe import LAYOUT_SEEDS, describe
from susd.explorer.weights import actor_to_json, phi_to_json, policy_to_json
from susd.methods.registry import method as find_method
from susd.tasks import make_task
from susd.tasks.registry import BUILT_IN
from susd.training.agent import Agent


def runs_in_browser(env: Environment | HostEnvironment) -> bool:
    """Whether web/local/ has this environment in JavaScript."""
    return isinstance(env, (Gunner, MultiParticle))


def embed(agent: Agent, path: Path | None) -> dict[str, Any]:
    """The message `hello`, the networks, the environment with its layouts, and the tasks."""
    env, space = agent.trainer.env, agent.trainer.learner.method.skills
    hello = describe(agent, path, {"kind": env.spec.name})
    hello["tasks"] = [task for task in hello["tasks"] if task["name"] in {entry.name for entry in BUILT_IN}]
    phi = None if find_method(agent.trainer.config.method).without_goals else phi_to_json(agent)
    if phi is None:  # a method without `network`: its phi cannot be rebuilt
        hello["can"] |= {"goals": False, "maps": False}
        hello["handles"] = []
    return {
        "hello": hello,
        "skills": {name: getattr(space, name) for name in ("prior", "parts", "dim")},
        "skillScale": agent.trainer.learner.skill_input_scale,
        "actor": actor_to_json(agent.actor),
        "phi": phi,
        "goals": agent.goals.to_json() if phi else None,
        "env": {"name": env.spec.name, **_layouts(env)},
        "tasks": {task["name"]: _task(task["name"], env) for task in hello["tasks"]},
        "policies": _policies(agent, path, hello["tasks"]) if path else [],
    }


def _policies(agent: Agent, path: Path, tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The saved high-level policies that the page offers."""
    offered = {(task["name"], policy["id"]) for task in tasks for policy in task["policies"]}
    found = []
    for saved in saved_policies(path):
        if (saved.task, saved.folder.name) in offered:
            restored = restore_policy(saved, agent, make_task(saved.task, agent.trainer.env))
            found.append({"id": saved.folder.name, "task": saved.task, **policy_to_json(restored)})
    return found


def _layouts(env: Environment | HostEnvironment) -> dict[str, Any]:
    """The options of the environment in JavaScript, and those of each layout; "" is that of the run."""
    if isinstance(env, Gunner):
        return {"options": {}, "layouts": {name: {"start": name} for name in STARTS} | {"": {"start": str(env.start)}}}
    assert isinstance(env, MultiParticle)
    layouts: dict[str, Any] = {str(seed): {"points": _points(seed)} for seed in LAYOUT_SEEDS}
    layouts["random"] = {"points": None}
    layouts[""] = {"points": None if env.layout == "random" else _points(env.layout_seed)}
    return {"options": {"actions": env.actions}, "layouts": layouts}


def _points(seed: int) -> list[float]:
    """The positions of a fixed layout, with digits enough for single precision."""
    return [float(f"{value:.9g}") for value in np.asarray(fixed_layout(seed), np.float32).ravel().tolist()]


def _task(name: str, env: Environment | HostEnvironment) -> dict[str, Any]:
    """The class of a task and its options, which are the same in JavaScript."""
    task: Any = make_task(name, env)
    options = {"limited": task.limited} if hasattr(task, "limited") else {"agents": list(task.agents)}
    return {"kind": type(task).__name__, "options": options}

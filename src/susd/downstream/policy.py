"""High-level policies: built from a config, saved with a result, and loaded to act again.

    RUN/downstream/RESULT/policy/step-EPISODES.ckpt

The file is a checkpoint of the first seed's actor with the hash of the result's config; it is checked like all of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from susd.downstream.config import DownstreamConfig
from susd.downstream.controller import Controller
from susd.downstream.entity import EntitySac
from susd.downstream.factored import FactoredSac
from susd.downstream.interface import ActionInterface, FlatActions, GoalActions, SkillActions
from susd.downstream.views import ScaledActor
from susd.errors import UserError
from susd.runs import checkpoint
from susd.runs.folder import make_folder
from susd.runs.untrusted import read_json
from susd.sac import Sac
from susd.tasks.base import SKILL_STEPS, HostTask, Task
from susd.training.agent import Agent, part_names
from susd.training.goals import GoalSpace

MAX_TRANSITIONS = 1_000_000  # capacity of the replay buffer
FOLDER = "policy"


def build_controller(
    config: DownstreamConfig, task: Task | HostTask, interface: ActionInterface, names: tuple[str, ...]
) -> Controller:
    """The controller of a config; a flat one has the same warm-up and the same horizon of its discount in steps."""
    inputs = task.environment.spec.obs_size + task.extra_size
    discount = config.discount ** (interface.duration / SKILL_STEPS)
    steps = config.horizon or task.horizon
    if steps % config.skill_steps:
        raise UserError(f"the horizon is {steps}; it must be a multiple of --skill-steps, which is {config.skill_steps}")
    actions = steps // config.skill_steps  # of K steps each, per episode
    warmup = max(1, min(config.warmup, config.episodes * actions // 10))
    length = steps // interface.duration
    sac: Sac | EntitySac = Sac.from_config(config, inputs, interface.size, adaptive_alpha=True, discount=discount)
    if config.policy == "factored":
        sac = FactoredSac.of_task(config, task, names, interface.size, discount)
    if config.policy == "entity":
        sac = EntitySac.from_config(config, task, names, interface.size // len(names), discount)
    return Controller(
        task=task,
        interface=interface,
        sac=sac,
        gradient_steps=config.gradient_steps,
        batch_size=config.batch_size,
        capacity=min(config.episodes, max(1, MAX_TRANSITIONS // length // config.num_envs) * config.num_envs),
        warmup=-(-warmup // actions) - 1,
        num_envs=config.num_envs,
        horizon=config.horizon,
        scale_view=config.scale_view,
        explore=config.explore,
    )


def save_policy(folder: Path, policy: ScaledActor, episodes: int, config: str) -> Path:
    """Save a high-level policy below the folder of its result; `config` is the hash of the result's config."""
    make_folder(folder / FOLDER)
    return checkpoint.save(folder / FOLDER, episodes, policy, {"episodes": episodes}, keep=1, config=config)


@dataclass(frozen=True)
class SavedPolicy:
    """A finished result whose high-level policy can act again."""

    folder: Path
    task: str  # as it was given: a name, or FILE.py:NAME
    layout: str
    interface: str
    kind: str  # joint or entity
    score: float  # the first seed's final return: the sum of its rewards
    skill_seed: int  # of the run's seeds, whose skills it uses

    def to_json(self) -> dict[str, Any]:
        """For a list to choose from."""
        how = ", ".join((f"{self.interface} actions", f"{self.kind} policy"))
        return {"id": self.folder.name, "label": how, "layout": self.layout, "score": round(self.score, 3)}


def saved_policies(run: Path) -> list[SavedPolicy]:
    """The policies that were learned over the skills of a run; results that cannot be read are left out."""
    found = []
    for folder in sorted(path.parent for path in Path(run).glob("downstream/*/result.json")):
        with contextlib.suppress(UserError, KeyError, TypeError, IndexError, ValueError):
            result = read_json(folder / "result.json")
            ways = result["interface"], result["policy"]
            score = float(result["final"]["undiscounted"][0]) * SKILL_STEPS
            seed = int(result["skills"]["seed"])
            if checkpoint.checkpoints(folder / FOLDER):
                task = str(result["config"]["task"])
                found.append(SavedPolicy(folder, task, str(result["layout"]), *ways, score, seed))
    return found


class Choice(NamedTuple):
    """What a high-level action means for the next steps; two of the three are None."""

    skill: np.ndarray | None = None  # [N * D]
    goal: np.ndarray | None = None  # [N, D] in the space of phi
    action: np.ndarray | None = None  # [A]


@dataclass(frozen=True)
class HighLevelPolicy:
    """A loaded policy: chooses for `duration` steps, by its mean."""

    duration: int
    goals: GoalSpace | None  # of goal actions
    choose: Callable[[np.ndarray], Choice]  # of what it observes, [obs + extra]


class Restored(NamedTuple):
    """A saved policy: what its actions mean, the box of its goals if they are goals, and its weights."""

    interface: ActionInterface
    goals: GoalSpace | None
    actor: ScaledActor


def load_policy(saved: SavedPolicy, agent: Agent, task: Task | HostTask) -> HighLevelPolicy:
    """The policy over the skills of an agent, in a task of the agent's environment."""
    return high_level_policy(restore_policy(saved, agent, task))


def high_level_policy(restored: Restored) -> HighLevelPolicy:
    """A restored policy, compiled."""
    interface, goals, actor = restored
    mean = jax.jit(lambda view: _meaning(interface, goals, actor.mode(view[None])[0]))

    def choose(view: np.ndarray) -> Choice:
        return Choice(**{name: np.asarray(value) for name, value in mean(view).items()})

    return HighLevelPolicy(interface.duration, goals, choose)


def restore_policy(saved: SavedPolicy, agent: Agent, task: Task | HostTask) -> Restored:
    """The weights of a saved policy over the skills of an agent."""
    result = read_json(saved.folder / "result.json")
    config = DownstreamConfig(**result["config"])
    trainer, goals = agent.trainer, None
    method, policy = trainer.learner.method, trainer.policy
    interface: ActionInterface = FlatActions(trainer.env.spec.action_size)
    if config.interface == "skill":
        interface = SkillActions(method.skills, policy, config.skill_steps)
    elif config.interface == "goal":
        interface = GoalActions(method, policy, config.skill_steps)
        goals = GoalSpace(**{name: jnp.asarray(value, jnp.float32) for name, value in result["skills"]["goals"].items()})
    controller = build_controller(config, task, interface, part_names(trainer))
    like = jax.eval_shape(lambda: controller.init(jnp.int32(0)).policy)
    actor, _, _ = checkpoint.restore_latest(saved.folder / FOLDER, like, result["config_hash"])
    return Restored(interface, goals, actor)


def _meaning(interface: ActionInterface, goals: GoalSpace | None, high_action: jax.Array) -> dict[str, jax.Array]:
    """A high-level action as the field of a Choice."""
    if isinstance(interface, SkillActions):
        return {"skill": interface.skill(high_action)}
    if goals is not None:
        return {"goal": goals.goal(high_action)}
    return {"action": high_action}

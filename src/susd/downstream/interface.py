"""What a high-level action means: a skill or a goal for the next K steps, or a primitive action for the next step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax

from susd.envs.base import Environment, HostEnvironment
from susd.errors import UserError
from susd.methods.base import Method
from susd.methods.registry import method as find_method
from susd.networks import Actor
from susd.skills import SkillSpace
from susd.tasks.base import SKILL_STEPS
from susd.training.agent import Agent
from susd.training.goals import GoalSpace
from susd.types import Policy

GAUSSIAN_RANGE = 1.5  # high-level actions over skills of a Gaussian prior cover the paper's [-1.5, 1.5]


class ActionInterface(Protocol):
    """From high-level actions in [-1, 1]^size to actions of the environment."""

    @property
    def size(self) -> int:
        """Dimensions of a high-level action."""
        ...

    @property
    def parts(self) -> int:
        """Parts of a high-level action: those of a skill, or one."""
        ...

    @property
    def duration(self) -> int:
        """Environment steps that a high-level action lasts."""
        ...

    def act(self, frozen: Any, obs: jax.Array, high_action: jax.Array) -> jax.Array:
        """The action [A] of the environment, given an observation, a high-level action and the frozen weights."""
        ...


@dataclass(frozen=True)
class SkillActions:
    """High-level actions are skills, which the mean actions of a frozen policy carry out."""

    space: SkillSpace
    policy: Callable[[Any], Policy]  # weights -> policy with mean actions
    duration: int = SKILL_STEPS

    @property
    def size(self) -> int:
        """Dimensions of a skill."""
        return self.space.size

    @property
    def parts(self) -> int:
        """Those of a skill."""
        return self.space.parts

    def skill(self, high_action: jax.Array) -> jax.Array:
        """The nearest skill of the space, or with a Gaussian prior the high-level action times GAUSSIAN_RANGE."""
        return GAUSSIAN_RANGE * high_action if self.space.prior == "gaussian" else self.space.project(high_action)

    def act(self, frozen: Any, obs: jax.Array, high_action: jax.Array) -> jax.Array:
        """The mean action of the skill; it needs no key."""
        return self.policy(frozen)(obs[None], self.skill(high_action)[None], jax.random.key(0))[0]


class GoalWeights(NamedTuple):
    """The frozen weights of goal actions: skill policy, parameters of phi, and the box that goals are in."""

    actor: Actor
    params: Any
    goals: GoalSpace


@dataclass(frozen=True)
class GoalActions:
    """High-level actions are points in the space of phi. In every step the skill is the one that leads there."""

    method: Method
    policy: Callable[[Any], Policy]  # weights -> policy with mean actions
    duration: int = SKILL_STEPS

    @property
    def size(self) -> int:
        """Dimensions of phi, which are those of a skill."""
        return self.method.skills.size

    @property
    def parts(self) -> int:
        """Those of a skill."""
        return self.method.skills.parts

    def act(self, frozen: GoalWeights, obs: jax.Array, high_action: jax.Array) -> jax.Array:
        """The mean action of the skill towards the goal, given where phi is now."""
        phi = self.method.encode(frozen.params, obs[None])[0]
        skill = frozen.goals.skill(self.method.skills, phi, frozen.goals.goal(high_action))
        return self.policy(frozen.actor)(obs[None], skill[None], jax.random.key(0))[0]


def skill_interface(
    agent: Agent, env: Environment | HostEnvironment, name: str, duration: int = SKILL_STEPS
) -> tuple[SkillActions | GoalActions, Any]:
    """The interface `skill` or `goal` to the skills of an agent in an environment, and its frozen weights."""
    trainer = agent.trainer
    method, policy = trainer.learner.method, partial(trainer.policy, sampled=False)
    if name == "skill":
        return SkillActions(method.skills, policy, duration), agent.actor
    if reason := find_method(trainer.config.method).without_goals:
        raise UserError(f"--interface is {name!r}, but {reason}")
    goals = GoalSpace.measure(trainer, env, agent.actor, agent.params)
    return GoalActions(method, policy, duration), GoalWeights(agent.actor, agent.params, goals)


@dataclass(frozen=True)
class FlatActions:
    """High-level actions are actions of the environment, one per step; there are no weights."""

    size: int
    parts: int = 1
    duration: int = 1

    def act(self, frozen: Any, obs: jax.Array, high_action: jax.Array) -> jax.Array:
        """The high-level action itself."""
        return high_action

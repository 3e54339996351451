"""What your own methods, environments, tasks and evaluations need from this package; docs/extend/ has the guides.

Register them as entry points of your package (groups `susd.methods`, `susd.environments`, `susd.tasks`, `susd.evaluations`)
or name them on the command line as FILE.py:NAME.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from susd.collect import rollout_skills
from susd.config import Config
from susd.envs.base import Environment, EnvSpec, HostEnvironment, HostStep, Plane, Scaling, own_dimensions
from susd.envs.registry import EnvEntry
from susd.errors import UserError
from susd.evaluation.registry import Evaluation, Option
from susd.factors import Factorization
from susd.methods.base import Method, Reward, RunningMean, constrained_loss, difference, dual_optimizer
from susd.methods.registry import Card, Unless
from susd.networks import MLP, Density, FactoredMLP
from susd.runs.tables import Table
from susd.skills import SkillSpace
from susd.tasks.base import SKILL_STEPS, HostTask, Task, TaskState
from susd.tasks.registry import Layouts, TaskEntry
from susd.training.agent import Agent
from susd.types import Info, Transition

__all__ = [
    "MLP",
    "SKILL_STEPS",
    "Agent",
    "Card",
    "Config",
    "Density",
    "EnvEntry",
    "EnvSpec",
    "Environment",
    "Evaluation",
    "FactoredMLP",
    "Factorization",
    "HostEnvironment",
    "HostStep",
    "HostTask",
    "Info",
    "Layouts",
    "Method",
    "Option",
    "Plane",
    "Reward",
    "RunningMean",
    "Scaling",
    "SkillSpace",
    "Table",
    "Task",
    "TaskEntry",
    "TaskState",
    "Transition",
    "Unless",
    "UserError",
    "constrained_loss",
    "difference",
    "dual_optimizer",
    "own_dimensions",
    "run_skills",
]


def run_skills(agent: Agent, skills: Any, seed: int = 0, steps: int | None = None, sampled: bool = False) -> Transition:
    """Transitions [T, N, ..] of skills [N, Z] as numpy, each from a reset for `steps` steps (default: a training episode).

    Actions are means, or samples with `sampled`. Equal seeds mean equal starts.
    """
    trainer, skills = agent.trainer, jnp.atleast_2d(jnp.asarray(skills, jnp.float32))
    policy = trainer.policy(agent.actor, sampled)
    return rollout_skills(trainer.env, policy, skills, steps or trainer.horizon, jax.random.key(seed))

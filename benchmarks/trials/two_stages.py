"""The Kitchen with a frozen arm: an action is a goal for the arm's own skills, which pursue it for five steps.

The first stage discovers skills of the arm alone, the second one those of all entities over them. In this folder:

    susd train kitchen --skill-factors robot --skill-dim 4 --seed 10 --epochs 312 --env-option sleeping=true --run runs/arm
    susd train two_stages.py:make --env-option skills=runs/arm --seed 10 --phi-input own --reward-scope factor \
        --episodes 16 --discount 0.9 --target-entropy -0.5 --epochs 625 --buffer-size 100000 --warmup 2000 --run runs/stages
    susd report runs/stages --out ../results/trials/kitchen-two-stages --trust
"""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

import susd
from susd.downstream.interface import skill_interface
from susd.envs.base import EnvSpec, HostStep
from susd.envs.kitchen.environment import Kitchen

DURATION = 5  # steps of the Kitchen for each action


class Stages:
    """A host environment whose actions are goals of the arm."""

    def __init__(self, num_envs: int, skills: str) -> None:
        self.kitchen = Kitchen(num_envs, layout="semantic", quaternions="continuous", scaled=True, sleeping=True)
        interface, self.weights = skill_interface(susd.load(skills), self.kitchen, "goal", DURATION)
        self.act = jax.jit(jax.vmap(interface.act, (None, 0, 0)))
        whole = self.kitchen.spec
        self.spec: EnvSpec = replace(
            whole, name="two-stages", action_size=interface.size, horizon=whole.horizon // DURATION
        )
        self.num_envs = num_envs

    def reset(self, seed: int) -> np.ndarray:
        """Reset the Kitchen."""
        self.obs = self.kitchen.reset(seed)
        return self.obs

    def step(self, actions: np.ndarray) -> HostStep:
        """Pursue one goal in each environment."""
        for _ in range(DURATION):
            found = self.kitchen.step(np.asarray(self.act(self.weights, jnp.asarray(self.obs), jnp.asarray(actions))))
            self.obs = found.obs
        return found

    def render(self, index: int = 0, size: int = 400) -> np.ndarray:
        """The Kitchen."""
        return self.kitchen.render(index, size)


def make(num_envs: int = 16, skills: str = "runs/arm") -> Stages:
    """The environment of a command line."""
    return Stages(num_envs, skills)

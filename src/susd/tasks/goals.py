"""Goals of the zero-shot evaluation: positions that Ant and HalfCheetah must reach, in metres.

A task follows parallel host environments by their true positions (`Body.positions`), not by observations, which are
normalised. `begin` starts an episode in some of them; `score` gives the rewards of a step and the episodes that it ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Rules:
    """What distinguishes a goal task from others."""

    name: str
    axes: int  # dimensions of a position
    width: float  # a goal is uniform within this distance, along each axis ..
    around: bool  # .. of the body, or else of the origin
    reward: float  # for a goal that is reached
    radius: float = 3.0  # distance at which a goal is reached
    patience: int = 0  # steps until a goal is given up; 0: never
    goals: int = 0  # of one episode; 0: any number
    horizon: int = 200  # steps of an episode


RULES = {  # by environment
    "ant": Rules("multi-goal Ant", axes=2, width=7.5, around=True, reward=2.5, patience=50, goals=4),
    "half_cheetah": Rules("HalfCheetahGoal", axes=1, width=10.0, around=False, reward=10.0),
}


class GoalTask:
    """The goals of W environments; each environment draws them from its own random generator."""

    def __init__(self, rules: Rules, random: Sequence[np.random.Generator]) -> None:
        self.rules = rules
        self._random = random
        num_envs = len(random)
        self.goals = np.zeros((num_envs, rules.axes))  # the current goal of each environment
        self.offered = np.zeros(num_envs, int)  # goals so far, including the current one
        self.reached = np.zeros(num_envs, int)
        self._steps = np.zeros(num_envs, int)  # of the episode
        self._age = np.zeros(num_envs, int)  # of the goal
        self._closed = np.zeros(num_envs, int)  # goals of the episode that were reached or given up

    def begin(self, ids: np.ndarray, positions: np.ndarray) -> None:
        """A new episode in some environments, whose bodies are at positions [len(ids), axes]."""
        self._steps[ids] = self._closed[ids] = 0
        self._offer(ids, positions)

    def score(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rewards [W] of the step that led to positions [W, axes], and which episodes it ends, [W]."""
        rules = self.rules
        self._steps += 1
        self._age += 1
        reached = np.linalg.norm(positions - self.goals, axis=1) <= rules.radius
        closed = reached | (self._age == rules.patience)
        self.reached += reached
        self._closed += closed
        over = self._steps == rules.horizon
        if rules.goals:
            over |= self._closed == rules.goals
        renew = np.flatnonzero(closed & ~over)
        if len(renew):
            self._offer(renew, positions[renew])
        return rules.reward * reached, over

    def _offer(self, ids: np.ndarray, positions: np.ndarray) -> None:
        """New goals. One drawn around a body that would already have reached it is redrawn, as in the original."""
        rules = self.rules
        for index, position in zip(ids.tolist(), positions, strict=True):
            goal = self._draw(index, position)
            while rules.around and np.linalg.norm(goal - position) <= rules.radius:
                goal = self._draw(index, position)
            self.goals[index] = goal
        self._age[ids] = 0
        self.offered[ids] += 1

    def _draw(self, index: int, position: np.ndarray) -> np.ndarray:
        offset = self._random[index].uniform(-self.rules.width, self.rules.width, self.rules.axes)
        return position + offset if self.rules.around else offset

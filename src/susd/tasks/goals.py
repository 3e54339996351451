"""Goals for the zero-shot evaluation: places that Ant and HalfCheetah are asked to reach, in metres.

A task here follows a batch of host worlds by their true places (`Body.places`), never by observations, which are
normalised. `begin` starts an episode of some worlds; `score` pays a step and says whose episode is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Rules:
    """What sets a goal task apart."""

    name: str
    axes: int  # dimensions of a place
    width: float  # a goal is uniform within this distance, along each axis ..
    around: bool  # .. of the body, or else of the origin
    reward: float  # for a goal reached
    radius: float = 3.0  # how near is there
    patience: int = 0  # steps until a goal is given up; 0: never
    goals: int = 0  # of one episode; 0: any number
    horizon: int = 200  # steps of an episode


RULES = {  # by environment
    "ant": Rules("multi-goal Ant", axes=2, width=7.5, around=True, reward=2.5, patience=50, goals=4),
    "half_cheetah": Rules("HalfCheetahGoal", axes=1, width=10.0, around=False, reward=10.0),
}


class GoalTask:
    """Goals of W worlds; each world draws them from a random generator of its own."""

    def __init__(self, rules: Rules, random: Sequence[np.random.Generator]) -> None:
        self.rules = rules
        self._random = random
        num_envs = len(random)
        self.goals = np.zeros((num_envs, rules.axes))  # where each world is asked to go
        self.offered = np.zeros(num_envs, int)  # goals so far, the present one included
        self.reached = np.zeros(num_envs, int)
        self._steps = np.zeros(num_envs, int)  # of the episode
        self._age = np.zeros(num_envs, int)  # of the goal
        self._closed = np.zeros(num_envs, int)  # goals of the episode that were reached or given up

    def begin(self, ids: np.ndarray, places: np.ndarray) -> None:
        """A new episode of some worlds, whose bodies are at places [len(ids), axes]."""
        self._steps[ids] = self._closed[ids] = 0
        self._offer(ids, places)

    def score(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rewards [W] of the step that led to places [W, axes], and whose episode is over, [W]; other worlds go on."""
        rules = self.rules
        self._steps += 1
        self._age += 1
        there = np.linalg.norm(places - self.goals, axis=1) <= rules.radius
        closed = there | (self._age == rules.patience)
        self.reached += there
        self._closed += closed
        over = self._steps == rules.horizon
        if rules.goals:
            over |= self._closed == rules.goals
        renew = np.flatnonzero(closed & ~over)
        if len(renew):
            self._offer(renew, places[renew])
        return rules.reward * there, over

    def _offer(self, ids: np.ndarray, places: np.ndarray) -> None:
        """New goals. One drawn around a body that is already there is drawn again, as in the original."""
        rules = self.rules
        for world, place in zip(ids.tolist(), places, strict=True):
            goal = self._draw(world, place)
            while rules.around and np.linalg.norm(goal - place) <= rules.radius:
                goal = self._draw(world, place)
            self.goals[world] = goal
        self._age[ids] = 0
        self.offered[ids] += 1

    def _draw(self, world: int, place: np.ndarray) -> np.ndarray:
        away = self._random[world].uniform(-self.rules.width, self.rules.width, self.rules.axes)
        return place + away if self.rules.around else away

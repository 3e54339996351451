"""Tasks in the Kitchen: butter in pot, meatball in pot, pot on stove, pot on target. Each gives a point per step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from susd.envs.base import HostStep
from susd.envs.kitchen import Facts, Kitchen
from susd.tasks.base import HostTask

NEAR = 0.07  # how far from the target's centre the pot may be, in the plane


def butter_in_pot(facts: Facts) -> np.ndarray:
    """BiP: the butter touched the bottom of the pot one control step ago, as in the original."""
    return facts.butter_was_in_pot


def meatball_in_pot(facts: Facts) -> np.ndarray:
    """MiP: the meatball touches the bottom of the pot."""
    return facts.meatball_in_pot


def pot_on_stove(facts: Facts) -> np.ndarray:
    """PoS: the bottom of the pot touches the burner; the button does not matter."""
    return facts.pot_on_stove


def pot_on_target(facts: Facts) -> np.ndarray:
    """PoT: the pot is near the target, at any height, and the gripper does not touch it."""
    distance = np.linalg.norm(facts.pot[:, :2] - facts.target[:, :2], axis=1)
    return (distance < NEAR) & ~facts.pot_touched


PREDICATES: dict[str, Callable[[Facts], np.ndarray]] = {
    "bip": butter_in_pot,
    "mip": meatball_in_pot,
    "pos": pot_on_stove,
    "pot": pot_on_target,
}


@dataclass(frozen=True)
class KitchenTask(HostTask):
    """One of the four. The high-level policy sees the environment's observation; no episode ends early."""

    env: Kitchen
    predicate: str

    horizon = 250

    @property
    def best(self) -> np.ndarray:
        """One point in every step."""
        return np.ones(self.horizon)

    def reward(self, step: HostStep) -> np.ndarray:
        """[W] 1 where the condition held at the end of the last step, else 0."""
        assert self.env.facts is not None
        return PREDICATES[self.predicate](self.env.facts).astype(np.float32)

    def success(self, step: HostStep) -> np.ndarray:
        """[W] where the condition held: an episode is solved if it was completed at some step."""
        return self.reward(step) > 0

"""Tasks in the Kitchen: butter in pot, meatball in pot, pot on stove, pot on target. One point for each step it holds.

A task here is a function of the true state of a batch of host worlds, `Kitchen.facts` after a step, to the rewards of that
step. The contract `Task` is for functional environments; a host task will hold a `Kitchen(horizon=HORIZON)`, give no extra
observation, and call `reward(name, env.facts)` after each `env.step`. `facts` speaks of the step itself, also where the
world has been reset since, so that the last reward of an episode is not lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from susd.errors import UserError

if TYPE_CHECKING:
    from susd.envs.kitchen import Facts

HORIZON = 250  # control steps of an episode; nothing ends it earlier
NEAR = 0.07  # how far from the target's centre the pot may be, in the plane


def butter_in_pot(facts: Facts) -> np.ndarray:
    """BiP: the butter touched the bottom of the pot one control step ago, as the original has it."""
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


TASKS: dict[str, Callable[[Facts], np.ndarray]] = {
    "kitchen-bip": butter_in_pot,
    "kitchen-mip": meatball_in_pot,
    "kitchen-pos": pot_on_stove,
    "kitchen-pot": pot_on_target,
}


def reward(task: str, facts: Facts) -> np.ndarray:
    """[W] what the last control step paid in each world: 1 or 0."""
    if task not in TASKS:
        raise UserError(f"unknown Kitchen task {task!r}; there are: {', '.join(TASKS)}")
    return TASKS[task](facts).astype(np.float32)

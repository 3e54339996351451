"""Start states of episodes, sampled by a separate generator for each seed and environment."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from susd.envs.kitchen.model import FINGER_RANGE, HEIGHTS

ARM = (-0.470, -1.735, 2.480, -2.275, -1.590, -1.991)
NOISE = 0.02  # standard deviation of each joint of the arm, in radians
Box = tuple[tuple[float, float], tuple[float, float]]  # x and y, low and high
LOOSE: dict[str, tuple[Box, float, float]] = {  # box, height, radius of the circle that must stay free
    "butter": (((-0.25, -0.15), (-0.30, -0.20)), 0.825, 0.0212),
    "meatball": (((-0.15, -0.05), (-0.30, -0.20)), 0.830, 0.02),
    "pot": (((-0.20, -0.10), (-0.10, 0.00)), 0.825, 0.099),
}
FIXED: dict[str, Box] = {
    "button": ((-0.20, -0.05), (0.15, 0.30)),
    "stove": ((0.05, 0.25), (-0.225, -0.10)),
    "target": ((0.05, 0.25), (0.10, 0.20)),
}
TILT = 0.1  # the pot's yaw, either way
STATUS = (-1.0, -0.5)  # melt and cook


class Start(NamedTuple):
    """The state at the beginning of an episode; everything is at rest."""

    qpos: np.ndarray  # [30] button, arm, fingers, pot, butter, meatball
    fixtures: np.ndarray  # [3, 3] button, stove, target in the world frame
    status: np.ndarray  # [2] melt and cook, which nothing changes


def draw(seed: int, index: int) -> Start:
    """The start of one episode, a function of the seed and the index of the environment alone."""
    random = np.random.default_rng((seed, index))
    arm = np.array(ARM) + NOISE * random.standard_normal(6)
    positions: dict[str, tuple[float, float]] = {}
    for name, (box, _, radius) in LOOSE.items():
        while True:
            spot = _inside(random, box)
            if all(math.dist(spot, positions[other]) > radius + LOOSE[other][2] for other in positions):
                break
        positions[name] = spot
    yaw = random.uniform(-TILT, TILT)
    fixtures = [(*_inside(random, box), HEIGHTS[name]) for name, box in FIXED.items()]
    status = random.uniform(*STATUS, size=2)
    free = [_body(*positions["pot"], LOOSE["pot"][1], yaw)]
    free += [_body(*positions[name], LOOSE[name][1], -math.pi / 2) for name in ("butter", "meatball")]
    fingers = [FINGER_RANGE[1], -FINGER_RANGE[1]]  # wide open
    return Start(np.concatenate([[-0.3], arm, fingers, *free]), np.array(fixtures), status)


def _inside(random: np.random.Generator, box: Box) -> tuple[float, float]:
    (x_low, x_high), (y_low, y_high) = box
    return random.uniform(x_low, x_high), random.uniform(y_low, y_high)


def _body(x: float, y: float, z: float, yaw: float) -> list[float]:
    return [x, y, z, math.cos(yaw / 2), 0.0, 0.0, math.sin(yaw / 2)]

"""The 142 observations in the simulator's raw order, and the three layouts that group them into factors."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np

from susd.envs.base import Scaling
from susd.factors import Factorization

SIZE = 142
FACTORS = ("robot", "pot", "butter", "meatball", "button", "stove", "target")
ENTITIES = FACTORS[1:]
# The first of the 16 observations of each entity: position 3, quaternion 4, both again in the hand's frame, two touches.
START = {"pot": 9, "butter": 25, "meatball": 41, "button": 57, "stove": 73, "target": 87}
TOUCHED = {name: START[name] + 15 for name in ("pot", "butter", "meatball", "button")}
BUTTON_ANGLE, BUTTER_IN_POT, MEATBALL_IN_POT = 3, 5, 8
HANDLE, DISC, ROBOT, GRIP, FINGERS = 101, 107, 113, 131, 138
# What belongs to an entity itself, not to how the arm sees it: gripper, fingers, positions of objects, angle of the button.
_POSITIONS = (GRIP, START["pot"], START["butter"], START["meatball"])
OWN = (*(at + axis for at in _POSITIONS for axis in range(3)), FINGERS, FINGERS + 1, BUTTON_ANGLE)
MIN_STD = 0.05  # of scaled observations: what random actions hardly move keeps its scale


class Snapshot(NamedTuple):
    """The Cartesian quantities one physics step before the end of a control step, where the original reads them."""

    grip: np.ndarray  # [W, 3] position of the grip site
    hand: np.ndarray  # [W, 4] quaternion of the hand, w x y z
    lever: np.ndarray  # [W, 6, 3] how fast each joint moves the hand body
    positions: np.ndarray  # [W, 6, 3] of ENTITIES
    rotations: np.ndarray  # [W, 6, 4] their quaternions, w x y z
    points: np.ndarray  # [W, 2, 3] the pot's right handle and the button's disc
    touches: np.ndarray  # [W, 4, 2] grasped and touched, for pot, butter, meatball, button
    contacts: np.ndarray  # [W, 3] butter in pot, meatball in pot, pot on stove


@dataclass(frozen=True)
class Layout:
    """An order of the raw observation in which each factor is one block."""

    order: np.ndarray  # [142] raw indices
    factors: Factorization

    def find(self, raw: int) -> int:
        """The index in this layout of a raw index."""
        return int(np.flatnonzero(self.order == raw)[0])


@cache
def scaling() -> Scaling:
    """The fixed normalisation in raw order, measured by random rollouts: see susd.envs.kitchen.scaling."""
    measured = json.loads((files("susd.envs.kitchen") / "scaling.json").read_text())
    return Scaling(tuple(measured["mean"]), tuple(max(std, MIN_STD) for std in measured["std"]))


def _span(*ranges: tuple[int, int]) -> list[int]:
    return [i for low, high in ranges for i in range(low, high)]


def _layout(blocks: list[list[int]]) -> Layout:
    bounds = np.cumsum([0, *(len(block) for block in blocks)]).tolist()
    return Layout(np.concatenate([np.array(block) for block in blocks]), Factorization.from_boundaries(bounds, FACTORS))


_ROBOT = _span((113, 142), (0, 3))
_LAST = [_span((73, 87)), _span((87, 101))]  # stove and target
_OBJECTS = [_span((9, 25), (101, 107)), _span((4, 6), (25, 41)), _span((6, 9), (41, 57))]  # with their own observations
_BUTTON = _span((57, 73), (107, 113))
LAYOUTS: dict[str, Layout] = {
    # As in the original: its blocks of pot, butter and meatball hold some observations of their neighbours.
    "released": _layout([[*_ROBOT, 3], _span((4, 20), (101, 107)), _span((20, 38)), _span((38, 57)), _BUTTON, *_LAST]),
    "documented": _layout([[*_ROBOT, 3], *_OBJECTS, _BUTTON, *_LAST]),  # the same sizes, each observation with its entity
    "semantic": _layout([_ROBOT, *_OBJECTS, [3, *_BUTTON], *_LAST]),  # the button's angle moves from robot to button
}


def observe(now: Snapshot, qpos: np.ndarray, qvel: np.ndarray, status: np.ndarray, in_pot: np.ndarray) -> np.ndarray:
    """[W, 142] in raw order. `status` is melt and cook, `in_pot` the two flags of the previous control step."""
    obs = np.zeros((len(qpos), SIZE))
    # An earlier Jacobian times the current joint velocity: the original mixes the two instants, and so do we.
    obs[:, 0:3] = np.einsum("wij,wi->wj", now.lever, qvel[:, 1:7])
    obs[:, BUTTON_ANGLE] = qpos[:, 0]
    obs[:, 4], obs[:, BUTTER_IN_POT] = status[:, 0], in_pot[:, 0]
    obs[:, 6], obs[:, MEATBALL_IN_POT] = status[:, 1], in_pot[:, 1]  # 7, overcooked, is always 0
    near = _into(now.hand[:, None], now.positions - now.grip[:, None])
    seen = _relative(now.hand, now.rotations)
    for i, name in enumerate(ENTITIES):
        at = START[name]
        obs[:, at : at + 3] = now.positions[:, i]
        obs[:, at + 3 : at + 7] = now.rotations[:, i, [1, 2, 3, 0]]
        obs[:, at + 7 : at + 10] = near[:, i]
        obs[:, at + 10 : at + 14] = seen[:, i]
        if name in TOUCHED:
            obs[:, at + 14 : at + 16] = now.touches[:, i]
    obs[:, HANDLE:ROBOT].reshape(-1, 2, 2, 3)[:, :, 0] = now.points
    obs[:, HANDLE:ROBOT].reshape(-1, 2, 2, 3)[:, :, 1] = _into(now.hand[:, None], now.points - now.grip[:, None])
    arm = qpos[:, 1:7]
    robot = [np.cos(arm), np.sin(arm), qvel[:, 1:7], now.grip, now.hand[:, [1, 2, 3, 0]], qpos[:, 7:9], qvel[:, 7:9]]
    obs[:, ROBOT:] = np.concatenate(robot, axis=1)
    return obs


def align_signs(obs: np.ndarray, before: np.ndarray | None) -> None:
    """Set the signs of the relative quaternions in place: nearest to the previous ones, or first component not negative.

    The gripper points down, so the real part of a relative rotation is near zero and its sign is noise.
    """
    for at in START.values():
        part = slice(at + 10, at + 14)
        side = obs[:, at + 10] if before is None else np.sum(obs[:, part] * before[:, part], axis=1)
        obs[side < 0, part] *= -1.0


def cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """np.cross of vectors in the last axis; half of its time for a few vectors."""
    x, y, z = (a[..., i] for i in range(3))
    u, v, w = (b[..., i] for i in range(3))
    return np.stack([y * w - z * v, z * u - x * w, x * v - y * u], axis=-1)


def _into(hand: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """A vector in the hand's frame."""
    axis, w = -hand[..., 1:], hand[..., :1]
    twice = 2.0 * cross(axis, vector)
    return vector + w * twice + cross(axis, twice)


def _relative(hand: np.ndarray, rotations: np.ndarray) -> np.ndarray:
    """[W, 6, 4] rotations in the hand's frame, x y z w with w >= 0, rounded as in the original to single precision."""
    w, axis = hand[:, None, :1], -hand[:, None, 1:]
    real = w[..., 0] * rotations[..., 0] - np.sum(axis * rotations[..., 1:], axis=-1)
    imaginary = w * rotations[..., 1:] + rotations[..., :1] * axis + cross(axis, rotations[..., 1:])
    quaternion = np.concatenate([imaginary, real[..., None]], axis=-1).astype(np.float32)
    return np.where(quaternion[..., 3:] < 0, -quaternion, quaternion)

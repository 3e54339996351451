"""Operational-space position control of the arm: joint torques that move the grip point to a goal, with the gripper down.

Position and orientation are decoupled: each has its own three-dimensional inertia from the arm's mass matrix M, and each
is a critically damped spring. The NumPy and the compiled version do the same operations in the same order, so that they
agree to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from susd.errors import UserError

KP = 150.0
KD = 2.0 * np.sqrt(KP)
LIMITS = np.array([150.0, 150.0, 150.0, 28.0, 28.0, 28.0])  # of the joint torques
JOINTS = 6
FIRST = 1  # the arm's first degree of freedom

Controller = Callable[..., None]


def mass_indices(model: Any) -> np.ndarray:
    """[6, 6] indices of the arm's block of the mass matrix in MuJoCo's sparse lower triangle."""
    where = np.zeros((JOINTS, JOINTS), np.int64)
    for i in range(JOINTS):
        start, count = model.M_rowadr[FIRST + i], model.M_rownnz[FIRST + i]
        columns = model.M_colind[start : start + count].tolist()
        for j in range(i + 1):
            where[i, j] = where[j, i] = start + columns.index(FIRST + j)
    return where


def torques(
    goal: np.ndarray,
    position: np.ndarray,
    frame: np.ndarray,
    cdof: np.ndarray,
    centre: np.ndarray,
    bias: np.ndarray,
    mass: np.ndarray,
    where: np.ndarray,
    qvel: np.ndarray,
    ctrl: np.ndarray,
) -> None:
    """Write the torques of W environments to ctrl[:, :6]. The grip site has `position` [W, 3] and axes `frame` [W, 9]."""
    arm = slice(FIRST, FIRST + JOINTS)
    axes = cdof[:, arm].transpose(2, 1, 0)  # the batch axis comes last: a line below is one operation on all environments
    turn, slide, offset = axes[:3], axes[3:], (position - centre).T
    jacobian = np.empty((6, JOINTS, len(goal)))
    jacobian[0] = slide[0] + (turn[1] * offset[2] - turn[2] * offset[1])
    jacobian[1] = slide[1] + (turn[2] * offset[0] - turn[0] * offset[2])
    jacobian[2] = slide[2] + (turn[0] * offset[1] - turn[1] * offset[0])
    jacobian[3:] = turn
    speed = qvel[:, arm].T
    velocity = jacobian[:, 0] * speed[0]
    for i in range(1, JOINTS):
        velocity += jacobian[:, i] * speed[i]
    error = np.empty((6, len(goal)))
    error[:3] = (goal - position).T
    # Half the sum of the cross products of the gripper's axes with those it should have: (0,1,0), (1,0,0), (0,0,-1).
    error[3] = 0.5 * (-frame[:, 6] - frame[:, 5])
    error[4] = 0.5 * (frame[:, 7] + frame[:, 2])
    error[5] = 0.5 * (frame[:, 0] - frame[:, 4])
    wanted = (KP * error - KD * velocity).reshape(2, 3, -1)

    lower = mass[:, where].transpose(1, 2, 0).copy()  # M = L L^T
    for k in range(JOINTS):
        lower[k, k] = np.sqrt(lower[k, k])
        lower[k + 1 :, k] /= lower[k, k]
        lower[k + 1 :, k + 1 :] -= lower[k + 1 :, k, None] * lower[None, k + 1 :, k]
    half = jacobian.transpose(1, 0, 2).copy()  # L^-1 J^T, whose Gram matrix is J M^-1 J^T
    for k in range(JOINTS):
        half[k] /= lower[k, k]
        half[k + 1 :] -= lower[k + 1 :, k, None] * half[k]
    parts = half.reshape(JOINTS, 2, 3, -1)  # position and orientation
    inverse = parts[0, :, :, None] * parts[0, :, None, :]
    for k in range(1, JOINTS):
        inverse += parts[k, :, :, None] * parts[k, :, None, :]
    for k in range(2):  # (J M^-1 J^T) force = wanted, by elimination
        factor = inverse[:, k + 1 :, k] / inverse[:, k, k, None]
        inverse[:, k + 1 :, k + 1 :] -= factor[:, :, None] * inverse[:, k, None, k + 1 :]
        wanted[:, k + 1 :] -= factor * wanted[:, k, None]
    wanted[:, 2] /= inverse[:, 2, 2]
    wanted[:, 1] = (wanted[:, 1] - inverse[:, 1, 2] * wanted[:, 2]) / inverse[:, 1, 1]
    wanted[:, 0] = (wanted[:, 0] - inverse[:, 0, 1] * wanted[:, 1] - inverse[:, 0, 2] * wanted[:, 2]) / inverse[:, 0, 0]

    force = wanted.reshape(6, -1)
    torque = bias[:, arm].T.copy()
    for axis in range(6):
        torque += jacobian[axis] * force[axis]
    ctrl[:, :JOINTS] = np.clip(torque.T, -LIMITS, LIMITS)


def _torques_in_loops(
    goal: np.ndarray,
    position: np.ndarray,
    frame: np.ndarray,
    cdof: np.ndarray,
    centre: np.ndarray,
    bias: np.ndarray,
    mass: np.ndarray,
    where: np.ndarray,
    qvel: np.ndarray,
    ctrl: np.ndarray,
) -> None:
    """`torques` with plain loops, for the compiler."""
    jacobian, lower, half = np.empty((6, JOINTS)), np.empty((JOINTS, JOINTS)), np.empty((JOINTS, 6))
    error, wanted, inverse, offset = np.empty(6), np.empty(6), np.empty((3, 3)), np.empty(3)
    for w in range(goal.shape[0]):
        for a in range(3):
            offset[a] = position[w, a] - centre[w, a]
            error[a] = goal[w, a] - position[w, a]
        error[3] = 0.5 * (-frame[w, 6] - frame[w, 5])
        error[4] = 0.5 * (frame[w, 7] + frame[w, 2])
        error[5] = 0.5 * (frame[w, 0] - frame[w, 4])
        for i in range(JOINTS):
            axis = cdof[w, FIRST + i]
            jacobian[0, i] = axis[3] + (axis[1] * offset[2] - axis[2] * offset[1])
            jacobian[1, i] = axis[4] + (axis[2] * offset[0] - axis[0] * offset[2])
            jacobian[2, i] = axis[5] + (axis[0] * offset[1] - axis[1] * offset[0])
            for a in range(3):
                jacobian[3 + a, i] = axis[a]
            for j in range(i + 1):
                lower[i, j] = mass[w, where[i, j]]
        for a in range(6):
            velocity = jacobian[a, 0] * qvel[w, FIRST]
            for i in range(1, JOINTS):
                velocity += jacobian[a, i] * qvel[w, FIRST + i]
            wanted[a] = KP * error[a] - KD * velocity
            for i in range(JOINTS):
                half[i, a] = jacobian[a, i]
        for k in range(JOINTS):
            lower[k, k] = np.sqrt(lower[k, k])
            for i in range(k + 1, JOINTS):
                lower[i, k] /= lower[k, k]
            for i in range(k + 1, JOINTS):
                for j in range(k + 1, i + 1):
                    lower[i, j] -= lower[i, k] * lower[j, k]
        for k in range(JOINTS):
            for a in range(6):
                half[k, a] /= lower[k, k]
            for i in range(k + 1, JOINTS):
                for a in range(6):
                    half[i, a] -= lower[i, k] * half[k, a]
        for part in range(0, 6, 3):
            for a in range(3):
                for b in range(3):
                    total = half[0, part + a] * half[0, part + b]
                    for k in range(1, JOINTS):
                        total += half[k, part + a] * half[k, part + b]
                    inverse[a, b] = total
            for k in range(2):
                for a in range(k + 1, 3):
                    factor = inverse[a, k] / inverse[k, k]
                    for b in range(k + 1, 3):
                        inverse[a, b] -= factor * inverse[k, b]
                    wanted[part + a] -= factor * wanted[part + k]
            x, y, z = wanted[part], wanted[part + 1], wanted[part + 2]
            z /= inverse[2, 2]
            y = (y - inverse[1, 2] * z) / inverse[1, 1]
            x = (x - inverse[0, 1] * y - inverse[0, 2] * z) / inverse[0, 0]
            wanted[part], wanted[part + 1], wanted[part + 2] = x, y, z
        for i in range(JOINTS):
            torque = bias[w, FIRST + i]
            for a in range(6):
                torque += jacobian[a, i] * wanted[a]
            ctrl[w, i] = min(max(torque, -LIMITS[i]), LIMITS[i])


@cache
def compiled() -> Controller | None:
    """The controller compiled by numba, or None where numba is not installed."""
    try:
        import numba
    except ImportError:
        return None
    built: Controller = numba.njit(cache=True, error_model="numpy")(_torques_in_loops)
    return built


def choose(backend: str) -> Controller:
    """The controller by the name of its backend; `auto` uses numba where it is installed."""
    built = compiled() if backend in ("auto", "numba") else None
    if backend == "numba" and built is None:
        raise UserError("option 'controller' cannot be 'numba': numba is not installed (pip install numba)")
    return built or torques

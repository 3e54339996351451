"""Parallel simulations of one MuJoCo model: by `mujoco.batch` on threads, or one after another where it is missing."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from susd.errors import UserError

STATE = ("qpos", "qvel", "qacc_warmstart", "ctrl")


class Physics(Protocol):
    """State arrays [W, ..] may be written between calls; `derived` arrays belong to the state after the last call."""

    model: Any
    qpos: np.ndarray
    qvel: np.ndarray
    qacc_warmstart: np.ndarray
    ctrl: np.ndarray
    derived: dict[str, np.ndarray]  # by MuJoCo's names, those that were requested

    def reset(self, ids: np.ndarray, bodies: Sequence[int] = (), positions: np.ndarray | None = None) -> None:
        """Reset simulations to the model's defaults, with static bodies at given positions [len(ids), B, 3] if any."""
        ...

    def forward(self, ids: np.ndarray) -> None:
        """Update the derived arrays of some simulations after their state was written."""
        ...

    def step(self, count: int = 1) -> None:
        """Physics steps of every simulation, and the derived arrays at the new state."""
        ...


class BatchPhysics:
    """All simulations at once with `mujoco.batch`, on native threads."""

    def __init__(self, model: Any, num_envs: int, threads: int, derived: Sequence[str]) -> None:
        import mujoco
        from mujoco.batch import Batch

        # Persistent, so that a step continues from the velocity stage of the one before: nothing is computed twice. Where
        # nothing is derived from the state, there is no such stage.
        self._batch = Batch(model, num_envs, threads, persistent=bool(derived))
        self._stage = int(mujoco.mjtStage.mjSTAGE_VEL if derived else mujoco.mjtStage.mjSTAGE_NONE)
        self.model = model
        self.qpos, self.qvel, self.qacc_warmstart, self.ctrl = (self._batch.bind(name) for name in STATE)
        self.derived = {name: self._batch.bind(name) for name in derived}

    def reset(self, ids: np.ndarray, bodies: Sequence[int] = (), positions: np.ndarray | None = None) -> None:
        """Defaults, with static bodies moved."""
        if positions is not None:
            self._batch.expand("body_pos")[ids[:, None], np.array(bodies)] = positions
        self._batch.reset(ids, stage=0)  # the engine may cache the poses of static bodies; a reset drops the cache

    def forward(self, ids: np.ndarray) -> None:
        """Positions and velocities after the state was written."""
        if self.derived:
            self._batch.forward(ids, stage=self._stage)

    def step(self, count: int = 1) -> None:
        """Physics steps, and positions and velocities at their end."""
        self._batch.step(nstep=count, stage=self._stage)


class PlainPhysics:
    """One simulation after another in Python: the same values, without `mujoco.batch`."""

    def __init__(self, model: Any, num_envs: int, derived: Sequence[str]) -> None:
        import mujoco

        self._mujoco = mujoco
        self.model = model
        self._models = [copy.copy(model) for _ in range(num_envs)]
        self._data = [mujoco.MjData(one) for one in self._models]
        arrays = [np.stack([np.array(getattr(data, name)) for data in self._data]) for name in (*STATE, *derived)]
        self.qpos, self.qvel, self.qacc_warmstart, self.ctrl = arrays[: len(STATE)]
        self.derived = dict(zip(derived, arrays[len(STATE) :], strict=True))
        self._arrays = dict(zip(STATE, arrays, strict=False))

    def reset(self, ids: np.ndarray, bodies: Sequence[int] = (), positions: np.ndarray | None = None) -> None:
        """Defaults, with static bodies moved."""
        for row, index in enumerate(ids.tolist()):
            if positions is not None:
                self._models[index].body_pos[list(bodies)] = positions[row]
            self._mujoco.mj_resetData(self._models[index], self._data[index])
            self._read(index, self._arrays)

    def forward(self, ids: np.ndarray) -> None:
        """Positions and velocities after the state was written."""
        for index in ids.tolist() if self.derived else ():
            self._write(index)
            self._mujoco.mj_step1(self._models[index], self._data[index])
            self._read(index, self.derived)

    def step(self, count: int = 1) -> None:
        """Physics steps, and positions and velocities at their end."""
        for index, (model, data) in enumerate(zip(self._models, self._data, strict=True)):
            self._write(index)
            self._mujoco.mj_step(model, data, count)  # in one call: the Runge-Kutta integrator cannot be split
            if self.derived:
                self._mujoco.mj_step1(model, data)
            self._read(index, self._arrays | self.derived)

    def _write(self, index: int) -> None:
        for name, array in self._arrays.items():
            getattr(self._data[index], name)[:] = array[index]

    def _read(self, index: int, arrays: dict[str, np.ndarray]) -> None:
        for name, array in arrays.items():
            array[index] = getattr(self._data[index], name)


def checked_actions(actions: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Actions [W, A] as a copy in double precision; a wrong shape or a value that is not finite is refused."""
    wanted = np.array(actions, np.float64)
    if wanted.shape != shape:
        raise UserError(f"the actions have the shape {wanted.shape}; it must be {shape}")
    if not np.isfinite(wanted).all():
        row, index = np.argwhere(~np.isfinite(wanted))[0]
        raise UserError(f"action {index} of environment {row} is {wanted[row, index]}; it must be finite")
    return wanted


def start(model: Any, num_envs: int, engine: str, threads: int, derived: Sequence[str] = ()) -> Physics:
    """The physics of an engine by name; `auto` prefers the batch. `derived` names further arrays to read."""
    if engine in ("auto", "batch"):
        try:
            return BatchPhysics(model, num_envs, threads, derived)
        except ImportError:
            if engine == "batch":
                raise UserError("option 'engine' cannot be 'batch': mujoco.batch needs MuJoCo 4.0") from None
    return PlainPhysics(model, num_envs, derived)

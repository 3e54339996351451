"""Many worlds of one MuJoCo model: stepped by MuJoCo's own batch on threads, or one after another where it is missing."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from susd.errors import UserError

STATE = ("qpos", "qvel", "qacc_warmstart", "ctrl")


class Physics(Protocol):
    """State arrays [W, ..] may be written between calls; `derived` ones belong to the state of the last call's end."""

    model: Any
    qpos: np.ndarray
    qvel: np.ndarray
    qacc_warmstart: np.ndarray
    ctrl: np.ndarray
    derived: dict[str, np.ndarray]  # by MuJoCo's names, those that were asked for

    def reset(self, ids: np.ndarray, bodies: Sequence[int] = (), positions: np.ndarray | None = None) -> None:
        """Put worlds back to the model's defaults, static bodies if any at positions of their own, [len(ids), B, 3]."""
        ...

    def forward(self, ids: np.ndarray) -> None:
        """Make the derived arrays of some worlds follow from a state that was written."""
        ...

    def step(self, count: int = 1) -> None:
        """Physics steps of every world, and the derived arrays at the new state."""
        ...


class BatchPhysics:
    """All worlds at once through `mujoco.batch`, on native threads."""

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
        self._batch.reset(ids, stage=0)  # the engine may cache the poses of static bodies; a reset forgets them

    def forward(self, ids: np.ndarray) -> None:
        """Positions and velocities of a state that was written."""
        if self.derived:
            self._batch.forward(ids, stage=self._stage)

    def step(self, count: int = 1) -> None:
        """Physics steps, and positions and velocities at their end."""
        self._batch.step(nstep=count, stage=self._stage)


class PlainPhysics:
    """One world after another in Python: the same numbers, without `mujoco.batch`."""

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
        for index, world in enumerate(ids.tolist()):
            if positions is not None:
                self._models[world].body_pos[list(bodies)] = positions[index]
            self._mujoco.mj_resetData(self._models[world], self._data[world])
            self._read(world, self._arrays)

    def forward(self, ids: np.ndarray) -> None:
        """Positions and velocities of a state that was written."""
        for world in ids.tolist() if self.derived else ():
            self._write(world)
            self._mujoco.mj_step1(self._models[world], self._data[world])
            self._read(world, self.derived)

    def step(self, count: int = 1) -> None:
        """Physics steps, and positions and velocities at their end."""
        for world, (model, data) in enumerate(zip(self._models, self._data, strict=True)):
            self._write(world)
            self._mujoco.mj_step(model, data, count)  # not in halves, which the Runge-Kutta integrator has not
            if self.derived:
                self._mujoco.mj_step1(model, data)
            self._read(world, self._arrays | self.derived)

    def _write(self, world: int) -> None:
        for name, array in self._arrays.items():
            getattr(self._data[world], name)[:] = array[world]

    def _read(self, world: int, arrays: dict[str, np.ndarray]) -> None:
        for name, array in arrays.items():
            array[world] = getattr(self._data[world], name)


def checked_actions(actions: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Actions [W, A] as a copy in double precision; a wrong shape, or a number that is not finite, is refused."""
    wanted = np.array(actions, np.float64)
    if wanted.shape != shape:
        raise UserError(f"the actions have the shape {wanted.shape}; it must be {shape}")
    if not np.isfinite(wanted).all():
        world, index = np.argwhere(~np.isfinite(wanted))[0]
        raise UserError(f"action {index} of world {world} is {wanted[world, index]}; it must be a finite number")
    return wanted


def start(model: Any, num_envs: int, engine: str, threads: int, derived: Sequence[str] = ()) -> Physics:
    """The physics of an engine by name; `auto` prefers the batch. `derived` names what is read besides the state."""
    if engine in ("auto", "batch"):
        try:
            return BatchPhysics(model, num_envs, threads, derived)
        except ImportError:
            if engine == "batch":
                raise UserError("option 'engine' cannot be 'batch': this MuJoCo has no mujoco.batch (4.0 has)") from None
    return PlainPhysics(model, num_envs, derived)

"""Many worlds of one MuJoCo model: stepped by MuJoCo's own batch on threads, or one after another where it is missing."""

from __future__ import annotations

import copy
from typing import Any, Protocol

import numpy as np

from susd.errors import UserError

DERIVED = ("site_xpos", "site_xmat", "xpos", "xquat", "cdof", "subtree_com", "qfrc_bias", "M", "sensordata")
STATE = ("qpos", "qvel", "qacc_warmstart", "ctrl")


class Physics(Protocol):
    """State arrays may be written between calls; derived arrays always belong to the state of the last call's end."""

    model: Any
    qpos: np.ndarray
    qvel: np.ndarray
    qacc_warmstart: np.ndarray
    ctrl: np.ndarray
    site_xpos: np.ndarray
    site_xmat: np.ndarray
    xpos: np.ndarray
    xquat: np.ndarray
    cdof: np.ndarray
    subtree_com: np.ndarray
    qfrc_bias: np.ndarray
    M: np.ndarray
    sensordata: np.ndarray

    def reset(self, ids: np.ndarray, bodies: list[int], positions: np.ndarray) -> None:
        """Put worlds back to the model's defaults, with static bodies at positions of their own, [len(ids), B, 3]."""
        ...

    def forward(self, ids: np.ndarray) -> None:
        """Make the derived arrays of some worlds follow from a state that was written."""
        ...

    def step(self) -> None:
        """One physics step of every world, and the derived arrays at the new state."""
        ...


class BatchPhysics:
    """All worlds at once through `mujoco.batch`, on native threads."""

    def __init__(self, model: Any, worlds: int, threads: int) -> None:
        import mujoco
        from mujoco.batch import Batch

        # Persistent, so that a step continues from the velocity stage of the one before: nothing is computed twice.
        self._batch = Batch(model, worlds, threads, persistent=True)
        self._stage = int(mujoco.mjtStage.mjSTAGE_VEL)
        self.model = model
        self._body_pos = self._batch.expand("body_pos")
        for name in (*STATE, *DERIVED):
            setattr(self, name, self._batch.bind(name))

    def reset(self, ids: np.ndarray, bodies: list[int], positions: np.ndarray) -> None:
        """Defaults, with static bodies moved."""
        self._body_pos[ids[:, None], np.array(bodies)] = positions
        self._batch.reset(ids, stage=0)  # the engine may cache the poses of static bodies; a reset forgets them

    def forward(self, ids: np.ndarray) -> None:
        """Positions and velocities of a state that was written."""
        self._batch.forward(ids, stage=self._stage)

    def step(self) -> None:
        """One physics step, and positions and velocities at its end."""
        self._batch.step(stage=self._stage)


class PlainPhysics:
    """One world after another in Python: the same numbers, without `mujoco.batch`."""

    def __init__(self, model: Any, worlds: int) -> None:
        import mujoco

        self._mujoco = mujoco
        self.model = model
        self._models = [copy.copy(model) for _ in range(worlds)]
        self._data = [mujoco.MjData(one) for one in self._models]
        for name in (*STATE, *DERIVED):
            setattr(self, name, np.stack([np.array(getattr(data, name)) for data in self._data]))

    def reset(self, ids: np.ndarray, bodies: list[int], positions: np.ndarray) -> None:
        """Defaults, with static bodies moved."""
        for world, places in zip(ids.tolist(), positions, strict=True):
            self._models[world].body_pos[bodies] = places
            self._mujoco.mj_resetData(self._models[world], self._data[world])
            self._read(world, STATE)

    def forward(self, ids: np.ndarray) -> None:
        """Positions and velocities of a state that was written."""
        for world in ids.tolist():
            self._write(world)
            self._mujoco.mj_step1(self._models[world], self._data[world])
            self._read(world, DERIVED)

    def step(self) -> None:
        """One physics step, and positions and velocities at its end."""
        for world, (model, data) in enumerate(zip(self._models, self._data, strict=True)):
            self._write(world)
            self._mujoco.mj_step2(model, data)
            self._mujoco.mj_step1(model, data)
            self._read(world, (*STATE, *DERIVED))

    def _write(self, world: int) -> None:
        for name in STATE:
            getattr(self._data[world], name)[:] = getattr(self, name)[world]

    def _read(self, world: int, names: tuple[str, ...]) -> None:
        for name in names:
            getattr(self, name)[world] = getattr(self._data[world], name)


def start(model: Any, worlds: int, engine: str, threads: int) -> Physics:
    """The physics of an engine by name; `auto` prefers the batch."""
    if engine in ("auto", "batch"):
        try:
            return BatchPhysics(model, worlds, threads)  # type: ignore[return-value]  # its arrays are bound by name
        except ImportError:
            if engine == "batch":
                raise UserError("option 'engine' cannot be 'batch': this MuJoCo has no mujoco.batch (4.0 has)") from None
    return PlainPhysics(model, worlds)  # type: ignore[return-value]

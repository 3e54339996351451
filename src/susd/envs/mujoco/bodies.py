"""Ant and HalfCheetah: Gymnasium's models in parallel, with the position in the observation and without termination."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, ClassVar

import numpy as np

from susd.envs.base import EnvSpec, HostStep, Plane, Scaling
from susd.envs.mujoco import physics
from susd.envs.mujoco.camera import Camera, check_index, tracking_camera
from susd.envs.options import (
    MOST_ENVS,
    MOST_THREADS,
    FactorOption,
    factorization,
    non_negative_integer,
    one_of,
    positive_integer,
)
from susd.errors import UserError
from susd.factors import Factorization

SUBSTEPS = 5  # physics steps of 10 ms per action: 20 Hz
DISCOVERY = 200  # control steps of an episode
NOISE = 0.1  # of a reset: the half width of the positions' box, the standard deviation of velocities
REACH = 25.0  # metres: how far from the start coverage is counted, in cells of one metre
FLOOR = 500.0  # metres: half the side of the rendered floor; the one in the physics is infinite
EXTENT = 8.0  # metres: what shadows are sized for, whatever the size of the floor


def load_model(file: str, visual: bool = False) -> Any:
    """A model that comes with Gymnasium, by the name of its file; `visual` prepares it for rendering."""
    import mujoco

    text = (files("gymnasium") / "envs" / "mujoco" / "assets" / file).read_text()
    with warnings.catch_warnings():  # one file uses an attribute that MuJoCo deprecates
        warnings.simplefilter("ignore", UserWarning)
        spec = mujoco.MjSpec.from_string(text)
        if visual:
            _restyle(spec)
        return spec.compile()


def _restyle(spec: Any) -> None:
    """A matt floor, large enough for a fast body (the original is a small mirror of hard squares), and a steady shadow."""
    import mujoco

    squares, ground, lamp = spec.texture("texplane"), spec.material("MatPlane"), spec.lights[0]
    squares.rgb1, squares.rgb2 = [0.44, 0.47, 0.52], [0.54, 0.57, 0.62]
    ground.reflectance, ground.texuniform, ground.texrepeat = 0.0, True, [1.0, 1.0]
    spec.geom("floor").size[:2] = FLOOR
    spec.stat.extent = EXTENT
    spec.visual.headlight.ambient = [0.25, 0.25, 0.25]
    # Far from a fixed light the shadow of a body would be fragmented.
    lamp.mode, lamp.pos = mujoco.mjtCamLight.mjCAMLIGHT_TRACKCOM, [0.0, 0.0, 6.0]


@cache
def scalings() -> dict[str, Scaling]:
    """The fixed normalisations by environment, measured by benchmarks/scaling.py."""
    measured = json.loads((files("susd.envs.mujoco") / "scaling.json").read_text())
    return {name: Scaling(tuple(one["mean"]), tuple(one["std"])) for name, one in measured.items()}


class Body:
    """Parallel environments of one body. They never terminate. Equal seeds and actions give equal values in each engine."""

    name: ClassVar[str]
    file: ClassVar[str]
    axes: ClassVar[tuple[int, ...]]  # the observations that are its position
    parts: ClassVar[Mapping[str, Sequence[int]]]  # the torso and its legs
    quaternion: ClassVar[slice | None] = None  # where the positions hold one
    view: ClassVar[tuple[float, float, float]]  # of the camera: distance, azimuth, elevation

    def __init__(self, num_envs: int = 16, factors: FactorOption = 1, engine: str = "auto", threads: int = 0) -> None:
        self._num_envs = positive_integer("num_envs", num_envs, MOST_ENVS)
        engine = one_of("engine", engine, ("auto", "batch", "plain"))
        model = load_model(self.file)
        size = model.nq + model.nv
        named = {1: Factorization(("state",), (tuple(range(size)),), size)}
        named[len(self.parts)] = Factorization.from_mapping(self.parts, size)
        self._factors = factorization(factors, size, named)
        self.physics = physics.start(model, self._num_envs, engine, non_negative_integer("threads", threads, MOST_THREADS))
        low, high = model.actuator_ctrlrange.T
        self._middle, self._half = (low + high) / 2, (high - low) / 2
        scaling = scalings()[self.name]
        self._mean, self._std = np.array(scaling.mean, np.float32), np.array(scaling.std, np.float32)
        self._camera: Camera | None = None

    @property
    def num_envs(self) -> int:
        """How many environments are stepped together."""
        return self._num_envs

    @cached_property
    def spec(self) -> EnvSpec:
        """Sizes, horizon, factors and normalisation."""
        plane = Plane("body", self.axes[0], self.axes[-1], -REACH, REACH, open=True)
        sizes = len(self._mean), len(self._middle)
        scaling = scalings()[self.name]
        return EnvSpec(self.name, *sizes, DISCOVERY, self._factors, (plane,), {}, scaling=scaling, ends_early=False)

    @property
    def state(self) -> np.ndarray:
        """[W, S] positions and velocities in metres, radians and seconds: the observations before normalisation."""
        return np.concatenate([self.physics.qpos, self.physics.qvel], axis=1)

    @property
    def positions(self) -> np.ndarray:
        """[W, 2] or, for a body on a line, [W, 1], in metres."""
        return self.physics.qpos[:, : len(self.axes)].copy()

    def reset(self, seed: int) -> np.ndarray:
        """Reset all environments, as a function of the seed alone; [W, S] observations."""
        return self.restart(np.arange(self._num_envs), [seed] * self._num_envs)

    def restart(self, ids: np.ndarray, seeds: Sequence[int]) -> np.ndarray:
        """Reset some environments, each as a function of its seed and its index; their observations [len(ids), S].

        `reset` calls this for all of them with one seed: the same seed and index give the same start.
        """
        sim, ids = self.physics, np.asarray(ids)
        if ids.ndim != 1 or ids.dtype.kind not in "iu" or len(set(ids.tolist()) & set(range(self._num_envs))) < len(ids):
            raise UserError(
                f"cannot restart environments {ids.tolist()}; allowed: distinct indices from 0 to {self._num_envs - 1}"
            )
        model = sim.model
        sim.reset(np.sort(ids))
        for index, seed in zip(ids.tolist(), seeds, strict=True):
            random = np.random.default_rng((non_negative_integer("seed", seed), index))
            sim.qpos[index] = model.qpos0 + random.uniform(-NOISE, NOISE, model.nq)
            sim.qvel[index] = NOISE * random.standard_normal(model.nv)
        if self.quaternion is not None:  # of unit length, as the original's simulator makes it before the first observation
            turns = sim.qpos[ids, self.quaternion]
            sim.qpos[ids, self.quaternion] = turns / np.linalg.norm(turns, axis=1, keepdims=True)
        return self._observation()[ids]

    def step(self, actions: np.ndarray) -> HostStep:
        """One control step: a torque for each joint in [-1, 1], applied for 50 ms."""
        wanted = physics.checked_actions(actions, (self._num_envs, len(self._middle)))
        self.physics.ctrl[:] = self._middle + self._half * wanted  # the simulator clips to the range
        self.physics.step(SUBSTEPS)
        reached = self._observation()
        never = np.zeros(self._num_envs, bool)
        return HostStep(reached, reached.copy(), never, never.copy())

    def render(self, index: int = 0, size: int = 400) -> np.ndarray:
        """One environment as an RGB image, uint8 [size, size, 3]; needs a GL, such as MUJOCO_GL=egl without a display."""
        check_index(index, self._num_envs)
        if self._camera is None or self._camera.size != size:
            self._camera = Camera(self.name.replace("_", " "), load_model(self.file, visual=True), size)
        return self._camera.render(self.physics.qpos[index], tracking_camera(self.physics.model, "torso", *self.view))

    def _observation(self) -> np.ndarray:
        return ((self.state - self._mean) / self._std).astype(np.float32)


class Ant(Body):
    """Four legs of two joints around a torso that moves freely: 29 observations, 8 torques."""

    name, file = "ant", "ant.xml"
    axes = (0, 1)
    quaternion = slice(3, 7)
    parts: ClassVar[Mapping[str, Sequence[int]]] = {  # after the bodies in the file
        "torso": (*range(7), *range(15, 21)),
        "front_left_leg": (7, 8, 21, 22),
        "front_right_leg": (9, 10, 23, 24),
        "back_leg": (11, 12, 25, 26),
        "right_back_leg": (13, 14, 27, 28),
    }
    view = (4.5, 120.0, -28.0)


class HalfCheetah(Body):
    """A runner in a vertical plane, with two legs of three joints: 18 observations, 6 torques."""

    name, file = "half_cheetah", "half_cheetah.xml"
    axes = (0,)
    parts: ClassVar[Mapping[str, Sequence[int]]] = {
        "torso": (0, 1, 2, 9, 10, 11),
        "front_leg": (6, 7, 8, 15, 16, 17),
        "back_leg": (3, 4, 5, 12, 13, 14),
    }
    view = (3.2, 80.0, -16.0)

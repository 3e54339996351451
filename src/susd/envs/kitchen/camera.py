"""Images of the Kitchen from the front."""

from __future__ import annotations

import numpy as np

from susd.envs.kitchen.model import compiled
from susd.envs.mujoco.camera import Camera

FIXTURES = ("button", "stove", "target")


class KitchenCamera:
    """A model for rendering, in which the fixtures can be moved, and a renderer of one size."""

    def __init__(self, size: int) -> None:
        self._camera = Camera("kitchen", compiled(visual=True), size)
        self._bodies = [self._camera.model.body(name).id for name in FIXTURES]

    @property
    def size(self) -> int:
        """Pixels along each side."""
        return self._camera.size

    def render(self, qpos: np.ndarray, fixtures: np.ndarray) -> np.ndarray:
        """One state: uint8 [size, size, 3]."""
        self._camera.model.body_pos[self._bodies] = fixtures
        return self._camera.render(qpos, "front")

"""Pictures of the kitchen with MuJoCo's own renderer, also without a screen."""

from __future__ import annotations

from typing import Any

import numpy as np

from susd.envs.kitchen.model import compiled
from susd.errors import UserError

FIXTURES = ("button", "stove", "target")


class Camera:
    """A model with looks, its own data and a renderer of one size."""

    def __init__(self, size: int) -> None:
        import mujoco

        if not 16 <= size <= 1280:
            raise UserError(f"a picture cannot be {size!r} pixels wide; allowed: 16 to 1280")
        self.size = size
        self._mujoco: Any = mujoco
        self._model = compiled(looks=True)
        self._data = mujoco.MjData(self._model)
        self._bodies = [self._model.body(name).id for name in FIXTURES]
        try:
            self._renderer = mujoco.Renderer(self._model, size, size)
        except Exception as error:  # the kind depends on the GL that is missing
            raise UserError(
                f"pictures of the kitchen need OpenGL, which does not start here ({error}); without a screen, set "
                "MUJOCO_GL=egl before Python starts and install Mesa (for example apt install libegl1 libgl1-mesa-dri)"
            ) from None

    def take(self, qpos: np.ndarray, fixtures: np.ndarray) -> np.ndarray:
        """One state from the front: uint8 [size, size, 3]."""
        self._model.body_pos[self._bodies] = fixtures
        self._data.qpos[:] = qpos
        self._mujoco.mj_forward(self._model, self._data)
        self._renderer.update_scene(self._data, camera="front")
        return np.array(self._renderer.render())

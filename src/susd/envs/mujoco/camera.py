"""Pictures of a MuJoCo model with its own renderer, also without a screen."""

from __future__ import annotations

from typing import Any

import numpy as np

from susd.errors import UserError

SIZES = (16, 1280)
_failures: list[str] = []  # of OpenGL; it is not tried again, because a second try can end the program


class Camera:
    """A model, data of its own and a renderer of one size. The model is changed: its picture may be as large as asked."""

    def __init__(self, what: str, model: Any, size: int) -> None:
        import mujoco

        low, high = SIZES
        if not isinstance(size, int) or not low <= size <= high:
            raise UserError(f"a picture cannot be {size!r} pixels wide; allowed: {low} to {high}")
        if _failures:
            raise UserError(f"pictures of the {what} need {_failures[0]}")
        self.size = size
        self.model = model
        self._mujoco: Any = mujoco
        self._data = mujoco.MjData(model)
        frame = model.vis.global_
        frame.offwidth, frame.offheight = max(frame.offwidth, size), max(frame.offheight, size)
        try:
            self._renderer = mujoco.Renderer(model, size, size)
        except Exception as error:  # the kind depends on the GL that is missing
            _failures.append(
                f"OpenGL, which does not start here ({error}); without a screen, set MUJOCO_GL=egl before Python starts "
                "and install Mesa (for example apt install libegl1 libgl1-mesa-dri)"
            )
            raise UserError(f"pictures of the {what} need {_failures[0]}") from None

    def take(self, qpos: np.ndarray, view: Any) -> np.ndarray:
        """One state: uint8 [size, size, 3], from a camera of the model by name or from one made by `following`."""
        self._data.qpos[:] = qpos
        self._mujoco.mj_forward(self.model, self._data)
        self._renderer.update_scene(self._data, camera=view)
        return np.array(self._renderer.render())


def following(model: Any, body: str, distance: float, azimuth: float, elevation: float) -> Any:
    """A camera that keeps a body in the middle; angles in degrees."""
    import mujoco

    camera = mujoco.MjvCamera()
    camera.type = mujoco.mjtCamera.mjCAMERA_TRACKING
    camera.trackbodyid = model.body(body).id
    camera.distance, camera.azimuth, camera.elevation = distance, azimuth, elevation
    return camera


def check_world(world: int, num_envs: int) -> None:
    """Refuse the number of a world that is not there."""
    if isinstance(world, bool) or not isinstance(world, int) or not 0 <= world < num_envs:
        raise UserError(f"there is no world {world!r}; allowed: 0 to {num_envs - 1}")

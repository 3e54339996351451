"""Images of a MuJoCo model with its own renderer, also without a display."""

from __future__ import annotations

from typing import Any

import numpy as np

from susd.errors import UserError

SIZES = (16, 1280)
_failures: list[str] = []  # of OpenGL; it is not tried again, because a second try can crash the program


class Camera:
    """A model, data of its own and a renderer of one size. The model's largest image size is raised to that size."""

    def __init__(self, what: str, model: Any, size: int) -> None:
        import mujoco

        low, high = SIZES
        if not isinstance(size, int) or not low <= size <= high:
            raise UserError(f"an image cannot be {size!r} pixels wide; allowed: {low} to {high}")
        if _failures:
            raise UserError(f"images of the {what} need {_failures[0]}")
        self.size = size
        self.model = model
        self._mujoco: Any = mujoco
        self._data = mujoco.MjData(model)
        frame = model.vis.global_
        frame.offwidth, frame.offheight = max(frame.offwidth, size), max(frame.offheight, size)
        try:
            self._renderer = mujoco.Renderer(model, size, size)
        except Exception as error:  # its type depends on the missing GL
            _failures.append(
                f"OpenGL, which cannot be started ({error}); without a display, set MUJOCO_GL=egl before Python starts "
                "and install Mesa (for example apt install libegl1 libgl1-mesa-dri)"
            )
            raise UserError(f"images of the {what} need {_failures[0]}") from None

    def render(self, qpos: np.ndarray, view: Any) -> np.ndarray:
        """One state as uint8 [size, size, 3], from a named camera of the model or one made by `tracking_camera`."""
        self._data.qpos[:] = qpos
        self._mujoco.mj_forward(self.model, self._data)
        self._renderer.update_scene(self._data, camera=view)
        return np.array(self._renderer.render())


def tracking_camera(model: Any, body: str, distance: float, azimuth: float, elevation: float) -> Any:
    """A camera that tracks a body; angles in degrees."""
    import mujoco

    camera = mujoco.MjvCamera()
    camera.type = mujoco.mjtCamera.mjCAMERA_TRACKING
    camera.trackbodyid = model.body(body).id
    camera.distance, camera.azimuth, camera.elevation = distance, azimuth, elevation
    return camera


def check_index(index: int, num_envs: int) -> None:
    """Refuse the index of an environment that does not exist."""
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < num_envs:
        raise UserError(f"environment {index!r} does not exist; allowed: 0 to {num_envs - 1}")

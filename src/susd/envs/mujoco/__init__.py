"""Shared by the MuJoCo environments: batched physics, and a camera.

MuJoCo selects its renderer when it is first imported, and the import fails where the library for it is missing. So it is
selected here, before that import: EGL without a display, and no rendering where EGL is missing.
"""

import ctypes
import os
import sys

from susd.errors import UserError

LIBRARIES = {"egl": ("libEGL.so.1", "libEGL.so"), "osmesa": ("libOSMesa.so.8", "libOSMesa.so.6", "libOSMesa.so")}
OTHERS = ("glfw", "glx", "on", "true", "1", "enable", "enabled", "off", "false", "0", "disable", "disabled")


def choose_gl() -> None:
    """Set MUJOCO_GL to a renderer that works here; refuse an unknown value."""
    if sys.platform != "linux":
        return
    asked = os.environ.get("MUJOCO_GL", "").lower().strip()
    if asked and asked not in (*LIBRARIES, *OTHERS):
        raise UserError(f"the environment variable MUJOCO_GL is {asked!r}; allowed: {', '.join(LIBRARIES)}, glfw, disabled")
    screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    wanted = asked or ("" if screen else "egl")
    if wanted in LIBRARIES:
        os.environ["MUJOCO_GL"] = wanted if any(map(_loads, LIBRARIES[wanted])) else "disabled"


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


choose_gl()

"""What the environments simulated by MuJoCo share: many worlds of one model, and a camera.

MuJoCo decides how it draws when it is first imported, and where the library for that is missing it cannot be imported at
all. So the choice is made here, before: without a screen EGL, and no drawing where there is none.
"""

import ctypes
import os
import sys

from susd.errors import UserError

LIBRARIES = {"egl": ("libEGL.so.1", "libEGL.so"), "osmesa": ("libOSMesa.so.8", "libOSMesa.so.6", "libOSMesa.so")}
OTHERS = ("glfw", "glx", "on", "true", "1", "enable", "enabled", "off", "false", "0", "disable", "disabled")


def choose_gl() -> None:
    """Set MUJOCO_GL to what works here, or refuse what was asked for if it means nothing."""
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

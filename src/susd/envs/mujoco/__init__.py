"""What the environments simulated by MuJoCo share: many worlds of one model, and a camera."""

import os
import sys

# MuJoCo decides how it draws when it is first imported, so the choice for machines without a screen is made here.
if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
    os.environ.setdefault("MUJOCO_GL", "egl")

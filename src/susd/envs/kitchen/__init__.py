"""The robot Kitchen on plain MuJoCo."""

import os
import sys

# MuJoCo decides how it draws when it is first imported, so the choice for machines without a screen is made here.
if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
    os.environ.setdefault("MUJOCO_GL", "egl")

from susd.envs.kitchen.environment import DISCOVERY, TASK, Facts, Kitchen

__all__ = ["DISCOVERY", "TASK", "Facts", "Kitchen"]

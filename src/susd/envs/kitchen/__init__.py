"""The robot Kitchen, on MuJoCo alone."""

from susd.envs.kitchen.environment import DISCOVERY, Facts, Kitchen

__all__ = ["DISCOVERY", "Facts", "Kitchen"]

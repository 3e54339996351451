"""The robot Kitchen on plain MuJoCo."""

from susd.envs.kitchen.environment import DISCOVERY, TASK, Facts, Kitchen

__all__ = ["DISCOVERY", "TASK", "Facts", "Kitchen"]

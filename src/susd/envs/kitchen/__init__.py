"""The robot Kitchen on plain MuJoCo."""

from susd.envs.kitchen.environment import DISCOVERY, Facts, Kitchen

__all__ = ["DISCOVERY", "Facts", "Kitchen"]

"""susd: factored unsupervised skill discovery. `train`, `load`, `configure` and `make` are all most people need."""

from importlib import import_module
from typing import Any

from susd.envs.gymnasium.registration import register_when_imported

__version__ = "0.1.0"
_HOMES = {
    "train": "susd.training.train",
    "load": "susd.training.agent",
    "downstream": "susd.downstream.config",
    "Agent": "susd.training.agent",
    "configure": "susd.config",
    "Config": "susd.config",
    "make": "susd.envs",
    "Factorization": "susd.factors",
    "SkillSpace": "susd.skills",
    "UserError": "susd.errors",
}
__all__ = list(_HOMES)


register_when_imported()  # the worlds under their Gymnasium names


def __getattr__(name: str) -> Any:
    """Import on first use: JAX takes a second to load, and `susd --help` should not."""
    if name not in _HOMES:
        raise AttributeError(f"module 'susd' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)

"""susd: factored unsupervised skill discovery.

`train` discovers skills, `load` returns the agent that acts with them, `evaluate` measures them, `downstream` learns a task
over them, and `report` puts the results on one page. `explore` opens a page to steer the skills, `atlas` writes it as one
file. `push` and `pull` share skills, `export` writes a policy that needs no JAX, `record` a dataset. `config` resolves the
options of a run; `make` and `check` are for environments.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from susd.envs.gymnasium.registration import register_when_imported

if TYPE_CHECKING:
    from susd.config import Config as Config
    from susd.config import configure as config
    from susd.downstream.train import downstream as downstream
    from susd.envs import make as make
    from susd.errors import UserError as UserError
    from susd.evaluation.evaluate import evaluate as evaluate
    from susd.explorer.atlas import atlas as atlas
    from susd.explorer.explore import explore as explore
    from susd.factors import Factorization as Factorization
    from susd.report.build import report as report
    from susd.share.dataset import record as record
    from susd.share.export import export as export
    from susd.share.pull import pull as pull
    from susd.share.push import push as push
    from susd.skills import SkillSpace as SkillSpace
    from susd.tools.check import check as check
    from susd.training.agent import Agent as Agent
    from susd.training.agent import load as load
    from susd.training.train import train as train

__version__ = "0.1.0"
_PUBLIC = {
    "train": "susd.training.train",
    "load": "susd.training.agent",
    "evaluate": "susd.evaluation.evaluate",
    "downstream": "susd.downstream",
    "report": "susd.report",
    "explore": "susd.explorer.explore",
    "atlas": "susd.explorer.atlas",
    "push": "susd.share.push",
    "pull": "susd.share.pull",
    "export": "susd.share.export",
    "record": "susd.share.dataset",
    "config": "susd.config",
    "make": "susd.envs",
    "check": "susd.tools.check",
    "Agent": "susd.training.agent",
    "Config": "susd.config",
    "Factorization": "susd.factors",
    "SkillSpace": "susd.skills",
    "UserError": "susd.errors",
}
__all__ = [
    "Agent",
    "Config",
    "Factorization",
    "SkillSpace",
    "UserError",
    "atlas",
    "check",
    "config",
    "downstream",
    "evaluate",
    "explore",
    "export",
    "load",
    "make",
    "pull",
    "push",
    "record",
    "report",
    "train",
]


register_when_imported()  # our environments under their Gymnasium names


if not TYPE_CHECKING:  # a type checker would believe that every name exists

    def __getattr__(name: str) -> Any:
        """Import on first use: JAX takes a second to load, and `susd --help` should not."""
        if name not in _PUBLIC:
            raise AttributeError(f"module 'susd' has no attribute {name!r}")
        module = import_module(_PUBLIC[name])
        return module if module.__name__ == f"susd.{name}" else getattr(module, name)  # `config` is a callable module

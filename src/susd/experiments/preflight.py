"""What a suite will need, made once before its first job: environments, learners, and what its evaluations ask of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from susd.config import Config
from susd.errors import UserError
from susd.evaluation.registry import evaluation
from susd.experiments.declared import Job
from susd.methods.registry import method

if TYPE_CHECKING:
    from susd.envs.base import EnvSpec


def check_runs(jobs: Iterable[Job], runs: Path) -> None:
    """Refuse a job whose run, evaluation or environment cannot work; the sentence names the job."""
    known: dict[str, EnvSpec] = {}  # by config without the seed
    for job in jobs:
        if job.trained is None:
            continue
        config = dataclasses.replace(job.trained, seed=0)
        try:
            if (key := repr(config)) not in known:
                known[key] = _checked_spec(config, runs)
            if job.evaluation:
                found, card = evaluation(job.evaluation), method(config.method)
                if reason := found.undefined(known[key], card):
                    raise UserError(reason)
                found.check_run(known[key], card, found.check_options(job.config))
        except UserError as error:
            raise UserError(f"{job.name}: {error}") from None


def _checked_spec(config: Config, runs: Path) -> EnvSpec:
    """The spec of a run's environment, after everything that `susd train` checks before it compiles."""
    from susd.envs.base import close
    from susd.envs.registry import BUILT_IN
    from susd.training.resources import check_resources
    from susd.training.trainer import Trainer

    trainer = Trainer.build(config)
    try:
        check_resources(trainer, runs)
        if config.env not in BUILT_IN:
            trainer.check_env()
        return trainer.env.spec
    finally:
        close(trainer.env)

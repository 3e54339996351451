"""Record run folders as facts, so that any run can be reported, also one that no suite made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from susd.errors import UserError
from susd.experiments import metrics_store
from susd.experiments.extract import Record, default_label, records_of
from susd.experiments.job import copy_figure
from susd.experiments.metrics_store import CONFIGS, FACTS
from susd.runs.folder import read_json

FIGURES = ("trajectories", "learning_curves")


def record(runs: Sequence[Path], out: Path) -> None:
    """Append the facts of run folders to OUT/facts.jsonl, their configs to OUT/configs.json, and copy their figures."""
    for run, label in zip(runs, labels(runs), strict=True):
        records = records_of(run, label)
        if not records:
            raise UserError(f"{run} has nothing to record: no finished epoch, no evaluation and no task")
        for found in records:
            metrics_store.append(out / FACTS, found.facts)
        metrics_store.append_configs(out / CONFIGS, {one.hash: {"config": one.config, "meta": one.meta} for one in records})
        for name in FIGURES:
            _copy(run / "figures" / f"{name}.png", out / name, records[0])


def _copy(figure: Path, folder: Path, record: Record) -> None:
    if figure.is_file():
        copy_figure(figure, folder / f"{record.columns['environment']}-{record.columns['label']}.png")


def labels(runs: Sequence[Path]) -> list[str]:
    """The method of each run; where runs of one method differ in more than the seed, the folder's name is added."""
    configs = [read_json(run / "config.json") for run in runs]
    names = [default_label(config) if "method" in config else "" for config in configs]
    options = {(name, _without_seed(config)) for name, config in zip(names, configs, strict=True)}
    counts = Counter((name, env) for name, (env, _) in options)
    return [
        f"{name}-{run.name}" if name and counts[name, config["env"]] > 1 else name
        for run, name, config in zip(runs, names, configs, strict=True)
    ]


def _without_seed(config: dict[str, Any]) -> tuple[str, str]:
    """The environment and everything else that must be equal for runs to have one label."""
    return str(config.get("env", "")), repr(sorted((key, repr(value)) for key, value in config.items() if key != "seed"))

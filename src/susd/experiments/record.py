"""Record run folders as facts, so that any run can be reported, also one that no suite made."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from susd.errors import UserError
from susd.experiments import metrics_store
from susd.experiments.extract import Record, default_label, facts_of, records_of
from susd.experiments.job import copy_figure
from susd.experiments.metrics_store import CONFIGS, FACTS, Fact
from susd.plugins import Trust
from susd.runs.folder import read_config
from susd.runs.untrusted import read_object

FIGURES = ("trajectories", "learning_curves")


def record(runs: Sequence[Path], out: Path, trust: Trust = False) -> None:
    """Append the facts of run folders to OUT/facts.jsonl, their configs to OUT/configs.json, and copy their figures."""
    everything = [_read(run, label, trust) for run, label in zip(runs, labels(runs), strict=True)]
    for run, facts in zip(runs, everything, strict=True):
        records = [one for one, _ in facts]
        for _, block in facts:
            metrics_store.append(out / FACTS, block)
        metrics_store.append_configs(out / CONFIGS, {one.hash: {"config": one.config, "meta": one.meta} for one in records})
        for name in FIGURES:
            _copy(run / "figures" / f"{name}.png", out / name, records[0])


def _read(run: Path, label: str, trust: Trust) -> list[tuple[Record, list[Fact]]]:
    """The records of a run with their facts; nothing is written before those of all runs are known."""
    records = records_of(run, label, trust)
    if not records:
        raise UserError(f"{run} has nothing to record: no finished epoch, no evaluation and no task")
    return [(one, facts_of(one, run)) for one in records]


def _copy(figure: Path, folder: Path, record: Record) -> None:
    if figure.is_file():
        name = f"{record.columns['environment']}-{record.columns['label']}"
        copy_figure(figure, folder / f"{re.sub(r'[^A-Za-z0-9_.+-]+', '_', name)[:200]}.png")  # a name, never a path


def labels(runs: Sequence[Path]) -> list[str]:
    """The method of each run; where runs of one method differ in more than the seed, the folder's name is added."""
    configs = [read_config(run) if (run / "meta.json").is_file() else read_object(run / "config.json") for run in runs]
    names = [default_label(config) if "method" in config else "" for config in configs]
    options = {(name, _without_seed(config)) for name, config in zip(names, configs, strict=True)}
    counts = Counter((name, env) for name, (env, _) in options)
    return [
        f"{name}-{run.name}" if name and counts[name, str(config.get("env", ""))] > 1 else name
        for run, name, config in zip(runs, names, configs, strict=True)
    ]


def _without_seed(config: dict[str, Any]) -> tuple[str, str]:
    """The environment and everything else that must be equal for runs to have one label."""
    return str(config.get("env", "")), repr(sorted((key, repr(value)) for key, value in config.items() if key != "seed"))

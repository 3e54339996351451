"""One job of a suite, in a process of its own: `python -m susd.experiments.job SUITE JOB --runs DIR --results DIR`.

Does the job, adds its facts to the results, and ends. What is finished already is not done again, whoever did it.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from susd.config import Config
from susd.errors import UserError
from susd.evaluation import ZERO_SHOT
from susd.experiments import extract as facts
from susd.experiments import metrics_store as store
from susd.experiments.suite import Job, load
from susd.runs.folder import RunFolder, describe_machine

FACTS = "facts.jsonl"
Numbers = list[tuple[str, int, str, float]]
Meta = dict[str, Any]


def do(job: Job, runs: Path, results: Path) -> None:
    """Do a job unless it is finished."""
    with _alone(runs / ".jobs" / f"{job.name.replace('/', '~')}.lock"):
        known = (job.name, job.hash) in store.finished(store.load(results / FACTS))
        if known and (job.phase != "train" or is_trained(job, runs)):
            return
        began = time.perf_counter()
        place = runs / job.run
        numbers, meta = {"train": _train, "downstream": _task}.get(job.phase, _evaluate)(job, place)
        if job.pictured:
            _keep_picture(place, results / "trajectories" / f"{job.environment}-{job.label}.png")
        common: dict[str, Any] = {
            "job": job.name,
            "run": job.run,
            "label": job.label,
            "method": job.method,
            "environment": job.environment,
            "seed": job.seed,
            "phase": job.phase,
            "versions": " ".join(f"{name}={number}" for name, number in meta["versions"].items()),
            "commit": meta["commit"] or "",
            "config_hash": job.hash,
        }
        numbers.append(("", 0, store.LAST, time.perf_counter() - began))
        rows = [store.Fact(**common, subject=s, step=n, metric=m, value=round(float(v), 6)) for s, n, m, v in numbers]
        store.append(results / FACTS, rows)


def is_trained(job: Job, runs: Path) -> bool:
    """Whether the run that a job needs or makes is there; results may have come without it, from another machine."""
    assert job.trained is not None
    return (runs / job.run / "checkpoints" / f"step-{job.trained.epochs:08d}.ckpt").exists()  # as checkpoint.save names it


def _train(job: Job, place: Path) -> tuple[Numbers, Meta]:
    from susd.training.train import train

    assert job.trained is not None
    begun = (place / "config.json").exists()
    if begun:
        known = Config.from_json(RunFolder.open(place).config)
        if known != job.trained:
            mine, other = job.trained.to_json(), known.to_json()
            name = next(name for name in mine if mine[name] != other[name])
            raise UserError(
                f"{place} holds another run: its {name} is {other[name]!r}, not {mine[name]!r}; remove it first"
            )
    train(None if begun else job.trained, run=place, resume=begun, quiet=True)
    folder = RunFolder.open(place)
    return list(facts.of_training(folder)), folder.meta


def _keep_picture(place: Path, target: Path) -> None:
    """Draw the run, and keep the picture of its trajectories beside the results."""
    from PIL import Image

    from susd.evaluation.evaluate import pictures

    drawn = [path for path in pictures(place) if path.name == "trajectories.png"]
    for path in drawn:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_suffix(f".{os.getpid()}.tmp")
        small = Image.open(path).convert("RGB").quantize(256)  # a third of the size
        small.save(temporary, format="PNG", optimize=True)
        os.replace(temporary, target)


def _evaluate(job: Job, place: Path) -> tuple[Numbers, Meta]:
    from susd.evaluation.evaluate import evaluate
    from susd.evaluation.zero_shot import zero_shot

    report = zero_shot(place, **job.config) if job.phase == ZERO_SHOT else evaluate(place, job.phase, **job.config)
    return list(facts.of_evaluation(report)), describe_machine(job.config, "")


def _task(job: Job, place: Path) -> tuple[Numbers, Meta]:
    from susd.downstream.config import DownstreamConfig, run_downstream

    config = DownstreamConfig(**(job.config | ({} if job.trained is None else {"run": str(place)})))
    result = run_downstream(config, place / "downstream" / job.name.rpartition("/")[2], force=True, film=False)
    return list(facts.of_task(result)), result["meta"]


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Wait until no other process does this job; the system lifts the lock of one that dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _end_with_parent() -> None:
    """Stop when the other end of standard input is closed, which the system does when the parent dies, however it dies."""

    def watch() -> None:
        os.read(0, 1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("suite")
    parser.add_argument("job")
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--results", type=Path, required=True)
    options = parser.parse_args()
    _end_with_parent()
    jobs = {job.name: job for job in load(options.suite).jobs}
    try:
        do(jobs[options.job], options.runs, options.results)
    except UserError as error:
        sys.exit(f"susd: error: {error}")


if __name__ == "__main__":
    main()

"""One job of a suite, in a process of its own: `python -m susd.experiments.job SUITE JOB --runs DIR --results DIR`.

It does the job, appends its facts to the results, and ends. A finished job is not repeated, whichever process did it.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import fcntl
import math
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from susd.config import Config, configure
from susd.errors import UserError, headline
from susd.experiments import extract, metrics_store
from susd.experiments.declared import Job
from susd.experiments.extract import Value
from susd.experiments.metrics_store import CONFIGS, FACTS, SECONDS
from susd.experiments.suite import load
from susd.plugins import Trust
from susd.runs.atomic import replace_file
from susd.runs.folder import RunFolder, describe_machine, differences
from susd.runs.header import checkpoints, epoch_of, weights_only

if TYPE_CHECKING:
    from susd.downstream.config import DownstreamConfig

MAX_PIXELS = 50_000_000  # of a figure
Outcome = tuple[list[Value], dict[str, Any]]  # the values of a job and its meta data


def run_job(job: Job, runs: Path, results: Path) -> None:
    """Do a job unless it is finished."""
    with _exclusive(runs / ".jobs" / f"{job.name.replace('/', '~')}.lock"):
        recorded = (job.name, job.hash) in metrics_store.finished(metrics_store.load(results / FACTS))
        if recorded and (job.phase != "train" or is_trained(job, runs)):
            return
        began = time.perf_counter()
        folder = runs / job.run
        values, meta = {"train": _train, "downstream": _learn_task}.get(job.phase, _evaluate)(job, folder)
        if job.draws:
            keep_figure(folder, results / "trajectories" / f"{job.environment}-{job.label}.png", _named(job))
        columns = {name: getattr(job, name) for name in ("run", "label", "method", "environment", "seed", "phase")}
        columns |= {"job": job.name, "config_hash": job.hash}
        values.append(("", 0, SECONDS, time.perf_counter() - began))
        metrics_store.append_configs(results / CONFIGS, {job.hash: {"config": job.identity, "meta": meta}})
        metrics_store.append(results / FACTS, list(extract.to_facts(columns, meta, values)))


def is_trained(job: Job, runs: Path) -> bool:
    """Whether the run that a job needs or produces exists; results may have come without it, from another machine."""
    assert job.trained is not None
    return (runs / job.run / "checkpoints" / f"step-{job.trained.epochs:08d}.ckpt").exists()  # as checkpoint.save names it


def _train(job: Job, path: Path) -> Outcome:
    from susd.training.train import train

    assert job.trained is not None
    started = (path / "config.json").exists()
    if started:
        _check_run(job, path)
    if not (started and _has_weights(job, path)):
        train(None if started else job.trained, run=path, resume=started, quiet=True, trust=_named(job))
    folder = RunFolder.open(path)
    return list(extract.training_values(folder, job.seed)), folder.meta


def _has_weights(job: Job, path: Path) -> bool:
    """Whether the run was trained on another machine, from which its weights came without the replay buffer."""
    assert job.trained is not None
    newest = checkpoints(path / "checkpoints")[:1]
    return any(epoch_of(one) == job.trained.epochs and weights_only(one) for one in newest)


def _check_run(job: Job, path: Path) -> None:
    """Refuse a folder with another run than the one of the job; nothing that it names is imported."""
    assert job.trained is not None
    for name, (found, wanted) in differences(RunFolder.open(path).config, job.trained.to_json()).items():
        raise UserError(f"{path} holds another run: its {name} is {found!r}, not {wanted!r}; delete it first")


def _named(job: Job) -> tuple[str, ...]:
    """The code that whoever runs a suite has named in it."""
    return () if job.trained is None else (job.trained.env, job.trained.method)


def keep_figure(run: Path, target: Path, trust: Trust = False) -> None:
    """Draw the run, and keep the figure of its trajectories with the results."""
    from susd.evaluation.evaluate import draw_figures

    for path in draw_figures(run, trust=trust):
        if path.name == "trajectories.png":
            copy_figure(path, target)


def copy_figure(path: Path, target: Path) -> None:
    """A PNG file with 256 colours, which needs a third of the space."""
    from PIL import Image

    try:
        with Image.open(path, formats=["PNG"]) as image:
            if math.prod(image.size) > MAX_PIXELS:
                raise ValueError(f"it has {image.size[0]} x {image.size[1]} pixels")
            smaller = image.convert("RGB").quantize(256)
    except Exception as error:  # PIL raises many types for bytes that are no image
        raise UserError(f"{path} is not a figure: {headline(error)}") from error
    with replace_file(target) as temporary:
        smaller.save(temporary, format="PNG", optimize=True)


def _evaluate(job: Job, path: Path) -> Outcome:
    from susd.evaluation.evaluate import evaluate

    _check_run(job, path)
    report = evaluate(path, job.evaluation, trust=_named(job), **job.config)
    return list(extract.evaluation_values(report)), describe_machine(job.config, "")


def _learn_task(job: Job, path: Path) -> Outcome:
    from susd.downstream.config import DownstreamConfig
    from susd.downstream.train import run_downstream

    if job.trained is not None:
        _check_run(job, path)
    config = DownstreamConfig(**(job.config | ({} if job.trained is None else {"run": str(path)})))
    out = path / "downstream" / job.name.rpartition("/")[2]
    started = (out / "config.json").exists() and not (out / "result.json").exists()
    result = run_downstream(config, out, force=True, video=False, trust=_named(job), resume=started)
    return list(extract.task_values(result)), result["meta"]


def check_tasks(jobs: Iterable[Job]) -> None:
    """Make one step of every task that is not built in, in its environment, before any job runs."""
    from susd.downstream.config import DownstreamConfig
    from susd.tasks.registry import BUILT_IN

    checked = set()
    for job in (job for job in jobs if job.phase == "downstream"):
        config = DownstreamConfig(**job.config)
        base = job.trained or _without_run(config)
        what = (config.task, config.horizon, config.skill_steps, repr(base.env_options), base.env, config.layout)
        if config.entry not in BUILT_IN and what not in checked:
            checked.add(what)
            try:
                _check_task(config, base)
            except UserError as error:
                raise UserError(f"{job.name}: {error}") from None


def _without_run(config: DownstreamConfig) -> Config:
    """The config of the environment of a task without a run."""
    return configure(config.entry.env, config.preset, env_options=config.env_options, horizon=config.env_horizon)


def _check_task(config: DownstreamConfig, base: Config) -> None:
    from susd.envs.base import close
    from susd.tasks.own import check_task
    from susd.tasks.registry import make_task
    from susd.training.trainer import build_env

    options = base.env_options | config.entry.layout_options(config.layout)
    env = build_env(dataclasses.replace(base, env_options=options, episodes=1))
    try:
        task = make_task(config.task, env)
        check_task(task)
        if (steps := config.horizon or task.horizon) % config.skill_steps:
            raise UserError(f"the horizon is {steps}; it must be a multiple of skill_steps, which is {config.skill_steps}")
    finally:
        close(env)


@contextlib.contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    """Wait until no other process does this job; the system releases the lock of a process that dies."""
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
    try:
        jobs = {job.name: job for job in load(options.suite).jobs}
        if options.job not in jobs:
            raise UserError(f"suite {options.suite} has no job {options.job!r}")
        run_job(jobs[options.job], options.runs, options.results)
    except UserError as error:
        sys.exit(f"susd: error: {error}")


if __name__ == "__main__":
    main()

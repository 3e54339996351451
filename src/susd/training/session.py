"""The training loop of one process: collect, learn, measure, log, save."""

from __future__ import annotations

import math
import shlex
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from susd.errors import UserError
from susd.evaluation.online import OnlineEvaluation, build_online
from susd.runs import checkpoint
from susd.runs.atomic import write_json
from susd.runs.folder import RunFolder
from susd.runs.loggers import Logger
from susd.runs.progress import Progress, Waiting
from susd.training.resources import describe_devices
from susd.training.trainer import Trainer, TrainState, learning_hash, restore

Values = dict[str, np.ndarray]  # name -> [seeds]


class NonFiniteError(RuntimeError):
    """A value became infinite or not a number; the run stopped and its last good checkpoint is kept."""


class Interrupted(Exception):
    """The run was stopped by a signal; it is saved and can be resumed."""


@dataclass
class Session:
    """The training of a run in this process: its state after `done` epochs, and the time it took."""

    trainer: Trainer
    folder: RunFolder
    quiet: bool
    stop: list[str]  # the signals received
    state: TrainState
    done: int
    train_seconds: float
    compile_seconds: float = 0.0
    coverage: float = math.nan  # the last measurement

    @classmethod
    def start(cls, trainer: Trainer, folder: RunFolder, resume: bool, quiet: bool, stop: list[str]) -> Session:
        """A new run, or the last good checkpoint of one that is resumed."""
        if not quiet:
            print_now(f"{_describe(trainer)}\n{describe_devices(trainer)}\nrun folder {folder.path}; compiling ..")
        began = time.perf_counter()
        with Waiting("compiling the initial state" if not resume else "loading the last checkpoint", quiet):
            session = cls(trainer, folder, quiet, stop, *_first_state(trainer, folder, resume))
        config, done = trainer.config, session.done
        if not done:
            session.compile_seconds = time.perf_counter() - began
        if done > config.epochs:
            raise UserError(f"--epochs is {config.epochs}, but {folder.path} is already at epoch {done}")
        if trainer.devices.main:
            if config.to_json() != folder.config:
                write_json(folder.path / "config.json", config.to_json())
            folder.truncate_metrics(done)
        if done == config.epochs:
            print_now(f"{folder.path} is finished: {done} of {config.epochs} epochs")
        return session

    def run(self, loggers: list[Logger]) -> None:
        """All epochs that are left."""
        config, online = self.trainer.config, build_online(self.trainer)
        self.compile_seconds += _compile(self.trainer, self.state, self.done, online, self.quiet)
        if not self.quiet:
            print_now(f"compiled in {self.compile_seconds:.1f} s")
        self.stop_if_signalled()
        if self.done == 0:
            self.save()
        rates = _Rates(self.trainer)
        with Progress(config.epochs, self.done, self.quiet) as progress:
            while self.done < config.epochs:
                values, seconds = self.epoch()
                in_env = float(values["env_seconds"][0]) if "env_seconds" in values else None
                learned = self.done > self.trainer.warmup_epochs
                if online and (self.done % config.eval_every == 0 or self.done == config.epochs):
                    measured = self.trainer.devices.whole(online(self.state, self.done))
                    values |= {name: np.asarray(value) for name, value in measured.items()}
                    self.coverage = float(values["coverage_average"].mean())
                self.log(values, seconds, loggers)
                progress.update(self.done, rates.fields(seconds, in_env, learned, self.coverage))
                self.stop_if_signalled()
                if self.done % config.checkpoint_every == 0 or self.done == config.epochs:
                    self.save()

    def epoch(self) -> tuple[Values, float]:
        """One epoch: what it logs, and its seconds."""
        started = time.perf_counter()
        self.state, info = self.trainer.run_epoch(self.state, self.done)
        values = {name: np.asarray(value) for name, value in self.trainer.devices.whole(info).items()}
        seconds = time.perf_counter() - started
        if self.done < self.trainer.warmup_epochs:  # nothing was learned
            values = {name: value for name, value in values.items() if name == "env_seconds"}
        self.done += 1
        self.train_seconds += seconds
        bad = next((name for name, value in values.items() if not np.isfinite(value).all()), None)
        if bad:
            raise NonFiniteError(self.non_finite(bad))
        return values, seconds

    def log(self, values: Values, seconds: float, loggers: list[Logger]) -> None:
        """One row of metrics per seed; the loggers receive the mean over seeds."""
        config, trainer = self.trainer.config, self.trainer
        if not trainer.devices.main:
            return
        rows = [
            {
                "epoch": self.done,
                "seed": config.seed + index,
                "env_steps": self.done * trainer.chunk,
                "gradient_steps": max(0, self.done - trainer.warmup_epochs) * config.gradient_steps,
                "seconds": seconds,
                **{
                    name: float(x[index]) for name, x in values.items() if not np.isnan(x[index])
                },  # undefined ones are absent
            }
            for index in range(config.seeds)
        ]
        self.folder.append_metrics(rows)
        for logger in loggers:
            shared = [name for name in rows[0] if name != "seed" and all(name in row for row in rows)]
            logger.write({name: float(np.mean([row[name] for row in rows])) for name in shared})

    def save(self) -> None:
        """A checkpoint, unless something is not finite."""
        state = self.trainer.devices.whole(self.state)
        if bad := _first_non_finite(state.learner):
            raise NonFiniteError(self.non_finite(bad))
        if not self.trainer.devices.main:
            return
        self.folder.sync_metrics()
        filled = int(np.max(np.asarray(state.replay.size)))
        checkpoint.save(
            self.folder.checkpoints,
            self.done,
            state,
            {
                "epoch": self.done,
                "train_seconds": self.train_seconds,
                "compile_seconds": self.compile_seconds,
                "config": self.trainer.config.to_json(),
            },
            self.trainer.config.keep_checkpoints,
            config=learning_hash(self.trainer.config),
            rows={".replay.data": (1, filled)},
        )

    def stop_if_signalled(self) -> None:
        """Save and raise, if a signal was received in this process or in another one."""
        received = self.trainer.devices.exchange("".join(self.stop[:1]))
        if name := next(filter(None, received), ""):
            self.save()
            command = f"susd train --run {shlex.quote(str(self.folder.path))} --resume"
            devices = self.trainer.devices
            command += f" --devices {devices.count}" * (devices.count > 1 and not devices.pipeline)
            raise Interrupted(f"stopped by {name} after epoch {self.done}; saved. Resume with: {command}")

    def non_finite(self, name: str) -> str:
        """The message of a NonFiniteError."""
        if not jnp.isfinite(self.state.replay.data.next_obs).all():
            advice = "The environment returned observations that are not finite"
        else:
            advice = "A lower --learning-rate may help"
        kept = checkpoint.checkpoints(self.folder.checkpoints)
        good = f"the last good checkpoint is {kept[0]}" if kept else "there is no checkpoint yet"
        return f"{name} became non-finite in epoch {self.done}; training stopped, {good}. {advice}."


def _first_state(trainer: Trainer, folder: RunFolder, resume: bool) -> tuple[TrainState, int, float]:
    """State, epochs done and seconds trained: those of the last good checkpoint, or of a run that has none yet."""
    devices, state = trainer.devices, None

    def latest() -> list[float]:
        nonlocal state
        if not resume or not checkpoint.checkpoints(folder.checkpoints):
            return [0, 0.0]
        state, meta = restore(trainer, folder, lambda text: print_now(f"skipped: {text}"))
        return [meta["epoch"], meta["train_seconds"]]

    done, seconds = devices.from_main(latest)
    if not devices.from_main(lambda: state is not None):
        return jax.block_until_ready(trainer.start()), 0, 0.0
    return devices.place(state, trainer.shapes, trainer.layout), int(done), float(seconds)


class _Rates:
    """Steps per second over the last epochs, for the progress bar."""

    def __init__(self, trainer: Trainer) -> None:
        self._seeds, self._chunk, self._steps = trainer.config.seeds, trainer.chunk, trainer.config.gradient_steps
        self._seconds: list[tuple[float, float]] = []  # of an epoch, and of its host environment

    def fields(self, seconds: float, in_env: float | None, learned: bool, coverage: float) -> dict[str, float | str]:
        """What the progress bar shows; for a host environment also its share of the time."""
        self._seconds = [*self._seconds[-19:], (seconds, in_env or 0.0)]
        total, env = (sum(column) for column in zip(*self._seconds, strict=True))
        epochs_per_second = self._seeds * len(self._seconds) / total
        fields: dict[str, float | str] = {"steps/s": self._chunk * epochs_per_second}
        if in_env is not None:
            fields["in the environment"] = f"{100 * env / total:.0f}%"
        if learned:
            fields["grad/s"] = self._steps * epochs_per_second
        if not math.isnan(coverage):
            fields["coverage"] = f"{coverage:.0f}%"
        return fields


def _compile(trainer: Trainer, state: TrainState, done: int, online: OnlineEvaluation | None, quiet: bool) -> float:
    """Compile before the loop, so that the first epoch takes no longer than the others; the seconds it took."""
    started = time.perf_counter()
    with Waiting("compiling (kept for later runs)", quiet), ThreadPoolExecutor(1) as other:
        compiled = other.submit(trainer.compile)  # both at once: a compiler hardly uses more than one core
        if done < trainer.config.epochs:
            trainer.collect_first(state, done)
        if online:
            jax.block_until_ready(online(state, 0))
        compiled.result()
    return time.perf_counter() - started


def _first_non_finite(tree: Any) -> str | None:
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        array = np.asarray(leaf)
        if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
            return jax.tree_util.keystr(path).lstrip(".")
    return None


def _describe(trainer: Trainer) -> str:
    config, spec = trainer.config, trainer.env.spec
    factors = ", ".join(f"{n} {s}" for n, s in zip(spec.factorization.names, spec.factorization.sizes, strict=True))
    seeds = f"seeds {config.seed} to {config.seed + config.seeds - 1}" if config.seeds > 1 else f"seed {config.seed}"
    return (
        f"{config.method} on {spec.name}, preset {config.preset}, {seeds}\n"
        f"{spec.obs_size} observations ({factors}), {spec.action_size} actions\n"
        f"{config.epochs} epoch{'s' * (config.epochs > 1)} of {trainer.chunk} steps and "
        f"{config.gradient_steps} gradient steps"
    )


def print_now(text: str) -> None:
    """Print to standard error, where progress goes."""
    print(text, file=sys.stderr, flush=True)

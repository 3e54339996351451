"""The loop: collect, learn, measure, log, checkpoint, resume."""

from __future__ import annotations

import dataclasses
import math
import re
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from susd.config import Config, configure
from susd.envs.base import Environment, HostEnvironment, close
from susd.errors import UserError
from susd.evaluation.online import build_probe
from susd.runs import checkpoint
from susd.runs.folder import RunFolder, Sink, check_place, check_sinks, config_hash, open_sinks, write_json
from susd.runs.progress import Progress
from susd.training.resources import check_resources, use_compilation_cache
from susd.training.trainer import Trainer, TrainState


class NonFiniteError(RuntimeError):
    """Something became infinite or not a number; the run stopped and its last good checkpoint is kept."""


class Interrupted(Exception):
    """The run was asked to stop; it saved itself and can be resumed."""


def train(
    env: str | Config | None = None,
    *,
    run: str | Path | None = None,
    resume: bool = False,
    quiet: bool = False,
    tensorboard: bool = False,
    wandb: bool = False,
    environment: Environment | HostEnvironment | None = None,
    **options: Any,
) -> Path:
    """Train and return the run folder. `env` is an environment's name with options of `Config`, or a whole Config.

    With `resume` the run in folder `run` goes on from its last good checkpoint, with the config it was started with (only
    `epochs` may be changed). `environment` replaces the named environment by an object of the caller's.
    """
    check_sinks(tensorboard, wandb)
    if resume:
        if run is None:
            raise UserError("to resume, name the run folder with --run")
        folder = RunFolder.open(Path(run))
        config, place = resumed_config(folder, env, options), folder.path
    elif env is None:
        raise UserError("name an environment, or resume a run")
    else:
        config = env if isinstance(env, Config) else configure(env, **options)
        place = Path(run) if run else free_folder(config)
        check_place(place)
    trainer = Trainer.build(config, environment)
    try:
        check_resources(trainer, place)
        trainer.check_env()
        use_compilation_cache()
        if not resume:
            folder = RunFolder.create(place, config.to_json(), shlex.join(sys.argv))
        with folder.lock(), _stop_signals() as stop:
            _loop(trainer, folder, resume, quiet, tensorboard, wandb, stop)
    finally:
        if environment is None:  # one of the caller's is left as it is
            close(trainer.env)
    return folder.path


def resumed_config(folder: RunFolder, env: str | Config | None, options: dict[str, Any]) -> Config:
    """The config a run was started with; a longer run is allowed, any other change is refused."""
    config = Config.from_json(folder.config)
    known = config.to_json()  # with the defaults of options that are younger than the run
    if isinstance(env, Config):
        given = env.to_json()
    else:
        given = {**options, **({"env": env} if env else {})}
        if "env_options" in given:  # those that are not given stay as they are
            given["env_options"] = {**known["env_options"], **given["env_options"]}
    for name, value in given.items():
        if name not in ("epochs", "keep_checkpoints", "checkpoint_every", "eval_every") and known.get(name) != value:
            raise UserError(
                f"{folder.path} was started with {name} = {known.get(name)!r}; it cannot be resumed with {value!r}"
            )
    return dataclasses.replace(config, **{k: v for k, v in given.items() if known.get(k) != v})


def _loop(
    trainer: Trainer, folder: RunFolder, resume: bool, quiet: bool, tensorboard: bool, wandb: bool, stop: list[str]
) -> None:
    config = trainer.config
    if not quiet:
        _say(f"{_describe(trainer)}\nrun folder {folder.path}; compiling ..")
    began = time.perf_counter()
    state, done, train_seconds = _begin(trainer, folder, resume)
    compile_seconds = 0.0 if done else time.perf_counter() - began
    if done > config.epochs:
        raise UserError(f"--epochs is {config.epochs}, but {folder.path} has {done} epochs behind it already")
    if config.to_json() != folder.config:
        write_json(folder.path / "config.json", config.to_json())
    folder.truncate_metrics(done)
    if done == config.epochs:
        _say(f"{folder.path} is finished: {done} of {config.epochs} epochs")
        return
    probe = build_probe(trainer)
    compile_seconds += _compile(trainer, state, probe)
    if not quiet:
        _say(f"ready after {time.perf_counter() - began:.1f} s, of which compiling {compile_seconds:.1f} s")

    rates, coverage = _Rates(trainer), math.nan

    def save(epoch: int) -> None:
        bad = _first_non_finite(state.learner)
        if bad:
            raise NonFiniteError(_non_finite(bad, epoch, folder, state))
        folder.sync_metrics()
        filled = int(np.max(np.asarray(state.replay.size)))
        checkpoint.save(
            folder.checkpoints,
            epoch,
            state,
            {"epoch": epoch, "train_seconds": train_seconds, "compile_seconds": compile_seconds},
            config.keep_checkpoints,
            config=identity(config),
            rows={".replay.data": (1, filled)},
        )

    def stop_if_asked(epoch: int) -> None:
        if stop:
            save(epoch)
            command = f"susd train --run {shlex.quote(str(folder.path))} --resume"
            raise Interrupted(f"stopped by {stop[0]} after epoch {epoch}; saved. Go on with: {command}")

    stop_if_asked(done)
    if done == 0:
        save(0)
    with Progress(config.epochs, done, quiet) as progress, _sinks(folder.path, tensorboard, wandb) as sinks:
        for epoch in range(done, config.epochs):
            started = time.perf_counter()
            state, info = trainer.run_epoch(state, epoch)
            values = {name: np.asarray(value) for name, value in info.items()}
            seconds = time.perf_counter() - started
            train_seconds += seconds
            finished = epoch + 1
            learned = epoch >= trainer.warmup_epochs
            in_env = float(values["env_seconds"][0]) if "env_seconds" in values else None
            if not learned:
                values = {name: value for name, value in values.items() if name == "env_seconds"}
            bad = next((name for name, value in values.items() if not np.isfinite(value).all()), None)
            if bad:
                raise NonFiniteError(_non_finite(bad, finished, folder, state))
            if probe and (finished % config.eval_every == 0 or finished == config.epochs):
                measured = {name: np.asarray(value) for name, value in probe(state, finished).items()}
                coverage = float(measured["coverage_average"].mean())
                values |= measured
            rows = [
                {
                    "epoch": finished,
                    "seed": config.seed + index,
                    "env_steps": finished * trainer.chunk,
                    "gradient_steps": max(0, finished - trainer.warmup_epochs) * config.gradient_steps,
                    "seconds": seconds,
                    **{name: float(value[index]) for name, value in values.items()},
                }
                for index in range(config.seeds)
            ]
            folder.append_metrics(rows)
            for sink in sinks:  # curves of the mean over seeds; the file has every seed
                sink.write({name: float(np.mean([row[name] for row in rows])) for name in rows[0] if name != "seed"})
            progress.update(finished, rates.fields(seconds, in_env, learned, coverage))
            stop_if_asked(finished)
            if finished % config.checkpoint_every == 0 or finished == config.epochs:
                save(finished)


def _begin(trainer: Trainer, folder: RunFolder, resume: bool) -> tuple[TrainState, int, float]:
    """State, epochs done and seconds trained: those of the last good checkpoint, or of a run that has none yet."""
    if not resume or not checkpoint.checkpoints(folder.checkpoints):
        return jax.block_until_ready(trainer.start()), 0, 0.0
    like = jax.eval_shape(trainer.start)
    state, meta, _ = checkpoint.restore_latest(
        folder.checkpoints, like, identity(trainer.config), lambda text: _say(f"skipped: {text}")
    )
    return state, int(meta["epoch"]), float(meta["train_seconds"])


@contextmanager
def _sinks(folder: Path, tensorboard: bool, wandb: bool) -> Iterator[list[Sink]]:
    """The sinks asked for, closed whatever ends the run, so that nothing pending is lost."""
    sinks = open_sinks(folder, tensorboard, wandb)
    try:
        yield sinks
    finally:
        for sink in sinks:
            sink.close()


class _Rates:
    """Steps per second over the last epochs, for the progress bar."""

    def __init__(self, trainer: Trainer) -> None:
        self._seeds, self._chunk, self._steps = trainer.config.seeds, trainer.chunk, trainer.config.gradient_steps
        self._seconds: list[tuple[float, float]] = []  # of an epoch, and of its host environment

    def fields(self, seconds: float, in_env: float | None, learned: bool, coverage: float) -> dict[str, float | str]:
        """What the progress bar shows; of a host environment also its share of the time."""
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


def identity(config: Config) -> str:
    """The hash of everything in a config that decides what is learned; how long and how often to save does not."""
    changes = config.changes().items()
    return config_hash(
        {k: v for k, v in changes if k not in ("epochs", "keep_checkpoints", "checkpoint_every", "eval_every")}
    )


def free_folder(config: Config) -> Path:
    """runs/ENV-METHOD-sSEED, with a number behind it when it exists."""
    env = re.sub(r"[^\w.+-]+", "_", Path(config.env.removeprefix("gymnasium:")).name.replace(".py:", "-"))
    base = Path("runs") / f"{env}-{config.method}-s{config.seed}"
    candidates = (base if n == 1 else base.with_name(f"{base.name}-{n}") for n in range(1, 10_000))
    return next(path for path in candidates if not path.exists())


def _compile(trainer: Trainer, state: TrainState, probe: Any) -> float:
    """Compile ahead of the loop, so that its time is known and the first epoch is like all others."""
    started = time.perf_counter()
    trainer.compile()
    if probe:
        jax.block_until_ready(probe(state, 0))
    return time.perf_counter() - started


@contextmanager
def _stop_signals() -> Iterator[list[str]]:
    """Ctrl-C and SIGTERM are noted in the list and acted on after the epoch, when the state is whole.

    A second Ctrl-C ends the program at once. One that follows within a second is no second one: `make` and `timeout` pass
    on the signal that the terminal has already sent.
    """
    caught: list[str] = []
    first = math.inf

    def note(number: int, _: Any) -> None:
        nonlocal first
        if number == signal.SIGINT and time.monotonic() > first + 1.0:
            raise KeyboardInterrupt
        if not caught:
            first = time.monotonic()
            _say("stopping after this epoch ..")
        caught.append(signal.Signals(number).name)

    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's business
        yield caught
        return
    old = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _first_non_finite(tree: Any) -> str | None:
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        array = np.asarray(leaf)
        if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
            return jax.tree_util.keystr(path).lstrip(".")
    return None


def _non_finite(name: str, epoch: int, folder: RunFolder, state: TrainState) -> str:
    if not np.isfinite(np.asarray(state.replay.data.next_obs)).all():
        advice = "The environment gave observations that are not finite"
    else:
        advice = "A lower --learning-rate may help"
    kept = checkpoint.checkpoints(folder.checkpoints)
    good = f"the last good checkpoint is {kept[0]}" if kept else "there is no checkpoint yet"
    return f"{name} became non-finite in epoch {epoch}; training stopped, {good}. {advice}."


def _describe(trainer: Trainer) -> str:
    config, spec = trainer.config, trainer.env.spec
    factors = ", ".join(f"{n} {s}" for n, s in zip(spec.factorization.names, spec.factorization.sizes, strict=True))
    seeds = f"seeds {config.seed} to {config.seed + config.seeds - 1}" if config.seeds > 1 else f"seed {config.seed}"
    return (
        f"{config.method} on {spec.name}, preset {config.preset}, {seeds}\n"
        f"{spec.obs_size} observations ({factors}), {spec.action_size} actions\n"
        f"{config.epochs} epochs of {trainer.chunk} steps and {config.gradient_steps} gradient steps"
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

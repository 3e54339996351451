"""`susd.train`: start or resume a run."""

from __future__ import annotations

import dataclasses
import re
import shlex
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax

from susd.config import Config, check_option, configure
from susd.envs.base import Environment, HostEnvironment, close
from susd.errors import UserError
from susd.paths import short_name, user_path
from susd.plugins import Trust, also, check_trust
from susd.runs import header
from susd.runs.folder import CHANGEABLE, RunFolder, check_folder
from susd.runs.loggers import check_loggers, open_loggers
from susd.runs.signals import stop_signals
from susd.training.compiler import use_compilation_cache
from susd.training.devices import Devices, find_devices, two_cores
from susd.training.pipeline import pays
from susd.training.resources import check_resources
from susd.training.session import Interrupted as Interrupted  # what `train` raises
from susd.training.session import NonFiniteError as NonFiniteError
from susd.training.session import Session
from susd.training.trainer import Trainer


def train(
    env: str | Config | None = None,
    *,
    run: str | Path | None = None,
    resume: bool = False,
    quiet: bool = False,
    tensorboard: bool = False,
    wandb: bool = False,
    environment: Environment | HostEnvironment | None = None,
    trust: Trust = False,
    devices: int | str | None = None,
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    **options: Any,
) -> Path:
    """Train and return the run folder. `env` is the name of an environment, with options of `Config`, or a Config.

    With `resume` the run in folder `run` continues from its last good checkpoint, with the config it was started with (only
    `epochs` and how often to evaluate and save may change). `environment` is an object that replaces the named environment.
    `trust` allows a run that is resumed to run the code that it names, if neither `env` nor `method` names it. `devices`,
    a number or "all", splits the seeds or the batches of the run; without it, a run of one seed with small networks is a
    pipeline on two CPU cores. `coordinator` (HOST:PORT or "auto"), `num_processes` and `process_id` connect several
    processes. All of these may differ between a run and its resumption.
    """
    check_loggers(tensorboard, wandb)
    found = find_devices(devices, coordinator, num_processes, process_id)

    def plan() -> tuple[Config, Path]:
        named = None if run is None else user_path("--run", run)
        if resume:
            if named is None:
                raise UserError("to resume, name the run folder with --run")
            folder = RunFolder.open(named)
            check_resumable(folder)
            return resumed_config(folder, env, options, trust, environment is not None), folder.path
        if env is None:
            raise UserError("name an environment, or resume a run")
        config = env if isinstance(env, Config) else configure(env, **options)
        path = named or free_folder(config)
        check_folder(path)
        return config, path

    config, path = plan() if found.processes == 1 else _shared_plan(found, plan, trust)
    if devices is None and coordinator is None and pays(config):
        found = two_cores()
    trainer = found.together(lambda: Trainer.build(config, environment, found))
    try:
        found.together(lambda: check_resources(trainer, path))
        found.together(trainer.check_env)
        use_compilation_cache()
        _train(trainer, path, resume, quiet or not found.main, (tensorboard, wandb))
    except jax.errors.JaxRuntimeError as error:
        if found.processes == 1:
            raise
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"process {jax.process_index()} lost the others, resume the run from {path}: {reason}") from error
    finally:
        if environment is None:  # the caller closes its own
            close(trainer.env)
    return path


def _train(trainer: Trainer, path: Path, resume: bool, quiet: bool, loggers: tuple[bool, bool]) -> None:
    """Make or open the run folder and train in it; only the first of several processes reads and writes there."""
    config, devices = trainer.config, trainer.devices

    def opened() -> RunFolder:
        if not devices.main:
            return RunFolder(path, config.to_json(), {})
        return RunFolder.open(path) if resume else RunFolder.create(path, config.to_json(), shlex.join(sys.argv))

    with ExitStack() as stack:
        folder = devices.together(opened)
        devices.together(lambda: stack.enter_context(folder.lock()) if devices.main else None)
        stop = stack.enter_context(stop_signals("this epoch"))
        session = Session.start(trainer, folder, resume, quiet, stop)
        if session.done < config.epochs:
            session.run(stack.enter_context(open_loggers(path, *(on and devices.main for on in loggers))))


def _shared_plan(devices: Devices, plan: Callable[[], tuple[Config, Path]], trust: Trust) -> tuple[Config, Path]:
    """The config and the run folder that the first process has found."""

    def decide() -> tuple[dict[str, Any], str]:
        config, path = plan()
        return config.to_json(), str(path)

    values, path = devices.from_main(decide)

    def build() -> Config:
        check_trust([values["env"], values["method"]], trust, path)
        return Config.from_json(values)

    return devices.together(build), Path(path)


def check_resumable(folder: RunFolder) -> None:
    """Refuse a folder whose last checkpoint holds weights only, such as skills that come with the package."""
    for path in header.checkpoints(folder.checkpoints)[:1]:
        if header.weights_only(path):
            raise UserError(f"{folder.path} holds weights only: its skills can be used, but training cannot be resumed")


def resumed_config(
    folder: RunFolder,
    env: str | Config | None,
    options: dict[str, Any],
    trust: Trust = False,
    own_environment: bool = False,
) -> Config:
    """The config a run was started with, with the changes that a resumed run may make; others are refused."""
    named = (env.env, env.method) if isinstance(env, Config) else (env, options.get("method"))
    config = folder.load_config(also(trust, *named), own_environment)
    if isinstance(env, Config):
        given = {field.name: getattr(env, field.name) for field in dataclasses.fields(env)}
    else:
        given = {**options, **({} if env is None else {"env": env})}
        for spec in dataclasses.fields(Config):
            if spec.name in given:
                check_option(spec, given[spec.name])
        if "env_options" in given:  # those that are not given keep their values
            given["env_options"] = {**config.env_options, **given["env_options"]}
    for name, value in given.items():
        started = getattr(config, name, None)
        if name not in CHANGEABLE and started != value:
            raise UserError(f"{folder.path} was started with {name} = {started!r}; it cannot be resumed with {value!r}")
    return dataclasses.replace(config, **{name: value for name, value in given.items() if name in CHANGEABLE})


def free_folder(config: Config) -> Path:
    """runs/ENV-METHOD-sSEED, with a number at the end if that exists."""
    env = re.sub(r"[^\w.+-]+", "_", Path(config.env.removeprefix("gymnasium:")).name.replace(".py:", "-"))
    method = re.sub(r"[^\w.+-]+", "_", Path(config.method).name.replace(".py:", "-"))
    base = Path("runs") / f"{short_name(env)}-{short_name(method)}-s{config.seed}"
    candidates = (base if n == 1 else base.with_name(f"{base.name}-{n}") for n in range(1, 10_000))
    return next(path for path in candidates if not path.exists())

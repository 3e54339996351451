"""TensorBoard and Weights & Biases: curves in addition to the metrics file. Each needs an optional package."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from susd.errors import UserError
from susd.runs.untrusted import read_object


class Logger(Protocol):
    """Receives rows of metrics, in addition to `metrics.jsonl`."""

    def write(self, row: Mapping[str, Any]) -> None:
        """Log the values of one row at its epoch."""

    def close(self) -> None:
        """Write out what is pending."""


class _TensorBoard:
    def __init__(self, folder: Path) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise UserError(_missing("tensorboard")) from error
        self._writer = SummaryWriter(str(folder / "tensorboard"))

    def write(self, row: Mapping[str, Any]) -> None:
        for name, value in _scalars(row).items():
            self._writer.add_scalar(name, value, row["epoch"])

    def close(self) -> None:
        self._writer.close()


class _WandB:
    def __init__(self, folder: Path) -> None:
        try:
            import wandb
        except ImportError as error:
            raise UserError(_missing("wandb")) from error
        identity = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]  # a resumed run continues its curves
        config = read_object(folder / "config.json")
        self._run = wandb.init(project="susd", name=folder.name, id=identity, resume="allow", dir=folder, config=config)

    def write(self, row: Mapping[str, Any]) -> None:
        self._run.log(_scalars(row), step=row["epoch"])

    def close(self) -> None:
        self._run.finish()


def check_loggers(tensorboard: bool, wandb: bool) -> None:
    """Refuse loggers whose package is missing, before the run starts."""
    for wanted, extra, module in ((tensorboard, "tensorboard", "tensorboardX"), (wandb, "wandb", "wandb")):
        if wanted and importlib.util.find_spec(module) is None:
            raise UserError(_missing(extra))


def _missing(extra: str) -> str:
    return f"--{extra} needs a package that is missing: pip install 'susd[{extra}]'"


@contextmanager
def open_loggers(folder: Path, tensorboard: bool, wandb: bool) -> Iterator[list[Logger]]:
    """The requested loggers; they are closed whatever ends the run, so that nothing pending is lost."""
    loggers: list[Logger] = [_TensorBoard(folder)] if tensorboard else []
    loggers += [_WandB(folder)] if wandb else []
    try:
        yield loggers
    finally:
        for logger in loggers:
            logger.close()


def _scalars(row: Mapping[str, Any]) -> dict[str, float]:
    plain = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in row.items()}
    return {name: value for name, value in plain.items() if isinstance(value, int | float) and name != "epoch"}

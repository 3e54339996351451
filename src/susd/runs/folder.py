"""The folder of a run and its metrics.

    config.json  meta.json  metrics.jsonl  checkpoints/  figures/  videos/

`config.json` is written last, so that a folder that has one is complete. JAX is imported where it is needed.
"""

import contextlib
import dataclasses
import errno
import hashlib
import importlib.metadata
import json
import math
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from susd.config import Config, check_option
from susd.errors import UserError
from susd.plugins import Trust, check_trust
from susd.runs.atomic import replace_file, write_json
from susd.runs.find import known_names, run_path
from susd.runs.header import CheckpointError, checkpoints, inspect
from susd.runs.untrusted import (
    MAX_VALUES,
    MalformedError,
    check_object,
    describe,
    parse_json,
    read_lines,
    read_object,
)

CHANGEABLE = ("epochs", "keep_checkpoints", "checkpoint_every", "eval_every")  # options that a resumed run may change
CONFIG = {"env": str, "env_options": dict, "method": str, "preset": str, "seed": int, "seeds": int, "epochs": int}
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def make_folder(path: Path) -> None:
    """Make a folder with its parents; a UserError says why that is impossible."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make folder {path}: {error.strerror}") from error


def read_config(run: Path) -> dict[str, Any]:
    """The config of a run, equal to the one that its newest readable checkpoint was saved with."""
    config = read_object(run / "config.json", CONFIG)
    options = {option.name: option for option in dataclasses.fields(Config)}
    try:
        for name in options.keys() & config.keys():
            check_option(options[name], config[name])
            if isinstance(config[name], str) and not config[name].isprintable():
                raise UserError(f"{name} is {describe(config[name])}; it must be printable")
    except UserError as error:
        raise UserError(f"{run / 'config.json'}: {error}") from None
    for path in checkpoints(run / "checkpoints"):
        try:
            saved = inspect(path)["meta"].get("config")
        except CheckpointError:  # whoever reads more than the config reports it
            continue
        if isinstance(
            saved, dict
        ):  # earlier versions stored only the hash of the config, which is compared with the weights
            _compare(run / "config.json", config, path, saved)
        break
    return config


def differences(found: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The options in which two configs differ, with both values; one that a config lacks has its default there."""
    specs = dataclasses.fields(Config)
    defaults = {spec.name: {} if spec.default is dataclasses.MISSING else spec.default for spec in specs}
    pairs = {name: tuple(one.get(name, defaults.get(name)) for one in (found, other)) for name in {**other, **found}}
    return {
        name: (a, b) for name, (a, b) in pairs.items() if json.dumps(a, sort_keys=True) != json.dumps(b, sort_keys=True)
    }


def _compare(file: Path, config: Mapping[str, Any], checkpoint: Path, saved: Mapping[str, Any]) -> None:
    found = {name: pair for name, pair in differences(config, saved).items() if name not in CHANGEABLE}
    if found:
        what = [f"{name} is {describe(now)}, but was {describe(then)}" for name, (now, then) in list(found.items())[:3]]
        more = f"; and {len(found) - 3} more" if len(found) > 3 else ""
        raise UserError(
            f"{file} is not the config that {checkpoint.name} was saved with: {'; '.join(what)}{more}; restore the file"
        )


def config_hash(config: Mapping[str, Any]) -> str:
    """16 hex digits that are the same for equal configs, whatever the order of their keys."""
    canonical = json.dumps(config, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class RunFolder:
    """An existing run folder with its config and meta data."""

    path: Path
    config: dict[str, Any]
    meta: dict[str, Any]

    @classmethod
    def create(cls, path: Path, config: dict[str, Any], command: str) -> "RunFolder":
        """Make the folder of a new run; refuse one that cannot be written to or already holds a run."""
        path = Path(path)
        check_folder(path)
        run = cls(path, config, describe_machine(config, command))  # before the first folder is made, since it may fail
        try:
            for name in ("checkpoints", "figures", "videos"):
                (path / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot make run folder {path}: {error.strerror}") from error
        with run.lock():  # two processes may have found the folder free at the same time
            check_folder(path)
            write_json(path / "meta.json", run.meta)
            write_json(path / "config.json", config)
        return cls.open(path)

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Open the folder of an existing run, or the skills of that name that come with the package.

        A config that is not the one its checkpoints were saved with is refused.
        """
        path = run_path(path)
        if not path.is_dir():
            if path.exists():
                raise UserError(f"{path} is a file, not a run folder")
            raise UserError(f"there is no run folder {path}{known_names(path)}")
        missing = [name for name in ("config.json", "meta.json") if not (path / name).is_file()]
        if missing:
            raise UserError(f"{path} is not a run folder: it has no {' and no '.join(missing)}")
        return cls(path, read_config(path), read_object(path / "meta.json"))

    def load_config(self, trust: Trust = False, own_environment: bool = False) -> Config:
        """The config as an object, for which its method is imported, and later its environment.

        Code that is not installed is refused unless it is trusted. With `own_environment` the caller has an environment
        object in place of the one that the config names.
        """
        names = [self.config[name] for name in ("env", "method") if name == "method" or not own_environment]
        check_trust(names, trust, str(self.path))
        return Config.from_json(self.config)

    @property
    def hash(self) -> str:
        """The hash of the config as it is in the folder now."""
        return config_hash(self.config)

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.path / "checkpoints"

    @property
    def figures(self) -> Path:
        """The folder of the figures."""
        return self.path / "figures"

    @property
    def videos(self) -> Path:
        """The folder of the videos."""
        return self.path / "videos"

    @property
    def metrics(self) -> Path:
        """The metrics file: one JSON object with an `epoch` per line; nan and ±inf are the strings "nan", "inf", "-inf"."""
        return self.path / "metrics.jsonl"

    def append_metrics(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows, each with an `epoch`, to the metrics file."""
        if missing := [row for row in rows if "epoch" not in row]:
            raise ValueError(f"a row of metrics needs an epoch, got {missing[0]}")
        try:
            with open(self.metrics, "ab") as file:
                file.write("".join(json.dumps(_plain(row), allow_nan=False) + "\n" for row in rows).encode())
        except OSError as error:
            raise UserError(f"cannot write metrics to {self.metrics}: {error.strerror}") from error

    def sync_metrics(self) -> None:
        """Flush the metrics to the disk: a checkpoint must not be newer than its metrics after a power failure."""
        if self.metrics.exists():
            with open(self.metrics, "ab") as file:
                os.fsync(file.fileno())

    def read_metrics(self) -> list[dict[str, Any]]:
        """All rows of the metrics file; an incomplete last line is ignored."""
        rows, left = [], MAX_VALUES
        for line, row in self._lines():
            left -= 1 + line.count(b",") + line.count(b"[")  # no row has more values
            if left < 0:
                raise UserError(f"{self.metrics} holds more than {MAX_VALUES} values")
            rows.append(_numbers(row))
        return rows

    def truncate_metrics(self, epoch: int) -> None:
        """Drop the rows after `epoch` and an incomplete last line: the resumed run writes them again."""

        def kept() -> Iterator[bytes]:
            return (line + b"\n" for line, row in self._lines() if row["epoch"] <= epoch)

        if self.metrics.exists() and self.metrics.stat().st_size != sum(map(len, kept())):
            with replace_file(self.metrics) as temporary, open(temporary, "wb") as file:
                file.writelines(kept())

    def _lines(self) -> Iterator[tuple[bytes, dict[str, Any]]]:
        """The lines of the metrics file with their rows, without an incomplete last line."""
        wrong, start = "", f"{self.metrics} is damaged: line"
        for number, line in read_lines(self.metrics) if self.metrics.exists() else ():
            if wrong:
                raise UserError(wrong)
            where = f"{start} {number}"
            try:
                row = parse_json(line, where)
                check_object(row, where, {"epoch": int})
                if type(row.get("seed", 0)) is not int:
                    raise UserError(f"{where} has the seed {describe(row['seed'])}; it must be an integer")
            except UserError as error:
                if line.endswith(b"\n") and not isinstance(error, MalformedError):
                    raise
                wrong = str(error)  # unless it is the last line
                continue
            yield line.rstrip(b"\n"), row

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from training in this folder; the system releases the lock if this one dies."""
        import fcntl

        path = self.path / ".lock"
        try:
            file = open(path, "a+")  # noqa: SIM115
        except OSError as error:
            raise UserError(f"cannot write to run folder {self.path}: {error.strerror}") from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                file.seek(0)
                owner = f"process {pid}" if (pid := file.read().strip()) else "another process"
                raise UserError(f"run folder {self.path} is in use by {owner}; wait for it to end or stop it") from error
            except OSError as error:  # some network file systems have no locks; training there must still be possible
                if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP):
                    raise
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield


def check_folder(path: Path) -> None:
    """Refuse a folder that already holds a run or cannot be written to."""
    if (path / "config.json").exists():
        raise UserError(f"{path} already holds a run; continue it with --resume or choose another folder with --run")
    check_writable(path, "run folder")


def check_writable(path: Path, what: str) -> None:
    """Refuse a folder that cannot be made or written to, before anything is made."""
    parent = path
    while not (parent.exists() or parent.is_symlink()) and parent != parent.parent:
        parent = parent.parent
    if not parent.is_dir():
        raise UserError(f"cannot make {what} {path}: {parent} is not a folder")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise UserError(f"cannot make {what} {path}: no permission to write in {parent}")


def describe_machine(config: Mapping[str, Any], command: str) -> dict[str, Any]:
    """Where a result comes from: versions, device, commit, config hash, command and time."""
    import jax

    device = jax.devices()[0]
    packages = ("jax", "jaxlib", "equinox", "optax", "numpy", "susd")
    return {
        "command": command,
        "created": datetime.now().astimezone().isoformat(timespec="seconds"),
        "config_hash": config_hash(config),
        "commit": source_commit(Path(__file__)),
        "versions": {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in packages},
        "device": {"platform": device.platform, "kind": device.device_kind, "count": jax.device_count()},
        "cpus": os.cpu_count(),
        "system": platform.platform(),
    }


def source_commit(file: Path) -> str | None:
    """The git commit of the source tree a file is part of, with "-dirty" if the tree was modified since."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(file.parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", file.name)  # an installed copy may be inside another repository
        return git("rev-parse", "HEAD") + ("-dirty" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _plain(value: Any) -> Any:
    """A value for JSON: arrays as numbers or lists, floats that are not finite as strings."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _numbers(value: Any) -> Any:
    """The reverse of `_plain`."""
    if isinstance(value, dict):
        return {name: _numbers(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    return _NOT_FINITE.get(value, value) if isinstance(value, str) else value

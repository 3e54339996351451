"""Jobs on machines that do not see the folders of a suite: what they need and what they give travels in chunks.

A `Store` is on the machine with the folders. It gives out the files of runs and takes files and results in; whatever
arrives is checked for its name, size and checksum before it gets its place. `do_job` is the other end. It works in a folder
of its own, which is kept until its results have arrived, so that a job that is started again there resumes.

Of a checkpoint only the weights travel, which is all that evaluations and tasks need. With `replay` it is all of it, also
while training is in progress, so that training resumes on another machine if this one is lost.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from susd.errors import UserError, shown
from susd.experiments import metrics_store
from susd.experiments.job import copy_figure
from susd.experiments.metrics_store import CONFIGS, FACTS
from susd.experiments.scheduler import failure, log_path, start_process
from susd.runs.checkpoint import copy_leaves
from susd.runs.header import CheckpointError, checkpoints, epoch_of, weights_only
from susd.runs.untrusted import read_bytes, read_object

CHUNK = 2**23  # bytes
SEND_SECONDS = 5.0  # between two looks for a new checkpoint of a run in training
MAX_FILE, MAX_FILES, MAX_DEPTH = 2**36, 10_000, 8
NAME = re.compile(r"[^\x00-\x1f\x7f/\\.][^\x00-\x1f\x7f/\\]{0,254}")  # of a file or folder: none is hidden, none is `..`
BASICS = ("config.json", "meta.json", "metrics.jsonl")  # of a run, beside its checkpoint


@dataclass(frozen=True)
class Order:
    """One job for a machine without the folders."""

    job: str
    run: str
    phase: str
    config_hash: str
    suite: str  # the text of the file
    one_thread: bool = True
    gpus: float = 0.0
    replay: bool = False  # whether whole checkpoints travel


@dataclass(frozen=True)
class Results:
    """What a job adds to the results of its suite."""

    facts: bytes
    configs: bytes
    figures: dict[str, bytes]


@dataclass
class _Upload:
    """A file that is arriving."""

    temporary: Path
    size: int = 0
    checksum: Any = field(default_factory=hashlib.blake2b)


class Files(Protocol):
    """The methods of a Store that `do_job` calls, here or through a cluster."""

    def offer(self, order: Order) -> dict[str, tuple[str, int]]:
        """The files that a job needs, by name: what to ask `read` for, and the size."""

    def read(self, offered: str, offset: int) -> bytes:
        """A chunk of a file that was offered."""

    def write(self, run: str, name: str, upload: str, data: bytes, checksum: str) -> None:
        """The next chunk of a file; the last one has the checksum of all."""

    def log(self, job: str, text: bytes) -> str:
        """Keep what the process of a job printed; the path says where."""

    def record(self, order: Order, results: Results) -> None:
        """Add the facts of a job to those of the suite."""


class Store:
    """The folders of a suite, for machines that do not see them."""

    def __init__(self, runs: str, results: str) -> None:
        self._runs, self._results = Path(runs), Path(results)
        self._offered: dict[str, Path] = {}
        self._uploads: dict[str, _Upload] = {}

    def sees(self, marks: Sequence[str]) -> bool:
        """Whether these files exist here."""
        return visible(marks)

    def offer(self, order: Order) -> dict[str, tuple[str, int]]:
        """The files that a job needs of its run; a checkpoint is reduced to its weights where that is enough."""
        run = _inside(self._runs, order.run)
        newest = next(iter(checkpoints(run / "checkpoints")), None)
        training = order.phase == "train"
        if newest is None or (training and (not order.replay or weights_only(newest))):
            return {}
        paths = {name: run / name for name in BASICS if (run / name).is_file()}
        whole = training or weights_only(newest)
        paths[f"checkpoints/{newest.name}"] = newest if whole else self._reduced(newest, order.run)
        tokens = {name: uuid.uuid4().hex for name in paths}
        self._offered |= {tokens[name]: path for name, path in paths.items()}
        return {name: (tokens[name], path.stat().st_size) for name, path in paths.items()}

    def read(self, offered: str, offset: int) -> bytes:
        """A chunk of a file that was offered."""
        with open(self._offered[offered], "rb") as file:
            file.seek(offset)
            return file.read(CHUNK)

    def write(self, run: str, name: str, upload: str, data: bytes, checksum: str) -> None:
        """The next chunk of a file; the last one has the checksum of all, and the file gets its place."""
        target = _inside(_inside(self._runs, run), name)
        arriving = self._uploads.get(upload)
        if arriving is None:
            temporary = self._folder() / f".incoming-{uuid.uuid4().hex}"
            arriving = self._uploads[upload] = _Upload(temporary)
        arriving.size += len(data)
        arriving.checksum.update(data)
        if arriving.size > min(MAX_FILE, shutil.disk_usage(self._runs).free + len(data)):
            raise UserError(f"{name} of {run} has {arriving.size} bytes or more, which is too much")
        with open(arriving.temporary, "ab") as file:
            file.write(data)
        if not checksum:
            return
        del self._uploads[upload]
        if arriving.checksum.hexdigest() != checksum:
            arriving.temporary.unlink()
            raise UserError(f"{name} of {run} arrived damaged: its checksum does not match")
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.parent.name == "checkpoints":
            _replace_checkpoint(arriving.temporary, target)
        else:
            arriving.temporary.replace(target)

    def log(self, job: str, text: bytes) -> str:
        """Keep what the process of a job printed; the path says where."""
        path = log_path(_checked(job.replace("/", "~")), self._runs)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text[-(2**20) :])
        return str(path)

    def record(self, order: Order, results: Results) -> None:
        """Add the facts of a job to those of the suite."""
        with _folder(self._folder() / f".incoming-{uuid.uuid4().hex}") as folder:
            (folder / FACTS).write_bytes(results.facts)
            (folder / CONFIGS).write_bytes(results.configs)
            facts = metrics_store.load(folder / FACTS)
            if metrics_store.finished(facts) != {(order.job, order.config_hash)}:
                raise UserError(f"the results of {order.job} are not those of this job")
            configs = {key: value for key, value in read_object(folder / CONFIGS).items() if key == order.config_hash}
            for name, content in results.figures.items():
                (folder / "figure.png").write_bytes(content)
                copy_figure(folder / "figure.png", self._results / "trajectories" / _checked(name))
            metrics_store.append_configs(self._results / CONFIGS, configs)
            metrics_store.append(self._results / FACTS, facts)

    def close(self) -> None:
        """Delete what has not arrived completely, and reduced checkpoints."""
        for path in [*self._folder().glob(".incoming-*"), *self._folder().glob(".weights-*")]:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)

    def _folder(self) -> Path:
        folder = self._runs / ".jobs"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _reduced(self, checkpoint: Path, run: str) -> Path:
        """The weights of a checkpoint as a file of their own, made once."""
        target = self._folder() / f".weights-{run.replace('/', '~')}-{checkpoint.name}"
        if not target.is_file():
            reduce_checkpoint(checkpoint, target)
        return target


def visible(marks: Sequence[str]) -> bool:
    """Whether all of these files exist on this machine."""
    return all(Path(mark).exists() for mark in marks)


def _replace_checkpoint(arrived: Path, target: Path) -> None:
    """Keep a checkpoint that arrived and delete older ones, unless there is a later one or more of the same epoch."""
    known = {epoch_of(path): path for path in checkpoints(target.parent)}
    later = max(known, default=-1) > epoch_of(target)
    if later or (target.exists() and weights_only(arrived) and not weights_only(target)):
        arrived.unlink()
        return
    arrived.replace(target)
    for old in known.values():
        if old != target:
            old.unlink(missing_ok=True)


def reduce_checkpoint(source: Path, target: Path) -> None:
    """Write a checkpoint that `susd.load` can read, without what only training needs."""
    from susd.training.agent import WEIGHTS

    copy_leaves(source, target, WEIGHTS, {"weights_only": True})


def do_job(order: Order, files: Files, scratch: Path) -> str:
    """A job in the folder `scratch`, which is deleted when everything has arrived; why it failed, or ""."""
    runs, results = scratch / "runs", scratch / "results"
    run = _inside(runs, order.run)
    if order.phase != "train" or not checkpoints(run / "checkpoints"):
        _receive(order, files, run)
    process = start_process(order.job, order.suite, runs, results, order.one_thread, order.gpus)
    sender = _Sender(order, files, run)
    while (code := _ended(process)) is None:
        if order.phase == "train" and order.replay:
            sender.checkpoint()
    if code:
        return failure(order.job, runs, code, files.log(order.job, log_path(order.job, runs).read_bytes()))
    if order.phase == "train":
        sender.checkpoint()
    for path in _listed(run):
        sender.send(path)
    figures = {path.name: read_bytes(path) for path in sorted((results / "trajectories").glob("*.png"))}
    files.record(order, Results(read_bytes(results / FACTS), read_bytes(results / CONFIGS), figures))
    shutil.rmtree(scratch, ignore_errors=True)
    return ""


def _ended(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(SEND_SECONDS)
    except subprocess.TimeoutExpired:
        return None


def _receive(order: Order, files: Files, run: Path) -> None:
    for name, (offered, size) in files.offer(order).items():
        path = _inside(run, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.tmp")
        with open(temporary, "wb") as file:
            while file.tell() < size:
                if not (data := files.read(offered, file.tell())):
                    raise UserError(f"{name} of {order.run} ended after {file.tell()} of {size} bytes")
                file.write(data)
        temporary.replace(path)


class _Sender:
    """Sends files of a run."""

    def __init__(self, order: Order, files: Files, run: Path) -> None:
        self._order, self._files, self._run = order, files, run
        self._sent: Path | None = None

    def send(self, path: Path, name: str = "") -> None:
        """A file in chunks."""
        name, upload, total = name or path.relative_to(self._run).as_posix(), uuid.uuid4().hex, hashlib.blake2b()
        with open(path, "rb") as file:
            data = file.read(CHUNK)
            while True:
                after = file.read(CHUNK)
                total.update(data)
                self._files.write(self._order.run, name, upload, data, "" if after else total.hexdigest())
                if not after:
                    return
                data = after

    def checkpoint(self) -> None:
        """The newest checkpoint, if it is new; before it the metrics, which must not be older."""
        newest = next(iter(checkpoints(self._run / "checkpoints")), None)
        if newest is None or newest == self._sent:
            return
        name = f"checkpoints/{newest.name}"
        with suppress(FileNotFoundError, CheckpointError):  # a newer one has replaced it
            for basic in BASICS:
                self.send(self._run / basic)
            if self._order.replay:
                self.send(newest)
            else:
                with _folder(self._run / ".reduced") as folder:
                    reduce_checkpoint(newest, folder / newest.name)
                    self.send(folder / newest.name, name)
            self._sent = newest


def _listed(run: Path) -> list[Path]:
    """The files of a run that a job adds: not its basic ones and checkpoints, and none that is hidden."""
    found = sorted(path for path in run.rglob("*") if path.is_file() and not path.is_symlink())
    names = {path: path.relative_to(run).parts for path in found}
    kept = [path for path, parts in names.items() if parts[0] not in (*BASICS, "checkpoints") and all(map(_valid, parts))]
    if len(kept) > MAX_FILES:
        raise UserError(f"the run has {len(kept)} files; at most {MAX_FILES} can travel")
    return kept


@contextmanager
def _folder(path: Path) -> Iterator[Path]:
    """A folder for the time of the block."""
    path.mkdir(parents=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _valid(part: str) -> bool:
    return NAME.fullmatch(part) is not None and len(part.encode()) <= 255


def _checked(name: str) -> str:
    if not _valid(name):
        raise UserError(f"{shown(name)} cannot be the name of a file that arrives")
    return name


def _inside(folder: Path, name: str) -> Path:
    """The path of a name below a folder; one that leads elsewhere is refused, also through links."""
    parts = name.split("/")
    if len(parts) > MAX_DEPTH or not all(map(_valid, parts)):
        raise UserError(f"{shown(name)} cannot be the path of a file that arrives")
    path = folder.joinpath(*parts)
    if not path.resolve().is_relative_to(folder.resolve()):
        raise UserError(f"{shown(name)} leads out of the folder {folder}")
    return path

"""Results as facts: a file to which any number of processes append, one line per finished job.

    {"job": .., "run": .., .., "config_hash": .., "facts": [[subject, step, metric, value], ..]}

In memory every fact carries the columns of its job. A job is on one line, so a process that is killed while it writes
loses that job and nothing else. `configs.json`, next to the file, holds the config of every hash.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from susd.errors import UserError
from susd.runs.atomic import write_json
from susd.runs.untrusted import MalformedError, describe, parse_json, read_lines, read_object

FACTS, CONFIGS = "facts.jsonl", "configs.json"
SECONDS = "seconds"  # the metric of how long a job took
MAX_FACTS, MAX_TEXT, MAX_VALUE = 2_000_000, 1000, 1e38  # of a file, of a name, and of a value: that of a float32


@dataclass(frozen=True)
class Fact:
    """One value with everything that is needed to trace it."""

    job: str  # what produced it: RUN/train, RUN/coverage, RUN/fp-easy@1
    run: str  # ENVIRONMENT/LABEL-sSEED
    label: str  # a method, with what distinguishes its runs from others of that method
    method: str
    environment: str
    seed: int
    phase: str  # train, downstream or the name of an evaluation
    subject: str  # what the metric is of: a policy, a factor, a task@layout; may be empty
    step: int  # environment steps; in phase downstream training episodes
    metric: str
    value: float
    versions: str
    commit: str
    config_hash: str

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise ValueError(f"{self.metric} of {self.job} is {self.value}; the value of a fact must be finite")


_OF_FACT = ("subject", "step", "metric", "value")
_TYPES: dict[str, Any] = {
    field.name: {"int": int, "float": (int, float)}.get(str(field.type), str) for field in dataclasses.fields(Fact)
}
_OF_JOB = tuple(name for name in _TYPES if name not in _OF_FACT)


def append(path: Path, facts: Sequence[Fact]) -> bool:
    """Add the facts of one job; does nothing if the job with this config is in the file already."""
    if not facts or any(_job(fact) != _job(facts[0]) for fact in facts):
        raise ValueError("facts are appended job by job, and a job has at least one")
    line = _job(facts[0]) | {"facts": [[getattr(fact, name) for name in _OF_FACT] for fact in facts]}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # released when the file is closed or the process dies
            recorded = {row["job"]: row["config_hash"] for _, row in _rows(path)}
            if recorded.get(facts[0].job) == facts[0].config_hash:
                return False
            # A process that was killed here may have left an incomplete line. It stays, and readers skip it.
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            newline = b"\n" if size and file.read(1) != b"\n" else b""
            file.write(newline + json.dumps(line, allow_nan=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise UserError(f"cannot write results to {path}: {error.strerror}") from error
    return True


def append_configs(path: Path, configs: Mapping[str, Any]) -> None:
    """Add entries, config hash -> config and meta data, to a configs.json.

    Results are shared: the command is left out, since it holds paths of this machine, and the config says more.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path.with_name(f".{path.name}.lock"), "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            known = read_object(path) if path.exists() else {}
            if new := {name: _portable(entry) for name, entry in configs.items() if name not in known}:
                write_json(path, known | new)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error


def _portable(entry: Mapping[str, Any]) -> dict[str, Any]:
    meta = {name: value for name, value in entry.get("meta", {}).items() if name != "command"}
    return {**entry, "meta": meta} if "meta" in entry else dict(entry)


def load(path: Path) -> list[Fact]:
    """The facts of all finished jobs; of a job that ran again with other options, the later ones."""
    if not path.exists():
        return []
    jobs: dict[str, list[Fact]] = {}
    left = MAX_FACTS
    for number, row in _rows(path):
        facts = row.pop("facts")
        if (left := left - len(facts)) < 0:
            raise UserError(f"{path} holds more than {MAX_FACTS} facts")
        jobs.pop(row["job"], None)
        jobs[row["job"]] = [_fact(row, fact, f"{path}: line {number}") for fact in facts]
    return [fact for facts in jobs.values() for fact in facts]


def checked(facts: list[Fact], where: str) -> list[Fact]:
    """Refuse facts that no file of results may hold, before they are written."""
    for fact in facts:
        for name in _TYPES:
            _check(name, getattr(fact, name), where)
    return facts


def finished(facts: Iterable[Fact]) -> set[tuple[str, str]]:
    """The jobs of these facts, as (name, config hash)."""
    return {_key(fact) for fact in facts}


def select(facts: Iterable[Fact], where: Callable[[Fact], bool] | None = None, **fields: Any) -> list[Fact]:
    """The facts whose fields have these values: `select(facts, phase="coverage", metric="cells_worst")`."""
    return [
        fact
        for fact in facts
        if all(getattr(fact, name) == value for name, value in fields.items()) and (where is None or where(fact))
    ]


def _key(fact: Fact) -> tuple[str, str]:
    return fact.job, fact.config_hash


def _job(fact: Fact) -> dict[str, Any]:
    return {name: getattr(fact, name) for name in _OF_JOB}


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The lines of a file with their numbers."""
    for number, line in read_lines(path):
        try:
            row = parse_json(line, f"{path}: line {number}")
        except MalformedError:
            continue  # an incomplete line of a process that was killed
        if not isinstance(row, dict) or set(row) != {*_OF_JOB, "facts"} or not isinstance(row["facts"], list):
            columns = ", ".join((*_OF_JOB, "facts"))
            raise UserError(f"{path} does not hold results: line {number} does not have exactly the columns {columns}")
        for name in _OF_JOB:
            _check(name, row[name], f"{path}: line {number}")
        yield number, row


def _fact(job: dict[str, Any], fact: Any, where: str) -> Fact:
    if not isinstance(fact, list) or len(fact) != len(_OF_FACT):
        raise UserError(f"{where} has the fact {fact!r:.200}; a fact is [{', '.join(_OF_FACT)}]")
    for name, value in zip(_OF_FACT, fact, strict=True):
        _check(name, value, where)
    return Fact(**job, **dict(zip(_OF_FACT, fact, strict=True)))


def _check(name: str, value: Any, where: str) -> None:
    """Refuse a value that the column of a fact cannot have."""
    fits = isinstance(value, _TYPES[name]) and not isinstance(value, bool)
    if isinstance(value, str):
        fits = fits and len(value) <= MAX_TEXT and value.isprintable()
    elif fits:
        fits = abs(value) <= MAX_VALUE if name == "value" else value >= 0
    if not fits:
        raise UserError(f"{where} has the {name} {describe(value)}")

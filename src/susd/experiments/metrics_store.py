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
from susd.runs.folder import read_json

FACTS, CONFIGS = "facts.jsonl", "configs.json"
SECONDS = "seconds"  # the metric of how long a job took


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
_TYPES = {field.name: {"int": int, "float": (int, float)}.get(str(field.type), str) for field in dataclasses.fields(Fact)}
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
            file.seek(0)
            before = file.read()
            recorded = {row["job"]: row["config_hash"] for _, row in _rows(before, path)}
            if recorded.get(facts[0].job) == facts[0].config_hash:
                return False
            # A process that was killed here may have left an incomplete line. It stays, and readers skip it.
            newline = b"\n" if before and not before.endswith(b"\n") else b""
            file.write(newline + json.dumps(line, allow_nan=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise UserError(f"cannot write results to {path}: {error.strerror}") from error
    return True


def append_configs(path: Path, configs: Mapping[str, Any]) -> None:
    """Add entries, config hash -> config and meta data, to a configs.json."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path.with_name(f".{path.name}.lock"), "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            known = read_json(path) if path.exists() else {}
            if new := {name: config for name, config in configs.items() if name not in known}:
                write_json(path, known | new)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error


def load(path: Path) -> list[Fact]:
    """The facts of all finished jobs; of a job that ran again with other options, the later ones."""
    if not path.exists():
        return []
    try:
        return _parse(path.read_bytes(), path)
    except OSError as error:
        raise UserError(f"cannot read results from {path}: {error.strerror}") from error


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


def _rows(content: bytes, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The lines of a file with their numbers."""
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line:
            continue
        try:
            row = json.loads(line)
        except ValueError:
            continue  # an incomplete line of a process that was killed
        if not isinstance(row, dict) or set(row) != {*_OF_JOB, "facts"} or not isinstance(row["facts"], list):
            columns = ", ".join((*_OF_JOB, "facts"))
            raise UserError(f"{path} does not hold results: line {number} does not have exactly the columns {columns}")
        yield number, row


def _parse(content: bytes, path: Path) -> list[Fact]:
    """The facts of every job, each job as it was recorded last."""
    jobs: dict[str, list[Fact]] = {}
    for number, row in _rows(content, path):
        facts = row.pop("facts")
        jobs.pop(row["job"], None)
        jobs[row["job"]] = [_fact(row, fact, f"{path}: line {number}") for fact in facts]
    return [fact for facts in jobs.values() for fact in facts]


def _fact(job: dict[str, Any], fact: Any, where: str) -> Fact:
    if not isinstance(fact, list) or len(fact) != len(_OF_FACT):
        raise UserError(f"{where} has the fact {fact!r}; a fact is [{', '.join(_OF_FACT)}]")
    row = job | dict(zip(_OF_FACT, fact, strict=True))
    if wrong := [name for name, kind in _TYPES.items() if not isinstance(row[name], kind)]:  # type: ignore[arg-type]
        raise UserError(f"{where} has the {wrong[0]} {row[wrong[0]]!r}")
    return Fact(**row)

"""Results in long form: one fact per line of a file to which lines are only ever added, by any number of processes."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from susd.errors import UserError

LAST = "seconds"  # the metric that ends the facts of a job: how long it took. Without it the job was cut short.


@dataclass(frozen=True)
class Fact:
    """One number with all that is needed to trace it."""

    job: str  # what gave it: RUN/train, RUN/coverage, RUN/fp-easy@1
    run: str  # ENVIRONMENT/LABEL-sSEED
    label: str  # the entry of the suite: a method, with what sets it apart
    method: str
    environment: str
    seed: int
    phase: str  # train, coverage, control, decoding, completions or downstream
    subject: str  # what the metric is of: a policy, a factor, a task@layout; may be empty
    step: int  # environment steps; in phase downstream training episodes
    metric: str
    value: float
    versions: str
    commit: str
    config_hash: str

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise ValueError(f"{self.metric} of {self.job} is {self.value}; a fact is a finite number")


_KINDS = {field.name: {"int": int, "float": (int, float)}.get(str(field.type), str) for field in dataclasses.fields(Fact)}


def append(path: Path, facts: Sequence[Fact]) -> bool:
    """Add the facts of one job, the last of which is its seconds; does nothing if the job is there already."""
    if not facts or facts[-1].metric != LAST or any(_key(fact) != _key(facts[0]) for fact in facts):
        raise ValueError(f"facts are added job by job, and end with the metric {LAST!r}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # lifted when the file is closed or the process dies
            file.seek(0)
            before = file.read()
            if _key(facts[0]) in finished(_complete(_parse(before, path))):
                return False
            lines = "".join(json.dumps(dataclasses.asdict(fact), allow_nan=False) + "\n" for fact in facts)
            # A process that was killed here may have left half a line: it stays, alone, and readers pass over it.
            file.write((b"\n" if before and not before.endswith(b"\n") else b"") + lines.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise UserError(f"cannot write results to {path}: {error.strerror}") from error
    return True


def load(path: Path) -> list[Fact]:
    """The facts of all finished jobs: of one that was done again, after its options changed, the later ones."""
    if not path.exists():
        return []
    try:
        return _complete(_parse(path.read_bytes(), path))
    except OSError as error:
        raise UserError(f"cannot read results from {path}: {error.strerror}") from error


def finished(facts: Iterable[Fact]) -> set[tuple[str, str]]:
    """The jobs, as (name, config hash), that these facts are of."""
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


def _complete(facts: Iterable[Fact]) -> list[Fact]:
    """The last complete block of every job. A block that was cut short has no end, and the next begins as it did."""
    open_blocks: dict[str, list[Fact]] = {}
    kept: dict[str, list[Fact]] = {}
    for fact in facts:
        block = open_blocks.setdefault(fact.job, [])
        if block and (_key(fact) != _key(block[0]) or _place(fact) == _place(block[0])):
            block.clear()
        block.append(fact)
        if fact.metric == LAST:
            kept[fact.job] = open_blocks.pop(fact.job)
    return [fact for block in kept.values() for fact in block]


def _place(fact: Fact) -> tuple[str, str, int]:
    return fact.subject, fact.metric, fact.step


def _parse(content: bytes, path: Path) -> list[Fact]:
    facts, number = [], 0
    lines = content.split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            row = json.loads(line)
        except ValueError:
            continue  # half a line, of a process that was killed
        if not isinstance(row, dict) or set(row) != set(_KINDS):
            raise UserError(f"{path} is not a file of results: line {number} has not the columns {', '.join(_KINDS)}")
        if wrong := [name for name, kind in _KINDS.items() if not isinstance(row[name], kind)]:  # type: ignore[arg-type]
            raise UserError(f"{path}: line {number} has the {wrong[0]} {row[wrong[0]]!r}")
        facts.append(Fact(**row))
    return facts

"""All that a report is made of, read from folders of results."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from susd.errors import UserError
from susd.experiments import metrics_store as store
from susd.experiments.metrics_store import Fact
from susd.report import aggregate as scores
from susd.report import claims as findings
from susd.report import html as page
from susd.report.aggregate import Setting, Tasks

Jobs = dict[str, tuple[str, Path, list[Fact]]]  # name -> config hash, folder, facts


@dataclass(frozen=True)
class Material:
    """The facts, the files beside them, and where the report goes."""

    facts: list[Fact]
    seconds: dict[str, float]  # computing time by environment
    scores: dict[Setting, Tasks]
    suites: dict[str, str]  # folder -> text of its suite file
    trajectories: list[Path]
    out: Path

    def drawn(self, name: str) -> Path:
        """Where a figure goes; labels may hold anything, file names may not."""
        return self.out / "figures" / f"{page.anchor(name)}.png"

    def worlds(self, phase: str) -> Iterator[tuple[str, str, list[Fact]]]:
        """A key, a name in words and the facts of a phase, for every environment and way to pretrain."""
        groups = scores.worlds(self.facts, phase)
        for (environment, way), mine in groups.items():
            ways = sum(key[0] == environment for key in groups)
            yield f"{environment}-{way}", findings.world(environment, way, ways), mine

    def settings(self) -> Iterator[tuple[str, str, Tasks]]:
        """A key, a name in words and the scores of every setting."""
        for setting, tasks in self.scores.items():
            key = f"{setting.environment}-{setting.pretrained}-{setting.tested}"
            yield key, findings.title(setting, list(self.scores)), tasks


def gather(results: Sequence[Path], out: Path) -> Material:
    """The facts of all folders, each job once; refuses folders without facts, and two that disagree on a job."""
    if not results:
        raise UserError("a report needs at least one folder of results; none was given")
    jobs: Jobs = {}
    for folder in results:
        _add(jobs, Path(folder))
    everything = [fact for name in sorted(jobs) for fact in jobs[name][2]]
    facts = [fact for fact in everything if fact.metric != store.LAST]
    seconds: dict[str, float] = {}
    for fact in everything:
        if fact.metric == store.LAST:
            seconds[fact.environment] = seconds.get(fact.environment, 0.0) + fact.value
    files = [Path(folder) / "suite.toml" for folder in results]
    suites = {file.resolve().parent.name: _read(file) for file in files if file.is_file()}
    pictures = [path for folder in results for path in sorted((Path(folder) / "trajectories").glob("*.png"))]
    return Material(facts, seconds, scores.downstream(facts), suites, pictures, Path(out))


def _add(jobs: Jobs, folder: Path) -> None:
    """Add the jobs of a folder."""
    path = folder / "facts.jsonl"
    if not path.is_file():
        raise UserError(f"{folder} has no facts.jsonl; a folder of results holds one")
    blocks: dict[str, list[Fact]] = {}
    for fact in store.load(path):
        blocks.setdefault(fact.job, []).append(fact)
    if not blocks:
        raise UserError(f"{path} has no finished job; there is nothing to report")
    for job, block in blocks.items():
        config, before, _ = jobs.get(job, (block[0].config_hash, folder, []))
        if config != block[0].config_hash:
            raise UserError(f"job {job} has one config in {before} and another in {folder}; report the folders apart")
        jobs[job] = config, folder, block


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error


def presets(suites: Mapping[str, str]) -> set[str]:
    """The presets that suite files name, `quick` where one names none; empty without suite files."""

    def inside(value: Any, key: str = "") -> set[str]:
        if isinstance(value, dict):
            return set[str]().union(*(inside(entry, name) for name, entry in value.items()))
        if isinstance(value, list):
            return set[str]().union(*(inside(entry, key) for entry in value))
        return {str(value)} if key == "preset" else set()

    found: set[str] = set()
    for text in suites.values():
        try:
            found |= inside(tomllib.loads(text)) or {"quick"}
        except tomllib.TOMLDecodeError:
            found.add("unknown")
    return found

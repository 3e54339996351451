"""Everything that a report is built from, read from folders of results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from susd.errors import UserError
from susd.experiments import metrics_store
from susd.experiments.metrics_store import CONFIGS, FACTS, SECONDS, Fact
from susd.report.aggregate import Setting, Tasks, by_environment, downstream
from susd.report.claims import group_title, setting_title
from susd.report.html import anchor
from susd.report.labels import Look, base, looks
from susd.runs.untrusted import parse_toml, read_object, read_text

Jobs = dict[str, tuple[str, Path, list[Fact]]]  # name -> config hash, folder, facts


@dataclass(frozen=True)
class ReportData:
    """The facts, the files that came with them, and where the report is written."""

    facts: list[Fact]
    seconds: dict[str, float]  # computing time by environment
    scores: dict[Setting, Tasks]
    suites: dict[str, str]  # folder -> text of its suite file
    presets: set[str]  # of the runs; empty if unknown
    trajectories: list[Path]
    learning_curves: list[Path]
    looks: dict[str, Look]  # by label; one label looks the same in all figures
    out: Path

    def figure_path(self, name: str) -> Path:
        """Where a figure is written; labels may have any characters, file names may not."""
        return self.out / "figures" / f"{anchor(name)[:200]}.png"

    def groups(self, phase: str) -> Iterator[tuple[str, str, list[Fact]]]:
        """A key, a title and the facts of a phase, for every environment and way to pretrain."""
        groups = by_environment(self.facts, phase)
        for (environment, way), mine in groups.items():
            ways = sum(key[0] == environment for key in groups)
            yield f"{environment}-{way}", group_title(environment, way, ways), mine

    def settings(self) -> Iterator[tuple[str, str, Tasks]]:
        """A key, a title and the scores of every setting."""
        for setting, tasks in self.scores.items():
            key = f"{setting.environment}-{setting.pretrained}-{setting.tested}"
            yield key, setting_title(setting, list(self.scores)), tasks


def load_results(folders: Sequence[Path], out: Path) -> ReportData:
    """The facts of all folders, each job once; refuses folders without facts, and two that disagree on a job."""
    if not folders:
        raise UserError("a report needs at least one folder of results; none was given")
    jobs: Jobs = {}
    for folder in folders:
        _add_jobs(jobs, folder)
    everything = [fact for name in sorted(jobs) for fact in jobs[name][2]]
    facts = [fact for fact in everything if fact.metric != SECONDS]
    seconds: dict[str, float] = {}
    for fact in everything:
        if fact.metric == SECONDS:
            seconds[fact.environment] = seconds.get(fact.environment, 0.0) + fact.value
    files = [folder / "suite.toml" for folder in folders]
    suites = {file.resolve().parent.name: read_text(file) for file in files if file.is_file()}
    return ReportData(
        facts=facts,
        seconds=seconds,
        scores=downstream(facts),
        suites=suites,
        presets=presets_of_suites(suites) | _presets_of_runs(folders),
        trajectories=_figures(folders, "trajectories"),
        learning_curves=_figures(folders, "learning_curves"),
        looks=looks(base(fact.label) for fact in facts),
        out=out,
    )


def _figures(folders: Sequence[Path], name: str) -> list[Path]:
    return [path for folder in folders for path in sorted((folder / name).glob("*.png"))]


def _add_jobs(jobs: Jobs, folder: Path) -> None:
    path = folder / FACTS
    if not path.is_file():
        raise UserError(f"{folder} has no {FACTS}; a folder of results holds one")
    blocks: dict[str, list[Fact]] = {}
    for fact in metrics_store.load(path):
        blocks.setdefault(fact.job, []).append(fact)
    if not blocks:
        raise UserError(f"{path} has no finished job; there is nothing to report")
    for job, block in blocks.items():
        config, before, _ = jobs.get(job, (block[0].config_hash, folder, []))
        if config != block[0].config_hash:
            raise UserError(f"job {job} has one config in {before} and another in {folder}; report them separately")
        jobs[job] = config, folder, block


def presets_of_suites(suites: Mapping[str, str]) -> set[str]:
    """The presets that suite files name; `quick` where a file names none."""
    found: set[str] = set()
    for text in suites.values():
        try:
            found |= _presets(parse_toml(text, "the suite")) or {"quick"}
        except UserError:
            found.add("unknown")
    return found


def _presets_of_runs(folders: Sequence[Path]) -> set[str]:
    """The presets of runs that were recorded without a suite."""
    files = [folder / CONFIGS for folder in folders if not (folder / "suite.toml").is_file()]
    return set[str]().union(*(_presets(read_object(file)) for file in files if file.is_file()))


def _presets(value: Any, key: str = "") -> set[str]:
    """The values of all entries named `preset`."""
    if isinstance(value, dict):
        return set[str]().union(*(_presets(entry, name) for name, entry in value.items()))
    if isinstance(value, list):
        return set[str]().union(*(_presets(entry, key) for entry in value))
    return {str(value)} if key == "preset" else set()

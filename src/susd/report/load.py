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
from susd.report.protocol import Reasons, relabelled, run_reasons, task_reasons, trained_configs
from susd.runs.untrusted import interpreting, parse_toml, read_object, read_text

Jobs = dict[str, tuple[str, Path, list[Fact]]]  # name -> config hash, folder, facts
Cell = tuple[str, str, str, str]  # environment, label, phase and task: what is compared as one


@dataclass(frozen=True)
class ReportData:
    """The facts, the files that came with them, and where the report is written."""

    facts: list[Fact]
    seconds: dict[str, float]  # computing time by environment
    scores: dict[Setting, Tasks]
    suites: dict[str, str]  # folder -> text of its suite file
    protocols: dict[str, Reasons]  # run or job -> what distinguishes it from the paper's protocol
    left_out: list[str]  # sentences on results that others replace
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
    """The facts of all folders, each job once; where two disagree on a job, the first one has its cell."""
    if not folders:
        raise UserError("a report needs at least one folder of results; none was given")
    jobs: Jobs = {}
    protocols: dict[str, Reasons] = {}
    left_out: list[str] = []
    for folder in folders:
        with interpreting(folder / CONFIGS, "the configs of results"):
            left_out += _add_jobs(jobs, folder, protocols)
    everything = [fact for name in sorted(jobs) for fact in jobs[name][2]]
    facts = [fact for fact in everything if fact.metric != SECONDS]
    seconds: dict[str, float] = {}
    for fact in everything:
        if fact.metric == SECONDS:
            seconds[fact.environment] = seconds.get(fact.environment, 0.0) + fact.value
    files = [folder / "suite.toml" for folder in folders]
    return ReportData(
        facts=facts,
        seconds=seconds,
        scores=downstream(facts),
        suites={file.resolve().parent.name: read_text(file) for file in files if file.is_file()},
        protocols=protocols,
        left_out=left_out,
        trajectories=_figures(folders, "trajectories"),
        learning_curves=_figures(folders, "learning_curves"),
        looks=looks(base(fact.label) for fact in facts),
        out=out,
    )


def _figures(folders: Sequence[Path], name: str) -> list[Path]:
    return [path for folder in folders for path in sorted((folder / name).glob("*.png"))]


def _add_jobs(jobs: Jobs, folder: Path, protocols: dict[str, Reasons]) -> list[str]:
    """Add the jobs of a folder, unless an earlier one has the same job with another config: then without that cell."""
    path = folder / FACTS
    if not path.is_file():
        raise UserError(f"{folder} has no {FACTS}; a folder of results holds one")
    configs = read_object(folder / CONFIGS) if (folder / CONFIGS).is_file() else {}
    facts = metrics_store.load(path)
    trained = trained_configs(configs, facts)
    blocks: dict[str, list[Fact]] = {}
    for fact in relabelled(facts, trained):
        blocks.setdefault(fact.job, []).append(fact)
    if not blocks:
        raise UserError(f"{path} has no finished job; there is nothing to report")
    shared = [name for name in blocks if name in jobs and jobs[name][0] != blocks[name][0].config_hash]
    replaced = {_cell(blocks[name]): jobs[name][1] for name in shared}
    suite = presets_of_suite(folder)
    for job, block in blocks.items():
        if _cell(block) not in replaced:
            jobs[job] = block[0].config_hash, folder, block
            _add_protocol(protocols, block[0], configs, suite)
    count = sum(_cell(block) in replaced for block in blocks.values())
    by = sorted({before.name for before in replaced.values()})
    return [f"{count} jobs of {folder.name} are left out: {', '.join(by)} has them with other options."] if count else []


def _cell(block: Sequence[Fact]) -> Cell:
    task = next(
        (fact.subject.rpartition("@")[0] for fact in block if fact.phase == "downstream" and "@" in fact.subject), ""
    )
    return block[0].environment, block[0].label, block[0].phase, task


def _add_protocol(protocols: dict[str, Reasons], fact: Fact, configs: Mapping[str, Any], suite: Reasons) -> None:
    """What distinguishes a run, or the options of a task, from the paper's; by its config or else by the suite file."""
    entry = configs.get(fact.config_hash, {}).get("config", {})
    if fact.phase == "train":
        known = entry.get("config")
        protocols[fact.run] = run_reasons(fact.environment, known) if isinstance(known, dict) else suite
    elif fact.phase == "downstream":
        known = entry.get("config", entry)
        protocols[fact.job] = task_reasons(known) if "task" in known else suite
    if isinstance(known := entry.get("trained"), dict):
        protocols.setdefault(fact.run, run_reasons(fact.environment, known))
    protocols.setdefault(fact.run, suite)


def presets_of_suite(folder: Path) -> Reasons:
    """The presets that a suite file names, as a reason; `quick` where it names none."""
    file = folder / "suite.toml"
    if not file.is_file():
        return ("preset unknown, no suite file",)
    try:
        found = _presets(parse_toml(read_text(file), "the suite")) or {"quick"}
    except UserError:
        found = {"unknown"}
    return () if found == {"paper"} else (f"preset {' and '.join(sorted(found))}",)


def _presets(value: Any, key: str = "") -> set[str]:
    """The values of all entries named `preset`."""
    if isinstance(value, dict):
        return set[str]().union(*(_presets(entry, name) for name, entry in value.items()))
    if isinstance(value, list):
        return set[str]().union(*(_presets(entry, key) for entry in value))
    return {str(value)} if key == "preset" else set()

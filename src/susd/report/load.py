"""Everything that a report is built from, read from folders of results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from susd.errors import UserError
from susd.experiments.metrics_store import SECONDS, Fact
from susd.report.aggregate import Setting, Tasks, by_environment, downstream
from susd.report.blocks import budgets, chosen, marked, protocols, read_blocks
from susd.report.claims import group_title, setting_title
from susd.report.html import anchor
from susd.report.labels import Look, base, looks
from susd.report.protocol import Reasons
from susd.runs.untrusted import read_text


@dataclass(frozen=True)
class ReportData:
    """The facts, the files that came with them, and where the report is written."""

    facts: list[Fact]
    seconds: dict[str, float]  # computing time by environment
    scores: dict[Setting, Tasks]
    suites: dict[str, str]  # folder -> text of its suite file
    protocols: dict[str, Reasons]  # run or job -> what distinguishes it from the paper's protocol
    steps: dict[str, int]  # run -> environment steps of its training
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
    """The facts of all folders, each job once; where options of a cell differ, those that were recorded last."""
    if not folders:
        raise UserError("a report needs at least one folder of results; none was given")
    found = marked([block for folder in folders for block in read_blocks(folder)])
    blocks, left_out = chosen(found)
    everything = [fact for block in sorted(blocks, key=lambda block: block.first.job) for fact in block.facts]
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
        protocols=protocols(blocks),
        steps=budgets(found, blocks),
        left_out=left_out,
        trajectories=_figures(folders, "trajectories"),
        learning_curves=_figures(folders, "learning_curves"),
        looks=looks(base(fact.label) for fact in facts),
        out=out,
    )


def _figures(folders: Sequence[Path], name: str) -> list[Path]:
    return [path for folder in folders for path in sorted((folder / name).glob("*.png"))]

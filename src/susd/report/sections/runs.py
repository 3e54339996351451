"""The sections on training: measurements during training, and the figures that runs came with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from susd.experiments.extract import TRAINING
from susd.experiments.metrics_store import Fact
from susd.report import charts
from susd.report.aggregate import PerSeed, per_seed
from susd.report.html import figure, gallery, is_png, paragraph, tag
from susd.report.labels import base, environment_title, pretrained, title_of
from susd.report.load import ReportData
from susd.report.sections.tasks import Parts


def training(data: ReportData) -> Parts:
    """Coverage and control during training, and the learning curves of single runs."""
    parts: Parts = []
    for key, title, facts in data.groups("train"):
        found = {metric: _lines(facts, metric) for metric in TRAINING}
        if found["coverage_average"] == found["coverage_worst"]:  # a single body is its own worst
            del found["coverage_average"]
        made = []
        for metric, lines in found.items():
            if lines:
                name = TRAINING[metric]
                path = charts.curves(data.figure_path(f"training-{key}-{metric}"), name, "", lines, data.looks)
                last = "; ".join(f"{title_of(label)} {_mean(points[-1][1]):.2f}" for label, points in lines.items())
                made.append(figure(path, f"{name}, at the end of training: {last}."))
        if made:
            parts += [tag("h3", title), gallery(made)]
    return parts + _given(data, data.learning_curves, "Learning curves of")


def _lines(facts: Sequence[Fact], metric: str) -> dict[str, list[tuple[int, PerSeed]]]:
    """The values of a metric by environment steps, for labels that have several."""
    mine = [fact for fact in facts if fact.metric == metric]
    found: dict[str, list[tuple[int, PerSeed]]] = {}
    for step in sorted({fact.step for fact in mine}):
        for label, values in per_seed(mine, step=step).items():
            found.setdefault(label, []).append((step, values))
    return {label: points for label, points in found.items() if len(points) > 1}


def _mean(values: PerSeed) -> float:
    return sum(values.values()) / len(values)


def trajectories(data: ReportData) -> Parts:
    """Trajectories coloured by skill."""
    return _given(data, data.trajectories, "Trajectories, coloured by skill, of")


def _given(data: ReportData, paths: Sequence[Path], what: str) -> Parts:
    """Figures that came with the results, named ENVIRONMENT-LABEL.png."""
    made, broken = [], []
    for path in paths:
        known = [fact.environment for fact in data.facts if path.stem.startswith(f"{fact.environment}-")]
        environment = max(known, key=len, default=path.stem.partition("-")[0])
        label = path.stem.removeprefix(environment).removeprefix("-")
        whose = title_of(base(label)) + (", pretrained on random layouts" if pretrained(label) == "random" else "")
        name = f"{environment_title(environment)}, {whose}"
        if is_png(path):
            made.append(figure(path, f"{what} {name}", name))
        else:
            broken.append(path.name)
    parts = [gallery(made)] if made else []
    return parts + [paragraph(f"{name} is not a PNG file and was left out.", class_="note") for name in broken]

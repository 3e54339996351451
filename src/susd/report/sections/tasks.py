"""The sections of a report on tasks: scores, curves and aggregates, of the methods and of their variants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from susd.experiments.statistics import Estimate
from susd.report import aggregate as sc
from susd.report import charts
from susd.report import claims as findings
from susd.report.aggregate import METHODS, OURS, Score, Tasks, name_of
from susd.report.html import Html, figure, gallery, joined, paragraph, table, tag
from susd.report.load import Material

Parts = list[Html]
MISSING = "not run"
MARKED = "mean, interval, every score. Marked: the highest mean; ≈: its interval overlaps that one's, or is unknown."
REFERENCES = {"do_nothing": "do nothing", "expert": "expert", "bound": "bound"}


def cell(found: Estimate, values: Sequence[str], digits: int, best: bool = False, close: bool = False) -> Html:
    """A mean, its interval below it, and below that all it was made of."""
    value = tag("span", findings.decimal(found.value, digits), class_="value best" if best else "value")
    mark = tag("span", " ≈", title="not clearly apart from the best") if close else Html("")
    ends = [findings.decimal(end, digits) for end in (found.low, found.high)]
    reach = tag("span", f"[{', '.join(ends)}]" if found.count > 1 else "one score", class_="range")
    short = sum(map(len, values)) < 24  # a few stay on one line
    between = "\u00a0·\u00a0" if short else "\u00a0· "
    each = tag("span", between.join(values), class_="each") if len(values) > 1 else Html("")
    return joined([value, mark, reach, each], "")


def seeds_cell(values: sc.PerSeed | None, digits: int, scale: float = 1.0) -> Html:
    """The cell of a number that every seed has once."""
    if not values:
        return Html("–")
    scaled = {seed: scale * value for seed, value in values.items()}
    return cell(sc.over_seeds(scaled), [findings.decimal(value, digits) for value in scaled.values()], digits)


def score_table(caption: str, by_task: Tasks, labels: Sequence[str]) -> Html:
    """Tasks by methods: mean, interval, every score; the highest mean of a row is marked."""
    rows: list[list[str]] = []
    for task, by_label in by_task.items():
        means = {label: sc.mean_of(by_label[label]) for label in labels if label in by_label}
        if not means:
            continue
        best = max(means, key=lambda label: means[label].value)
        row: list[str] = [task]
        for label in labels:
            if label not in means:
                row.append(MISSING)
                continue
            each = [findings.decimal(score.value, 1) for score in by_label[label]]
            close = label != best and findings.overlap(means[label], means[best])
            row.append(cell(means[label], each, 1, label == best, close))
        known = references(by_label)
        lines = [f"{name} {known[key]:.1f}" for key, name in REFERENCES.items() if key in known]
        rows.append([*row, joined((tag("span", line, class_="range") for line in lines), "")])
    head = ["task", *(name_of(label) for label in labels), "references"]
    return table(caption, head, rows, "numbers")


def references(by_label: Mapping[str, Sequence[Score]]) -> dict[str, float]:
    """Doing nothing, the expert and the bound: means over the layouts that were tested, each layout once."""
    known = {score.layout: score.references for found in by_label.values() for score in found}
    values = {name: [of[name] for of in known.values() if name in of] for name in REFERENCES}
    return {name: float(np.mean(of)) for name, of in values.items() if of}


def curves(material: Material, key: str, by_task: Tasks, labels: Sequence[str]) -> Html:
    """One figure per task."""
    made = []
    for task, by_label in by_task.items():
        shown = {label: by_label[label] for label in labels if label in by_label}
        if not shown:
            continue
        lines = {name: value for name, value in references(by_label).items() if name != "bound"}
        path = charts.task(material.drawn(f"{key}-{task}"), task, shown, lines)
        means = "; ".join(f"{name_of(label)} {sc.mean_of(found).value:.1f}" for label, found in shown.items())
        made.append(figure(path, f"Learning curves of {task}. Mean scores: {means}."))
    return gallery(made)


def tasks(material: Material) -> Parts:
    """The methods on every task, setting by setting."""
    if not material.scores:
        return [paragraph("No task was learned in these results.")]
    parts = [
        paragraph(
            "A score is what one seed comes to on one layout of a task: its discounted return in test episodes, averaged "
            "over the last quarter of training. Bands and brackets are 95 % bootstrap intervals of the mean, not clipped."
        )
    ]
    for key, title, by_task in material.settings():
        labels = [label for label in sc.labels_of(by_task) if label in METHODS] or sc.labels_of(by_task)
        parts.append(tag("h3", title))
        parts += aggregate(material, key, by_task)
        parts.append(score_table(f"{title}: {MARKED}", by_task, labels))
        parts.append(curves(material, f"task-{key}", by_task, labels))
        parts += [paragraph(line, class_="note") for line in findings.fewer_scores(by_task)]
    return parts


def aggregate(material: Material, key: str, by_task: Tasks) -> Parts:
    """The figure over all tasks."""
    iqm, better = sc.aggregate(by_task), sc.improvements(by_task)
    if not iqm:
        return [
            paragraph("Scores cannot be normalised: the expert's or those of doing nothing are missing.", class_="note")
        ]
    made = []
    ends = "0: do nothing, 1: scripted expert"
    path = charts.intervals(material.drawn(f"aggregate-{key}"), iqm, "Interquartile mean of normalised scores", ends)
    made.append(figure(path, f"Interquartile means: {_told(iqm)}."))
    if better:
        ends = "0.5: neither is better"
        path = charts.intervals(
            material.drawn(f"improvement-{key}"), better, "Probability that SUSD scores higher", ends, 0.5
        )
        made.append(figure(path, f"Probability that SUSD scores higher: {_told(better)}."))
    count = f"{len(by_task)} task{'s' * (len(by_task) > 1)}"
    caption = (
        f"Over {count}. Intervals resample the scores of each task within the task; the probability, that a score of SUSD "
        "is above one of the method, is a mean over tasks."
    )
    if left := [name_of(label) for label in sc.labels_of(by_task) if label not in iqm]:
        caption += f" Without an aggregate, because a task is missing: {findings.listed(left)}."
    return [gallery(made), paragraph(caption, class_="note")]


def _told(estimates: Mapping[str, Estimate]) -> str:
    return "; ".join(f"{name_of(label)} {findings.number(found, 2)}" for label, found in estimates.items())


def ablations(material: Material) -> Parts:
    """SUSD beside what was cut out of it, and its rivals with skills of the same size."""
    parts: Parts = []
    for key, title, by_task in material.settings():
        variants = [label for label in sc.labels_of(by_task) if label not in METHODS]
        if not variants:
            continue
        origins = {label.split("-")[0] for label in variants} | {OURS}
        labels = [label for label in sc.labels_of(by_task) if label in variants or label in origins]
        better = {label: found for label, found in sc.improvements(by_task).items() if label in variants}
        parts.append(tag("h3", title))
        if better:
            told = [f"{name_of(label)} {findings.number(found, 2)}" for label, found in better.items()]
            parts.append(paragraph(f"Probability that SUSD scores higher (0.5: neither is better): {'; '.join(told)}."))
        parts.append(score_table(f"{title}: {MARKED}", by_task, labels))
        parts.append(curves(material, f"ablation-{key}", by_task, labels))
    if not parts:
        return [paragraph("No ablation and no control of the skill's size was run on tasks.")]
    return [
        paragraph(
            "SUSD-w is SUSD without the curiosity weight, SUSD-wf without weight and factors. “Same size” gives a rival a "
            "skill of as many numbers as SUSD's, which the paper's main comparison does not."
        ),
        *parts,
    ]

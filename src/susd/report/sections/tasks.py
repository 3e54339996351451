"""The sections on downstream tasks: scores, learning curves and aggregates, of methods and of their variants."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from susd.experiments.statistics import Estimate
from susd.report import charts
from susd.report.aggregate import (
    PerSeed,
    Score,
    Tasks,
    improvements,
    interquartile_means,
    labels_of,
    mean_of,
    over_seeds,
    profiles,
)
from susd.report.claims import SHARE, decimal, fewer_scores, format_estimate, in_words, overlap
from susd.report.html import Html, figure, gallery, html_table, joined, paragraph, tag
from susd.report.labels import OURS, card_of, is_variant, title_of
from susd.report.load import ReportData

Parts = list[Html]
MISSING = "not run"
LEVELS = tuple(np.linspace(0.0, 1.0, 41).tolist())  # of performance profiles
MARKED = "mean, interval, every score. Marked: the highest mean; ≈: its interval overlaps that one's. Grey: one seed."
REFERENCES = {"do_nothing": "do nothing", "expert": "expert", "bound": "bound"}


def cell(found: Estimate, values: Sequence[str], digits: int, best: bool = False, close: bool = False) -> Html:
    """A mean, its interval below it, and below that the single values; one seed is grey and never marked."""
    value = tag("span", decimal(found.value, digits), class_=f"value{' best' * best}" if found.known else "value single")
    mark = tag("span", " ≈", title="not clearly apart from the best") if close else Html("")
    ends = [decimal(end, digits) for end in (found.low, found.high)]
    interval = tag("span", f"[{', '.join(ends)}]" if found.known else "n = 1", class_="range")
    short = sum(map(len, values)) < 24  # a few stay on one line
    between = "\u00a0·\u00a0" if short else "\u00a0· "
    each = tag("span", between.join(values), class_="each") if len(values) > 1 else Html("")
    return joined([value, mark, interval, each], "")


def seeds_cell(values: PerSeed | None, digits: int, scale: float = 1.0) -> Html:
    """The cell of a metric that every seed has one value of."""
    if not values:
        return Html("–")
    scaled = {seed: scale * value for seed, value in values.items()}
    found = over_seeds(scaled).within(-math.inf, scale if scale == SHARE else math.inf)
    return cell(found, [decimal(value, digits) for value in scaled.values()], digits)


def score_table(caption: str, by_task: Tasks, labels: Sequence[str]) -> Html:
    """Tasks by methods: mean, interval, every score; the highest mean of a row is marked."""
    rows: list[list[str]] = []
    for task, by_label in by_task.items():
        means = {label: mean_of(by_label[label]) for label in labels if label in by_label}
        if not means:
            continue
        best = max((label for label in means if means[label].known), key=lambda label: means[label].value, default="")
        row: list[str] = [task]
        for label in labels:
            if label not in means:
                row.append(MISSING)
                continue
            each = [decimal(score.value, 1) for score in by_label[label]]
            close = bool(best) and label != best and means[label].known and overlap(means[label], means[best])
            row.append(cell(means[label], each, 1, label == best, close))
        known = references(by_label)
        lines = [f"{name} {known[key]:.1f}" for key, name in REFERENCES.items() if key in known]
        rows.append([*row, joined((tag("span", line, class_="range") for line in lines), "")])
    head = ["task", *(title_of(label) for label in labels), "references"]
    return html_table(caption, head, rows, "numbers")


def references(by_label: Mapping[str, Sequence[Score]]) -> dict[str, float]:
    """Returns of doing nothing, of the expert and of the bound: means over the tested layouts, each layout once."""
    known = {score.layout: score.references for found in by_label.values() for score in found}
    values = {name: [of[name] for of in known.values() if name in of] for name in REFERENCES}
    return {name: float(np.mean(of)) for name, of in values.items() if of}


def curves(data: ReportData, key: str, by_task: Tasks, labels: Sequence[str]) -> Html:
    """One figure per task."""
    made = []
    for task, by_label in by_task.items():
        shown = {label: by_label[label] for label in labels if label in by_label}
        if not shown:
            continue
        lines = {name: value for name, value in references(by_label).items() if name != "bound"}
        path = charts.task(data.figure_path(f"{key}-{task}"), task, shown, lines, data.looks)
        means = "; ".join(f"{title_of(label)} {mean_of(found).value:.1f}" for label, found in shown.items())
        made.append(figure(path, f"Learning curves of {task}. Mean scores: {means}."))
    return gallery(made)


def tasks(data: ReportData) -> Parts:
    """The methods on every task, setting by setting."""
    if not data.scores:
        return []
    parts = [
        paragraph(
            "A score is the result of one seed on one layout of a task: its discounted return in test episodes, averaged "
            "over the last quarter of training. Bands and brackets are intervals of the mean over seeds of skills."
        )
    ]
    for key, title, by_task in data.settings():
        labels = [label for label in labels_of(by_task) if not is_variant(label)] or labels_of(by_task)
        parts.append(tag("h3", title))
        parts += aggregate(data, key, by_task)
        parts.append(score_table(f"{title}: {MARKED}", by_task, labels))
        parts.append(curves(data, f"task-{key}", by_task, labels))
        parts += [paragraph(line, class_="note") for line in fewer_scores(by_task)]
    return parts


def aggregate(data: ReportData, key: str, by_task: Tasks) -> Parts:
    """The figure over all tasks."""
    iqm, better = interquartile_means(by_task), improvements(by_task, OURS)
    if not iqm:
        return [
            paragraph("Scores cannot be normalised: the tasks have neither a scripted expert nor a bound.", class_="note")
        ]
    made = []
    ends = f"0: do nothing, 1: {_upper(by_task)}"
    title = "Interquartile mean of normalised scores"
    path = charts.intervals(data.figure_path(f"aggregate-{key}"), iqm, title, ends, data.looks)
    made.append(figure(path, f"Interquartile means: {_in_text(iqm)}."))
    if better:
        ends = "0.5: neither is better"
        title = "Probability that SUSD scores higher"
        path = charts.intervals(data.figure_path(f"improvement-{key}"), better, title, ends, data.looks, 0.5)
        made.append(figure(path, f"Probability that SUSD scores higher: {_in_text(better)}."))
    path = charts.profiles(data.figure_path(f"profile-{key}"), LEVELS, profiles(by_task, LEVELS), data.looks)
    made.append(figure(path, "Performance profiles: the share of normalised scores above each level."))
    count = f"{len(by_task)} task{'s' * (len(by_task) > 1)}"
    caption = (
        f"Over {count}. Intervals resample seeds of skills; a seed that is drawn is drawn with all its scores in all "
        "tasks. The probability, that a score of SUSD is above one of the method, is a mean over tasks. The "
        "profile is the share of scores above each level."
    )
    if left := [title_of(label) for label in labels_of(by_task) if label not in iqm]:
        caption += f" Without an aggregate, because a task is missing: {in_words(left)}."
    return [gallery(made), paragraph(caption, class_="note")]


def _upper(by_task: Tasks) -> str:
    """What a normalised score of 1 stands for."""
    scores = [score for by_label in by_task.values() for found in by_label.values() for score in found]
    known = {"expert" in score.references for score in scores if score.normalised is not None}
    return " or ".join(name for has_expert, name in ((True, "scripted expert"), (False, "bound")) if has_expert in known)


def _in_text(estimates: Mapping[str, Estimate]) -> str:
    return "; ".join(f"{title_of(label)} {format_estimate(found, 2)}" for label, found in estimates.items())


def ablations(data: ReportData) -> Parts:
    """SUSD compared with its ablations, and its rivals with skills of the same size."""
    parts: Parts = []
    for key, title, by_task in data.settings():
        variants = [label for label in labels_of(by_task) if is_variant(label)]
        if not variants:
            continue
        cards = [card for card in map(card_of, variants) if card]
        origins = {card.code for card in cards} | {OURS}
        labels = [label for label in labels_of(by_task) if label in variants or label in origins]
        better = {label: found for label, found in improvements(by_task, OURS).items() if label in variants}
        parts.append(tag("h3", title))
        if better:
            parts.append(paragraph(f"Probability that SUSD scores higher (0.5: neither is better): {_in_text(better)}."))
        parts.append(score_table(f"{title}: {MARKED}", by_task, labels))
        parts.append(curves(data, f"ablation-{key}", by_task, labels))
    if not parts:
        return []
    return [
        paragraph(
            "SUSD-w is SUSD without the curiosity weight, SUSD-wf without weight and factors. “Same size” gives a rival a "
            "skill of as many dimensions as SUSD's, which the paper's main comparison does not."
        ),
        *parts,
    ]

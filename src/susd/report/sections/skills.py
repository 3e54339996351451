"""The sections of a report on skills by themselves: coverage, decoding, control, completions, trajectories."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from susd.evaluation import ZERO_SHOT
from susd.experiments.metrics_store import Fact
from susd.report import aggregate as sc
from susd.report import charts
from susd.report import claims as findings
from susd.report.aggregate import ENVIRONMENTS, name_of
from susd.report.html import Html, details, figure, gallery, is_png, paragraph, table, tag
from susd.report.load import Material
from susd.report.sections.tasks import Parts, cell, seeds_cell
from susd.viz import figures

MEAN, SAMPLED = "trained, mean actions", "trained, sampled actions"
REFERENCES = {"untrained": "untrained, mean actions", "random actions": "random actions"}
PHI = "phi"


def coverage(material: Material) -> Parts:
    """Bars of visited cells, and the table with the paper's count."""
    parts: Parts = []
    for key, title, facts in material.worlds("coverage"):
        steps = sorted({fact.step for fact in facts if fact.subject == MEAN})
        worst, average = (sc.per_seed(facts, subject=MEAN, metric=f"cells_{plane}") for plane in ("worst", "average"))
        planes = ("average",) if worst == average else ("worst", "average")  # one body is its own worst
        made = [_bars(material, key, facts, plane, step, len(planes) > 1) for step in steps for plane in planes]
        if made:
            note = "Share of the 50 × 50 grid visited with mean actions. Bars: mean over seeds; points: every seed."
            parts += [tag("h3", title), gallery(made), paragraph(note, class_="note")]
            parts.append(_coverage_table(title, facts, steps, planes))
    return parts or [paragraph("Coverage was not measured.")]


def _bars(material: Material, key: str, facts: Sequence[Fact], plane: str, step: int, several: bool) -> Html:
    """The figure of one length of the measurement."""
    cells = sc.per_seed(facts, subject=MEAN, metric=f"cells_{plane}", step=step)
    known = {name: _mean(facts, subject=of, metric=f"cells_{plane}", step=step) for name, of in REFERENCES.items()}
    lines = {name: value for name, value in known.items() if value is not None}
    title = f"{plane} body, {step:,} steps" if several else f"{step:,} steps"
    path = charts.coverage(material.drawn(f"coverage-{key}-{plane}-{step}"), title, cells, lines)
    told = (f"{name_of(label)} {findings.number(sc.over_seeds(of), 0, 100, ' %')}" for label, of in cells.items())
    return figure(path, f"Cells visited, {title}: {'; '.join(told)}.")


def _coverage_table(title: str, facts: Sequence[Fact], steps: Sequence[int], planes: Sequence[str]) -> Html:
    """Cells with mean actions, unique positions with sampled ones as in the paper; below, those of nothing learned."""
    wanted = [(MEAN, "cells", plane, step, 100.0) for step in steps for plane in planes]
    wanted += [(SAMPLED, "unique", plane, step, 1.0) for step in steps[:1] for plane in planes]
    names = {MEAN: "cells %", SAMPLED: "unique positions, sampled actions"}
    head = ["method"] + [
        f"{names[policy]}, {plane + ', ' if len(planes) > 1 else ''}{step // 1000}K" for policy, _, plane, step, _ in wanted
    ]
    columns = [
        (sc.per_seed(facts, subject=policy, metric=f"{kind}_{plane}", step=step), scale)
        for policy, kind, plane, step, scale in wanted
    ]
    labels = sc.in_order(label for values, _ in columns for label in values)
    digits = [1 if scale > 1 else 0 for _, scale in columns]
    rows: list[list[str]] = [
        [
            name_of(label),
            *(seeds_cell(values.get(label), d, scale) for (values, scale), d in zip(columns, digits, strict=True)),
        ]
        for label in labels
    ]
    for name, other in (("untrained", "untrained"), ("random actions", "random actions")):
        row: list[str] = [name]
        for (policy, kind, plane, step, scale), d in zip(wanted, digits, strict=True):
            subject = other if other == "random actions" else policy.replace("trained", other)
            found = _mean(facts, subject=subject, metric=f"{kind}_{plane}", step=step)
            row.append("–" if found is None else f"{scale * found:.{d}f}")
        rows.append(row)
    caption = (
        f"{title}: mean, interval, every seed. Action noise saturates unique positions, which is the paper's count: "
        "compare it with that of random actions."
    )
    return table(caption, head, rows, "numbers")


def _mean(facts: Sequence[Fact], **fields: str | int) -> float | None:
    """The mean over all methods and seeds."""
    values = [value for of in sc.per_seed(facts, **fields).values() for value in of.values()]
    return float(np.mean(values)) if values else None


def decoding(material: Material) -> Parts:
    """What can be read of the state from an embedding, with the two controls of its size."""
    parts: Parts = []
    for key, title, facts in material.worlds("decoding"):
        codes = {code: sc.per_seed(facts, subject=code, metric="error") for code in _in_order(facts)}
        codes = {code: values for code, values in codes.items() if values}
        if not codes:
            continue
        blind = sc.per_seed(facts, subject=PHI, metric="error_of_the_mean")
        path = charts.decoding(material.drawn(f"decoding-{key}"), codes, blind)
        told = "; ".join(
            f"{name_of(label)} {findings.number(sc.over_seeds(v), 3)}" for label, v in codes.get(PHI, {}).items()
        )
        caption = (
            "Filled: from the whole embedding. Hollow: from a random projection of it to two numbers, the size of the "
            "paper's rivals. Upright strokes: guessing the mean state of the same policy. Lower is better."
        )
        parts += [
            tag("h3", title),
            figure(path, f"Decoding errors: {told}.", caption),
            _decoding_table(title, facts, codes, blind),
        ]
        parts.append(details("Errors of every factor", _factor_table(title, facts)))
    return parts or [paragraph("Decoding was not measured.")]


def _in_order(facts: Sequence[Fact]) -> list[str]:
    codes = dict.fromkeys(fact.subject for fact in facts if fact.metric == "error")
    return sorted(codes, key=lambda code: (code != PHI, code))


def _decoding_table(
    title: str, facts: Sequence[Fact], codes: dict[str, dict[str, sc.PerSeed]], blind: dict[str, sc.PerSeed]
) -> Html:
    inputs = sc.per_seed(facts, subject=PHI, metric="inputs")
    share = {
        label: {seed: error / blind[label][seed] for seed, error in of.items() if blind.get(label, {}).get(seed)}
        for label, of in codes.get(PHI, {}).items()
    }
    rows: list[list[str]] = []
    for label in sc.in_order(label for values in codes.values() for label in values):
        size = next(iter(inputs.get(label, {}).values()), None)
        numbers = [seeds_cell(values.get(label), 3) for values in codes.values()]
        rows.append([name_of(label), "–" if size is None else f"{size:.0f}", *numbers, seeds_cell(share.get(label), 2)])
    head = ["method", "numbers in φ", *(f"error, {code.replace(PHI, 'φ')}" for code in codes), "φ's error / guessing"]
    caption = (
        f"{title}: mean squared error of the state read from φ: mean, interval, every seed. The states of a policy that "
        "goes nowhere are easy to guess; the last column accounts for that."
    )
    return table(caption, head, rows, "numbers")


def _factor_table(title: str, facts: Sequence[Fact]) -> Html:
    mine = [fact for fact in facts if fact.metric == "factor_error" and fact.subject.startswith(f"{PHI}>")]
    factors = list(dict.fromkeys(fact.subject.partition(">")[2] for fact in mine))
    columns = [sc.per_seed(mine, subject=f"{PHI}>{factor}") for factor in factors]
    labels = sc.in_order(label for values in columns for label in values)
    rows = [[name_of(label), *(_short(values.get(label)) for values in columns)] for label in labels]
    return table(f"{title}: error of every factor read from φ, mean over seeds.", ["method", *factors], rows, "numbers")


def _short(values: sc.PerSeed | None, digits: int = 3) -> str:
    return f"{np.mean(list(values.values())):.{digits}f}" if values else "–"


def control(material: Material) -> Parts:
    """Which part of a skill moves which factor."""
    parts: Parts = []
    for key, title, facts in material.worlds("control"):
        labels = sc.in_order(sc.base(fact.label) for fact in facts)
        made = {label: _matrix(material, key, label, facts) for label in labels}
        caption = (
            f"{title}: the ratio is diagonal / off-diagonal, which a skill with one part has not. Spread: how far two "
            "unrelated skills take a factor, in its own units."
        )
        parts += [tag("h3", title), table(caption, *_control_table(labels, facts), "numbers")]
        parts.append(gallery(picture for picture in made.values() if picture))
        if whole := [name_of(label) for label, picture in made.items() if not picture]:
            note = "A skill with one part moves all that it moves at once, so there is no matrix to draw"
            parts.append(paragraph(f"{note}: {findings.listed(whole)}.", class_="note"))
    return parts or [paragraph("Control was not measured.")]


def _control_table(labels: Sequence[str], facts: Sequence[Fact]) -> tuple[list[str], list[list[str]]]:
    """Head and rows: the summary of the matrix, and the spread of every factor, or its range where they are many."""
    factors = list(dict.fromkeys(fact.subject for fact in facts if fact.metric == "spread"))
    summary = [sc.per_seed(facts, subject="", metric=metric) for metric in ("ratio", "diagonal", "off_diagonal")]
    spread = [sc.per_seed(facts, subject=factor, metric="spread") for factor in factors]
    few = len(factors) <= 5
    rows: list[list[str]] = []
    for label in labels:
        moved = sorted(np.mean(list(of[label].values())) for of in spread if label in of)
        least_to_most = f"{moved[0]:.2f} to {moved[-1]:.2f}" if moved else "–"
        shown = [_short(of.get(label), 2) for of in spread] if few else [least_to_most]
        rows.append([name_of(label), *(seeds_cell(values.get(label), 2) for values in summary), *shown])
    names = [f"spread of {factor.replace('_', ' ')}" for factor in factors] if few else ["spread, least to most moved"]
    return ["method", "ratio", "diagonal", "off-diagonal", *names], rows


def _matrix(material: Material, key: str, label: str, facts: Sequence[Fact]) -> Html:
    """The heat map of one method, mean over seeds; nothing for a skill with one part."""
    cells: dict[tuple[str, str], list[float]] = {}
    for fact in facts:
        if fact.metric == "change" and sc.base(fact.label) == label:
            part, _, factor = fact.subject.partition(">")
            cells.setdefault((part, factor), []).append(fact.value)
    parts, factors = (list(dict.fromkeys(place[i] for place in cells)) for i in (0, 1))
    if len(parts) < 2:
        return Html("")
    matrix = np.array([[np.mean(cells.get((part, factor), [np.nan])) for factor in factors] for part in parts])
    ratios = sc.per_seed(facts, subject="", metric="ratio").get(label)
    ratio = float(np.mean(list(ratios.values()))) if ratios else None
    path = figures.control_matrix(material.drawn(f"control-{key}-{label}"), parts, factors, matrix, ratio)
    alt = f"What each part of a skill of {name_of(label)} moves, {len(parts)} parts by {len(factors)} factors"
    return figure(path, alt, f"{name_of(label)}, mean over {len(ratios or cells[parts[0], factors[0]])} seeds")


def completions(material: Material) -> Parts:
    """Steps in which random skills happen to do a task."""
    parts: Parts = []
    for _, title, facts in material.worlds("completions"):
        tasks = list(dict.fromkeys(fact.subject for fact in facts if fact.metric == "mean"))
        labels = sc.in_order(sc.base(fact.label) for fact in facts)
        rows: list[list[str]] = []
        for task in tasks:
            means, stds = (sc.per_seed(facts, subject=task, metric=metric) for metric in ("mean", "std"))
            cells = (_counts(means.get(label, {}), stds.get(label, {})) for label in labels)
            rows.append([task.removeprefix(f"{facts[0].environment}-"), *cells])
        steps = max(fact.step for fact in facts)
        caption = f"{title}: steps of {steps:,} with a reward under random skills. Mean over seeds, interval, every seed: "
        caption += "mean ± standard deviation of eight repetitions."
        parts.append(table(caption, ["task", *map(name_of, labels)], rows, "numbers"))
    return parts or [paragraph("Completions were not counted.")]


def _counts(means: sc.PerSeed, stds: sc.PerSeed) -> Html:
    each = [f"{mean:.1f}\u00a0±\u00a0{stds[seed]:.1f}" if seed in stds else f"{mean:.1f}" for seed, mean in means.items()]
    return cell(sc.over_seeds(means), each, 1) if means else Html("–")


def zero_shot(material: Material) -> Parts:
    """Goals that nobody trained for: the reward on the way, and beside it that of skills blind to the goal."""
    parts: Parts = []
    for key, title, facts in material.worlds(ZERO_SHOT):
        last = max(fact.step for fact in facts)
        steps = sorted({fact.step for fact in facts})
        at = {step: sc.per_seed(facts, subject="goal", step=step) for step in steps}
        curves = {label: [(step, at[step][label]) for step in steps if label in at[step]] for label in at[last]}
        path = charts.zero_shot(material.drawn(f"zero-shot-{key}"), title, curves)
        ends = {name: sc.per_seed(facts, subject=way, step=last) for way, name in figures.GOAL_WAYS.items()}
        ends = {name: values for name, values in ends.items() if values}
        rows: list[list[str]] = [
            [name_of(label), *(seeds_cell(values.get(label), 0) for values in ends.values())] for label in curves
        ]
        caption = f"{title}: reward of {last:,} steps, mean over eight environment seeds: mean, interval, every seed."
        told = "; ".join(f"{name_of(label)} {np.mean(list(at[last][label].values())):.0f}" for label in curves)
        parts += [tag("h3", title), figure(path, f"Reward so far on zero-shot goals: {told}.")]
        parts.append(table(caption, ["method", *ends], rows, "numbers"))
    return parts or [paragraph("Zero-shot goals were not run.")]


def trajectories(material: Material) -> Parts:
    """The pictures that the results came with."""
    made, broken = [], []
    for path in material.trajectories:
        environment, _, label = path.stem.partition("-")
        whose = name_of(sc.base(label)) + (", pretrained on random layouts" if sc.pretrained(label) == "random" else "")
        name = f"{ENVIRONMENTS.get(environment, environment)}, {whose}"
        if is_png(path):
            made.append(figure(path, f"Trajectories of {name}, coloured by skill", name))
        else:
            broken.append(path.name)
    parts = [gallery(made)] if made else [paragraph("The results came without pictures of trajectories.")]
    return parts + [paragraph(f"{name} is no PNG picture and was left out.", class_="note") for name in broken]

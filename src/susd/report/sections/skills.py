"""The sections on the evaluations of skills that come with the package, and one for any other evaluation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from susd.evaluation import state_goals
from susd.evaluation.ceiling import INTERFACES
from susd.evaluation.ceiling import REFERENCES as REFERENCE_RETURNS
from susd.evaluation.control import RARE
from susd.evaluation.zero_shot import SELECTIONS
from susd.experiments.metrics_store import Fact
from susd.report import charts
from susd.report.aggregate import PerSeed, over_seeds, per_seed
from susd.report.claims import format_estimate, in_words
from susd.report.html import Html, details, figure, gallery, html_table, paragraph, tag
from susd.report.labels import base, in_order, title_of
from susd.report.load import ReportData
from susd.report.sections.tasks import Parts, cell, seeds_cell
from susd.viz import figures

MEAN, SAMPLED = "trained, mean actions", "trained, sampled actions"
REFERENCES = {"untrained": "untrained, mean actions", "random actions": "random actions"}
PHI = "phi"


def coverage(data: ReportData) -> Parts:
    """Bars of visited cells, and the table with the paper's count."""
    parts: Parts = []
    for key, title, facts in data.groups("coverage"):
        steps = sorted({fact.step for fact in facts if fact.subject == MEAN})
        worst, average = (per_seed(facts, subject=MEAN, metric=f"cells_{plane}") for plane in ("worst", "average"))
        planes = ("average",) if worst == average else ("worst", "average")  # a single body is its own worst
        made = [_bars(data, key, facts, plane, step, len(planes) > 1) for step in steps for plane in planes]
        if made:
            note = "Share of the 50 × 50 grid visited with mean actions. Bars: mean over seeds; points: every seed."
            parts += [tag("h3", title), gallery(made), paragraph(note, class_="note")]
            parts.append(_coverage_table(title, facts, steps, planes))
            parts += _fair_coverage(title, facts)
    return parts


def _fair_coverage(title: str, facts: Sequence[Fact]) -> Parts:
    """What neither noise nor random starts inflate, beside random actions; earlier results do not have it."""
    names = {
        "fixed_cells_worst": ("cells %, worst body", 100.0, 1),
        "fixed_cells_average": ("cells %, average body", 100.0, 1),
        "fixed_joint": ("configurations of two factors %", 100.0, 1),
        "fixed_reach_average": ("distance of a skill", 1.0, 2),
    }
    rows: list[list[str]] = []
    mine = [fact for fact in facts if fact.metric in names]
    for label in in_order(base(fact.label) for fact in mine):
        values = [per_seed(mine, subject=MEAN, metric=metric).get(label) for metric in names]
        cells = zip(values, names.values(), strict=True)
        rows.append([title_of(label), *(seeds_cell(of, digits, scale) for of, (_, scale, digits) in cells)])
    for name, subject in REFERENCES.items() if rows else ():
        means = [_mean(mine, subject=subject, metric=metric) for metric in names]
        cells_of = zip(means, names.values(), strict=True)
        rows.append([name, *("–" if x is None else f"{scale * x:.{digits}f}" for x, (_, scale, digits) in cells_of)])
    if not rows:
        return []
    caption = (
        f"{title}: mean actions from one start, so that all variety comes from the skill: mean, interval, every seed. "
        "Configurations of two factors are pairs of coarse cells or flags; bodies that always move alike visit few of them."
    )
    return [html_table(caption, ["method", *(name for name, _, _ in names.values())], rows, "numbers")]


def _bars(data: ReportData, key: str, facts: Sequence[Fact], plane: str, step: int, several: bool) -> Html:
    """The figure of one length of the measurement."""
    cells = per_seed(facts, subject=MEAN, metric=f"cells_{plane}", step=step)
    known = {name: _mean(facts, subject=of, metric=f"cells_{plane}", step=step) for name, of in REFERENCES.items()}
    lines = {name: value for name, value in known.items() if value is not None}
    title = f"{plane} body, {step:,} steps" if several else f"{step:,} steps"
    path = charts.coverage(data.figure_path(f"coverage-{key}-{plane}-{step}"), title, cells, lines, data.looks)
    means = (f"{title_of(label)} {format_estimate(over_seeds(of), 0, 100, ' %')}" for label, of in cells.items())
    return figure(path, f"Cells visited, {title}: {'; '.join(means)}.")


def _coverage_table(title: str, facts: Sequence[Fact], steps: Sequence[int], planes: Sequence[str]) -> Html:
    """Cells with mean actions, unique positions with sampled ones as in the paper; below, those of untrained policies."""
    wanted = [(MEAN, "cells", plane, step, 100.0) for step in steps for plane in planes]
    wanted += [(SAMPLED, "unique", plane, step, 1.0) for step in steps[:1] for plane in planes]
    names = {MEAN: "cells %", SAMPLED: "unique positions, sampled actions"}
    head = ["method"] + [
        f"{names[policy]}, {plane + ', ' if len(planes) > 1 else ''}{step // 1000}K" for policy, _, plane, step, _ in wanted
    ]
    columns = [
        (per_seed(facts, subject=policy, metric=f"{kind}_{plane}", step=step), scale)
        for policy, kind, plane, step, scale in wanted
    ]
    labels = in_order(label for values, _ in columns for label in values)
    digits = [1 if scale > 1 else 0 for _, scale in columns]
    rows: list[list[str]] = [
        [
            title_of(label),
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
    return html_table(caption, head, rows, "numbers")


def _mean(facts: Sequence[Fact], **fields: str | int) -> float | None:
    """The mean over all methods and seeds."""
    values = [value for of in per_seed(facts, **fields).values() for value in of.values()]
    return float(np.mean(values)) if values else None


def decoding(data: ReportData) -> Parts:
    """How much of the state can be decoded from an embedding, with the two controls of its size."""
    parts: Parts = []
    for key, title, facts in data.groups("decoding"):
        codes = {code: per_seed(facts, subject=code, metric="error") for code in _in_order(facts)}
        codes = {code: values for code, values in codes.items() if values}
        if not codes:
            continue
        constant = per_seed(facts, subject=PHI, metric="error_of_the_mean")
        path = charts.decoding(data.figure_path(f"decoding-{key}"), codes, constant, data.looks)
        errors = "; ".join(
            f"{title_of(label)} {format_estimate(over_seeds(v), 3)}" for label, v in codes.get(PHI, {}).items()
        )
        caption = (
            "Filled: from the whole embedding. Hollow: from a random projection of it to two dimensions, the size of the "
            "paper's rivals. Vertical strokes: predicting the mean state of the same policy. Lower is better."
        )
        parts += [
            tag("h3", title),
            figure(path, f"Decoding errors: {errors}.", caption),
            _decoding_table(title, facts, codes, constant),
        ]
        parts.append(details("Errors of every factor", _factor_table(title, facts)))
        parts += _explained(title, facts)
    return parts


def _in_order(facts: Sequence[Fact]) -> list[str]:
    codes = dict.fromkeys(fact.subject for fact in facts if fact.metric == "error")
    return sorted(codes, key=lambda code: (code != PHI, code))


def _decoding_table(
    title: str, facts: Sequence[Fact], codes: dict[str, dict[str, PerSeed]], constant: dict[str, PerSeed]
) -> Html:
    inputs = per_seed(facts, subject=PHI, metric="inputs")
    share = {
        label: {seed: error / constant[label][seed] for seed, error in of.items() if constant.get(label, {}).get(seed)}
        for label, of in codes.get(PHI, {}).items()
    }
    rows: list[list[str]] = []
    for label in in_order(label for values in codes.values() for label in values):
        size = next(iter(inputs.get(label, {}).values()), None)
        numbers = [seeds_cell(values.get(label), 3) for values in codes.values()]
        rows.append([title_of(label), "–" if size is None else f"{size:.0f}", *numbers, seeds_cell(share.get(label), 2)])
    head = ["method", "dimensions of φ", *(f"error, {code.replace(PHI, 'φ')}" for code in codes), "error, φ / mean state"]
    caption = (
        f"{title}: mean squared error of the state decoded from φ: mean, interval, every seed. The states of a policy that "
        "does not move are easy to predict; the last column accounts for that."
    )
    return html_table(caption, head, rows, "numbers")


def _explained(title: str, facts: Sequence[Fact]) -> Parts:
    """Explained variance on states that are the same for all methods; earlier results do not have it."""
    mine = [fact for fact in facts if fact.metric == "explained"]
    columns = list(dict.fromkeys(fact.subject for fact in mine))
    labels = in_order(base(fact.label) for fact in mine)
    if not labels:
        return []
    found = [per_seed(mine, subject=subject) for subject in columns]
    rows: list[list[str]] = [[title_of(label), *(seeds_cell(of.get(label), 0, 100.0) for of in found)] for label in labels]
    head = ["method", *(subject.replace(PHI, "φ").replace(">", ": ") for subject in columns)]
    caption = (
        f"{title}: variance of the state (%) that a decoder explains on states common to all methods, mean over factors. "
        "Uniform: over its range. Reference: of noisy random actions. A random projection of the state "
        "to as many dimensions as φ is the control: a code need not be learned to hold so much. Mean, interval, every seed."
    )
    return [html_table(caption, head, rows, "numbers")]


def _factor_table(title: str, facts: Sequence[Fact]) -> Html:
    mine = [fact for fact in facts if fact.metric == "factor_error" and fact.subject.startswith(f"{PHI}>")]
    factors = list(dict.fromkeys(fact.subject.partition(">")[2] for fact in mine))
    columns = [per_seed(mine, subject=f"{PHI}>{factor}") for factor in factors]
    labels = in_order(label for values in columns for label in values)
    rows = [[title_of(label), *(_short(values.get(label)) for values in columns)] for label in labels]
    return html_table(
        f"{title}: error of every factor decoded from φ, mean over seeds.", ["method", *factors], rows, "numbers"
    )


def _short(values: PerSeed | None, digits: int = 3) -> str:
    return f"{np.mean(list(values.values())):.{digits}f}" if values else "–"


def control(data: ReportData) -> Parts:
    """Which part of a skill moves which factor."""
    parts: Parts = []
    for key, title, facts in data.groups("control"):
        labels = in_order(base(fact.label) for fact in facts)
        made = {label: _matrix(data, key, label, facts) for label in labels}
        caption = (
            f"{title}: the ratio is diagonal / off-diagonal, and undefined for a skill with one part. Spread: the distance "
            "of a factor between two unrelated skills, in its own units."
        )
        if any(fact.metric == "moved" for fact in facts):
            caption += (
                f" Factors that moved in less than {100 * RARE:.0f} % of the pairs of skills are left out of the means. "
                "Over pairs: the 95 % bootstrap interval of every seed."
            )
        parts += [tag("h3", title), html_table(caption, *_control_table(labels, facts), "numbers")]
        parts.append(gallery(image for image in made.values() if image))
        if whole := [title_of(label) for label, image in made.items() if not image]:
            note = "A skill with one part has no matrix to draw"
            parts.append(paragraph(f"{note}: {in_words(whole)}.", class_="note"))
    return parts


def _control_table(labels: Sequence[str], facts: Sequence[Fact]) -> tuple[list[str], list[list[str]]]:
    """Head and rows: the summary of the matrix, and the spread of every factor, or its range where they are many."""
    factors = list(dict.fromkeys(fact.subject for fact in facts if fact.metric == "spread"))
    probed = any(fact.metric == "probe_ratio" for fact in facts)  # results of earlier versions are not
    metrics = ("ratio", "diagonal", "off_diagonal", *(["probe_ratio"] * probed))
    summary = [per_seed(facts, subject="", metric=metric) for metric in metrics]
    ends = [per_seed(facts, subject="", metric=metric) for metric in ("ratio_low", "ratio_high")]
    moved = any(fact.metric == "moved" for fact in facts)  # results of earlier versions do not say
    spread = [per_seed(facts, subject=factor, metric="spread") for factor in factors]
    few = len(factors) <= 5
    rows: list[list[str]] = []
    for label in labels:
        distances = sorted(np.mean(list(of[label].values())) for of in spread if label in of)
        least_to_most = f"{distances[0]:.2f} to {distances[-1]:.2f}" if distances else "–"
        shown = [_short(of.get(label), 2) for of in spread] if few else [least_to_most]
        shown += [_intervals(*(of.get(label, {}) for of in ends)), _left_out(label, factors, facts)] if moved else []
        rows.append([title_of(label), *(seeds_cell(values.get(label), 2) for values in summary), *shown])
    names = [f"spread of {factor.replace('_', ' ')}" for factor in factors] if few else ["spread, least to most moved"]
    names += ["ratio, over pairs", "left out"] if moved else []
    return ["method", "ratio", "diagonal", "off-diagonal", *(["ratio of single dimensions"] * probed), *names], rows


def _intervals(low: PerSeed, high: PerSeed) -> str:
    """The interval of every seed."""
    return "; ".join(f"{low[seed]:.2f} to {high[seed]:.2f}" for seed in low if seed in high) or "–"


def _left_out(label: str, factors: Sequence[str], facts: Sequence[Fact]) -> str:
    """The factors that moved too rarely to say what moves them, with the pairs that moved them, in every seed."""
    pairs = per_seed(facts, subject="", metric="pairs").get(label, {})
    found = []
    for factor in factors:
        moved = per_seed(facts, subject=factor, metric="moved").get(label, {})
        rare = [f"{count:.0f} of {pairs[seed]:.0f}" for seed, count in moved.items() if count < RARE * pairs.get(seed, 0)]
        found += [f"{factor.replace('_', ' ')} ({', '.join(rare)})"] if rare else []
    return "; ".join(found) or "–"


def _matrix(data: ReportData, key: str, label: str, facts: Sequence[Fact]) -> Html:
    """The heat map of one method, mean over seeds; nothing for a skill with one part."""
    cells: dict[tuple[str, str], list[float]] = {}
    for fact in facts:
        if fact.metric == "change" and base(fact.label) == label:
            part, _, factor = fact.subject.partition(">")
            cells.setdefault((part, factor), []).append(fact.value)
    parts = list(dict.fromkeys(part for part, _ in cells))
    mine = [fact for fact in facts if base(fact.label) == label]
    factors = list(dict.fromkeys([*(f.subject for f in mine if f.metric == "spread"), *(name for _, name in cells)]))
    if len(parts) < 2:
        return Html("")
    matrix = np.array([[np.mean(cells.get((part, factor), [np.nan])) for factor in factors] for part in parts])
    ratios = per_seed(facts, subject="", metric="ratio").get(label)
    ratio = float(np.mean(list(ratios.values()))) if ratios else None
    rare = {name: "moved rarely" for name in factors if _left_out(label, [name], facts) != "–"}
    path = figures.control_matrix(data.figure_path(f"control-{key}-{label}"), parts, factors, matrix, ratio, left_out=rare)
    seeds = len(ratios or next(iter(cells.values())))
    alt = f"What each part of a skill of {title_of(label)} moves, {len(parts)} parts by {len(factors)} factors"
    return figure(path, alt, f"{title_of(label)}, mean over seeds" if seeds > 1 else title_of(label))


def completions(data: ReportData) -> Parts:
    """Steps in which random skills happen to complete a task."""
    parts: Parts = []
    for _, title, facts in data.groups("completions"):
        tasks = list(dict.fromkeys(fact.subject for fact in facts if fact.metric == "mean"))
        labels = in_order(base(fact.label) for fact in facts)
        rows: list[list[str]] = []
        for task in tasks:
            means, stds = (per_seed(facts, subject=task, metric=metric) for metric in ("mean", "std"))
            cells = (_counts(means.get(label, {}), stds.get(label, {})) for label in labels)
            rows.append([task.removeprefix(f"{facts[0].environment}-"), *cells])
        steps = max(fact.step for fact in facts)
        caption = f"{title}: steps of {steps:,} with a reward under random skills. Mean over seeds, interval, every seed: "
        caption += "mean ± standard deviation of eight repetitions."
        parts.append(html_table(caption, ["task", *map(title_of, labels)], rows, "numbers"))
    return parts


def _counts(means: PerSeed, stds: PerSeed) -> Html:
    each = [f"{mean:.1f}\u00a0±\u00a0{stds[seed]:.1f}" if seed in stds else f"{mean:.1f}" for seed, mean in means.items()]
    return cell(over_seeds(means), each, 1) if means else Html("–")


def zero_shot(data: ReportData) -> Parts:
    """Goals that were not trained for: rewards in the paper's protocols, otherwise the share of goals that are reached."""
    parts: Parts = []
    for key, title, facts in data.groups("zero-shot"):
        parts.append(tag("h3", title))
        parts += _goal_rewards(data, key, title, [fact for fact in facts if fact.metric == "reward"])
        parts += _goals_reached(title, facts)
    return parts


def _goals_reached(title: str, everything: Sequence[Fact]) -> Parts:
    """Shares of the goals that are states, with those of random skills and of doing nothing below each."""
    facts = [fact for fact in everything if fact.metric == "reached"]
    labels = in_order(base(fact.label) for fact in facts)
    rows: list[list[str]] = []
    for goal in dict.fromkeys(fact.subject.partition(">")[2] for fact in facts):
        kind, _, name = goal.rpartition(">")
        for way, words in state_goals.WAYS.items():
            values = per_seed(facts, subject=f"{way}>{goal}")
            first = state_goals.label(kind, name) if way == "goal" else ""
            rows.append([first, words, *(seeds_cell(values.get(label), 0, 100.0) for label in labels)])
    if not rows:
        return []
    steps = in_words([f"{step:,}" for step in sorted({fact.step for fact in facts})])
    within = in_words([f"{x:g}" for x in sorted({fact.value for fact in everything if fact.metric == "tolerance"})])
    caption = (
        f"{title}: goals (%) that episodes of {steps} steps end near: each factor that the goal names is within {within} "
        "of its spread. Goals are states that random skills visit. Mean, interval, every seed."
    )
    return [html_table(caption, ["goal", "skill", *map(title_of, labels)], rows, "numbers")]


def _goal_rewards(data: ReportData, key: str, title: str, facts: Sequence[Fact]) -> Parts:
    """The cumulative reward in a protocol of the paper, compared with that of skills that ignore the goal."""
    if not facts:
        return []
    steps = sorted({fact.step for fact in facts})
    at = {step: per_seed(facts, subject="goal", step=step) for step in steps}
    last = steps[-1]
    lines: dict[str, list[tuple[int, PerSeed]]] = {
        label: [
            (0, dict.fromkeys(at[last][label], 0.0)),
            *((step, at[step][label]) for step in steps if label in at[step]),
        ]
        for label in at[last]
    }
    path = data.figure_path(f"zero-shot-{key}")
    charts.curves(path, title, "cumulative reward", lines, data.looks)
    ends = {name: per_seed(facts, subject=way, step=last) for way, name in SELECTIONS.items()}
    ends = {name: values for name, values in ends.items() if values}
    rows: list[list[str]] = [
        [title_of(label), *(seeds_cell(values.get(label), 0) for values in ends.values())] for label in lines
    ]
    caption = f"{title}: reward of {last:,} steps, mean over eight environment seeds: mean, interval, every seed."
    means = "; ".join(f"{title_of(label)} {np.mean(list(at[last][label].values())):.0f}" for label in lines)
    drawn = figure(path, f"Cumulative reward on zero-shot goals: {means}.")
    return [drawn, html_table(caption, ["method", *ends], rows, "numbers")]


def ceiling(data: ReportData) -> Parts:
    """Returns of planning in the simulator, with the references of each task."""
    parts: Parts = []
    for _, title, facts in data.groups("ceiling"):
        labels = in_order(base(fact.label) for fact in facts)
        rows: list[list[str]] = []
        for subject in dict.fromkeys(fact.subject for fact in facts):
            known = (_mean(facts, subject=subject, metric=f"{name}_discounted") for name in REFERENCE_RETURNS)
            shown = ["–" if value is None else f"{value:.1f}" for value in known]
            for way, words in INTERFACES.items():
                values = per_seed(facts, subject=subject, metric=f"{way}_discounted")
                if values:
                    cells = (seeds_cell(values.get(label), 1) for label in labels)
                    rows.append([subject.replace("@", ", layout "), words, *cells, *shown])
        caption = f"{title}: discounted return of planning in the simulator, without learning: mean, interval, every seed."
        head = ["task", "high-level actions", *map(title_of, labels), *REFERENCE_RETURNS.values()]
        parts.append(html_table(caption, head, rows, "numbers"))
    return parts


def any_evaluation(data: ReportData, phase: str) -> Parts:
    """All facts of an evaluation that has no section of its own."""
    parts: Parts = []
    for _, title, facts in data.groups(phase):
        labels = in_order(base(fact.label) for fact in facts)
        steps = {fact.step for fact in facts}
        rows: list[list[str]] = []
        for subject, metric, step in dict.fromkeys((fact.subject, fact.metric, fact.step) for fact in facts):
            values = per_seed(facts, subject=subject, metric=metric, step=step)
            of = [name for name in (subject, metric, f"{step:,} steps" if len(steps) > 1 else "") if name]
            rows.append([", ".join(of), *(seeds_cell(values.get(label), 3) for label in labels)])
        caption = f"{title}: mean, interval, every seed."
        parts.append(html_table(caption, ["value of", *map(title_of, labels)], rows, "numbers"))
    return parts

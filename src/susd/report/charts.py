"""The figures of a report. A label has its own colour, marker and line style, the same in all figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from susd.experiments.statistics import Estimate
from susd.report.aggregate import PerSeed, Score, band, mean_of, over_seeds
from susd.report.labels import OURS, Look, title_of
from susd.viz.figures import INK, LIGHT, PALE, drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Looks = Mapping[str, Look]
Curves = Mapping[str, Sequence[tuple[int, PerSeed]]]  # label -> (step, value of every seed)
NARROW = 4.8  # inches: two in a row on a screen, one on a telephone
REFERENCES = {"bound": ("-", "bound"), "expert": ("--", "expert"), "do_nothing": (":", "do nothing")}


def task(
    path: Path, title: str, scores: Mapping[str, Sequence[Score]], references: Mapping[str, float], looks: Looks
) -> Path:
    """Left the mean curve of every label with its band, right every score and the mean of each label."""
    with drawing(path, 6.2, 3.3) as figure:
        curves, strip = figure.subplots(1, 2, sharey=True, width_ratios=[1.5, 1])
        for kind, value in references.items():
            style, name = REFERENCES[kind]
            for axes in (curves, strip):
                axes.axhline(value, color=PALE, linestyle=style, linewidth=0.9, zorder=1)
            where: Any = {"xy": (1, value), "xytext": (-2, 2), "xycoords": ("axes fraction", "data")}
            curves.annotate(name, **where, textcoords="offset points", ha="right", fontsize=7, color=PALE)
        for order, (label, ours) in enumerate(reversed(list(scores.items()))):
            points = band(ours)
            if len(points) < 2:
                continue
            episodes = [episode for episode, _ in points]
            view, strong = looks[label], label == OURS
            curves.fill_between(
                episodes, [e.low for _, e in points], [e.high for _, e in points],
                color=view.colour, alpha=0.16 if strong else 0.08, linewidth=0, zorder=2,
            )  # fmt: skip
            every = max(1, len(points) // 5)
            curves.plot(
                episodes, [e.value for _, e in points], color=view.colour, linestyle=view.line, marker=view.marker,
                markevery=(order % every, every), markersize=4, markerfacecolor=view.colour if view.filled else "white",
                linewidth=2.2 if strong else 1.2, zorder=3,
            )  # fmt: skip
        _columns(strip, {label: [score.value for score in ours] for label, ours in scores.items()},
                 {label: mean_of(ours) for label, ours in scores.items()}, looks)  # fmt: skip
        curves.set(xlabel="training episodes", ylabel="discounted return")
        curves.margins(y=0.09)
        curves.locator_params(axis="x", nbins=5)
        strip.set_title("every score, mean, interval", fontsize=8, color=PALE, loc="left")
        curves.set_title(title, loc="left", fontweight="bold")
    return path


def _columns(axes: Axes, points: Mapping[str, Sequence[float]], means: Mapping[str, Estimate], looks: Looks) -> None:
    """One column per label: its scores in a row, the mean as a bar, the interval as a line."""
    for x, (label, values) in enumerate(points.items()):
        view, found = looks[label], means[label]
        axes.plot([x, x], [found.low, found.high], color=view.colour, linewidth=1.1, zorder=2)
        axes.plot([x - 0.36, x + 0.36], [found.value] * 2, color=view.colour, linewidth=2.2, zorder=2)
        axes.scatter(_in_row(x, len(values)), values, s=16, zorder=3, **view.dots)
    _tick_labels(axes, list(points))


def _tick_labels(axes: Axes, labels: Sequence[str]) -> None:
    """Titles of labels below the axis."""
    axes.set_xticks(
        range(len(labels)), [title_of(label) for label in labels], rotation=45, ha="right", rotation_mode="anchor"
    )
    axes.set_xlim(-0.6, len(labels) - 0.4)
    axes.grid(axis="x", visible=False)
    axes.spines[["top", "right"]].set_visible(False)


def _in_row(x: float, count: int) -> np.ndarray:
    """Positions of the points of one column, in the order of seeds, so that equal values do not hide each other."""
    return x + (np.arange(count) - (count - 1) / 2) * min(0.16, 0.6 / max(count, 1))


def intervals(
    path: Path, estimates: Mapping[str, Estimate], title: str, ends: str, looks: Looks, middle: float | None = None
) -> Path:
    """One value with its interval per label; `ends` explains the axis, a line marks its middle."""
    with drawing(path, NARROW, 0.26 * len(estimates) + 1.0) as figure:
        axes = figure.add_subplot()
        for y, (label, found) in enumerate(estimates.items()):
            axes.plot([found.low, found.high], [y, y], color=looks[label].colour, linewidth=2.4, zorder=2)
            axes.scatter(found.value, y, s=34, zorder=3, **looks[label].dots)
        if middle is not None:
            axes.axvline(middle, color=INK, linewidth=0.9, linestyle="--")
            axes.set_xlim(-0.03, 1.03)
        axes.set_yticks(range(len(estimates)), [title_of(label) for label in estimates])
        axes.set_ylim(len(estimates) - 0.5, -0.5)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", visible=False)
        axes.set_title(title, loc="left", fontweight="bold")
        axes.set_xlabel(ends)
    return path


def profiles(path: Path, levels: Sequence[float], shares: Mapping[str, Sequence[Estimate]], looks: Looks) -> Path:
    """The share of normalised scores above each level, with its band where seeds repeat."""
    with drawing(path, NARROW, 2.9) as figure:
        axes = figure.add_subplot()
        for label, found in shares.items():
            view = looks[label]
            low, mean, high = ([getattr(e, name) for e in found] for name in ("low", "value", "high"))
            axes.fill_between(levels, low, high, color=view.colour, alpha=0.12, linewidth=0, step="post")
            width = 2.2 if label == OURS else 1.2
            axes.step(levels, mean, where="post", color=view.colour, linestyle=view.line, linewidth=width)
            axes.plot([], [], color=view.colour, linestyle=view.line, linewidth=width, label=title_of(label))
        axes.set_title("Performance profile", loc="left", fontweight="bold")
        axes.set(xlabel="normalised score", ylabel="share of scores above", ylim=(-0.03, 1.03))
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside lower center", ncols=3, fontsize=7.5, columnspacing=1.2)
    return path


def coverage(path: Path, title: str, cells: Mapping[str, PerSeed], references: Mapping[str, float], looks: Looks) -> Path:
    """Bars of the mean share of visited cells, every seed a point; lines for policies that did not learn."""
    with drawing(path, NARROW, 2.9) as figure:
        axes = figure.add_subplot()
        percent = {label: {seed: 100 * share for seed, share in values.items()} for label, values in cells.items()}
        _bars(axes, percent, looks)
        for style, (name, share) in zip((":", "--"), references.items(), strict=False):
            axes.axhline(100 * share, color=INK, linestyle=style, linewidth=1, label=f"{name}, {100 * share:.0f} %")
        axes.set_title(title, loc="left", fontweight="bold", pad=20 if references else None)
        axes.set_ylabel("cells visited (%)")
        axes.set_ylim(0, 103)
        if references:
            axes.legend(loc="lower left", fontsize=7.5, bbox_to_anchor=(-0.02, 0.98), ncols=2, handlelength=2.2)
    return path


def curves(path: Path, title: str, of: str, lines: Curves, looks: Looks) -> Path:
    """A value by environment steps of every label, mean over seeds with its interval."""
    with drawing(path, NARROW, 2.9) as figure:
        axes = figure.add_subplot()
        for label, points in lines.items():
            view, found = looks[label], [over_seeds(values) for _, values in points]
            steps = [step for step, _ in points]
            low, mean, high = ([getattr(e, name) for e in found] for name in ("low", "value", "high"))
            axes.fill_between(steps, low, high, color=view.colour, alpha=0.14, linewidth=0)
            width = 2.2 if label == OURS else 1.2
            axes.plot(steps, mean, color=view.colour, linestyle=view.line, linewidth=width, label=title_of(label))
        axes.set_title(title, loc="left", fontweight="bold")
        axes.set(xlabel="environment steps", ylabel=of)
        axes.locator_params(axis="x", nbins=5)
        axes.spines[["top", "right"]].set_visible(False)
        if len(lines) > 1:
            figure.legend(loc="outside lower center", ncols=4, fontsize=7.5, columnspacing=1.2)
    return path


def _bars(axes: Axes, panel: Mapping[str, PerSeed], looks: Looks) -> None:
    for x, (label, values) in enumerate(panel.items()):
        view, found = looks[label], over_seeds(values)
        axes.bar(x, found.value, 0.72, color=view.colour, alpha=0.35 if view.filled else 0.18, zorder=2)
        axes.bar(x, found.value, 0.72, fill=False, edgecolor=view.colour, linewidth=0.9, zorder=2)
        axes.scatter(_in_row(x, len(values)), list(values.values()), s=15, zorder=3, **view.dots)
    _tick_labels(axes, list(panel))


def decoding(path: Path, codes: Mapping[str, Mapping[str, PerSeed]], constant: Mapping[str, PerSeed], looks: Looks) -> Path:
    """The error of every seed, read from the whole embedding (filled) and from two random projections of it (hollow)."""
    labels = list(dict.fromkeys(label for panel in codes.values() for label in panel))
    with drawing(path, 5.6, 0.3 * len(labels) + 1.2) as figure:
        axes = figure.add_subplot()
        for row, (code, panel) in enumerate(codes.items()):
            marker, filled = "os^D"[row % 4], row == 0
            for label, values in panel.items():
                y, found = labels.index(label) + (row - (len(codes) - 1) / 2) * 0.3, over_seeds(values)
                view = replace(looks[label], marker=marker, filled=filled)
                axes.plot([found.low, found.high], [y, y], color=view.colour, linewidth=1.2, zorder=2)
                axes.scatter(list(values.values()), [y] * len(values), s=20, zorder=3, **view.dots)
            name = code.replace("phi", "whole embedding")
            axes.scatter([], [], s=20, label=name, **Look(INK, marker, "-", filled).dots)
        guesses = [(y, np.mean(list(constant[label].values()))) for y, label in enumerate(labels) if label in constant]
        heights, errors = zip(*guesses, strict=True) if guesses else ((), ())
        axes.scatter(errors, heights, s=130, marker="|", color=INK, linewidth=1.4, label="predicting the mean state")
        axes.set_yticks(range(len(labels)), [title_of(label) for label in labels])
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.set_xlim(left=0)
        axes.set_xlabel("mean squared error (lower is better)")
        axes.grid(axis="y", color=LIGHT)
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside upper center", ncols=3, fontsize=8, columnspacing=1.2)
    return path

"""The figures of a report. A method has one colour, one marker and one kind of line, the same in all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from susd.experiments.statistics import Estimate
from susd.report.aggregate import NAMES, OURS, PerSeed, Score, band, mean_of, name_of, over_seeds
from susd.viz.figures import INK, LIGHT, PALE, PALETTE, drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (6, 1.5)), (0, (3, 1, 1, 1, 1, 1)), (0, (1, 2)))
MARKERS = "os^DvPX"
NARROW = 4.8  # inches: two beside each other on a screen, one on a telephone
REFERENCES = {"bound": ("-", "bound"), "expert": ("--", "expert"), "do_nothing": (":", "do nothing")}


@dataclass(frozen=True)
class Look:
    """How a method is drawn."""

    colour: str
    marker: str
    line: Any
    filled: bool

    @property
    def dots(self) -> dict[str, Any]:
        """As options of a scatter."""
        face = self.colour if self.filled else "white"
        return {"marker": self.marker, "facecolor": face, "edgecolor": self.colour, "linewidth": 0.9}


def look(label: str) -> Look:
    """The known methods have fixed looks; any other gets one from the letters of its label."""
    order = list(NAMES).index(label) if label in NAMES else sum(label.encode())
    return Look(PALETTE[order % 7], MARKERS[(order + order // 7) % 7], LINES[(order + order // 7) % 7], order < 7)


def task(path: Path, title: str, scores: Mapping[str, Sequence[Score]], references: Mapping[str, float]) -> Path:
    """Left the mean curve of every method with its band, right every score and the mean of each method."""
    with drawing(path, 6.2, 3.3) as figure:
        curves, strip = figure.subplots(1, 2, sharey=True, width_ratios=[1.5, 1])
        for kind, value in references.items():
            style, name = REFERENCES[kind]
            for axes in (curves, strip):
                axes.axhline(value, color=PALE, linestyle=style, linewidth=0.9, zorder=1)
            place: Any = {"xy": (1, value), "xytext": (-2, 2), "xycoords": ("axes fraction", "data")}
            curves.annotate(name, **place, textcoords="offset points", ha="right", fontsize=7, color=PALE)
        for order, (label, ours) in enumerate(reversed(list(scores.items()))):
            points = band(ours)
            if len(points) < 2:
                continue
            episodes = [episode for episode, _ in points]
            view, strong = look(label), label == OURS
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
        columns(strip, {label: [score.value for score in ours] for label, ours in scores.items()},
                {label: mean_of(ours) for label, ours in scores.items()})  # fmt: skip
        curves.set(xlabel="training episodes", ylabel="discounted return")
        curves.margins(y=0.09)
        curves.locator_params(axis="x", nbins=5)
        strip.set_title("every score, mean, interval", fontsize=8, color=PALE, loc="left")
        curves.set_title(title, loc="left", fontweight="bold")
    return path


def columns(axes: Axes, points: Mapping[str, Sequence[float]], means: Mapping[str, Estimate]) -> None:
    """One column per method: its scores side by side, the mean as a bar, the interval as a line."""
    for place, (label, values) in enumerate(points.items()):
        view = look(label)
        axes.plot([place, place], [means[label].low, means[label].high], color=view.colour, linewidth=1.1, zorder=2)
        axes.plot([place - 0.36, place + 0.36], [means[label].value] * 2, color=view.colour, linewidth=2.2, zorder=2)
        axes.scatter(_beside(place, len(values)), values, s=16, zorder=3, **view.dots)
    upright(axes, list(points))


def upright(axes: Axes, labels: Sequence[str]) -> None:
    """Names of methods below the axis."""
    axes.set_xticks(
        range(len(labels)), [name_of(label) for label in labels], rotation=45, ha="right", rotation_mode="anchor"
    )
    axes.set_xlim(-0.6, len(labels) - 0.4)
    axes.grid(axis="x", visible=False)
    axes.spines[["top", "right"]].set_visible(False)


def _beside(place: float, count: int) -> np.ndarray:
    """Points of one column, from left to right in the order of seeds, so that equal ones do not hide each other."""
    return place + (np.arange(count) - (count - 1) / 2) * min(0.16, 0.6 / max(count, 1))


def intervals(path: Path, estimates: Mapping[str, Estimate], title: str, ends: str, middle: float | None = None) -> Path:
    """One number with its interval per method; `ends` explains the axis, a line marks its middle."""
    with drawing(path, NARROW, 0.26 * len(estimates) + 1.0) as figure:
        axes = figure.add_subplot()
        for place, (label, found) in enumerate(estimates.items()):
            view = look(label)
            axes.plot([found.low, found.high], [place, place], color=view.colour, linewidth=2.4, zorder=2)
            axes.scatter(found.value, place, s=34, zorder=3, **view.dots)
        if middle is not None:
            axes.axvline(middle, color=INK, linewidth=0.9, linestyle="--")
            axes.set_xlim(-0.03, 1.03)
        axes.set_yticks(range(len(estimates)), [name_of(label) for label in estimates])
        axes.set_ylim(len(estimates) - 0.5, -0.5)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", visible=False)
        axes.set_title(title, loc="left", fontweight="bold")
        axes.set_xlabel(ends)
    return path


def coverage(path: Path, title: str, cells: Mapping[str, PerSeed], references: Mapping[str, float]) -> Path:
    """Bars of the mean share of visited cells, every seed a point; lines for what nothing learned would visit."""
    with drawing(path, NARROW, 2.9) as figure:
        axes = figure.add_subplot()
        _bars(axes, {label: {seed: 100 * share for seed, share in values.items()} for label, values in cells.items()})
        for style, (name, share) in zip((":", "--"), references.items(), strict=False):
            axes.axhline(100 * share, color=INK, linestyle=style, linewidth=1, label=f"{name}, {100 * share:.0f} %")
        axes.set_title(title, loc="left", fontweight="bold", pad=20 if references else None)
        axes.set_ylabel("cells visited (%)")
        axes.set_ylim(0, 103)
        if references:
            axes.legend(loc="lower left", fontsize=7.5, bbox_to_anchor=(-0.02, 0.98), ncols=2, handlelength=2.2)
    return path


def zero_shot(path: Path, title: str, curves: Mapping[str, Sequence[tuple[int, PerSeed]]]) -> Path:
    """The reward so far of every method, mean over seeds with its interval."""
    with drawing(path, NARROW, 2.9) as figure:
        axes = figure.add_subplot()
        for label, points in curves.items():
            view, found = look(label), [over_seeds(values) for _, values in points]
            steps = [0, *(step for step, _ in points)]
            low, mean, high = ([0.0, *(getattr(e, name) for e in found)] for name in ("low", "value", "high"))
            axes.fill_between(steps, low, high, color=view.colour, alpha=0.14, linewidth=0)
            width = 2.2 if label == OURS else 1.2
            axes.plot(steps, mean, color=view.colour, linestyle=view.line, linewidth=width, label=name_of(label))
        axes.set_title(title, loc="left", fontweight="bold")
        axes.set(xlabel="environment steps", ylabel="reward so far")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="upper left", fontsize=8)
    return path


def _bars(axes: Axes, panel: Mapping[str, PerSeed]) -> None:
    for place, (label, values) in enumerate(panel.items()):
        view, found = look(label), over_seeds(values)
        axes.bar(place, found.value, 0.72, color=view.colour, alpha=0.35 if view.filled else 0.18, zorder=2)
        axes.bar(place, found.value, 0.72, fill=False, edgecolor=view.colour, linewidth=0.9, zorder=2)
        axes.scatter(_beside(place, len(values)), list(values.values()), s=15, zorder=3, **view.dots)
    upright(axes, list(panel))


def decoding(path: Path, codes: Mapping[str, Mapping[str, PerSeed]], blind: Mapping[str, PerSeed]) -> Path:
    """The error of every seed, read from the whole embedding (filled) and from two random numbers of it (hollow)."""
    labels = list(dict.fromkeys(label for panel in codes.values() for label in panel))
    with drawing(path, 5.6, 0.3 * len(labels) + 1.2) as figure:
        axes = figure.add_subplot()
        for row, (code, panel) in enumerate(codes.items()):
            marker, filled = "os^D"[row % 4], row == 0
            for label, values in panel.items():
                place, found = labels.index(label) + (row - (len(codes) - 1) / 2) * 0.3, over_seeds(values)
                view = replace(look(label), marker=marker, filled=filled)
                axes.plot([found.low, found.high], [place, place], color=view.colour, linewidth=1.2, zorder=2)
                axes.scatter(list(values.values()), [place] * len(values), s=20, zorder=3, **view.dots)
            name = code.replace("phi", "whole embedding")
            axes.scatter([], [], s=20, label=name, **Look(INK, marker, "-", filled).dots)
        guesses = [(place, np.mean(list(blind[label].values()))) for place, label in enumerate(labels) if label in blind]
        places, errors = zip(*guesses, strict=True) if guesses else ((), ())
        axes.scatter(errors, places, s=130, marker="|", color=INK, linewidth=1.4, label="guessing the mean state")
        axes.set_yticks(range(len(labels)), [name_of(label) for label in labels])
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.set_xlim(left=0)
        axes.set_xlabel("mean squared error (lower is better)")
        axes.grid(axis="y", color=LIGHT)
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside upper center", ncols=3, fontsize=8, columnspacing=1.2)
    return path

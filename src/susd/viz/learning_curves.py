"""Learning curves: one small panel per metric, one line per seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from susd.errors import UserError
from susd.viz.figures import MARKERS, STYLE, WIDTH, drawing, line_colours

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Rows = Sequence[Mapping[str, Any]]
POINTS = 200  # of a line; longer ones are averaged in blocks
SKILLS = {  # log name -> title of the panel; those of every method come before and after those of the method
    "coverage_worst": "Cells visited, worst body (%)",
    "coverage_average": "Cells visited, mean of bodies (%)",
    "control_ratio": "Own factor moved / others",
    "reward": "Intrinsic reward per step",
}
POLICY = {
    "entropy": "Entropy of the policy",
    "alpha": "Temperature of the policy",
    "critic_loss": "Loss of the critics",
}


def learning_curves(path: Path, rows: Rows, metrics: Mapping[str, str]) -> Path:
    """One panel per metric that the rows have; `metrics` are those of the method, as on its card."""
    titles = {**SKILLS, **metrics, **POLICY}
    found = [name for name in titles if any(_finite(row.get(name)) for row in rows)]
    if not found:
        raise UserError("no epoch has learned or measured anything yet")
    seeds = sorted({row.get("seed", 0) for row in rows})
    columns = min(3, len(found))
    count = -(-len(found) // columns)
    with drawing(path, WIDTH, 1.65 * count + 0.5, math=True) as figure:
        for index, name in enumerate(found):
            axes = figure.add_subplot(count, columns, index + 1)
            _panel(axes, name, [row for row in rows if _finite(row.get(name))], seeds)
            axes.set_title(titles[name])
        figure.supxlabel("epoch", fontsize=STYLE["axes.labelsize"])
        if 1 < len(seeds) <= 12:
            handles, labels = figure.axes[0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside upper center", ncols=min(len(seeds), 6))
    return path


def _panel(axes: Axes, name: str, rows: Rows, seeds: Sequence[int]) -> None:
    from matplotlib.ticker import MaxNLocator

    colours = line_colours(len(seeds))
    for order, seed in enumerate(seeds):
        line = _blocks(np.array([(r["epoch"], r[name]) for r in rows if r.get("seed", 0) == seed], float).reshape(-1, 2))
        marker = MARKERS[order % len(MARKERS)] if len(seeds) > 1 or len(line) < 25 else None
        marked = (len(line) * order // (8 * len(seeds)), max(1, len(line) // 8))  # eight per line, not above each other
        label = f"seed {seed}"
        axes.plot(*line.T, color=colours[order], marker=marker, markevery=marked, markersize=3.5, label=label)
    values = np.array([row[name] for row in rows], float)
    if values.min() > 0 and values.max() > 50 * values.min():
        axes.set_yscale("log")
    else:
        axes.ticklabel_format(axis="y", scilimits=(-4, 5), useMathText=True)
        axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.spines[["top", "right"]].set_visible(False)


def _blocks(line: np.ndarray) -> np.ndarray:
    """The line with at most POINTS points, each the mean of a block; all blocks but the last have the same size."""
    size = max(1, -(-len(line) // POINTS))
    return np.array([line[first : first + size].mean(axis=0) for first in range(0, len(line), size)]).reshape(-1, 2)


def _finite(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and math.isfinite(value)

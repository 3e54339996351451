"""Figures of a run as PNG files: courses, coverage, control, learning curves. Matplotlib is imported when one is drawn."""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from susd.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

    from susd.envs.base import EnvSpec, Plane

INK, PALE, LIGHT = "#262a33", "#6b7280", "#e3e5e8"
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "axes.edgecolor": PALE,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "lines.linewidth": 1.1,
    "axes.axisbelow": True,
    "grid.color": LIGHT,
    "grid.linewidth": 0.7,
    "text.color": INK,
    "xtick.color": PALE,
    "ytick.color": PALE,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "figure.titlesize": 10.5,
    "legend.frameon": False,
    "savefig.dpi": 130,
}
WIDTH = 7.0  # inches; 910 pixels, about the width of a page of documentation
GOAL_WAYS = {"goal": "skill for the goal", "random_skill": "random skill", "as_released": "goal as released"}  # zero-shot
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")  # Okabe and Ito's
MARKERS = "os^Dv*PX"  # tell the lines apart where there is no colour
WHEEL = ("#31195e", "#2566ae", "#1f9e9e", "#d9b13b", "#d2602b", "#8d1f5a", "#31195e")  # dark to light and back to dark
MANY = 200  # points of a line; longer ones are averaged in blocks

METRICS = {  # log name -> what it is, in the order of the panels
    "coverage_worst": "Cells visited, worst body (%)",
    "coverage_average": "Cells visited, mean of bodies (%)",
    "control_ratio": "Own factor moved / others",
    "reward": "Intrinsic reward per step",
    "phi_reward": "Alignment of skill and embedding",
    "constraint": "Squared step of the embedding",
    "violations": "Share of broken constraints",
    "lambda": "Multiplier of the constraint",
    "stretch": "Step of embedding / of state",
    "accuracy": "Skills recognised (share)",
    "opponent_accuracy": "Recognised in other factors (share)",
    "skill_error": "Error of the recognised skill",
    "discriminator_loss": "Loss of the discriminator",
    "density_nll": "Surprise of the density model",
    "entropy": "Entropy of the policy",
    "alpha": "Temperature of the policy",
    "critic_loss": "Loss of the critics",
}


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary file beside `path` that takes its place if the block succeeds, and is gone if it does not."""
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error


@contextmanager
def drawing(path: Path, width: float, height: float) -> Iterator[Figure]:
    """A figure in our style, saved when the block ends. It belongs to no window and no list of open figures."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure
        with whole_file(path) as temporary:
            figure.savefig(temporary, format="png", metadata={"Software": None})


def _colours(name: str, colours: Sequence[str]) -> Colormap:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list(name, list(colours))


def _heat() -> Colormap:
    """Light to dark, so that it reads the same in print; its lightest colour still stands out from white."""
    return _colours("heat", ("#a9cbe2", "#5a9fc9", "#1f5f9e", "#0c2346"))


def trajectories(path: Path, spec: EnvSpec, obs: np.ndarray, skills: np.ndarray, discrete: bool = False) -> Path:
    """Courses in every plane; obs [T + 1, W, S] from the start, skills [W, parts, dim]. Colour: direction or choice."""
    _need_planes(spec)
    worlds, parts, dim = skills.shape
    if obs.shape[1] != worlds:
        raise ValueError(f"{obs.shape[1]} courses for {worlds} skills")
    many = len(spec.planes) > 1
    obs = np.asarray(spec.raw(obs))
    columns = min(5, len(spec.planes))
    rows = -(-len(spec.planes) // columns)
    turning = dim == 2 and not discrete
    colours = _colours("wheel", WHEEL) if turning or discrete else _colours("worlds", WHEEL[:5])
    with drawing(path, WIDTH, 1.45 * rows + 0.45 if many else 5.6) as figure:
        grid = figure.add_gridspec(rows, columns + turning, width_ratios=[1] * columns + [0.5 if many else 0.24] * turning)
        for index, plane in enumerate(spec.planes):
            axes = figure.add_subplot(grid[index // columns, index % columns])
            shade = np.arange(worlds) / max(worlds - 1, 1)
            part = skills[:, _part(spec, plane, parts)]
            if discrete:
                shade = part.argmax(axis=1) / dim
            elif turning:
                shade = np.arctan2(part[:, 1], part[:, 0]) / (2 * math.pi) % 1.0
            x, y = obs[..., plane.x], obs[..., plane.y]
            if plane.is_line:  # the place over time
                x = np.broadcast_to(np.arange(len(obs))[:, None], x.shape)
            for world in range(worlds):
                colour = colours(shade[world])
                axes.plot(x[:, world], y[:, world], color=colour, linewidth=0.9 if many else 1.3, alpha=0.85)
            axes.scatter(x[0], y[0], s=14 if many else 40, color="white", edgecolor=INK, linewidth=1.0, zorder=3)
            _frame(
                axes,
                plane,
                y if plane.is_line else np.stack([x, y]),
                (index % columns == 0, index + columns >= len(spec.planes)),
            )
            axes.set_title(_words(plane.name))
        if turning:
            whose = "its z" if parts > 1 else "z"
            _wheel(figure.add_subplot(grid[:, -1], projection="polar"), colours, f"direction\nof {whose}")
        title = f"Courses of {worlds} skills over {obs.shape[0] - 1} steps (circle: start)"
        if discrete:
            title += f"\nColour: which of the {dim} choices {'of its own part ' if parts > 1 else ''}the skill makes"
        figure.suptitle(title)
    return path


def coverage_map(path: Path, spec: EnvSpec, counts: Mapping[str, np.ndarray]) -> Path:
    """Heat maps of the visits per cell, [P, cells, cells] for every label: one row per label, one column per plane."""
    from matplotlib.colors import LogNorm

    _need_planes(spec)
    if not counts:
        raise ValueError("a coverage map needs at least one grid of counts")
    planes, labels = len(spec.planes), len(counts)
    flat = planes == 1  # then the labels stand side by side
    rows, columns = (1, labels) if flat else (labels, planes)
    width = WIDTH if flat else max(WIDTH, 0.98 * planes + 0.9)
    height = min((WIDTH - 0.9) / labels + 0.55, 5.6) if flat else 1.12 * labels + 0.6
    norm = LogNorm(1, max(10, *(int(grid.max()) for grid in counts.values())))
    with drawing(path, width, height) as figure:
        all_axes = figure.subplots(rows, columns, squeeze=False)
        for row, (label, grids) in enumerate(counts.items()):
            for column, plane in enumerate(spec.planes):
                axes = all_axes[0, row] if flat else all_axes[row, column]
                visits = np.diagonal(grids[column])[:, None] if plane.is_line else grids[column]
                seen = np.ma.masked_equal(visits.T, 0)  # the first axis of a grid is x
                extent = (plane.low, plane.high, plane.low, plane.high)
                picture = axes.imshow(seen, cmap=_heat(), norm=norm, origin="lower", extent=extent, interpolation="none")
                number = f"{int((visits > 0).sum())} of {visits.size}"
                if flat:
                    axes.set_title(f"{textwrap.fill(label, 72 // labels)}\n{number} cells")
                else:
                    axes.set_title(f"{_words(plane.name)}\n{number}" if row == 0 else number)
                    axes.set_ylabel(textwrap.fill(label, 14) if column == 0 else "")
                _box(axes, plane, edges=(flat and row == 0, flat))
                if plane.is_line:
                    axes.set_yticks([])
                axes.grid(False)
        figure.colorbar(picture, ax=all_axes, label="visits per cell", aspect=25, pad=0.015, shrink=0.75 if flat else 1.0)
        if not flat:
            figure.suptitle("Cells visited in each plane")
    return path


def control_matrix(
    path: Path, names_rows: Sequence[str], names_columns: Sequence[str], matrix: np.ndarray, ratio: float | None
) -> Path:
    """Heat map of how far every part of the skill moves every factor, with the numbers in the cells."""
    rows, columns = matrix.shape
    if (rows, columns) != (len(names_rows), len(names_columns)):
        raise ValueError(f"a {rows} x {columns} matrix for {len(names_rows)} x {len(names_columns)} names")
    cell = min(0.95, 5.2 / columns)
    with drawing(path, max(cell * columns + 1.9, 4.6), cell * rows + (1.35 if rows > 1 or columns > 5 else 1.1)) as figure:
        axes = figure.add_subplot()
        colours = _colours("paper to ink", ("#ffffff", "#c5dcec", "#5a9fc9", "#1f5f9e", "#0c2346"))
        picture = axes.imshow(matrix, cmap=colours, vmin=0.0, vmax=max(float(np.nanmax(matrix)), 1.0))
        for (row, column), value in np.ndenumerate(matrix):
            dark = _luminance(picture.cmap(picture.norm(value))) < 0.55
            text = f"{value:.2f}" if value < 99.5 else f"{value:.0f}"
            size = 10 if cell > 0.7 else 8
            axes.text(column, row, text, ha="center", va="center", color="white" if dark else INK, fontsize=size)
        axes.set_xticks(range(columns), [_words(name) for name in names_columns], rotation=0 if columns <= 5 else 45)
        axes.set_yticks(range(rows), [_words(name) for name in names_rows])
        axes.set_xticks(np.arange(columns + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(rows + 1) - 0.5, minor=True)
        axes.grid(False)
        axes.grid(which="minor", color="white", linewidth=2)
        axes.tick_params(which="both", length=0)
        axes.spines[:].set_visible(False)
        axes.set_xlabel("factor that changes")
        title = "What the skill moves (1: as between unrelated skills)"
        if rows > 1:
            axes.set_ylabel("part of the skill redrawn")
            figure.colorbar(picture, ax=axes, label="change (1: as between unrelated skills)", aspect=20, pad=0.02)
            title = "What each part of the skill moves"
        if ratio is not None:
            title += f"\nits own factor {ratio:.1f} x as much as the others" if ratio < 1000 else "\nits own factor only"
        figure.suptitle(title)
    return path


def decoding_errors(path: Path, result: Mapping[str, Any]) -> Path:
    """Bars of the error of every factor, one hatch per way of reading, beside what the mean state would score."""
    labels = list(result)
    names = list(result[labels[0]]["per_factor"])
    with drawing(path, WIDTH, 3.2) as figure:
        axes = figure.add_subplot()
        width = 0.8 / len(labels)
        for index, label in enumerate(labels):
            places = np.arange(len(names)) + (index - (len(labels) - 1) / 2) * width
            errors = [result[label]["per_factor"][name] for name in names]
            bars = axes.bar(
                places, errors, width, color=PALETTE[index], hatch=("", "//", "..")[index % 3], edgecolor="white"
            )
            bars.set_label(f"{label.replace('phi', 'embedding')}, {result[label]['inputs']} numbers")
        axes.set_xticks(range(len(names)), [_words(name) for name in names], rotation=0 if len(names) <= 5 else 45)
        axes.set_ylabel("mean squared error")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend()
        figure.suptitle("What can be read of every factor (lower is better)")
    return path


def completions(path: Path, result: Mapping[str, Any]) -> Path:
    """Steps in which random skills complete each task: the mean, and every repetition as a point."""
    tasks = list(result)
    with drawing(path, WIDTH, 0.5 * len(tasks) + 1.4) as figure:
        axes = figure.add_subplot()
        axes.barh(range(len(tasks)), [result[task]["mean"] for task in tasks], 0.6, color="#c5dcec")
        for row, task in enumerate(tasks):
            counts = result[task]["counts"]
            axes.scatter(counts, np.full(len(counts), row), s=18, color=INK, zorder=3)
        axes.set_yticks(range(len(tasks)), tasks)
        axes.invert_yaxis()
        axes.set_xlim(left=0)
        axes.set_xlabel(f"steps of {result[tasks[0]]['of']:,}")
        axes.spines[["top", "right"]].set_visible(False)
        figure.suptitle("Tasks that random skills complete (bar: mean, points: repetitions)")
    return path


def learning_curves(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """One small panel per known metric that the rows have, one line per seed."""
    from matplotlib.ticker import MaxNLocator

    metrics = [name for name in METRICS if any(_finite(row.get(name)) for row in rows)]
    if not metrics:
        raise UserError("there are no learning curves to draw: no row has a known metric")
    seeds = sorted({row.get("seed", 0) for row in rows})
    columns = min(3, len(metrics))
    count = -(-len(metrics) // columns)
    with drawing(path, WIDTH, 1.65 * count + 0.5) as figure:
        for index, name in enumerate(metrics):
            axes = figure.add_subplot(count, columns, index + 1)
            for order, seed in enumerate(seeds):
                mine = [r for r in rows if r.get("seed", 0) == seed and _finite(r.get(name))]
                line = _blocks(np.array([(r["epoch"], r[name]) for r in mine], float).reshape(-1, 2))
                colour = PALETTE[order % len(PALETTE)]
                marker = MARKERS[order % len(MARKERS)] if len(seeds) > 1 or len(line) < 25 else None
                marked = (len(line) * order // (8 * len(seeds)), max(1, len(line) // 8))  # eight per line, side by side
                axes.plot(*line.T, color=colour, marker=marker, markevery=marked, markersize=3.5, label=f"seed {seed}")
            values = np.array([row[name] for row in rows if _finite(row.get(name))], float)
            if values.min() > 0 and values.max() > 50 * values.min():
                axes.set_yscale("log")
            else:
                axes.ticklabel_format(axis="y", scilimits=(-4, 5), useMathText=True)
                axes.yaxis.set_major_locator(MaxNLocator(5))
            axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
            axes.set_title(METRICS[name])
            axes.spines[["top", "right"]].set_visible(False)
        figure.supxlabel("epoch", fontsize=STYLE["axes.labelsize"])
        if 1 < len(seeds) <= 12:
            handles, labels = figure.axes[0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside upper center", ncols=min(len(seeds), 6))
    return path


def _blocks(line: np.ndarray) -> np.ndarray:
    """The line with at most MANY points, each the mean of a block of equal size (but for the last)."""
    size = max(1, -(-len(line) // MANY))
    return np.array([line[first : first + size].mean(axis=0) for first in range(0, len(line), size)]).reshape(-1, 2)


def _finite(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and math.isfinite(value)


def _part(spec: EnvSpec, plane: Plane, parts: int) -> int:
    """The part of the skill that belongs to the plane: that of its factor, or the only one."""
    if parts != len(spec.factorization):
        return 0
    return next(i for i, indices in enumerate(spec.factorization.indices) if plane.x in indices)


def _box(axes: Axes, plane: Plane, edges: tuple[bool, bool]) -> None:
    """The plane's box as the frame; `edges` says whether to write numbers on the left and below."""
    margin = 0.02 * (plane.high - plane.low)
    axes.set(xlim=(plane.low - margin, plane.high + margin), ylim=(plane.low - margin, plane.high + margin), aspect="equal")
    ticks = [plane.low, (plane.low + plane.high) / 2, plane.high]
    axes.set_xticks(ticks, [f"{tick:.3g}" for tick in ticks])
    axes.set_yticks(ticks, [f"{tick:.3g}" for tick in ticks])
    axes.tick_params(labelleft=edges[0], labelbottom=edges[1], length=0)


def _frame(axes: Axes, plane: Plane, places: np.ndarray, edges: tuple[bool, bool]) -> None:
    """The frame of courses: the plane's box, or in the open a square around all places; of a line, place over time."""
    reach = max(float(np.abs(places).max()) * 1.05, 1e-6)
    if plane.is_line:
        limits = (-reach, reach) if plane.open else (plane.low, plane.high)
        axes.set(ylim=limits, xlabel="step", ylabel="place", xmargin=0.02)
    elif plane.open:
        axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    else:
        _box(axes, plane, edges)


def _wheel(axes: Any, colours: Colormap, title: str) -> None:
    """The legend of directions: a ring of the colours."""
    angles = np.linspace(0, 2 * math.pi, 241)
    middle = (angles[:-1] + angles[1:]) / 2
    axes.grid(False)  # pcolormesh refuses to draw under one
    axes.pcolormesh(angles, [0.6, 1.1], middle[None], cmap=colours, vmin=0, vmax=2 * math.pi, rasterized=True)
    axes.set_ylim(0, 1.1)
    axes.set_axis_off()
    axes.set_title(title, fontsize=8, pad=3)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _luminance(rgba: Any) -> float:
    return 0.299 * rgba[0] + 0.587 * rgba[1] + 0.114 * rgba[2]


def _need_planes(spec: EnvSpec) -> None:
    if not spec.planes:
        raise UserError(f"{spec.name} has no position that could be drawn")


def task_curves(
    path: Path,
    episodes: Sequence[int],
    curves: Mapping[int, Sequence[float]],
    references: Mapping[str, float],
    title: str,
) -> Path:
    """Return over training episodes, one line per seed, beside the scores of `bound`, `expert` and `do_nothing`."""
    from matplotlib.ticker import MaxNLocator

    styles = {"bound": ("-", "bound"), "expert": ("--", "scripted expert"), "do_nothing": (":", "do nothing")}
    with drawing(path, WIDTH, 3.4) as figure:
        axes = figure.add_subplot()
        for name, score in references.items():
            style, label = styles[name]
            axes.axhline(score, color=INK, linestyle=style, linewidth=1.2, label=f"{label} {score:.1f}")
        for order, (seed, scores) in enumerate(curves.items()):
            marked = (len(scores) * order // (10 * len(curves)), max(1, len(scores) // 10))
            marker, colour = MARKERS[order % len(MARKERS)], PALETTE[order % len(PALETTE)]
            label = f"seed {seed}, last {scores[-1]:.1f}"
            axes.plot(episodes, scores, color=colour, marker=marker, markevery=marked, markersize=4, label=label)
        axes.set(xlabel="training episodes", ylabel="discounted return")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.margins(x=0.02, y=0.06)
        axes.spines[["top", "right"]].set_visible(False)
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles[:15], labels[:15], loc="outside right upper")  # twelve seeds at most
        axes.set_title(title)
    return path


def zero_shot(path: Path, task: str, curves: Mapping[str, Mapping[str, Any]]) -> Path:
    """Reward so far over environment steps: of skills for the goal every seed and the mean, of the other ways the mean."""
    with drawing(path, WIDTH, 3.4) as figure:
        axes = figure.add_subplot()
        for order, (way, lines) in enumerate(curves.items()):
            colour, style = PALETTE[order], ("-", "--", ":")[order]
            for seed in lines["seeds"] if way == "goal" else ():
                axes.plot([0, *lines["steps"]], [0, *seed], color=colour, linewidth=0.6, alpha=0.6)
            label = f"{GOAL_WAYS[way]}, {lines['mean'][-1]:.0f}"
            axes.plot([0, *lines["steps"]], [0, *lines["mean"]], color=colour, linestyle=style, linewidth=2.2, label=label)
        axes.set(xlabel="environment steps", ylabel="reward so far")
        axes.margins(x=0.01)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="upper left")
        axes.set_title(f"Goals without training, {task}: {len(lines['seeds'])} seeds (thin) and means (thick)")
    return path

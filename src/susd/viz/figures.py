"""Figures as PNG files: trajectories, coverage, control, return in a task. Matplotlib is imported when one is drawn."""

from __future__ import annotations

import colorsys
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from susd.errors import UserError
from susd.runs.atomic import replace_file

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
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")  # Okabe and Ito's
MARKERS = "os^Dv*PX"  # so that lines are distinct without colour
WHEEL = ("#31195e", "#2566ae", "#1f9e9e", "#d9b13b", "#d2602b", "#8d1f5a", "#31195e")  # dark to light and back to dark


@contextmanager
def drawing(path: Path, width: float, height: float, math: bool = False) -> Iterator[Figure]:
    """A figure in the style of the package, saved when the block ends. It belongs to no window and no pyplot state.

    Text between dollar signs is a formula only with `math`: names of others may have dollar signs.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context({**STYLE, "text.parse_math": math}):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure
        with replace_file(path) as temporary:
            figure.savefig(temporary, format="png", metadata={"Software": None})


def line_colours(count: int) -> list[str]:
    """As many different colours: those of PALETTE, then others in turns around the colour wheel, lighter and darker."""
    more = count - len(PALETTE)
    rgb = (colorsys.hls_to_rgb(index / max(more, 1), (0.35, 0.6)[index % 2], 0.75) for index in range(more))
    return [*PALETTE, *("#" + "".join(f"{round(255 * part):02X}" for part in colour) for colour in rgb)][:count]


def _colours(name: str, colours: Sequence[str]) -> Colormap:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list(name, list(colours))


def _heat() -> Colormap:
    """Light to dark, so that it reads the same in print; its lightest colour is still distinct from white."""
    return _colours("heat", ("#a9cbe2", "#5a9fc9", "#1f5f9e", "#0c2346"))


def trajectories(
    path: Path,
    spec: EnvSpec,
    obs: np.ndarray,
    skills: np.ndarray,
    discrete: bool = False,
    names: Sequence[str] = (),
) -> Path:
    """Trajectories in every plane; obs [T + 1, W, S] from the start, skills [W, parts, dim], which give the colour.

    `names` are those of the skill's parts, where not every factor has one.
    """
    _need_planes(spec)
    count, parts, dim = skills.shape
    if obs.shape[1] != count:
        raise ValueError(f"{obs.shape[1]} trajectories for {count} skills")
    many = len(spec.planes) > 1
    obs = np.asarray(spec.raw(obs))
    columns = min(5, len(spec.planes))
    rows = -(-len(spec.planes) // columns)
    turning = dim == 2 and not discrete
    colours = _colours("wheel", WHEEL) if turning or discrete else _colours("order", WHEEL[:5])
    with drawing(path, WIDTH, 1.45 * rows + 0.45 if many else 5.6) as figure:
        grid = figure.add_gridspec(rows, columns + turning, width_ratios=[1] * columns + [0.5 if many else 0.24] * turning)
        for index, plane in enumerate(spec.planes):
            axes = figure.add_subplot(grid[index // columns, index % columns])
            part = skills[:, _part(spec, plane, names or spec.factorization.names[:parts])]
            edges = index % columns == 0, index + columns >= len(spec.planes)
            lines = [colours(shade) for shade in _shades(part, discrete)]
            _draw_lines(axes, plane, obs, lines, edges, 0.9 if many else 1.3)
            axes.set_title(words(plane.name))
        if turning:
            whose = "its z" if parts > 1 else "z"
            _wheel(figure.add_subplot(grid[:, -1], projection="polar"), colours, f"direction\nof {whose}")
        title = f"Trajectories of {count} skills over {obs.shape[0] - 1} steps (circle: start)"
        if discrete:
            title += f"\nColour: which of the {dim} discrete skills{' its own part is' if parts > 1 else ' it is'}"
        figure.suptitle(title)
    return path


def _shades(skills: np.ndarray, discrete: bool) -> np.ndarray:
    """[W] positions in the colour map, of skills [W, dim]: discrete skill, direction in two dimensions, or their order."""
    count, dim = skills.shape
    if discrete:
        return skills.argmax(axis=1) / dim
    if dim == 2:
        return np.arctan2(skills[:, 1], skills[:, 0]) / (2 * math.pi) % 1.0
    return np.arange(count) / max(count - 1, 1)


def _draw_lines(
    axes: Axes, plane: Plane, obs: np.ndarray, colours: Sequence[Any], edges: tuple[bool, bool], width: float
) -> None:
    """The trajectories in one plane, of raw observations [T + 1, W, S]."""
    x, y = obs[..., plane.x], obs[..., plane.y]
    if plane.is_line:  # the position over time
        x = np.broadcast_to(np.arange(len(obs))[:, None], x.shape)
    for skill, colour in enumerate(colours):
        axes.plot(x[:, skill], y[:, skill], color=colour, linewidth=width, alpha=0.85)
    axes.scatter(x[0], y[0], s=14 if width < 1 else 40, color="white", edgecolor=INK, linewidth=1.0, zorder=3)
    _frame(axes, plane, y if plane.is_line else np.stack([x, y]), edges)


def coverage_map(path: Path, spec: EnvSpec, counts: Mapping[str, np.ndarray]) -> Path:
    """Heat maps of the visits per cell, [P, cells, cells] for every label: one row per label, one column per plane."""
    from matplotlib.colors import LogNorm

    _need_planes(spec)
    if not counts:
        raise ValueError("a coverage map needs at least one grid of counts")
    planes, labels = len(spec.planes), len(counts)
    flat = planes == 1  # then the labels are in one row
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
                image = axes.imshow(seen, cmap=_heat(), norm=norm, origin="lower", extent=extent, interpolation="none")
                number = f"{int((visits > 0).sum())} of {visits.size}"
                if flat:
                    axes.set_title(f"{textwrap.fill(label, 72 // labels)}\n{number} cells")
                else:
                    axes.set_title(f"{words(plane.name)}\n{number}" if row == 0 else number)
                    axes.set_ylabel(textwrap.fill(label, 14) if column == 0 else "")
                _box(axes, plane, edges=(flat and row == 0, flat))
                if not flat:  # nothing of the ticks is seen, but laying them out would take most of the time
                    axes.set_xticks([])
                if plane.is_line or not flat:
                    axes.set_yticks([])
                axes.grid(False)
        shrink, plain = 0.75 if flat else 1.0, "{x:,.0f}"  # the usual labels of a logarithm are formulas
        figure.colorbar(image, ax=all_axes, label="visits per cell", aspect=25, pad=0.015, shrink=shrink, format=plain)
        if not flat:
            figure.suptitle("Cells visited in each plane")
    return path


def control_matrix(
    path: Path,
    names_rows: Sequence[str],
    names_columns: Sequence[str],
    matrix: np.ndarray,
    ratio: float | None,
    interval: Sequence[float] | None = None,
    left_out: Mapping[str, str] | None = None,
) -> Path:
    """Heat map of how far every part of the skill moves every factor, with the values in the cells.

    The columns of `left_out`, which maps factors to reasons, have no colour; cells that are not a number are empty.
    """
    rows, columns = matrix.shape
    if (rows, columns) != (len(names_rows), len(names_columns)):
        raise ValueError(f"a {rows} x {columns} matrix for {len(names_rows)} x {len(names_columns)} names")
    reasons, cell = left_out or {}, min(0.95, 5.2 / columns)
    with drawing(path, max(cell * columns + 1.9, 4.6), cell * rows + (1.35 if rows > 1 or columns > 5 else 1.1)) as figure:
        axes = figure.add_subplot()
        image = _heat_map(axes, matrix, np.array([name in reasons for name in names_columns]), 10 if cell > 0.7 else 8)
        apart = "\n" if columns <= 5 else " "
        labels = [words(name) + (f"{apart}({reasons[name]})" if name in reasons else "") for name in names_columns]
        turned: dict[str, Any] = {} if columns <= 5 else {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
        axes.set_xticks(range(columns), labels, **turned)
        axes.set_yticks(range(rows), [words(name) for name in names_rows])
        axes.set_xlabel("factor that changes")
        title = "What the skill moves (1: as between unrelated skills)"
        if rows > 1:
            axes.set_ylabel("part of the skill redrawn")
            figure.colorbar(image, ax=axes, label="change (1: as between unrelated skills)", aspect=20, pad=0.02)
            title = "What each part of the skill moves"
        if ratio is not None:
            title += f"\nits own factor {ratio:.1f} x as much as the others" if ratio < 1000 else "\nits own factor only"
            title += f" (95 %: {interval[0]:.1f} to {interval[1]:.1f})" if interval and ratio < 1000 else ""
        figure.suptitle(title)
    return path


def _heat_map(axes: Axes, matrix: np.ndarray, faint: np.ndarray, size: int) -> Any:
    """Cells with their values; `faint` columns are hatched instead of coloured."""
    from matplotlib.patches import Rectangle

    rows, columns = matrix.shape
    colours = _colours("paper to ink", ("#ffffff", "#c5dcec", "#5a9fc9", "#1f5f9e", "#0c2346"))
    shown = np.where(faint, np.nan, matrix)
    image = axes.imshow(shown, cmap=colours, vmin=0.0, vmax=max([1.0, *shown[np.isfinite(shown)]]))
    for column in np.flatnonzero(faint):
        hatched = Rectangle((column - 0.5, -0.5), 1, rows, fill=False, edgecolor=LIGHT, linewidth=0, hatch="////", zorder=0)
        axes.add_patch(hatched)
    for (row, column), value in np.ndenumerate(matrix):
        if np.isfinite(value):
            dark = not faint[column] and _luminance(image.cmap(image.norm(value))) < 0.55
            ink = PALE if faint[column] else "white" if dark else INK
            text = f"{value:.2f}" if value < 99.5 else f"{value:.0f}"
            axes.text(column, row, text, ha="center", va="center", color=ink, fontsize=size)
    axes.set_xticks(np.arange(columns + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(rows + 1) - 0.5, minor=True)
    axes.grid(False)
    axes.grid(which="minor", color="white", linewidth=2)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)
    return image


def _part(spec: EnvSpec, plane: Plane, names: Sequence[str]) -> int:
    """The part of the skill, of those with these names, that belongs to the plane: that of its factor, or the first."""
    owner = spec.factorization.owners[plane.x]
    return names.index(owner) if owner in names else 0


def _box(axes: Axes, plane: Plane, edges: tuple[bool, bool]) -> None:
    """The plane's box as the frame; `edges` says whether the axes on the left and below are labelled."""
    margin = 0.02 * (plane.high - plane.low)
    axes.set(xlim=(plane.low - margin, plane.high + margin), ylim=(plane.low - margin, plane.high + margin), aspect="equal")
    ticks = [plane.low, (plane.low + plane.high) / 2, plane.high]
    axes.set_xticks(ticks, [f"{tick:.3g}" for tick in ticks])
    axes.set_yticks(ticks, [f"{tick:.3g}" for tick in ticks])
    axes.tick_params(labelleft=edges[0], labelbottom=edges[1], length=0)


def _frame(axes: Axes, plane: Plane, points: np.ndarray, edges: tuple[bool, bool]) -> None:
    """The frame of trajectories: the plane's box, a square around all positions of an open plane, or a line over time."""
    reach = max(float(np.abs(points).max()) * 1.05, 1e-6)
    if plane.is_line:
        limits = (-reach, reach) if plane.open else (plane.low, plane.high)
        axes.set(ylim=limits, xlabel="step", ylabel="position", xmargin=0.02)
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


def words(name: str) -> str:
    """A name of a factor or body, as it is written in a figure."""
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
    """Return over training episodes, one line per seed, compared with `bound`, `expert` and `do_nothing`."""
    from matplotlib.ticker import MaxNLocator

    colours = line_colours(len(curves))
    styles = {"bound": ("-", "bound"), "expert": ("--", "scripted expert"), "do_nothing": (":", "do nothing")}
    with drawing(path, WIDTH, 3.4) as figure:
        axes = figure.add_subplot()
        for name, score in references.items():
            style, label = styles[name]
            axes.axhline(score, color=INK, linestyle=style, linewidth=1.2, label=f"{label} {score:.1f}")
        for order, (seed, scores) in enumerate(curves.items()):
            marked = (len(scores) * order // (10 * len(curves)), max(1, len(scores) // 10))
            marker, colour = MARKERS[order % len(MARKERS)], colours[order]
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

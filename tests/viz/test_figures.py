"""Figures are valid images that show their data; videos can be read back; a failure leaves no file behind."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import jax
import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image

from susd.envs.base import EnvSpec, HostStep, Plane, Scaling
from susd.envs.gunner import Gunner
from susd.errors import UserError
from susd.factors import Factorization
from susd.methods.registry import methods
from susd.viz import figures, video
from susd.viz.learning_curves import POLICY, SKILLS, _blocks, learning_curves

RNG = np.random.default_rng(0)


def spec_of(planes: int) -> EnvSpec:
    factors = Factorization.from_boundaries(range(0, 2 * planes + 1, 2), [f"body_{i}" for i in range(planes)])
    boxes = tuple(Plane(f"body_{i}", 2 * i, 2 * i + 1, -1.0, 1.0) for i in range(planes))
    return EnvSpec("bodies", 2 * planes, 2 * planes, 5, factors, boxes, {})


def pixels_of(path: Path) -> np.ndarray:
    """The pixels of a complete PNG of a sensible size."""
    with Image.open(path) as image:
        image.load()
        assert image.format == "PNG"
        pixels = np.asarray(image.convert("RGB")).astype(int)
    height, width = pixels.shape[:2]
    assert 400 <= width <= 1600
    assert 120 <= height <= 1400
    assert pixels.std() > 5.0
    return pixels


def differ(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape != b.shape or (a != b).any(axis=-1).sum() > 20


def trajectories(planes: int) -> tuple[np.ndarray, np.ndarray]:
    angles = np.linspace(0.0, 5.0, 6)
    skills = np.stack([np.cos(angles), np.sin(angles)], -1)  # [W, 2]
    obs = np.linspace(0.0, 0.9, 5)[:, None, None] * np.tile(skills, planes)
    return obs, np.repeat(skills[:, None], planes, axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("planes", [1, 10])
def test_trajectories(tmp_path: Path, planes: int) -> None:
    obs, skills = trajectories(planes)
    path = tmp_path / "new" / "lines.png"
    assert figures.trajectories(path, spec_of(planes), obs, skills) == path
    first = pixels_of(path)
    assert differ(first, pixels_of(figures.trajectories(path, spec_of(planes), obs * 0.5, skills)))
    assert [p.name for p in path.parent.iterdir()] == ["lines.png"]


def test_trajectories_are_coloured_by_their_part(tmp_path: Path) -> None:
    obs, skills = trajectories(2)
    turned = skills.copy()
    turned[:, 1] *= -1.0  # the other directions for body 1
    first = pixels_of(figures.trajectories(tmp_path / "a.png", spec_of(2), obs, skills))
    second = pixels_of(figures.trajectories(tmp_path / "b.png", spec_of(2), obs, turned))
    changed = np.flatnonzero((first != second).any(axis=(0, 2)))
    assert changed.min() > first.shape[1] * 0.35  # only in the right one of the two panels
    assert differ(first, pixels_of(figures.trajectories(tmp_path / "c.png", spec_of(2), obs, RNG.normal(size=(6, 1, 3)))))


@pytest.mark.slow
@pytest.mark.parametrize("planes", [1, 5])
def test_coverage_map(tmp_path: Path, planes: int) -> None:
    few = np.zeros((planes, 50, 50), int)
    few[:, 10, 40] = 3  # left and high up
    many = RNG.integers(0, 3, few.shape)
    first = pixels_of(figures.coverage_map(tmp_path / "a.png", spec_of(planes), {"few": few, "many": many}))
    moved = few.transpose(0, 2, 1)
    second = pixels_of(figures.coverage_map(tmp_path / "b.png", spec_of(planes), {"few": moved, "many": many}))
    assert differ(first, second)


def test_coverage_map_axes(tmp_path: Path) -> None:
    one = np.zeros((1, 50, 50), int)
    pixels_of(figures.coverage_map(tmp_path / "a.png", spec_of(1), {"nothing": one}))
    one[0, :10, 40:] = 1
    grid = pixels_of(figures.coverage_map(tmp_path / "a.png", spec_of(1), {"one": one}))
    blue = np.argwhere((np.abs(grid - np.array([0xA9, 0xCB, 0xE2])) <= 2).all(axis=-1))
    middle = np.median(blue, axis=0) / grid.shape[:2]
    assert middle[0] < 0.4
    assert middle[1] < 0.4


def test_scale_of_coverage_has_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No formulas, which are not typeset in figures with names of others."""
    from matplotlib.text import Text

    seen: list[str] = []

    @contextmanager
    def noting(*args: Any) -> Iterator[Any]:
        with original(*args) as figure:
            yield figure
            figure.draw_without_rendering()
            seen.extend(text.get_text() for text in figure.findobj(Text))

    original = figures.drawing
    monkeypatch.setattr(figures, "drawing", noting)
    figures.coverage_map(tmp_path / "a.png", spec_of(1), {"all": np.full((1, 50, 50), 2000)})
    assert {"1", "10", "100", "1,000"} <= set(seen)
    assert not [text for text in seen if "$" in text]


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "columns"), [(3, 3), (10, 10), (1, 3), (1, 10)])
def test_control_matrix(tmp_path: Path, rows: int, columns: int) -> None:
    matrix = RNG.uniform(0.0, 1.0, (rows, columns))
    names = [f"factor_{i}" for i in range(columns)]
    first = pixels_of(figures.control_matrix(tmp_path / "a.png", names[:rows], names, matrix, None))
    matrix[0, 0] += 0.5
    assert differ(first, pixels_of(figures.control_matrix(tmp_path / "b.png", names[:rows], names, matrix, None)))


def test_control_matrix_ratio_and_zeros(tmp_path: Path) -> None:
    eye = np.eye(2)
    drawn = [
        pixels_of(figures.control_matrix(tmp_path / "a.png", ["a", "b"], ["a", "b"], eye, r)) for r in (2.0, 3.0, 1e12)
    ]
    assert differ(drawn[0], drawn[1])
    assert differ(drawn[1], drawn[2])
    pixels_of(figures.control_matrix(tmp_path / "b.png", ["a", "b"], ["a", "b"], 0 * eye, 0.0))
    with pytest.raises(ValueError, match="2 x 2 matrix for 1 x 2 names"):
        figures.control_matrix(tmp_path / "c.png", ["a"], ["a", "b"], eye, None)


@pytest.mark.slow
def test_learning_curves(tmp_path: Path) -> None:
    rows: list[dict] = [{"epoch": e, "seed": s, "reward": e * (s + 1.0)} for e in range(500) for s in range(3)]
    rows[5] |= {"alpha": float("nan"), "factor/a/reward": 1.0}
    labels = {"lambda": "Multiplier"}
    one = pixels_of(learning_curves(tmp_path / "a.png", rows, labels))
    rows[6]["lambda"] = 0.5  # one point of a second metric makes a second panel
    two = pixels_of(learning_curves(tmp_path / "b.png", rows, labels))
    assert differ(one, two)
    assert not differ(
        one, pixels_of(learning_curves(tmp_path / "c.png", rows, {}))
    )  # a metric without a label is not drawn
    single = pixels_of(learning_curves(tmp_path / "d.png", [row for row in rows if row["seed"] == 0], labels))
    assert differ(two, single)
    with pytest.raises(UserError, match="no epoch has learned or measured anything yet"):
        learning_curves(tmp_path / "e.png", [{"epoch": 1, "seed": 0, "alpha": float("inf")}], labels)
    with pytest.raises(UserError, match="cannot write"):
        learning_curves(tmp_path / "a.png" / "b.png", rows[:1], labels)


def test_metrics_of_the_method_have_its_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    titles: list[str] = []
    monkeypatch.setattr("matplotlib.axes.Axes.set_title", lambda axes, title, **_: titles.append(title))
    labels = methods()["susd"].metrics
    everything = [*SKILLS, *labels, *POLICY]
    learning_curves(tmp_path / "a.png", [{"epoch": e, **dict.fromkeys(everything, 1.0)} for e in range(2)], labels)
    assert titles == [*SKILLS.values(), *labels.values(), *POLICY.values()]
    assert all(card.metrics and all(card.metrics.values()) for card in methods().values())


@pytest.mark.parametrize("count", [1, 7, 8, 20, 60])
def test_line_colours_are_distinct(count: int) -> None:
    colours = figures.line_colours(count)
    assert len(colours) == count == len({mpl.colors.to_rgb(colour) for colour in colours})
    assert colours[:7] == list(figures.PALETTE[:count])


def test_long_lines_are_averaged_in_blocks() -> None:
    line = np.stack([np.arange(1000), np.tile([0.0, 2.0], 500)], -1)
    short = _blocks(line)
    assert len(short) == 200
    assert short[0].tolist() == [2.0, 0.8]
    assert _blocks(line[:150]).tolist() == line[:150].tolist()
    assert _blocks(line[:0]).shape == (0, 2)


def test_import_is_light() -> None:
    code = "import sys; from susd.viz import figures, learning_curves, video; "
    code += "print({'matplotlib', 'jax', 'PIL', 'imageio_ffmpeg'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"


def read_video(path: Path) -> np.ndarray:
    """All frames, decoded by ffmpeg itself."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    result = subprocess.run(command, capture_output=True, check=True)
    log = result.stderr.decode()
    assert "h264" in log
    assert "yuv420p" in log
    width, height = next(
        map(int, word.rstrip(",").split("x")) for line in log.splitlines() if "h264" in line and "Video:" in line
        for word in line.split() if word.rstrip(",").replace("x", "", 1).isdigit() and "x" in word and word[:2] != "0x"
    )  # fmt: skip
    return np.frombuffer(result.stdout, np.uint8).reshape(-1, height, width, 3)


def test_video_round_trips(tmp_path: Path) -> None:
    frames = np.zeros((7, 63, 81, 3), np.uint8)
    for t in range(7):
        frames[t, :, 10 * t : 10 * t + 20] = 255
    path = video.save_video(tmp_path / "videos" / "a.mp4", frames, 10)
    read = read_video(path)
    assert read.shape == (7, 64, 82, 3)
    assert np.abs(read[:, :63, :81].astype(int) - frames).mean() < 5.0
    assert os.listdir(path.parent) == ["a.mp4"]


@pytest.mark.parametrize("spoil", [lambda f: f.astype(float), lambda f: f[0], lambda f: f[..., :1], lambda f: f[:0]])
def test_other_arrays_are_no_video(tmp_path: Path, spoil: Callable[[np.ndarray], np.ndarray]) -> None:
    with pytest.raises(ValueError, match="frames must be uint8"):
        video.save_video(tmp_path / "a.mp4", spoil(np.zeros((2, 8, 8, 3), np.uint8)), 10)


def test_video_without_ffmpeg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = np.zeros((2, 8, 8, 3), np.uint8)
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(tmp_path / "nothing"))
    with pytest.raises(UserError, match="videos need ffmpeg, which was not found"):
        video.save_video(tmp_path / "a.mp4", frames, 10)
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\ncat > /dev/null; echo no such encoder >&2; exit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(broken))
    with pytest.raises(UserError, match="ffmpeg failed: no such encoder"):
        video.save_video(tmp_path / "a.mp4", frames, 10)
    assert os.listdir(tmp_path) == ["broken"]


class Grey:
    """Host environments that are drawn in a grey of their own."""

    num_envs = 2
    spec = spec_of(1)

    def reset(self, seed: int) -> np.ndarray:
        self.time = 0
        return np.zeros((2, 2), np.float32)

    def step(self, actions: np.ndarray) -> HostStep:
        self.time += 1
        return HostStep(*[np.zeros((2, 2), np.float32)] * 2, *[np.zeros(2, bool)] * 2)

    def render(self, index: int = 0, size: int = 400) -> np.ndarray:
        return np.full((size, size, 3), 100 * index + self.time, np.uint8)


def test_skill_frames_of_host_environments() -> None:
    frames = video.skill_frames(Grey(), lambda obs, z, key: z, np.zeros((5, 2)), 3, jax.random.key(0), size=8)
    assert frames.shape == (4, 2, 8, 8, 3)  # no more skills than environments
    assert frames[:, :, 0, 0, 0].tolist() == [[0, 100], [1, 101], [2, 102], [3, 103]]


def test_skill_video(tmp_path: Path) -> None:
    skills = jnp.array([[0.1, 0, 0, 0, 0, 0], [0, 0.1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1.0], [0, 0, 0, 0, 0, 0]])
    tiles = video.skill_frames(Gunner(), lambda obs, z, key: z, skills, 10, jax.random.key(0), size=120)
    path = video.skill_video(tmp_path / "a.mp4", tiles, ["right", "up", "turn", "stay"])
    frames = read_video(path).astype(int)
    assert frames.shape == (11, 284, 368, 3)  # 2 x 3 tiles of 140 x 120 with gaps of 4
    assert path.stat().st_size < 100_000
    moved = [np.abs(frames[-1, y : y + 120, x : x + 120] - frames[0, y : y + 120, x : x + 120]).max() for y, x in
             [(20, 0), (20, 124), (20, 248), (164, 0)]]  # fmt: skip
    assert min(moved[:3]) > 100
    assert moved[3] < 60
    with pytest.raises(ValueError, match="1 titles for 4 skills"):
        video.skill_video(tmp_path / "b.mp4", tiles, ["right"])


def test_skill_titles() -> None:
    two = np.array([[[1.0, 0.0], [0.0, 1.0]], [[-1.0, -0.0], [0.0, -1.0]]])
    assert video.skill_titles(["a", "b"], two) == ["a 0°   b 90°", "a 180°   b 270°"]
    paced = two * np.array([[[1.0], [0.5]], [[0.0], [1.0]]])
    assert video.skill_titles(["a", "b"], paced) == ["a 0° x 1.0   b 90° x 0.5", "a at rest   b 270° x 1.0"]
    assert video.skill_titles(["a", "b"], two[:, :1]) == ["z 0°", "z 180°"]
    assert video.skill_titles(["a"] * 10, np.ones((2, 10, 2))) == ["skill 1", "skill 2"]
    assert video.skill_titles(["a", "b"], np.ones((1, 2, 3))) == ["skill 1"]


def test_line_is_drawn_over_time(tmp_path: Path) -> None:
    factors = Factorization.from_mapping({"all": [0]}, 1)
    line = Plane("body", 0, 0, -25.0, 25.0, open=True)
    spec = EnvSpec("line", 1, 1, 10, factors, (line,), {}, scaling=Scaling((0.0,), (100.0,)))
    obs = np.linspace(0, 1, 11)[:, None, None] * np.array([[-1.0], [1.0]])
    path = figures.trajectories(tmp_path / "line.png", spec, obs, np.ones((2, 1, 2)))
    grid = np.diag(np.arange(50))[None]
    assert path.stat().st_size > 5_000
    assert figures.coverage_map(tmp_path / "cells.png", spec, {"trained": grid}).stat().st_size > 5_000

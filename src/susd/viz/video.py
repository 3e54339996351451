"""Videos: frames to MP4, and several skills next to each other with their titles."""

from __future__ import annotations

import math
import shutil
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from susd.errors import UserError
from susd.runs.atomic import replace_file

if TYPE_CHECKING:
    import jax
    from PIL.ImageFont import FreeTypeFont, ImageFont

    from susd.envs.base import Environment, HostEnvironment
    from susd.types import Policy

QUALITY = ["-crf", "23", "-preset", "slow", "-tune", "animation"]  # flat drawings: small files without visible loss
PAPER, INK = (255, 255, 255), (38, 42, 51)
GAP = 4  # pixels between tiles


def save_video(path: Path, frames: np.ndarray, fps: float) -> Path:
    """Write frames [T, H, W, 3] uint8 as MP4 (H.264, plays everywhere); odd sizes get one more row or column of pixels."""
    if frames.ndim != 4 or frames.shape[-1] != 3 or frames.dtype != np.uint8 or not len(frames):
        raise ValueError(f"frames must be uint8 [T, H, W, 3] with T > 0, not {frames.dtype} {list(frames.shape)}")
    ffmpeg = _ffmpeg()
    height, width = frames.shape[1:3]
    even = np.pad(frames, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)), mode="edge")  # as H.264 needs
    size = f"{even.shape[2]}x{even.shape[1]}"
    source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size, "-r", f"{fps:g}", "-i", "-"]
    target = ["-c:v", "libx264", *QUALITY, "-pix_fmt", "yuv420p", "-movflags", "+faststart", "-f", "mp4"]
    with replace_file(path) as temporary:
        # imageio's own writer forks in a way that JAX warns about (it may hang), so ffmpeg is called directly.
        command = [ffmpeg, "-y", "-loglevel", "error", *source, *target, str(temporary)]
        result = subprocess.run(command, input=even.tobytes(), capture_output=True)
        if result.returncode:
            reason = (result.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {result.returncode}"])[-1]
            raise UserError(f"cannot write {path}: ffmpeg failed: {reason}")
    return path


def skill_frames(
    env: Environment | HostEnvironment, policy: Policy, skills: Any, steps: int, key: jax.Array, size: int = 240
) -> np.ndarray:
    """Images [T + 1, W, size, size, 3] of skills in parallel environments; at most as many as the environment has."""
    from susd.collect import rollout_skills
    from susd.envs.vector import vectorize

    shown = min(len(skills), vectorize(env, len(skills)).num_envs)
    frames: list[list[np.ndarray]] = []

    def watch(batch: HostEnvironment) -> None:
        frames.append([batch.render(index, size) for index in range(shown)])

    rollout_skills(env, policy, skills[:shown], steps, key, watch)
    return np.array(frames)


def skill_video(path: Path, frames: np.ndarray, titles: Sequence[str], fps: float = 15.0) -> Path:
    """The W skills of `frames` [T, W, size, size, 3] next to each other, with titles."""
    shown = frames.shape[1]
    if len(titles) < shown:
        raise ValueError(f"{len(titles)} titles for {shown} skills")
    captions = [_caption(title, frames.shape[3]) for title in titles[:shown]]
    sheets = [
        _tile([np.concatenate([caption, tile]) for caption, tile in zip(captions, row, strict=True)]) for row in frames
    ]
    return save_video(path, np.stack(sheets), fps)


def skill_titles(names: Sequence[str], skills: np.ndarray, discrete: bool = False) -> list[str]:
    """Titles of skills [W, parts, dim]: direction or discrete skill of each named part where that fits, else a number."""
    count, parts, dim = skills.shape
    if (dim != 2 and not discrete) or parts > 4:
        return [f"skill {index + 1}" for index in range(count)]
    labels = names if len(names) == parts else ["z"] if parts == 1 else [f"z{part + 1}" for part in range(parts)]
    if discrete:
        numbers = skills.argmax(axis=-1) + 1
        return ["   ".join(f"{label} {k}" for label, k in zip(labels, row, strict=True)) for row in numbers]
    degrees = np.round(np.degrees(np.arctan2(skills[..., 1], skills[..., 0]))).astype(int) % 360
    lengths = np.linalg.norm(skills, axis=-1)
    paced = np.ptp(lengths) > 1e-3  # the length of a part is how fast it moves its factor
    return [
        "   ".join(
            f"{label} at rest" if paced and n < 1e-3 else f"{label} {d}°" + (f" x {n:.1f}" if paced else "")
            for label, d, n in zip(labels, row, length, strict=True)
        )
        for row, length in zip(degrees, lengths, strict=True)
    ]


def _tile(tiles: Sequence[np.ndarray]) -> np.ndarray:
    """The tiles in a grid about one and a half times as wide as high, on white."""
    columns = min(len(tiles), math.ceil(math.sqrt(1.5 * len(tiles)) - 1e-9))
    rows = -(-len(tiles) // columns)
    height, width = tiles[0].shape[:2]
    sheet = np.full((rows * (height + GAP) - GAP, columns * (width + GAP) - GAP, 3), 255, np.uint8)
    for index, tile in enumerate(tiles):
        top, left = index // columns * (height + GAP), index % columns * (width + GAP)
        sheet[top : top + height, left : left + width] = tile
    return sheet


def _caption(text: str, width: int) -> np.ndarray:
    """A strip with centred text, in a smaller font if it is long."""
    from PIL import Image, ImageDraw

    height = max(20, width // 11)
    strip = Image.new("RGB", (width, height), PAPER)
    draw = ImageDraw.Draw(strip)
    pixels = round(0.66 * height)
    while pixels > 8 and draw.textlength(text, font=_font(pixels)) > width - 6:
        pixels -= 1
    draw.text((width / 2, height / 2), text, fill=INK, font=_font(pixels), anchor="mm")
    return np.asarray(strip)


@lru_cache(maxsize=32)
def _font(pixels: int) -> FreeTypeFont | ImageFont:
    from PIL import ImageFont

    return ImageFont.load_default(pixels)


def _ffmpeg() -> str:
    """The path of ffmpeg."""
    try:
        import imageio_ffmpeg

        if found := shutil.which(imageio_ffmpeg.get_ffmpeg_exe()):
            return found
    except (ImportError, RuntimeError):
        pass
    raise UserError(
        "videos need ffmpeg, which was not found: pip install imageio-ffmpeg, "
        "or install ffmpeg and name it in the environment variable IMAGEIO_FFMPEG_EXE"
    )

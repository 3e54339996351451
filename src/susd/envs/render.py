"""Images of the two-dimensional environments, drawn with Pillow at twice the size and reduced (smooth edges, no GL)."""

from __future__ import annotations

import math
import threading
from functools import lru_cache

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from susd.envs.gunner import AIM, AMMO, SIDE, ZONES
from susd.envs.multi_particle import NEAR

Point = tuple[float, float]
Colour = tuple[int, int, int]

FINE = 2  # supersampling
BACKGROUND: Colour = (250, 249, 246)
INK: Colour = (38, 42, 51)
GRID: Colour = (226, 224, 218)
QUARTET: tuple[Colour, ...] = ((214, 82, 72), (44, 123, 182), (236, 162, 44), (60, 150, 96))
TEN: tuple[Colour, ...] = (
    (31, 119, 180),
    (255, 127, 14),
    (44, 160, 44),
    (214, 39, 40),
    (148, 103, 189),
    (140, 86, 75),
    (227, 119, 194),
    (110, 110, 110),
    (188, 170, 34),
    (23, 170, 190),
)


def _tint(colour: Colour, strength: float) -> Colour:
    """The colour mixed with the background."""
    r, g, b = (round(strength * c + (1.0 - strength) * p) for c, p in zip(colour, BACKGROUND, strict=True))
    return r, g, b


@lru_cache(maxsize=8)
def _scratch(pixels: int, thread: int) -> Image.Image:
    """A reused image to draw on: a new one costs more than all the drawing. Each thread has its own."""
    return Image.new("RGB", (pixels, pixels))


@lru_cache(maxsize=64)
def _glyph(text: str, pixels: int) -> Image.Image:
    """A short text as a mask; kept, because shaping text is slower than pasting it."""
    font = ImageFont.load_default(max(pixels, 4))
    left, top, right, bottom = (round(edge) for edge in font.getbbox(text))
    mask = Image.new("L", (max(right - left, 1), max(bottom - top, 1)))
    ImageDraw.Draw(mask).text((-left, -top), text, fill=255, font=font)
    return mask


class _Canvas:
    """Environment coordinates (y up) on a supersampled image with a margin."""

    def __init__(self, size: int, low: float, high: float, background: Image.Image | None = None) -> None:
        self.pixels = size * FINE
        self.margin = 0.06 * self.pixels
        self.low = low
        self.scale = (self.pixels - 2 * self.margin) / (high - low)
        if background:
            self.image = _scratch(self.pixels, threading.get_ident())
            self.image.paste(background)
        else:
            self.image = Image.new("RGB", (self.pixels, self.pixels), BACKGROUND)
        self.draw = ImageDraw.Draw(self.image)

    def at(self, x: float, y: float) -> Point:
        return self.margin + (x - self.low) * self.scale, self.pixels - self.margin - (y - self.low) * self.scale

    def line(self, a: Point, b: Point, colour: Colour, width: float) -> None:
        self.draw.line([self.at(*a), self.at(*b)], fill=colour, width=max(1, round(width * self.pixels)))

    def disc(
        self, centre: Point, radius: float, fill: Colour | None, edge: Colour | None = None, width: float = 0.004
    ) -> None:
        x, y = self.at(*centre)
        r = radius * self.scale
        stroke = max(1, round(width * self.pixels)) if edge else 0
        self.draw.ellipse((x - r, y - r, x + r, y + r), fill=fill, outline=edge, width=stroke)

    def box(self, low: Point, high: Point, fill: Colour | None, edge: Colour | None = None, width: float = 0.004) -> None:
        (left, bottom), (right, top) = self.at(*low), self.at(*high)
        stroke = max(1, round(width * self.pixels)) if edge else 0
        self.draw.rectangle((left, top, right, bottom), fill=fill, outline=edge, width=stroke)

    def polygon(self, points: list[Point], fill: Colour, edge: Colour | None = None) -> None:
        self.draw.polygon([self.at(*p) for p in points], fill=fill, outline=edge)

    def label(self, centre: Point, text: str, colour: Colour, height: float) -> None:
        mask = _glyph(text, round(height * self.scale))
        x, y = self.at(*centre)
        self.draw.bitmap((round(x - mask.width / 2), round(y - mask.height / 2)), mask, fill=colour)

    def array(self) -> np.ndarray:
        return np.array(self.image.reduce(FINE))


def _star(centre: Point, radius: float) -> list[Point]:
    radii = [radius if i % 2 == 0 else 0.45 * radius for i in range(10)]
    angles = [math.pi / 2 + i * math.pi / 5 for i in range(10)]
    return [(centre[0] + r * math.cos(a), centre[1] + r * math.sin(a)) for r, a in zip(radii, angles, strict=True)]


@lru_cache(maxsize=4)
def _gunner_background(size: int) -> Image.Image:
    """The constant background: grid, zones, ammo cells, corners."""
    canvas = _Canvas(size, 0.0, SIDE)
    for k, colour in enumerate(QUARTET):
        for column, row in ZONES[k].tolist():
            canvas.box((column, row), (min(column + 1, SIDE), min(row + 1, SIDE)), _tint(colour, 0.22))
            canvas.box((column + 0.08, row + 0.08), (column + 0.92, row + 0.92), None, _tint(colour, 0.7), 0.004)
        for column, row in AMMO[k].tolist():
            canvas.box((column, row), (min(column + 1, SIDE), min(row + 1, SIDE)), _tint(colour, 0.07))
            for dx in (-0.16, 0.0, 0.16):  # three rounds
                x, y = column + 0.5 + dx, row + 0.5
                canvas.box((x - 0.05, y - 0.16), (x + 0.05, y + 0.08), _tint(colour, 0.75))
                canvas.disc((x, y + 0.08), 0.05, _tint(colour, 0.75))
    for i in range(1, 5):
        canvas.line((i, 0), (i, SIDE), GRID, 0.0025)
        canvas.line((0, i), (SIDE, i), GRID, 0.0025)
    canvas.box((0, 0), (SIDE, SIDE), None, INK, 0.004)
    return canvas.image


def draw_gunner(obs: np.ndarray, size: int = 400) -> np.ndarray:
    """2D-Gunner from its grouped observation: uint8 [size, size, 3]."""
    canvas = _Canvas(size, 0.0, SIDE, _gunner_background(size))
    zones, agent, ammo, picker = obs[0:4], tuple(obs[4:6].tolist()), obs[6:10], tuple(obs[10:12].tolist())
    grip, targets, view = float(obs[12]), obs[13:17], float(obs[17])
    for k, corner in enumerate(((SIDE, 0.0), (SIDE, SIDE), (0.0, 0.0), (0.0, SIDE))):
        hit = bool(targets[k])
        canvas.disc(corner, 0.24, QUARTET[k] if hit else BACKGROUND, QUARTET[k], 0.008)
        canvas.disc(corner, 0.11, BACKGROUND if hit else QUARTET[k])
    for k in np.flatnonzero(zones).tolist():
        column, row = ZONES[k][0].tolist()
        canvas.box((column + 0.04, row + 0.04), (column + 0.96, row + 0.96), None, QUARTET[k], 0.012)
    aimed = QUARTET[int(np.argmax(targets))] if targets.any() else INK
    for side, width in ((-AIM, 0.0025), (AIM, 0.0025), (0.0, 0.008)):  # the cone that counts as a hit, and the view
        length = 0.75 if side else 1.0
        end = (agent[0] + length * math.sin(view + side), agent[1] + length * math.cos(view + side))
        canvas.line(agent, end, aimed if not side else _tint(aimed, 0.5), width)
    canvas.line(agent, picker, _tint(INK, 0.55), 0.006)
    held = QUARTET[int(np.argmax(ammo))] if ammo.any() else BACKGROUND
    gap = 0.10 + 0.10 * grip  # the jaws open with the grip
    for sign in (-1.0, 1.0):
        x, y = picker[0] + sign * gap, picker[1]
        canvas.line((x, y - 0.13), (x, y + 0.13), INK, 0.009)
        canvas.line((x, y + 0.12), (x - sign * 0.07, y + 0.12), INK, 0.009)
        canvas.line((x, y - 0.12), (x - sign * 0.07, y - 0.12), INK, 0.009)
    canvas.disc(picker, 0.09, held, INK, 0.004)
    canvas.polygon(_star(agent, 0.27), INK)
    canvas.polygon(_star(agent, 0.20), (255, 214, 70))
    return canvas.array()


@lru_cache(maxsize=4)
def _particle_background(size: int) -> Image.Image:
    canvas = _Canvas(size, -1.0, 1.0)
    canvas.box((-1, -1), (1, 1), None, INK, 0.004)
    return canvas.image


def draw_particles(position: np.ndarray, velocity: np.ndarray, station: np.ndarray, size: int = 400) -> np.ndarray:
    """Multi-Particle: agents are discs, stations squares of the same colour, with the range of interaction as circles."""
    canvas = _Canvas(size, -1.0, 1.0, _particle_background(size))
    near = np.linalg.norm(position - station, axis=-1) < NEAR
    stations, agents, speeds = station.tolist(), position.tolist(), velocity.tolist()
    for i, colour in enumerate(TEN):
        canvas.disc(stations[i], NEAR, None, _tint(colour, 0.5 if near[i] else 0.18), 0.0025)
    for i, colour in enumerate(TEN):
        canvas.line(agents[i], stations[i], _tint(colour, 0.7 if near[i] else 0.3), 0.005 if near[i] else 0.003)
    for i, colour in enumerate(TEN):
        x, y = stations[i]
        canvas.box((x - 0.06, y - 0.06), (x + 0.06, y + 0.06), colour if near[i] else _tint(colour, 0.2), colour, 0.006)
        canvas.label((x, y), str(i), BACKGROUND if near[i] else colour, 0.1)
    for i, colour in enumerate(TEN):
        x, y = agents[i]
        canvas.line((x, y), (x + 0.15 * speeds[i][0], y + 0.15 * speeds[i][1]), INK, 0.006)  # where it is heading
        canvas.disc((x, y), 0.064, colour, BACKGROUND, 0.004)
        canvas.label((x, y), str(i), BACKGROUND, 0.1)
    return canvas.array()

"""The data of an atlas whose environment does not run in the browser: recorded trajectories of skills from one start.

A grid of skills per part is recorded with the other parts at a base skill, and a coarser grid for every pair of parts, so
that two parts can be combined. Random skills are recorded for the gallery.
"""

from __future__ import annotations

import base64
import itertools
import json
import math
import zlib
from pathlib import Path
from typing import Any

import jax
import numpy as np

from susd.envs.base import HostEnvironment, close
from susd.envs.vector import vectorize
from susd.explorer.bodies import find_bodies
from susd.explorer.describe import DRAWN, describe
from susd.explorer.model import LONGEST_PATH, SHOWN, Model
from susd.explorer.weights import actor_network
from susd.runs.progress import Progress
from susd.skills import SkillSpace
from susd.training.agent import Agent
from susd.training.goals import TAIL, rest_skills
from susd.training.trainer import subkey

DIRECTIONS = 16  # of a part alone
PACES = (1.0, 0.5)  # of parts that have one, besides rest
PAIR_DIRECTIONS = (8, 6, 5, 4, 3)  # of each of two parts; the finest grid that fits is recorded
SAFE = 0.9  # share of the room that a guess of the size may take
LEVELS = 65535  # of a quantised value
NOTE = "Recorded trajectories. The recording of the nearest skill is shown, from its start."


def record(agent: Agent, path: Path | None, room: int, quiet: bool = True) -> dict[str, Any]:
    """The message `hello`, and recordings that fit into `room` characters of JSON."""
    model = Model(agent, path)
    env = vectorize(model.environment(), 1)
    try:
        recorder = Recorder(model, env, quiet)
        bodies = recorder.bodies
        scene: dict[str, Any] = {"kind": model.spec.name if model.spec.name in DRAWN else "plots"}
        if bodies is not None:
            scene = {"kind": "bodies", "bodies": bodies.geometry()}
        hello = _hello(agent, path, scene) | {
            "recorded": {"skill": np.round(base_skill(model.space).astype(float), 4).tolist()}
        }
        fixed = {"hello": hello, "tree": bodies.tree() if bodies else None}
        return {**fixed, "recordings": recorder.fitting(room - len(json.dumps(fixed)))}
    finally:
        close(env)


def _hello(agent: Agent, path: Path | None, scene: dict[str, Any]) -> dict[str, Any]:
    """What a page of recordings can do."""
    hello = describe(agent, path, scene, NOTE)
    without = dict.fromkeys(("goals", "raw", "sampled", "layouts"), False)
    layouts = {"default": "", "choices": [], "seeds": False}
    return hello | {"can": hello["can"] | without, "handles": [], "tasks": [], "layouts": layouts}


class Recorder:
    """Rolls out skills in one environment, always from the same start, with mean actions."""

    def __init__(self, model: Model, env: HostEnvironment, quiet: bool = True) -> None:
        self.model, self.env, self.quiet = model, env, quiet
        self.actor, self.scale = actor_network(model.agent.actor), model.agent.trainer.learner.skill_input_scale
        self.steps = min(model.spec.horizon, LONGEST_PATH)
        self.env.reset(0)
        self.bodies = find_bodies(env)

    def fitting(self, room: int) -> dict[str, Any]:
        """Random skills, the grid of every part and, as fine as fits, grids of pairs of parts."""
        space = self.model.space
        random = np.asarray(space.sample(subkey(jax.random.key(0), "gallery"), SHOWN))
        base = base_skill(space)
        singles = single_skills(space, base)
        skills = np.concatenate([random, base[None], *singles])
        counts = np.cumsum([SHOWN, 1, *(len(one) for one in singles)]).tolist()
        parts = [[first, last] for first, last in itertools.pairwise(counts[1:])]
        values = self.rollouts(skills)
        fixed = {"random": SHOWN, "base": SHOWN, "singles": parts, "maps": self.maps(values)}
        while (size := len(json.dumps(made := fixed | self.encode(skills, values)))) > room and values.shape[1] > 2:
            values = values[:, : (values.shape[1] + 1) // 2]  # shorter trajectories
        self.steps = values.shape[1] - 1
        for directions in PAIR_DIRECTIONS if space.parts > 1 else ():
            pairs = pair_skills(space, base, directions)
            if size * (1 + len(pairs) / len(skills)) <= SAFE * room:
                both = np.concatenate([skills, pairs]), np.concatenate([values, self.rollouts(pairs)])
                more = fixed | self.encode(*both)
                return more if len(json.dumps(more)) <= room else made
        return made

    def rollouts(self, skills: np.ndarray) -> np.ndarray:
        """[R, T + 1, C] observations in raw units, positions of joints where there are bodies, and phi."""
        found = []
        with Progress(len(skills), quiet=self.quiet) as progress:
            for skill in skills:
                found.append(self.rollout(skill[None]))
                progress.update(len(found), {})
        return np.stack(found)

    def rollout(self, skill: np.ndarray) -> np.ndarray:
        """[T + 1, C] of one skill; where the environment ends an episode by itself, its last state stays."""
        obs, rows, ended = np.array(self.env.reset(0), np.float32), [], False
        seen, joints = [obs[0]], [self._joints()]
        for _ in range(self.steps):
            if not ended:
                step = self.env.step(self.act(obs, skill))
                ended = bool(step.terminated[0] or step.truncated[0])
                obs = np.array(step.next_obs, np.float32)
                rows = [obs[0], joints[-1] if ended else self._joints()]
            seen.append(rows[0])
            joints.append(rows[1])
        path = np.stack(seen)
        phi = self.model.encode(path) if self.model.embeds else np.zeros((len(path), 0))
        return np.concatenate([self.model.spec.raw(path), np.stack(joints), phi], axis=1).astype(np.float32)

    def act(self, obs: np.ndarray, skill: np.ndarray) -> np.ndarray:
        """Mean actions [1, A]; in numpy, because a compiled policy takes longer to call than a small one to compute."""
        out = self.actor(np.concatenate([obs, skill * np.float32(self.scale)], axis=1, dtype=np.float32))
        return np.tanh(out[:, : out.shape[1] // 2])

    def _joints(self) -> np.ndarray:
        return self.bodies.joints() if self.bodies else np.zeros(0, np.float32)

    def maps(self, values: np.ndarray) -> list[dict[str, Any]] | None:
        """The box of phi that the random skills reach, for every part."""
        if not self.model.embeds:
            return None
        space = self.model.space
        phi = values[:SHOWN, :, -space.size :].reshape(-1, space.parts, space.dim)
        low, high = (np.round(np.quantile(phi, q, axis=0), 4).tolist() for q in (TAIL, 1.0 - TAIL))
        return [{"low": a, "high": b} for a, b in zip(low, high, strict=True)]

    def encode(self, skills: np.ndarray, values: np.ndarray) -> dict[str, Any]:
        """The recordings with 16 bits per value: differences in time, column by column, compressed."""
        flat = values.reshape(-1, values.shape[-1])
        low, high = flat.min(axis=0), flat.max(axis=0)
        scale = np.maximum(high - low, 1e-12)
        levels = np.round((values - low) / scale * LEVELS).astype(np.uint16).transpose(2, 0, 1)  # [C, R, T + 1]
        change = np.diff(levels, axis=-1, prepend=np.uint16(0)).astype("<u2")
        halves = np.frombuffer(change.tobytes(), np.uint8).reshape(-1, 2).T  # low bytes, then high bytes
        squeezed = zlib.compressobj(9, zlib.DEFLATED, -15)
        content = squeezed.compress(halves.tobytes()) + squeezed.flush()
        return {
            "skills": np.round(skills.astype(float), 5).tolist(),
            "times": values.shape[1],
            "columns": {"obs": self.model.spec.obs_size, "joints": len(self._joints())},
            "low": [float(f"{x:.8g}") for x in low.tolist()],
            "high": [float(f"{x:.8g}") for x in high.tolist()],
            "values": base64.b64encode(content).decode(),
        }


def base_skill(space: SkillSpace) -> np.ndarray:
    """[Z] the skill around which parts are varied: at rest where skills have a pace, else a fixed random one."""
    return np.asarray(rest_skills(space, jax.random.key(0), 1))[0]


def part_grid(space: SkillSpace, base: np.ndarray, directions: int, paces: tuple[float, ...]) -> np.ndarray:
    """[G, D] values of one part: discrete skills, directions at some paces and rest, or both ends of every axis."""
    if space.discrete:
        return np.eye(space.dim)
    length = {"gaussian": math.sqrt(space.dim), "sphere": float(np.linalg.norm(base))}.get(space.prior, 1.0)
    free = space.paced or space.prior == "gaussian"  # any length is a skill
    if space.dim == 2:
        angles = 2 * np.pi * np.arange(directions) / directions
        circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    else:
        circle = np.concatenate([np.eye(space.dim), -np.eye(space.dim)])
    rings = [pace * length * circle for pace in (paces if free else (1.0,))]
    return np.concatenate([*rings, np.zeros((1, space.dim))] if free else rings)


def single_skills(space: SkillSpace, base: np.ndarray) -> list[np.ndarray]:
    """For every part [G, Z]: its grid, with all other parts of the base skill."""
    parts, found = base.reshape(space.parts, space.dim), []
    for part in range(space.parts):
        grid = part_grid(space, parts[part], DIRECTIONS, PACES)
        skills = np.repeat(parts[None], len(grid), axis=0)
        skills[:, part] = grid
        found.append(skills.reshape(len(grid), -1))
    return found


def pair_skills(space: SkillSpace, base: np.ndarray, directions: int) -> np.ndarray:
    """[P, Z] for every two parts all combinations of a coarse grid, with all other parts of the base skill."""
    parts, found = base.reshape(space.parts, space.dim), []
    for one, two in itertools.combinations(range(space.parts), 2):
        grids = [part_grid(space, parts[part], directions, (1.0,)) for part in (one, two)]
        for a, b in itertools.product(*grids):
            skill = parts.copy()
            skill[one], skill[two] = a, b
            found.append(skill.ravel())
    return np.stack(found)

"""Coverage: how much of the plane the skills visit, as the paper counts it and as cells of a grid."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from susd.collect import rollout_skills
from susd.envs.base import Environment, EnvSpec, HostEnvironment
from susd.errors import UserError
from susd.skills import SkillSpace
from susd.types import Policy

BINS = 50
PERIOD = 200  # steps between two resets, each with a new skill
STEPS = 20_000
MOVED = 0.01  # of the box: a body that a skill took farther than that was moved by it


def trajectories(
    env: Environment | HostEnvironment, policy: Policy, skills: SkillSpace, key: jax.Array, steps: int = STEPS
) -> jax.Array:
    """Observations [T, W, S] of W = steps / 200 random skills, each from reset for 200 steps."""
    k_skills, k_run = jax.random.split(key)
    drawn = skills.sample(k_skills, steps // PERIOD)
    return rollout_skills(env, policy, drawn, PERIOD, k_run).next_obs


def positions(spec: EnvSpec, obs: jax.Array) -> jax.Array:
    """The position of each plane, [P, .., 2], scaled so that its box is [0, 1]."""
    if not spec.planes:
        raise UserError(f"{spec.name} has no position whose coverage could be measured")
    raw = spec.raw(obs)
    return jnp.stack([(raw[..., np.array([p.x, p.y])] - p.low) / (p.high - p.low) for p in spec.planes])


def all_cells(spec: EnvSpec) -> np.ndarray:
    """How many cells each plane has, [P]; a line has one row of them."""
    return np.array([BINS if plane.is_line else BINS * BINS for plane in spec.planes])


def grid(spec: EnvSpec, obs: jax.Array) -> jax.Array:
    """Visits per cell, [P, BINS, BINS] (first axis of a grid is x; a line visits its diagonal)."""
    places = positions(spec, obs).reshape(len(spec.planes), -1, 2)
    cells = jnp.clip((places * BINS).astype(jnp.int32), 0, BINS - 1)
    flat = cells[..., 0] * BINS + cells[..., 1]
    walled = np.array([[not plane.open] for plane in spec.planes])
    counted = walled | ((places >= 0) & (places < 1)).all(axis=-1)  # what is beyond the box of an open plane is in no cell
    counts = jax.vmap(lambda c, n: jnp.zeros(BINS * BINS, jnp.int32).at[c].add(n))(flat, counted.astype(jnp.int32))
    return counts.reshape(-1, BINS, BINS)


def visited_cells(spec: EnvSpec, obs: jax.Array) -> jax.Array:
    """Number of visited grid cells of each plane, [P]."""
    return (grid(spec, obs) > 0).sum(axis=(1, 2))


def unique_positions(spec: EnvSpec, obs: np.ndarray) -> np.ndarray:
    """The paper's count: distinct positions after rounding to two decimals, for each plane, [P]."""
    counts, obs = [], np.asarray(spec.raw(obs))
    for plane in spec.planes:
        rounded = np.round(obs[..., [plane.x, plane.y]].reshape(-1, 2).astype(np.float64) * 100).astype(np.int64)
        counts.append(len(np.unique(rounded, axis=0)))
    return np.array(counts)


def landmarks(spec: EnvSpec, obs: jax.Array) -> dict[str, jax.Array]:
    """For every landmark, the share of skills (worlds) that switched it on at some time."""
    raw = spec.raw(obs)
    return {name: (raw[..., index] > 0).any(axis=0).mean() for name, index in spec.landmarks.items()}


def reach(spec: EnvSpec, obs: np.ndarray) -> np.ndarray:
    """How far each skill took each body from where it was after the first step, at most; [P, W], in raw units."""
    raw = np.asarray(spec.raw(obs), np.float64)
    paths = [raw[..., [plane.x] if plane.is_line else [plane.x, plane.y]] for plane in spec.planes]
    return np.stack([np.linalg.norm(path - path[0], axis=-1).max(axis=0) for path in paths])


def summarise(spec: EnvSpec, obs: np.ndarray) -> dict[str, Any]:
    """All coverage numbers of one set of trajectories [T, W, S]."""
    cells = np.asarray(visited_cells(spec, jnp.asarray(obs)))
    unique = unique_positions(spec, obs)
    names = [p.name for p in spec.planes]
    far = reach(spec, obs)
    moved = (far > [[MOVED * (p.high - p.low)] for p in spec.planes]).mean(axis=1)
    return {
        "steps": int(obs.shape[0] * obs.shape[1]),
        "cells": {"worst": int(cells.min()), "average": float(cells.mean()), "of": int(all_cells(spec).mean())},
        "unique": {"worst": int(unique.min()), "average": float(unique.mean())},
        "per_plane": {
            name: {"cells": int(c), "unique": int(u), "moved": float(m), "reach": float(r)}
            for name, c, u, m, r in zip(names, cells, unique, moved, far.mean(axis=1), strict=True)
        },
        "landmarks": {name: float(share) for name, share in landmarks(spec, jnp.asarray(obs)).items()},
    }

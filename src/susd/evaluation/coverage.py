"""Coverage: how much of each plane the skills visit, as the paper counts it and as cells of a grid."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from susd.collect import rollout_skills
from susd.envs.base import Environment, EnvSpec, HostEnvironment
from susd.errors import UserError
from susd.evaluation.registry import OF_SEED, Artifacts, Evaluation, Fact, Option, Result
from susd.runs.tables import Row, Table, seed_table
from susd.skills import SkillSpace
from susd.types import Policy
from susd.viz import figures

if TYPE_CHECKING:
    from susd.methods.registry import Card
    from susd.training.agent import Agent

BINS = 50
PERIOD = 200  # steps between two resets, each with a new skill
STEPS = 20_000  # of the paper's count
MAX_STEPS = 2_000_000  # a hundred times the paper's; all observations are in memory together
MOVED = 0.01  # of the box: a skill that takes a body farther than that has moved it
COARSE = 8  # bins of a position where configurations of two factors are counted
FEW = 6  # bodies that fit next to each other in a table


def sample_skills(skills: SkillSpace, key: jax.Array, steps: int = STEPS) -> tuple[jax.Array, jax.Array]:
    """The steps / 200 random skills whose trajectories are measured, and the key of their rollout."""
    k_skills, k_run = jax.random.split(key)
    return skills.sample(k_skills, steps // PERIOD), k_run


def trajectories(
    env: Environment | HostEnvironment, policy: Policy, skills: SkillSpace, key: jax.Array, steps: int = STEPS
) -> np.ndarray:
    """Observations [T, W, S] of W = steps / 200 random skills, each from reset for 200 steps."""
    drawn, k_run = sample_skills(skills, key, steps)
    return np.asarray(rollout_skills(env, policy, drawn, PERIOD, k_run).next_obs)


def positions(spec: EnvSpec, obs: jax.Array) -> jax.Array:
    """The position in each plane, [P, .., 2], scaled so that its box is [0, 1]."""
    if not spec.planes:
        raise UserError(f"{spec.name} has no position whose coverage could be measured")
    raw = spec.raw(obs)
    return jnp.stack([(raw[..., np.array([p.x, p.y])] - p.low) / (p.high - p.low) for p in spec.planes])


def all_cells(spec: EnvSpec) -> np.ndarray:
    """How many cells each plane has, [P]; a line has one row of them."""
    return np.array([BINS if plane.is_line else BINS * BINS for plane in spec.planes])


def grid(spec: EnvSpec, obs: jax.Array) -> jax.Array:
    """Visits per cell, [P, BINS, BINS] (first axis of a grid is x; a line visits its diagonal)."""
    points = positions(spec, obs).reshape(len(spec.planes), -1, 2)
    cells = jnp.clip((points * BINS).astype(jnp.int32), 0, BINS - 1)
    flat = cells[..., 0] * BINS + cells[..., 1]
    walled = np.array([[not plane.open] for plane in spec.planes])
    counted = walled | ((points >= 0) & (points < 1)).all(axis=-1)  # outside the box of an open plane there are no cells
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
    """For every landmark, the share of skills that switched it on at some time."""
    raw = spec.raw(obs)
    return {name: (raw[..., index] > 0).any(axis=0).mean() for name, index in spec.landmarks.items()}


def reach(spec: EnvSpec, obs: np.ndarray) -> np.ndarray:
    """The greatest distance that each skill took each body from its position after the first step; [P, W], raw units."""
    raw = np.asarray(spec.raw(obs), np.float64)
    paths = [raw[..., [plane.x] if plane.is_line else [plane.x, plane.y]] for plane in spec.planes]
    return np.stack([np.linalg.norm(path - path[0], axis=-1).max(axis=0) for path in paths])


@dataclass(frozen=True)
class FixedStart:
    """A functional environment in which every episode starts in the same state, so that only skills differ."""

    env: Environment
    key: jax.Array

    @property
    def spec(self) -> EnvSpec:
        """That of the environment."""
        return self.env.spec

    def reset(self, key: jax.Array) -> Any:
        """The start of one key, whatever the key."""
        return self.env.reset(self.key)

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> Any:
        """That of the environment."""
        return self.env.step(state, action, key)

    def observe(self, state: Any) -> jax.Array:
        """That of the environment."""
        return self.env.observe(state)

    def render(self, state: Any, size: int = 400) -> np.ndarray:
        """That of the environment."""
        return self.env.render(state, size)


def configurations(spec: EnvSpec, obs: np.ndarray) -> dict[str, tuple[np.ndarray, int]]:
    """The configuration of every factor in every state, and how many it has: the cell of its body, else its landmark."""
    raw = np.asarray(spec.raw(obs))
    found: dict[str, tuple[np.ndarray, int]] = {}
    for name, own in zip(spec.factorization.names, spec.factorization.indices, strict=True):
        bodies = [plane for plane in spec.planes if plane.x in own]
        marks = [index for index in spec.landmarks.values() if index in own]
        if bodies:
            plane = bodies[0]
            cells = (raw[..., [plane.x, plane.y]] - plane.low) / (plane.high - plane.low) * COARSE
            x, y = np.moveaxis(np.clip(cells, 0, COARSE - 1).astype(int), -1, 0)
            found[name] = (x, COARSE) if plane.is_line else (x * COARSE + y, COARSE * COARSE)
        elif marks:
            on = raw[..., marks] > 0
            found[name] = np.where(on.any(axis=-1), 1 + on.argmax(axis=-1), 0), 1 + len(marks)
    return found


def joint_coverage(spec: EnvSpec, obs: np.ndarray) -> float | None:
    """The share of configurations of two factors that is visited, on average over pairs; None with fewer than two factors.

    Ten agents that always move alike visit few of them, though each visits all of its own cells.
    """
    found = configurations(spec, obs)
    shares = [
        len(np.unique(one.ravel() * size + other.ravel())) / (count * size)
        for (one, count), (other, size) in combinations(found.values(), 2)
    ]
    return float(np.mean(shares)) if shares else None


def summarise(spec: EnvSpec, obs: np.ndarray) -> Result:
    """All coverage values of one set of trajectories [T, W, S]."""
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
            name: {"cells": int(c), "of": int(n), "unique": int(u), "moved": float(m), "reach": float(r)}
            for name, c, n, u, m, r in zip(names, cells, all_cells(spec), unique, moved, far.mean(axis=1), strict=True)
        },
        "landmarks": {name: float(share) for name, share in landmarks(spec, jnp.asarray(obs)).items()},
        "joint": joint_coverage(spec, obs),
        "reach": {"worst": float(far.mean(axis=1).min()), "average": float(far.mean())},
    }


def random_actions(action_size: int) -> Policy:
    """Uniform actions that ignore observation and skill."""
    return jax.jit(lambda obs, _, key: jax.random.uniform(key, (obs.shape[0], action_size), minval=-1.0, maxval=1.0))


def check_steps(steps: int) -> None:
    """Refuse a number of steps that is no multiple of the length of a skill, or too large for the memory."""
    if steps < PERIOD or steps % PERIOD:
        raise UserError(f"--steps is {steps}; it must be a multiple of {PERIOD}, the length of one skill")
    if steps > MAX_STEPS:
        raise UserError(f"--steps is {steps}; it must be at most {MAX_STEPS}")


def measure(agent: Agent, seed: int = 0, steps: int = 100_000) -> tuple[Result, Artifacts]:
    """Coverage of sampled and mean actions, compared with the untrained policy and random actions; visits for the figure.

    The values are of the first 20,000 steps, as in the paper; those of all steps are under `longer`. Action noise and
    random starts visit cells without any skill, so `fixed_start` has those of one start, where it can be repeated.
    """
    env, trainer = agent.trainer.env, agent.trainer
    trained, untrained = agent.actor, agent.untrained_actor()
    policies = {
        "trained, mean actions": trainer.policy(trained, sampled=False),
        "trained, sampled actions": trainer.policy(trained),
        "untrained, mean actions": trainer.policy(untrained, sampled=False),
        "untrained, sampled actions": trainer.policy(untrained),
        "random actions": random_actions(env.spec.action_size),
    }
    first = min(steps, STEPS)
    chunks = [first] * (steps // first) + [steps % first] * (steps % first > 0)
    keys = [jax.random.key(seed), *(jax.random.fold_in(jax.random.key(seed), i) for i in range(1, len(chunks)))]
    result: Result = {}
    grids: dict[str, np.ndarray] = {}
    for label, policy in policies.items():
        skills = trainer.learner.method.skills
        parts = [trajectories(env, policy, skills, key, size) for key, size in zip(keys, chunks, strict=True)]
        grids[label] = np.asarray(grid(env.spec, jnp.asarray(parts[0])))
        result[label] = summarise(env.spec, parts[0])
        if isinstance(env, Environment) and not label.endswith("sampled actions"):
            start = FixedStart(env, jax.random.key(seed))
            alike = trajectories(start, policy, skills, keys[0], first)
            result[label]["fixed_start"] = summarise(env.spec, alike)
            grids[label] = np.asarray(grid(env.spec, jnp.asarray(alike)))
        if len(parts) > 1:
            result[label]["longer"] = summarise(env.spec, np.concatenate(parts, axis=1))
    return result, {"grids": grids}


def draw(path: Path, spec: EnvSpec, result: Result, artifacts: Artifacts) -> None:
    """Heat maps of the visits per cell with mean actions and with random ones; from one start, where it can be repeated."""
    grids = artifacts["grids"]
    shown = {k: v for k, v in grids.items() if k.endswith("mean actions") or k == "random actions"}
    figures.coverage_map(path, spec, shown)


def facts(result: Result) -> Iterator[Fact]:
    """Shares of the grid and unique positions; for each body cells, share moved and reach; the share of each landmark.

    `step` is the length of the measurement; the subject of a body or landmark is "policy>body".
    """
    for policy, first in result.items():
        for part in (first, first["longer"]) if "longer" in first else (first,):
            cells, step = part["cells"], part["steps"]
            for plane in ("worst", "average"):
                yield policy, step, f"cells_{plane}", cells[plane] / cells["of"]
                yield policy, step, f"unique_{plane}", part["unique"][plane]
            for body, values in part["per_plane"].items():
                yield f"{policy}>{body}", step, "cells", values["cells"] / values["of"]
                yield from ((f"{policy}>{body}", step, name, values[name]) for name in ("unique", "moved", "reach"))
            for landmark, share in part["landmarks"].items():
                yield f"{policy}>{landmark}", step, "landmark", share
            yield from _joint_facts(policy, part, step, "")
        if "fixed_start" in first:
            part, of = first["fixed_start"], first["cells"]["of"]
            yield from ((policy, part["steps"], f"fixed_cells_{x}", part["cells"][x] / of) for x in ("worst", "average"))
            yield from _joint_facts(policy, part, part["steps"], "fixed_")


def _joint_facts(policy: str, part: Result, step: int, prefix: str) -> Iterator[Fact]:
    """Configurations of two factors, and the distance that a skill covers."""
    if part["joint"] is not None:
        yield policy, step, f"{prefix}joint", part["joint"]
    yield from ((policy, step, f"{prefix}reach_{plane}", part["reach"][plane]) for plane in ("worst", "average"))


def tables(report: Result) -> list[Table]:
    """Coverage of each policy and, where there are few bodies, the share of skills that moved each of them."""
    policies = [
        (one["seed"], label, values) for one in report["results"] for label, values in one.items() if label not in OF_SEED
    ]
    first = policies[0][2]
    found = [_coverage_table(first, policies), *_fair_table(policies)]
    if 1 < len(first["per_plane"]) <= FEW:
        names = [*first["per_plane"], *(name.replace("_", " ") for name in first["landmarks"])]
        shares: list[tuple[int, Row]] = []
        for seed, label, values in policies:
            of = [body["moved"] for body in values["per_plane"].values()] + list(values["landmarks"].values())
            shares.append((seed, (label, *(f"{100 * share:.0f}%" for share in of))))
        title = "Skills that moved a body by more than a hundredth of its box"
        title += ", or switched a landmark on" * bool(first["landmarks"])
        found.append(seed_table(title, ("policy", *names), shares))
    return found


def _coverage_table(first: Result, policies: list[tuple[int, str, Any]]) -> Table:
    """Columns without information are left out: the worst of one plane, landmarks where there are none."""
    planes = ("average", "worst") if len(first["per_plane"]) > 1 else ("average",)
    several, one = ("cells", "worst", "unique", "worst"), ("cells", "unique positions")
    columns = ["policy", *(several if len(planes) > 1 else one)]
    columns += ["landmarks reached"] * bool(first["landmarks"])
    rows: list[tuple[int, Row]] = []
    for seed, label, values in policies:
        cells, unique, marks = values["cells"], values["unique"], values["landmarks"]
        row = [label, *(f"{cells[plane]:.0f} ({100 * cells[plane] / cells['of']:.0f}%)" for plane in planes)]
        row += [f"{unique[plane]:.0f}" for plane in planes]
        row += [f"{sum(share > 0 for share in marks.values())} of {len(marks)}"] * bool(marks)
        rows.append((seed, tuple(row)))
    title = f"Coverage: {first['steps']} steps, reset and new skill every {PERIOD}; {first['cells']['of']} cells"
    if len(planes) > 1:
        title += f"\nCells and unique positions: average over {len(first['per_plane'])} bodies, and the worst body"
    return seed_table(title, tuple(columns), rows)


def _fair_table(policies: list[tuple[int, str, Any]]) -> list[Table]:
    """What noise and random starts do not inflate: one start, two factors at once, and distance."""
    rows: list[tuple[int, Row]] = []
    for seed, label, values in policies:
        if "fixed_start" in values:
            fixed = values["fixed_start"]
            joint = "-" if fixed["joint"] is None else f"{100 * fixed['joint']:.1f}%"
            share = f"{100 * fixed['cells']['average'] / fixed['cells']['of']:.1f}%"
            rows.append((seed, (label, share, joint, f"{fixed['reach']['average']:.3g}")))
    title = "From one fixed start: cells, pairs of factors, and distance of a skill"
    return [seed_table(title, ("policy", "cells", "of two factors", "distance"), rows)] if rows else []


def undefined(env: str | EnvSpec, card: Card) -> str:
    """Coverage needs a position."""
    return "" if isinstance(env, str) or env.planes else f"{env.name} has no position whose coverage could be measured"


EVALUATION = Evaluation(
    name="coverage",
    title="Coverage",
    summary="how much of each plane the skills visit, compared with the untrained policy and random actions",
    measure=measure,
    draw=draw,
    tables=tables,
    facts=facts,
    options=(Option("steps", 100_000, f"environment steps of each policy; a multiple of {PERIOD}", check_steps),),
    seconds=10.0,
    undefined=undefined,
    section="susd.report.sections.skills:coverage",
)

"""How far a factor's trajectory differs if the whole skill is turned by a small angle, beside redrawing one part.

    python benchmarks/control_floor.py RUN .. --out benchmarks/results/control-floor.json

In contact-rich environments a small change of the skill decides whether an object is touched at all, so every part of a
skill changes every object's trajectory, however well parts are separated. What a turn of a few degrees changes bounds the
control ratio: parts that are perfectly separated still change another factor as much as that.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import susd
from susd.collect import rollout_skills
from susd.evaluation.control import PAIRS, STILL, measured_factors
from susd.runs.folder import RunFolder, describe_machine

DEGREES = (1.0, 5.0, 15.0, 45.0)


def turned(skills: jax.Array, degrees: float, key: jax.Array) -> jax.Array:
    """Every part [.., 2] turned by that angle, to either side at random."""
    parts = skills.reshape(len(skills), -1, 2)
    side = jax.random.rademacher(key, parts.shape[:2], jnp.float32)
    angle = side * jnp.deg2rad(degrees)
    x, y = parts[..., 0], parts[..., 1]
    found = jnp.stack([jnp.cos(angle) * x - jnp.sin(angle) * y, jnp.sin(angle) * x + jnp.cos(angle) * y], axis=-1)
    return found.reshape(skills.shape)


def measure(run: str, seed: int = 0) -> dict[str, Any]:
    """For each angle and factor: the distance between trajectories, as a share of that between unrelated skills."""
    agent = susd.load(run)
    trainer, env = agent.trainer, agent.trainer.env
    space, policy = trainer.learner.method.skills, trainer.policy(agent.actor, sampled=False)
    if space.dim != 2 or space.discrete:
        raise SystemExit(f"{run} has parts of {space.dim} dimensions; this turns parts of two")
    names, membership = measured_factors(env.spec.factorization, env.spec.own)
    k_skills, k_other, k_turn, k_run = jax.random.split(jax.random.key(seed), 4)
    base = space.sample(k_skills, PAIRS)

    def rollout(skills: jax.Array) -> np.ndarray:
        return np.asarray(rollout_skills(env, policy, skills, trainer.horizon, k_run).next_obs)

    reference = rollout(base)

    def distances(skills: jax.Array) -> np.ndarray:
        return np.sqrt((rollout(skills) - reference) ** 2 @ membership.T).mean(axis=0)  # [pairs, N]

    spread = distances(space.sample(k_other, PAIRS))
    turns = {f"{degrees:g}": distances(turned(base, degrees, k_turn)) for degrees in DEGREES}
    scale = np.maximum(spread.mean(axis=0), STILL)
    folder = RunFolder.open(Path(run))
    return {
        "run": Path(run).name,
        "seed": agent.seed,
        "epoch": agent.epoch,
        "config": folder.config,
        "config_hash": folder.hash,
        "factors": list(names),
        "pairs": PAIRS,
        "moved": (spread > STILL).sum(axis=0).tolist(),
        "share": {angle: (found.mean(axis=0) / scale).tolist() for angle, found in turns.items()},
    }


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", help="run folders with skills of two dimensions per factor")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "control-floor.json")
    options = parser.parse_args()
    command = " ".join(["python", "benchmarks/control_floor.py", *(os.path.relpath(run) for run in options.runs)])
    rows = [measure(run) for run in options.runs]
    for row in rows:
        print(row["run"], json.dumps(row["share"]), file=sys.stderr)
    options.out.write_text(json.dumps({"meta": describe_machine({}, command), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()

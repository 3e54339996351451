"""Measure the normalisation of the Kitchen's observations: `python -m susd.envs.kitchen.scaling` writes scaling.json.

Mean and standard deviation of every raw observation over 512 resets (seeds 0 to 7 of 64 environments) and 50 steps each
with uniformly random actions (seed 0), without the first state, with continuous quaternions. Runs with `scaled` depend on
these values: a run needs the file it was trained with.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from susd.envs.kitchen.environment import DISCOVERY, Kitchen

NUM_ENVS, RESETS = 64, 8


def measure() -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation in raw order."""
    env, random, seen = Kitchen(NUM_ENVS, quaternions="continuous"), np.random.default_rng(0), []
    for seed in range(RESETS):
        env.reset(seed)
        for _ in range(DISCOVERY):
            env.advance(random.uniform(-1.0, 1.0, (NUM_ENVS, 4)))
            seen.append(env.raw.copy())
    return np.concatenate(seen).mean(axis=0), np.concatenate(seen).std(axis=0)


def main() -> None:
    """Values are rounded to six digits."""
    mean, std = ([float(f"{x:.6g}") for x in values] for values in measure())
    Path(__file__).with_name("scaling.json").write_text(json.dumps({"mean": mean, "std": std}, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Measure the normalisation of Ant and HalfCheetah: mean and standard deviation of every observation.

`python benchmarks/scaling.py` runs random actions, uniform in [-1, 1], from many resets for 50 steps each, and writes
src/susd/envs/mujoco/scaling.json. Trained skills depend on these values: a run needs the file it was trained with.
"""

from __future__ import annotations

import argparse
import importlib.metadata
from pathlib import Path

import numpy as np

from susd.envs.mujoco import bodies
from susd.runs.atomic import write_json

STEPS = 50
NUM_ENVS = 64


def measure(env: bodies.Body, rollouts: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the raw states of random rollouts, without the first state of each."""
    random = np.random.default_rng(seed)
    count, total, square = 0, 0.0, 0.0
    for episode in range(rollouts // env.num_envs):
        env.reset(episode)
        for _ in range(STEPS):
            env.step(random.uniform(-1.0, 1.0, (env.num_envs, env.spec.action_size)))
            count, total, square = count + env.num_envs, total + env.state.sum(axis=0), square + (env.state**2).sum(axis=0)
    mean = total / count
    return mean, np.sqrt(square / count - mean**2)


def main() -> None:
    """Measure both bodies; values are rounded to six digits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=10_048, help="of each body; a multiple of 64")
    options = parser.parse_args()
    result = {}
    for kind in (bodies.Ant, bodies.HalfCheetah):
        env = kind(num_envs=NUM_ENVS)
        mean, std = measure(env, options.rollouts)
        result[kind.name] = {
            "rollouts": options.rollouts // NUM_ENVS * NUM_ENVS,
            "steps": STEPS,
            "mujoco": importlib.metadata.version("mujoco"),
            "mean": [float(f"{x:.6g}") for x in mean],
            "std": [float(f"{x:.6g}") for x in std],
        }
        print(f"{kind.name}: standard deviation of the position {[round(float(x), 3) for x in std[list(kind.axes)]]}")
    write_json(Path(bodies.__file__).with_name("scaling.json"), result)


if __name__ == "__main__":
    main()

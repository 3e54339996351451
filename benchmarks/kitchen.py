"""Control steps per second of the Kitchen: faithful and with sleeping objects, with either controller.

`python benchmarks/kitchen.py` measures all variants alternately, in whole episodes of 50 steps with random actions, resets
included, and writes benchmarks/results/kitchen.json. Rates are medians over the rounds.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from susd.envs.kitchen import DISCOVERY, Kitchen
from susd.envs.kitchen.controller import compiled
from susd.runs.atomic import write_json
from susd.runs.folder import describe_machine

RESULTS = Path(__file__).parent / "results"


def variant(num_envs: int, threads: int, seconds: float, sleeping: bool, controller: str) -> Callable[[], dict[str, float]]:
    """A measurement: episodes for about `seconds`; steps per second and per CPU second, and cores used."""
    env = Kitchen(num_envs=num_envs, threads=threads, sleeping=sleeping, controller=controller)
    random = np.random.default_rng(0)

    def episode() -> None:
        env.reset(int(random.integers(2**31)))
        for _ in range(DISCOVERY):
            env.step(random.uniform(-1.0, 1.0, (num_envs, 4)))

    def measure() -> dict[str, float]:
        done, start, cpu = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() - start < seconds:
            episode()
            done += num_envs * DISCOVERY
        wall, used = time.perf_counter() - start, time.process_time() - cpu
        return {"rate": done / wall, "cpu_rate": done / used, "cores": used / wall}

    episode()  # compiles
    return measure


def main() -> None:
    """Measure all variants."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--threads", type=int, default=0, help="native threads; 0: all cores")
    parser.add_argument("--seconds", type=float, default=5.0, help="of one measurement")
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    controllers = ("numba", "numpy") if compiled() else ("numpy",)
    variants = {
        f"{'sleeping' if sleeping else 'faithful'}, {controller}": variant(
            options.num_envs, options.threads, options.seconds, sleeping, controller
        )
        for sleeping in (False, True)
        for controller in controllers
    }
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in variants}
    loads = []
    for _ in range(options.rounds):
        loads.append(round(os.getloadavg()[0], 2))
        for name, measure in variants.items():
            taken[name].append(measure())

    def median(key: str) -> dict[str, float]:
        return {name: round(statistics.median(one[key] for one in found), 2) for name, found in taken.items()}

    config = vars(options)
    record: dict[str, Any] = {
        "benchmark": "kitchen",
        "config": config,
        "episode": DISCOVERY,
        "steps_per_second": median("rate"),
        "steps_per_second_best": {name: round(max(one["rate"] for one in found), 2) for name, found in taken.items()},
        "steps_per_cpu_second": median("cpu_rate"),
        "cores_obtained": median("cores"),
        "load_before": loads,
    }
    meta = {key: value for key, value in describe_machine(config, "").items() if key != "command"}
    packages = ("mujoco", "numba") if compiled() else ("mujoco",)
    meta["versions"] |= {name: importlib.metadata.version(name) for name in packages}
    print(record["steps_per_second"], flush=True)
    write_json(RESULTS / "kitchen.json", record | {"meta": meta})


if __name__ == "__main__":
    main()

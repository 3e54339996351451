"""Control steps per second of the Kitchen: faithful and with sleeping islands, with either controller."""

from __future__ import annotations

import argparse
import json
import os
import time

import numpy as np

from susd.envs.kitchen import Kitchen
from susd.envs.kitchen.controller import compiled
from susd.errors import UserError


def measure(worlds: int, threads: int, seconds: float, sleeping: bool, controller: str) -> dict[str, object]:
    """Random actions in whole episodes, resets included, for about `seconds`."""
    env = Kitchen(worlds=worlds, threads=threads, sleeping=sleeping, controller=controller)
    random = np.random.default_rng(0)
    env.reset(0)
    for _ in range(10):  # compile, and let the objects land and fall asleep
        env.step(random.uniform(-1.0, 1.0, (worlds, 4)))
    steps, start, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - start < seconds:
        env.step(random.uniform(-1.0, 1.0, (worlds, 4)))
        steps += worlds
    wall, used = time.perf_counter() - start, time.process_time() - cpu
    return {
        "sleeping": sleeping,
        "controller": controller,
        "steps_per_second": round(steps / wall, 1),
        "steps_per_cpu_second": round(steps / used, 1),
        "cores_obtained": round(used / wall, 2),
    }


def main() -> None:
    """Print one JSON object per variant; the load of the machine is part of the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=16)
    parser.add_argument("--threads", type=int, default=0, help="native threads; 0: all cores")
    parser.add_argument("--seconds", type=float, default=10.0, help="time spent measuring each variant")
    options = parser.parse_args()
    facts = {"worlds": options.worlds, "threads": options.threads or os.cpu_count()}
    controllers = ("numba", "numpy") if compiled() else ("numpy",)
    for sleeping in (False, True):
        for controller in controllers:
            load = round(os.getloadavg()[0], 1)
            result = measure(options.worlds, options.threads, options.seconds, sleeping, controller)
            print(json.dumps({**facts, **result, "load_before": load}), flush=True)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        raise SystemExit(f"error: {error}") from None

"""Control steps per second of Ant and HalfCheetah, compared with as many of Gymnasium's vector environments.

`python benchmarks/bodies.py` measures all of them alternately, in whole episodes of 200 steps with random actions, resets
included, and writes benchmarks/results/bodies.json. Rates are medians over the rounds. Gymnasium's environments also
compute rewards and, for Ant, contact forces; they are the usual alternative.
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

import gymnasium
import mujoco
import numpy as np

from susd.envs.mujoco.bodies import DISCOVERY, Ant, Body, HalfCheetah
from susd.runs.atomic import write_json
from susd.runs.folder import describe_machine

RESULTS = Path(__file__).parent / "results"
IDS = {"ant": "Ant-v5", "half_cheetah": "HalfCheetah-v5"}
MODES = ("async", "sync")
Measure = Callable[[], dict[str, float]]


def timed(
    reset: Callable[[int], Any], step: Callable[[np.ndarray], Any], shape: tuple[int, int], seconds: float
) -> Measure:
    """A measurement: episodes for about `seconds`; steps per second and per CPU second, and cores used."""
    random = np.random.default_rng(0)

    def measure() -> dict[str, float]:
        steps, start, before = 0, time.perf_counter(), os.times()
        while time.perf_counter() - start < seconds:
            if steps % DISCOVERY == 0:
                reset(steps)
            step(random.uniform(-1.0, 1.0, shape).astype(np.float32))
            steps += 1
        wall, after = time.perf_counter() - start, os.times()
        used, done = after.user + after.system - before.user - before.system, steps * shape[0]
        return {"rate": done / wall, "cpu_rate": done / used, "cores": used / wall}

    return measure


def ours(kind: type[Body], num_envs: int, threads: int, seconds: float) -> Measure:
    """The environments of this package."""
    env = kind(num_envs=num_envs, threads=threads)
    return timed(env.reset, env.step, (num_envs, env.spec.action_size), seconds)


def gymnasium_envs(kind: type[Body], num_envs: int, mode: str) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
    """Gymnasium's environments, with a time limit where ours are reset."""
    options = {"terminate_when_unhealthy": False} if kind is Ant else {}
    env = gymnasium.make_vec(IDS[kind.name], num_envs, mode, max_episode_steps=DISCOVERY, **options)
    env.reset(seed=0)
    return env


def compare(
    kind: type[Body], others: dict[str, Any], num_envs: int, threads: int, seconds: float, rounds: int
) -> dict[str, Any]:
    """All variants alternately, so that other work on the machine affects them equally."""
    variants = {"susd": ours(kind, num_envs, threads, seconds)}
    variants |= {name: timed(lambda _: None, env.step, env.action_space.shape, seconds) for name, env in others.items()}
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in variants}
    loads = []
    for _ in range(rounds):
        loads.append(round(os.getloadavg()[0], 2))
        for name, measure in variants.items():
            taken[name].append(measure())
    rates = {name: [one["rate"] for one in measured] for name, measured in taken.items()}
    in_process = [name for name in variants if not name.endswith("async")]  # the time of other processes is not known here
    return {
        "steps_per_second": {name: round(statistics.median(values)) for name, values in rates.items()},
        "steps_per_second_best": {name: round(max(values)) for name, values in rates.items()},
        "steps_per_cpu_second": {name: round(statistics.median(x["cpu_rate"] for x in taken[name])) for name in in_process},
        "times_gymnasium": {
            name: round(statistics.median(a / b for a, b in zip(rates["susd"], rates[name], strict=True)), 2)
            for name in others
        },
        "cores_obtained": {name: round(statistics.median(x["cores"] for x in taken[name]), 2) for name in in_process},
        "load_before": loads,
    }


def main() -> None:
    """Measure both bodies."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--threads", type=int, default=0, help="native threads; 0: all cores")
    parser.add_argument("--seconds", type=float, default=4.0, help="of one measurement")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    config = vars(options)
    record: dict[str, Any] = {"benchmark": "bodies", "config": config, "episode": DISCOVERY}
    mujoco.set_mju_user_warning(lambda _: None)  # about a deprecated attribute in a model, from every environment
    kinds = (Ant, HalfCheetah)
    # Created before ours start threads, since the asynchronous ones fork.
    others = {kind: {f"gymnasium {mode}": gymnasium_envs(kind, options.num_envs, mode) for mode in MODES} for kind in kinds}
    for kind in kinds:
        record[kind.name] = compare(kind, others[kind], **config)
        print(kind.name, record[kind.name], flush=True)
        for env in others[kind].values():
            env.close()
    meta = {key: value for key, value in describe_machine(config, "").items() if key != "command"}
    meta["versions"] |= {name: importlib.metadata.version(name) for name in ("mujoco", "gymnasium")}
    write_json(RESULTS / "bodies.json", record | {"meta": meta})


if __name__ == "__main__":
    main()

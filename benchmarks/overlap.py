"""Steps per second of whole epochs with and without `--overlap`, measured alternately.

`python benchmarks/overlap.py` writes benchmarks/results/overlap.json. For each environment there are two settings: `quick`
as it is, and `equal`, with one thread for the physics, one for the learner, and as many gradient steps as take the time of
the physics. A round is a few epochs of each; the machine may do other work, so the best round counts as well as the median.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
ENVIRONMENTS = ("kitchen", "ant", "half_cheetah")
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false"


def epochs(trainer: Any, state: Any, first: int, count: int) -> tuple[Any, float, float]:
    """The state after some epochs, their seconds, and the part of them in the environment."""
    import jax

    began, in_env = time.perf_counter(), 0.0
    for epoch in range(first, first + count):
        state, info = jax.block_until_ready(trainer.run_epoch(state, epoch))
        in_env += float(info["env_seconds"][0])
    return state, time.perf_counter() - began, in_env


def built(env: str, **changes: Any) -> tuple[Any, Any]:
    """A compiled trainer that learns from its first epoch, and its state."""
    from susd.config import configure
    from susd.training.trainer import Trainer

    trainer = Trainer.build(configure(env, warmup=1, buffer_size=20_000, **changes))
    trainer.compile()
    return trainer, trainer.start()


def equal_steps(env: str, options: dict[str, Any]) -> int:
    """The gradient steps that take as long as the physics of an epoch."""
    trainer, state = built(env, **options)
    state, _, _ = epochs(trainer, state, 0, 1)
    _, seconds, in_env = min((epochs(trainer, state, 1, 1) for state in [state]), key=lambda found: found[1])
    return max(1, round(trainer.config.gradient_steps * in_env / (seconds - in_env)))


def compare(env: str, setting: str, count: int, rounds: int) -> dict[str, Any]:
    """Both ways in turns: seconds of the rounds and the ratios of their steps per second."""
    options: dict[str, Any] = {}
    if setting == "equal":
        options = {"env_options": {"threads": 1}}
        options["gradient_steps"] = equal_steps(env, options)
    ways = {name: built(env, overlap=name == "overlap", **options) for name in ("in turns", "overlap")}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    shares, loads, first = [], [], 0
    for number in range(rounds + 1):
        loads.append(round(os.getloadavg()[0], 2))
        for name, (trainer, state) in ways.items():
            state, taken, in_env = epochs(trainer, state, first, count)
            ways[name] = trainer, state
            if number:  # the first round compiles
                seconds[name].append(taken / count)
            if name == "in turns" and number:
                shares.append(in_env / taken)
        first += count
    trainer = ways["overlap"][0]
    best = {name: min(taken) for name, taken in seconds.items()}
    return {
        "gradient_steps": trainer.config.gradient_steps,
        "steps_per_second_best": {name: round(trainer.chunk / taken) for name, taken in best.items()},
        "speedup_best": round(best["in turns"] / best["overlap"], 2),
        "speedup": round(statistics.median(a / b for a, b in zip(seconds["in turns"], seconds["overlap"], strict=True)), 2),
        "share_in_environment": round(statistics.median(shares), 2),
        "epoch_seconds": {name: [round(one, 3) for one in taken] for name, taken in seconds.items()},
        "load_before": loads[1:],
    }


def main() -> None:
    """Measure every setting in a process of its own, since the threads of XLA are chosen when it starts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=6, help="of one round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--env", choices=ENVIRONMENTS, action="append", help="only these")
    parser.add_argument("--setting", choices=("quick", "equal"), help=argparse.SUPPRESS)  # in this process
    options = parser.parse_args()
    if options.setting:
        print(json.dumps(compare(options.env[0], options.setting, options.epochs, options.rounds)))
        return
    from susd.runs.atomic import write_json
    from susd.runs.folder import describe_machine

    config = {"epochs": options.epochs, "rounds": options.rounds}
    record: dict[str, Any] = {"benchmark": "overlap", "config": config}
    for env in options.env or ENVIRONMENTS:
        record[env] = {}
        for setting in ("quick", "equal"):
            flags = f"{os.environ.get('XLA_FLAGS', '')} {ONE_THREAD if setting == 'equal' else ''}".strip()
            command = [sys.executable, __file__, "--env", env, "--setting", setting]
            command += ["--epochs", str(options.epochs), "--rounds", str(options.rounds)]
            found = subprocess.run(
                command, env=os.environ | {"XLA_FLAGS": flags}, stdout=subprocess.PIPE, text=True, check=True
            )
            record[env][setting] = json.loads(found.stdout)
            print(env, setting, record[env][setting], flush=True)
    meta = {key: value for key, value in describe_machine(config, "").items() if key != "command"}
    write_json(RESULTS / "overlap.json", record | {"meta": meta})


if __name__ == "__main__":
    main()

"""Whole epochs with and without `--overlap`, alternately.

`python benchmarks/overlap.py` writes benchmarks/results/overlap.json. For each environment there are two settings: `quick`
as it is, and `equal`, with one thread for the physics and as many gradient steps as take the time of collecting, so that
the gain on two free cores is at most two. Halves are compared in seconds, since the CPU time of the learner counts threads
that wait for each other.
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
Times = dict[str, float]  # of an epoch: `seconds`, `cpu` seconds, and `collect`, the seconds of collecting


class Measured:
    """A compiled trainer that learns from its first epoch."""

    def __init__(self, env: str, **changes: Any) -> None:
        from susd.config import configure
        from susd.training.trainer import Trainer

        measured = self

        class Timed(Trainer):
            """It notes the time of its collecting."""

            def collect_host(self, *args: Any, **options: Any) -> Any:
                """Collect in the thread that calls."""
                began = time.perf_counter()
                found = super().collect_host(*args, **options)
                measured.collect += time.perf_counter() - began
                return found

        self.collect, self.epoch = 0.0, 0
        self.trainer = Timed.build(configure(env, warmup=1, buffer_size=20_000, **changes))
        self.trainer.compile()
        self.state = self.trainer.start()
        self.run(1)  # compiles what is left

    def run(self, count: int) -> Times:
        """Some epochs; the mean of each time."""
        import jax

        self.collect, began, cpu = 0.0, time.perf_counter(), time.process_time()
        for _ in range(count):
            self.state, _ = jax.block_until_ready(self.trainer.run_epoch(self.state, self.epoch))
            self.epoch += 1
        taken = {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu, "collect": self.collect}
        return {name: value / count for name, value in taken.items()}


def equal_steps(env: str, options: dict[str, Any]) -> int:
    """The gradient steps that take as long as collecting: a first guess from those of `quick`, and a better one."""
    steps = 0
    for _ in range(2):
        found = Measured(env, **options, **({"gradient_steps": steps} if steps else {}))
        taken = found.run(6)
        ratio = taken["collect"] / (taken["seconds"] - taken["collect"])
        steps = max(1, round(found.trainer.config.gradient_steps * ratio))
    return steps


def compare(env: str, setting: str, count: int, rounds: int) -> dict[str, Any]:
    """Both ways alternately, and the medians over the rounds."""
    options: dict[str, Any] = {}
    if setting == "equal":
        options = {"env_options": {"threads": 1}}
        options["gradient_steps"] = equal_steps(env, options)
    ways = {name: Measured(env, overlap=name == "overlap", **options) for name in ("in turns", "overlap")}
    taken: dict[str, list[Times]] = {name: [] for name in ways}
    loads = []
    for _ in range(rounds):
        loads.append(round(os.getloadavg()[0], 2))
        for name, way in ways.items():
            taken[name].append(way.run(count))
    seconds = {name: [one["seconds"] for one in found] for name, found in taken.items()}
    medians = {name: {key: statistics.median(t[key] for t in found) for key in found[0]} for name, found in taken.items()}
    collect = medians["in turns"]["collect"]
    learn = medians["in turns"]["seconds"] - collect
    ratios = [a / b for a, b in zip(seconds["in turns"], seconds["overlap"], strict=True)]
    trainer = ways["overlap"].trainer
    record = {
        "gradient_steps": trainer.config.gradient_steps,
        "steps": trainer.chunk,
        "cpu_seconds": {name: round(found["cpu"], 3) for name, found in medians.items()},
        "seconds": {name: [round(one, 3) for one in found] for name, found in seconds.items()},
        "speedup": round(statistics.median(ratios), 2),
        "speedup_best": round(min(seconds["in turns"]) / min(seconds["overlap"]), 2),
        "load_before": loads,
    }
    record |= {"collect_seconds": round(collect, 3), "learn_seconds": round(learn, 3)}
    return record | {"speedup_limit": round((collect + learn) / max(collect, learn), 2)}


def main() -> None:
    """Measure every setting in a process of its own, since threads keep how they are scheduled."""
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
    file = RESULTS / "overlap.json"
    record: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}  # what is not measured now stays
    record |= {"benchmark": "overlap", "config": config}
    for env in options.env or ENVIRONMENTS:
        record.setdefault(env, {})
        for setting in ("equal", "quick"):
            command = [sys.executable, __file__, "--env", env, "--setting", setting]
            command += ["--epochs", str(options.epochs), "--rounds", str(options.rounds)]
            found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            record[env][setting] = json.loads(found.stdout)
            print(env, setting, record[env][setting], flush=True)
            meta = {key: value for key, value in describe_machine(config, "").items() if key != "command"}
            write_json(file, record | {"meta": meta})


if __name__ == "__main__":
    main()

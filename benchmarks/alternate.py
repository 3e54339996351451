"""Epochs of two source trees in turns: `python benchmarks/alternate.py OLD NEW [ENV ..]`.

Each tree has its own process, which compiles and then runs an epoch whenever it is asked to, as `susd train` does: with its
default number of cores, collecting and learning, without measurements and checkpoints. Both are asked in turns, so that
other work on the machine affects both, and compared round by round. CPU time is reported beside wall time: on a busy
machine it is the better measure of work, though not of what a second core gains.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

from susd.runs.atomic import write_json
from susd.runs.folder import describe_machine

RESULTS = Path(__file__).with_name("results")
WORKER = """
import json, sys, time
from susd.config import configure
from susd.training import devices
from susd.training.trainer import Trainer
import jax
env, preset = sys.argv[1:]
config = configure(env, preset)
found = devices.two_cores() if hasattr(devices, "two_cores") else devices.ONE
trainer = Trainer.build(config, devices=found)
began = time.perf_counter()
trainer.compile()
compiled = time.perf_counter() - began
state, epoch = trainer.start(), max(trainer.warmup_epochs, 0)  # epochs counted from the end of the warm-up all learn
def run():
    global state
    state = jax.block_until_ready(trainer.run_epoch(state, epoch))[0]
run()
print(json.dumps({"steps": config.gradient_steps, "devices": found.count, "compile_seconds": compiled}), flush=True)
for _ in sys.stdin:
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu]), flush=True)
"""


class Worker:
    """The process of one source tree."""

    def __init__(self, tree: Path, env: str, preset: str) -> None:
        """Start it; it compiles on its own."""
        self.tree = tree
        environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
        command = [sys.executable, "-c", WORKER, env, preset]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, env=environment, cwd=tree, stdin=pipe, stdout=pipe, text=True)

    def read(self) -> Any:
        """Its next answer."""
        line = _stream(self.process.stdout).readline()
        if not line:
            raise SystemExit(f"the process of {self.tree} ended with {self.process.wait()}")
        return json.loads(line)

    def run(self) -> tuple[float, float]:
        """Run one epoch: wall and CPU seconds."""
        _stream(self.process.stdin).write("go\n")
        _stream(self.process.stdin).flush()
        wall, cpu = self.read()
        return wall, cpu

    def close(self) -> None:
        """End it."""
        _stream(self.process.stdin).close()
        self.process.wait()

    def commit(self) -> str:
        """The commit of the tree, with `+` if files differ from it."""
        git = ["git", "-C", str(self.tree)]
        found = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changed = subprocess.run([*git, "status", "--porcelain", "src"], capture_output=True, text=True, check=True).stdout
        return found + "+" * bool(changed)


def _stream(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def compare(old: Path, new: Path, env: str, preset: str, rounds: int) -> dict[str, Any]:
    """Both trees in turns, after both have compiled; milliseconds are those of an epoch for each of its gradient steps."""
    workers, facts = {}, {}
    for name, tree in (("old", old), ("new", new)):  # they compile one after another
        workers[name] = Worker(tree, env, preset)
        facts[name] = workers[name].read()
    load = [os.getloadavg()[0]]
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in workers}
    for _ in range(rounds):
        for name, worker in workers.items():
            times[name].append(worker.run())
    load.append(os.getloadavg()[0])
    result: dict[str, Any] = {"env": env, "preset": preset, "rounds": rounds, "load_average": load}
    for which, kind in enumerate(("wall", "cpu")):
        per_step = {name: [t[which] / facts[name]["steps"] for t in times[name]] for name in workers}
        ratios = [a / b for a, b in zip(per_step["old"], per_step["new"], strict=True)]
        result[f"{kind}_speedup"] = statistics.median(ratios)
        result[f"{kind}_speedup_best"] = min(per_step["old"]) / min(per_step["new"])
        for name, values in per_step.items():
            result[f"{name}_{kind}_ms"] = 1e3 * statistics.median(values)
            result[f"{name}_{kind}_ms_best"] = 1e3 * min(values)
    for name, worker in workers.items():
        result |= {f"{name}_commit": worker.commit(), **{f"{name}_{key}": value for key, value in facts[name].items()}}
        worker.close()
    meta = describe_machine({}, "")
    kept = ("created", "versions", "device", "cpus", "system")
    return result | {"xla_flags": os.environ.get("XLA_FLAGS", "")} | {key: meta[key] for key in kept}


def main() -> None:
    """Compare two trees in some environments; one file each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path, help="source tree, a git worktree")
    parser.add_argument("new", type=Path, help="source tree, a git worktree")
    parser.add_argument("envs", nargs="*", default=["gunner", "multi_particle"])
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    for env in options.envs:
        result = compare(options.old.resolve(), options.new.resolve(), env, options.preset, options.rounds)
        write_json(RESULTS / f"alternate-{env}-{options.preset}.json", result)
        shown = ", ".join(f"{key} {result[key]:.2f}" for key in ("wall_speedup", "cpu_speedup", "cpu_speedup_best"))
        print(f"{env}: {shown}", flush=True)


if __name__ == "__main__":
    main()

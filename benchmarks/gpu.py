"""Rates of training on the devices of this machine: gradient steps and epochs per environment, preset, precision, devices.

`make bench-gpu` runs it on all GPUs that JAX finds (`pip install 'susd[cuda13]'`) and writes
benchmarks/results/devices-PLATFORM.json, with versions and names of the devices. On a CPU every core is a device. All
numbers of devices of one row are measured in turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from susd.config import Config, configure
from susd.errors import UserError
from susd.runs.atomic import write_json
from susd.runs.folder import describe_machine
from susd.tools import bench
from susd.training.compiler import use_compilation_cache
from susd.training.devices import find_devices
from susd.training.resources import device_bytes, traffic_bytes
from susd.training.trainer import Trainer

RESULTS = Path(__file__).parent / "results"


class Running:
    """A run on some devices, in its epochs that learn."""

    def __init__(self, config: Config, devices: int) -> None:
        self.trainer = Trainer.build(config, devices=find_devices(devices))
        began = time.perf_counter()
        self.trainer.compile()
        self.compile_seconds = time.perf_counter() - began
        self.state, self.done = self.trainer.start(), 0
        self.epoch()  # the first ones are slower

    def epoch(self, learn: bool = True) -> None:
        """One epoch; one that does not learn is as before the warm-up: it collects only."""
        self.done += 1
        number = self.trainer.warmup_epochs + self.done if learn else 0
        self.state, info = self.trainer.run_epoch(self.state, number)
        jax.block_until_ready((self.state, info))


def counts(most: int) -> list[int]:
    """1, 2, 4 .. and all devices."""
    return sorted({2**power for power in range(most.bit_length()) if 2**power <= most} | {most})


def measure(config: Config, devices: list[int], seconds: float) -> list[dict[str, Any]]:
    """One row for each number of devices that the run can be split over."""
    runs: dict[int, Running] = {}
    for count in devices:
        try:
            runs[count] = Running(config, count)
        except UserError as error:
            print(f"left out: {error}", flush=True)
    learning = {f"{count}": run.epoch for count, run in runs.items()}
    collecting = {f"{count} collecting": lambda run=run: run.epoch(learn=False) for count, run in runs.items()}
    times = bench.measure(learning | collecting, seconds)
    return [_row(config, count, run, times) for count, run in runs.items()]


def _row(config: Config, count: int, run: Running, times: dict[str, list[float]]) -> dict[str, Any]:
    epoch, collect = (statistics.median(times[name]) for name in (f"{count}", f"{count} collecting"))
    to_one = [one / own for one, own in zip(times.get("1", []), times[f"{count}"], strict=False)]
    return {
        **{name: getattr(config, name) for name in ("env", "preset", "precision", "episodes", "batch_size", "hidden")},
        "devices": count,
        "epochs_per_second": 1 / epoch,
        "env_steps_per_second": run.trainer.chunk / epoch,
        "gradient_steps_per_second": config.gradient_steps / max(epoch - collect, 1e-9),
        "epoch_seconds_best": min(times[f"{count}"]),
        "speedup_over_one_device": statistics.median(to_one) if to_one else None,
        "compile_seconds": run.compile_seconds,
        "state_bytes_per_device": device_bytes(run.trainer),
        "all_reduce_bytes_per_update": traffic_bytes(run.trainer),
        "repetitions": len(times[f"{count}"]),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as a Markdown table."""
    names = ("env", "preset", "precision", "batch_size", "devices", "gradient_steps_per_second", "epochs_per_second")
    names = (*names, "env_steps_per_second", "speedup_over_one_device")
    lines = ["| " + " | ".join(name.replace("_", " ") for name in names) + " |", "| --- " * len(names) + "|"]
    for row in rows:
        cells = [f"{row[name]:.3g}" if isinstance(row[name], float) else str(row[name] or "-") for name in names]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envs", nargs="+", default=["gunner", "multi_particle"])
    parser.add_argument("--presets", nargs="+", default=["quick", "paper"])
    parser.add_argument("--precisions", nargs="+", default=["float32", "default", "bfloat16"])
    parser.add_argument("--devices", nargs="+", type=int, help="numbers of devices; default: 1, 2, 4 .. all")
    parser.add_argument("--option", nargs=2, action="append", default=[], metavar=("NAME", "N"), help="of every run")
    parser.add_argument("--seconds", type=float, default=20.0, help="time spent on each run, without compilation")
    parser.add_argument("--output", type=Path, help="JSON file; default: benchmarks/results/devices-PLATFORM.json")
    options = parser.parse_args()
    most = find_devices(max(options.devices) if options.devices else "all").count
    use_compilation_cache()
    changes, rows = {name: json.loads(value) for name, value in options.option}, []
    for env in options.envs:
        for preset in options.presets:
            for precision in options.precisions:
                config = configure(env, preset, **{"precision": precision, "warmup": 2000} | changes)
                rows += measure(config, options.devices or counts(most), options.seconds)
    meta = describe_machine(rows[0], "")
    kept = {name: meta[name] for name in ("created", "commit", "versions", "device", "cpus", "system")}
    names = [str(device) for device in np.asarray(jax.devices())]
    output = options.output or RESULTS / f"devices-{jax.default_backend()}.json"
    write_json(output, {"bench": "devices", **kept, "device_names": names, "rows": rows})
    print(f"{table(rows)}\n\n{output}")


if __name__ == "__main__":
    main()

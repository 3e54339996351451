"""Time of a downstream task: 1,000 episodes with 20 gradient steps each and 256 units, and the quick preset.

`python benchmarks/downstream.py` trains skills for two epochs, learns `fp-difficult` with them twice, and writes
benchmarks/results/task-*.json. The quality of the skills does not matter here.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from susd.runs.atomic import write_json

RESULTS = Path(__file__).parent / "results"
VARIANTS = {
    "hidden256": (
        *("--episodes", "1000", "--gradient-steps", "20", "--num-envs", "1"),
        *("--hidden", "256", "--batch-size", "256", "--eval-every", "100"),
    ),
    "quick": (),
}


def susd(*arguments: str) -> str:
    """The output of a command; a failure stops the benchmark."""
    call = [sys.executable, "-m", "susd.cli.main", *arguments]
    return subprocess.run(call, stdout=subprocess.PIPE, text=True, check=True).stdout


def main() -> None:
    """Measure both variants, from the start of the command to its end."""
    with tempfile.TemporaryDirectory() as folder:
        run = str(Path(folder) / "skills")
        susd("train", "multi_particle", "--epochs", "2", "--run", run, "--no-eval", "--quiet")
        for name, options in VARIANTS.items():
            began = time.perf_counter()
            result = json.loads(susd("downstream", run, "--task", "fp-difficult", "--json", "--quiet", *options, "--force"))
            record = {
                "benchmark": f"task-multi_particle-{name}",
                "task_seconds": time.perf_counter() - began,
                "training_seconds": result["seconds"],
                "compile_seconds": result["compile_seconds"],
                "episodes": result["config"]["episodes"],
                "gradient_steps": result["gradient_steps"],
                "config": {key: value for key, value in result["config"].items() if key != "run"},
                "meta": {key: value for key, value in result["meta"].items() if key != "command"},
            }
            write_json(RESULTS / f"{record['benchmark']}.json", record)
            print(f"{record['benchmark']}: {record['task_seconds']:.0f} s in all, {result['seconds']:.0f} s of training")


if __name__ == "__main__":
    main()

"""Seconds of `susd train ENV` with an empty cache of compiled programs, from the command to its end, for one epoch.

`python benchmarks/first_start.py` writes benchmarks/results/first-start.json: several starts with an empty cache, each
followed by one with the programs that the first has kept. Run it on a machine that is otherwise idle.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from susd.runs.atomic import write_json
from susd.runs.folder import describe_machine

RESULT = Path(__file__).parent / "results" / "first-start.json"
ENVIRONMENTS = ("gunner", "multi_particle", "kitchen", "ant", "half_cheetah")


def start(env: str, run: Path, cache: Path) -> tuple[float, float]:
    """Seconds of one command, and the seconds it compiled."""
    command = [sys.executable, "-m", "susd.cli.main", "train", env, "--epochs", "1", "--no-eval", "--quiet", "--run", run]
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"SUSD_CACHE_DIR": str(cache)})
    seconds = time.perf_counter() - began
    shown = subprocess.run([sys.executable, "-m", "susd.cli.main", "show", run, "--json"], check=True, capture_output=True)
    return seconds, json.loads(shown.stdout)["compile_seconds"]


def main() -> None:
    """Measure the environments in turns."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()
    found = {env: {"first": [], "compile": [], "second": []} for env in ENVIRONMENTS}  # type: ignore[var-annotated]
    for repetition in range(options.repetitions):
        for env in ENVIRONMENTS:
            with tempfile.TemporaryDirectory() as root:
                first, compiled = start(env, Path(root) / "first", Path(root) / "cache")
                second, _ = start(env, Path(root) / "second", Path(root) / "cache")
            for name, value in (("first", first), ("compile", compiled), ("second", second)):
                found[env][name].append(round(value, 2))
            print(repetition, env, f"first {first:.1f} s, second {second:.1f} s", flush=True)
    meta = {
        key: value for key, value in describe_machine({"repetitions": options.repetitions}, "").items() if key != "command"
    }
    write_json(
        RESULT, {"benchmark": "first-start", "environments": found, "load_average": os.getloadavg()[0], "meta": meta}
    )


if __name__ == "__main__":
    main()

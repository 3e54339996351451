"""Run every benchmark in its own process and record the results as JSON in benchmarks/results."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from susd.runs.atomic import write_json
from susd.tools import bench

RESULTS = Path(__file__).parent / "results"
ENVIRONMENTS = ("gunner", "multi_particle")
# Whole epochs at the sizes for which the original code's times are known: hidden layers of 1024 and of 256.
HIDDEN_256 = ("--hidden", "256", "--phi-hidden", "256", "--density-hidden", "256")


def commands(seconds: float) -> dict[str, list[str]]:
    """The file name of each result, and the arguments of `susd bench` for it."""
    found: dict[str, list[str]] = {}
    for env in ENVIRONMENTS:
        found[f"env-{env}"] = ["env", env, "--num-envs", "1024"]
        for preset in ("quick", "paper"):
            found[f"update-{env}-{preset}"] = ["update", env, "--preset", preset]
            found[f"epoch-{env}-{preset}"] = ["epoch", env, "--preset", preset]
        found[f"methods-{env}-quick"] = ["methods", env]
        found[f"update-{env}-paper-bfloat16"] = ["update", env, "--preset", "paper", "--precision", "bfloat16"]
        found[f"epoch-{env}-paper-hidden256"] = ["epoch", env, "--preset", "paper", *HIDDEN_256]
    return {name: [*arguments, "--seconds", f"{seconds:g}"] for name, arguments in found.items()}


def main() -> None:
    """Run the named benchmarks, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="results to record, for example env-gunner; default: all")
    parser.add_argument("--seconds", type=float, default=20.0, help="time spent on each, without compilation")
    parser.add_argument("--folder", type=Path, default=RESULTS, help="folder of the JSON files")
    options = parser.parse_args()
    known = commands(options.seconds)
    unknown = [name for name in options.names if name not in known]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; choose from {', '.join(known)}")
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.names or known:
        call = [sys.executable, "-m", "susd.cli.main", "bench", *known[name], "--json"]
        done = subprocess.run(call, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            sys.exit(f"susd bench {' '.join(known[name])} failed")
        result = json.loads(done.stdout)
        write_json(options.folder / f"{name}.json", result)
        print(bench.format_bench(result), end="\n\n", flush=True)


if __name__ == "__main__":
    main()

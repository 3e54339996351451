"""Seconds from nothing to the paper's score: `python benchmarks/time_to_paper.py`, on a machine that is otherwise idle.

For each of the nine 2D tasks and three seeds: train skills, learn the task over them, and find the first evaluation at
which the mean over the last quarter of the evaluations so far is at least the final score of SUSD in the paper. The time is
that of training, of learning up to that evaluation, and of compilation with an empty cache, which is also given apart. What
is done is not repeated; results are in benchmarks/results/time-to-paper.json.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any

from susd.runs.atomic import write_json

RESULT = Path(__file__).parent / "results" / "time-to-paper.json"
SEEDS = (0, 1, 2)
LAYOUTS = {"gunner": ("0", "1", "3"), "multi_particle": ("1", "2", "3")}  # one for each seed
TRAINING = {
    "gunner": ("--method", "susd-paced", "--epochs", "100"),
    "multi_particle": ("--method", "susd-paced", "--epochs", "150"),
}
LEARNING = {
    "gunner": ("--interface", "goal", "--policy", "factored"),
    "multi_particle": ("--interface", "goal", "--policy", "entity", "--eval-every", "60"),
}


def paper_scores() -> dict[tuple[str, str], float]:
    """(environment, task) -> the final score of SUSD in the paper, of the tasks in two dimensions."""
    rows = csv.DictReader(files("susd.report").joinpath("paper.csv").read_text().splitlines())
    return {
        (row["environment"], row["subject"]): float(row["paper"])
        for row in rows
        if (row["quantity"], row["label"], row["episode"]) == ("downstream", "susd", "") and row["environment"] in TRAINING
    }


def susd(cache: Path, *arguments: object) -> str:
    """The output of a command in a process of its own, with a cache of compiled programs that is empty at first."""
    call = [sys.executable, "-m", "susd.cli.main", *map(str, arguments)]
    environment = os.environ | {"SUSD_CACHE_DIR": str(cache)}
    return subprocess.run(call, stdout=subprocess.PIPE, text=True, check=True, env=environment).stdout


def trained(env: str, seed: int, root: Path) -> dict[str, Any]:
    """Train skills: the run folder, and the seconds of training and of compilation."""
    run = root / f"{env}-{seed}"
    susd(root / "cache-train", "train", env, "--seed", seed, "--run", run, "--no-eval", "--quiet", *TRAINING[env])
    meta = json.loads(susd(root / "cache-show", "show", run, "--json"))
    return {"run": run, "seconds": meta["train_seconds"], "compile_seconds": meta["compile_seconds"]}


def reached(rows: list[dict[str, Any]], score: float) -> dict[str, Any] | None:
    """The row of the first evaluation at which the mean over the last quarter so far is at least `score`."""
    for row in rows:
        late = [other["discounted"] for other in rows if 0.75 * row["episode"] < other["episode"] <= row["episode"]]
        if late and sum(late) / len(late) >= score:
            return row
    return None


def learned(env: str, task: str, seed: int, score: float, skills: dict[str, Any], root: Path) -> dict[str, Any]:
    """Learn one task over the skills: one row of the result."""
    out, layout = root / f"{env}-{task}-{seed}", LAYOUTS[env][SEEDS.index(seed) % 3]
    which = ("--task", task, "--layout", layout, "--seed", seed)
    text = susd(
        root / f"cache-{task}", "downstream", skills["run"], *which, "--out", out, "--quiet", "--json", *LEARNING[env]
    )
    result = json.loads(text)
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    found = reached(rows, score)
    compiled = skills["compile_seconds"] + result["compile_seconds"]
    learning = None if found is None else skills["seconds"] + found["seconds"]
    return {
        "environment": env,
        "task": task,
        "seed": seed,
        "layout": layout,
        "paper": score,
        "training_seconds": skills["seconds"],
        "task_seconds": None if found is None else found["seconds"],
        "compile_seconds": compiled,
        "total_seconds": None if learning is None else learning + compiled,
        "episodes": None if found is None else found["episode"],
        "final": result["final"]["discounted"][0],
        "last_quarter": result["last_quarter"]["discounted"][0],
        "skills": result["skills"]["config"],
        "config": {name: value for name, value in result["config"].items() if name != "run"},
        "meta": {name: value for name, value in result["meta"].items() if name != "command"},
    }


def main() -> None:
    """Measure what is missing in the file of results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("environments", nargs="*", default=list(TRAINING), metavar="ENV", help="default: both")
    parser.add_argument("--out", type=Path, default=RESULT, help="file of the results")
    options = parser.parse_args()
    if unknown := [name for name in options.environments if name not in TRAINING]:
        parser.error(f"{unknown[0]!r} is unknown; choose of {', '.join(TRAINING)}")
    rows: list[dict[str, Any]] = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    done = {(row["environment"], row["task"], row["seed"]) for row in rows}
    for env in options.environments:
        for seed in SEEDS:
            tasks = {task: value for (of, task), value in paper_scores().items() if of == env}
            missing = {task: value for task, value in tasks.items() if (env, task, seed) not in done}
            if not missing:
                continue
            with tempfile.TemporaryDirectory() as folder:
                skills = trained(env, seed, Path(folder))
                for task, score in missing.items():
                    rows.append(learned(env, task, seed, score, skills, Path(folder)))
                    write_json(options.out, {"rows": rows})
                    taken = rows[-1]["total_seconds"]
                    print(f"{env} {task} seed {seed}: {'not reached' if taken is None else f'{taken:.0f} s'}", flush=True)


if __name__ == "__main__":
    main()

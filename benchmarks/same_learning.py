"""Do two source trees learn the same? `python benchmarks/same_learning.py OLD NEW`.

A faster update may round differently, so trees are compared by what they learn: skills with the same options and seeds that
no reported result uses, then their control ratio and a task over them, by the new tree. It writes
benchmarks/results/same-learning.json after every run and continues where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from susd.runs.atomic import write_json
from susd.runs.folder import describe_machine

RESULT = Path(__file__).parent / "results" / "same-learning.json"
SEEDS = (10, 11, 12)
COMMAND = "from susd.cli.main import main; main()"
# What `quick` was in either tree is named here, so that both train with the same options.
SETTINGS: dict[str, tuple[list[str], list[str]]] = {  # of training, and of the task
    "gunner": (
        ["--epochs", "100", "--prior", "factor_ball", "--discount", "0.5", "--target-entropy", "0.62"],
        ["--task", "unlim", "--interface", "goal", "--policy", "factored", "--episodes", "320"],
    ),
    "multi_particle": (
        ["--epochs", "100", "--prior", "factor_ball", "--target-entropy", "-0.5", "--env-option", "layout=random"],
        ["--task", "fp-difficult", "--layout", "random", "--interface", "goal", "--policy", "entity", "--episodes", "300"],
    ),
}


def susd(tree: Path, *words: str) -> str:
    """What a command of a tree prints."""
    call, environment = [sys.executable, "-c", COMMAND, *words], os.environ | {"PYTHONPATH": str(tree / "src")}
    return subprocess.run(call, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


def measure(tree: Path, new: Path, env: str, seed: int) -> dict[str, float]:
    """Skills of a tree, and what they are worth."""
    training, task = SETTINGS[env]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        susd(tree, "train", env, "--seed", str(seed), *training, "--no-eval", "--quiet", "--run", str(run))
        susd(new, "evaluate", str(run), "control")
        learned = json.loads(susd(new, "downstream", str(run), *task, "--quiet", "--json"))
        control = json.loads((run / "evaluation" / "control.json").read_text())["results"][0]
        last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    score = learned["last_quarter"]["discounted"][0]
    return {"coverage": last["coverage_average"], "control": control["ratio"], "task": score}


def main() -> None:
    """Both trees with each seed, in turns."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path, help="source tree, a git worktree")
    parser.add_argument("new", type=Path, help="source tree, a git worktree")
    options = parser.parse_args()
    trees = {"old": options.old.resolve(), "new": options.new.resolve()}
    record: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() else {"benchmark": "same-learning"}
    for env in SETTINGS:
        found = record.setdefault(env, {name: {} for name in trees})
        for seed in SEEDS:
            for name, tree in trees.items():
                if str(seed) in found[name]:
                    continue
                found[name][str(seed)] = measure(tree, trees["new"], env, seed)
                print(env, seed, name, found[name][str(seed)], flush=True)
                meta = {key: value for key, value in describe_machine({}, "").items() if key != "command"}
                git = (["git", "-C", str(tree), "rev-parse", "HEAD"] for tree in trees.values())
                commits = [subprocess.run(one, capture_output=True, text=True, check=True).stdout.strip() for one in git]
                record |= {"commits": dict(zip(trees, commits, strict=True)), "settings": SETTINGS, "meta": meta}
                write_json(RESULT, record)


if __name__ == "__main__":
    main()

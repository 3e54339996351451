"""Record finished runs as one small file: `python results/record.py NAME RUN [RUN ..]` writes results/NAME.json.

A record keeps, for every run, its config, versions, device and commit, the training time, its evaluations, the tasks that
were learned over it and the measurements taken during training, so that every number in README and docs can be traced to
the run that gave it.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

from susd.evaluation.evaluate import evaluate
from susd.evaluation.zero_shot import zero_shot
from susd.runs import checkpoint
from susd.runs.folder import RunFolder, read_json, write_json

ALSO = {"kitchen": ("completions",), "ant": ("zero-shot",), "half_cheetah": ("zero-shot",)}
CURVES = ("epoch", "seed", "coverage_worst", "coverage_average", "control_ratio")


def record(run: Path) -> dict[str, Any]:
    """Everything worth keeping of one finished run; evaluates it if that has not been done."""
    folder = RunFolder.open(run)
    newest = checkpoint.checkpoints(folder.checkpoints)[0]
    result: dict[str, Any] = {"run": run.name, "config": folder.config, "meta": _plain(folder.meta)}
    result |= checkpoint.inspect(newest)["meta"]
    for what in ("coverage", "control", *ALSO.get(folder.config["env"], ())):
        path = run / "evaluation" / f"{what}.json"
        report = read_json(path) if path.exists() else _evaluate(run, what)
        result[what] = report["results"]
    tasks = [read_json(path) for path in sorted(run.glob("downstream/*/result.json"))]
    if tasks:
        result["downstream"] = [task | {"meta": _plain(task["meta"])} for task in tasks]
    rows = [row for row in folder.read_metrics() if "coverage_worst" in row]
    result["curve"] = [{name: row[name] for name in CURVES if name in row} for row in rows]
    return result


def _evaluate(run: Path, what: str) -> dict[str, Any]:
    if what == "zero-shot":
        return zero_shot(run)
    return evaluate(run, what, steps=20_000 if what == "coverage" else None)


def _plain(meta: dict[str, Any]) -> dict[str, Any]:
    """Meta data with the command as anybody would type it, without the paths of the machine it ran on."""
    _, *arguments = shlex.split(meta["command"])
    words = ["susd", *(Path(word).name if word.startswith("/") else word for word in arguments)]
    return {**meta, "command": shlex.join(words)}


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    target = Path(__file__).parent / f"{sys.argv[1]}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    write_json(target, {"name": sys.argv[1], "runs": [record(Path(run)) for run in sys.argv[2:]]})
    print(target)

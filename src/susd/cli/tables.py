"""What a person reads: tables of evaluations, and the state of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from susd.evaluation.registry import evaluation
from susd.runs.tables import format_table


def print_evaluation(run: Path, report: dict[str, Any]) -> None:
    """One evaluation as tables, and the path of its JSON."""
    found = evaluation(report["evaluation"])
    print("\n\n".join(format_table(table) for table in found.tables(report)))
    print(f"  {run / 'evaluation' / f'{found.name}.json'}")


def print_status(status: dict[str, Any]) -> None:
    """The state of a run, as `susd.runs.status.status` gives it."""
    last = status["seed"] + status["seeds"] - 1
    epoch = "nothing saved yet" if status["epoch"] is None else f"{status['epoch']} of {status['epochs']}"
    rows = [
        ("environment", status["env"]),
        ("method", f"{status['method']}, preset {status['preset']}"),
        ("seed", f"{status['seed']}" if status["seeds"] == 1 else f"{status['seed']} to {last}"),
        ("epoch", epoch + (", finished" if status["finished"] else "")),
    ]
    if status["epoch"] is not None:
        rows.append(("training", f"{status['train_seconds']:.1f} s"))
        rows += [(name, status[name]) for name in ("checksum", "checkpoint")]
    rows += [("skipped", text) for text in status["skipped"]]
    if metrics := status["metrics"]:
        rows.append(("metrics", f"of epoch {metrics['epoch']}, seed {metrics.get('seed', 0)}"))
        shown = {name: value for name, value in metrics.items() if "/" not in name and name not in ("epoch", "seed")}
        rows += [(f"  {name}", f"{value:.6g}") for name, value in shown.items() if isinstance(value, int | float)]
    print(status["run"])
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"  {name:{width}}  {value}")

"""What a person reads at the end of a run and from `susd show`: tables and the paths of the pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from susd import checkpoint
from susd.runlog import RunFolder

Rows = list[tuple[str, ...]]


def report(run: Path, quiet: bool = False) -> None:
    """Evaluate a finished run, draw its pictures, print a table and the paths."""
    from susd.evaluation.evaluate import evaluate, pictures

    folder = RunFolder.open(run)
    results = [evaluate(run, what) for what in ("coverage", "control")]
    paths = pictures(run)
    if quiet:
        print(run)
        return
    for result in results:
        print_evaluation(run, result)
    figures = [folder.figures / "coverage.png", folder.figures / "control.png", *paths]
    print("\n".join(f"  {path}" for path in figures if path.exists()))


def print_evaluation(run: Path, result: dict[str, Any]) -> None:
    """One evaluation as a table."""
    if result["evaluation"] == "coverage":
        _print_coverage(result)
    else:
        _print_control(result)
    print(f"  {run / 'evaluation' / (result['evaluation'] + '.json')}")


def _print_coverage(result: dict[str, Any]) -> None:
    rows: Rows = []
    for seed_result in result["results"]:
        seed = str(seed_result["seed"])
        for label, numbers in seed_result.items():
            if label in ("seed", "epoch"):
                continue
            cells, unique, marks = numbers["cells"], numbers["unique"], numbers["landmarks"]
            reached = f"{sum(share > 0 for share in marks.values())} of {len(marks)}" if marks else "-"
            share = [f"{cells[which]:.0f} ({100 * cells[which] / cells['of']:.0f}%)" for which in ("worst", "average")]
            rows.append((seed, label, *share, f"{unique['worst']}", f"{unique['average']:.0f}", reached))
    title = f"Coverage: {result['results'][0]['trained, mean actions']['steps']} steps, new skill and reset every 200"
    columns = ("seed", "policy", "cells, worst", "cells, average", "unique, worst", "unique, average", "landmarks reached")
    _print_table(title, columns, rows)


def _print_control(result: dict[str, Any]) -> None:
    rows: Rows = []
    for seed_result in result["results"]:
        if "ratio" in seed_result:
            numbers = (seed_result["diagonal"], seed_result["off_diagonal"], seed_result["ratio"])
            rows.append((str(seed_result["seed"]), *(f"{number:.2f}" for number in numbers)))
        else:
            rows.append((str(seed_result["seed"]), "-", "-", "-"))
    columns = ("seed", "own factor (diagonal)", "other factors", "ratio")
    _print_table("Control: change of a factor when one part of the skill is redrawn", columns, rows)


def show(run: Path) -> dict[str, Any]:
    """Where a run stands: config, epoch, the last metrics, and the checksum of the learner's whole state."""
    folder = RunFolder.open(run)
    found = checkpoint.checkpoints(folder.checkpoints)
    skipped: list[str] = []
    status: dict[str, Any] = {
        "run": str(run),
        "env": folder.config["env"],
        "method": folder.config["method"],
        "preset": folder.config["preset"],
        "seed": folder.config["seed"],
        "seeds": folder.config["seeds"],
        "epochs": folder.config["epochs"],
        "epoch": None,
        "checksum": None,
        "checkpoint": None,
        "finished": False,
    }
    for path in found:
        try:
            status |= {"checksum": checkpoint.digest_of(path), "checkpoint": str(path)}
            meta = checkpoint.inspect(path)["meta"]
            status |= {"epoch": meta["epoch"], "train_seconds": meta["train_seconds"]}
            break
        except checkpoint.DamagedCheckpointError as error:
            skipped.append(str(error))
    status["finished"] = status["epoch"] == folder.config["epochs"]
    metrics = folder.read_metrics()
    status |= {"skipped": skipped, "metrics": metrics[-1] if metrics else {}, "meta": folder.meta}
    return status


def print_show(status: dict[str, Any]) -> None:
    """`show` for a person."""
    names = ("env", "method", "preset", "seed", "seeds", "epoch", "epochs", "finished", "train_seconds", "checksum", "checkpoint")
    rows: Rows = [(name, str(status[name])) for name in names if status.get(name) is not None]
    rows += [(f"last {name}", f"{value:.4g}") for name, value in status["metrics"].items() if "/" not in name]
    rows += [("damaged", text) for text in status["skipped"]]
    _print_table(status["run"], ("", ""), rows)


def _print_table(title: str, columns: tuple[str, ...], rows: Rows) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*columns, show_header=any(columns), box=None, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    console = Console()
    console = console if console.is_terminal else Console(width=160)  # a log file has no width of its own
    console.print(title, style="bold", markup=False, highlight=False)
    console.print(table)

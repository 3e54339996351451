"""What a person reads at the end of a run and from `susd show`: tables and the paths of the pictures."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from susd.runs import checkpoint
from susd.runs.folder import RunFolder

FEW = 6  # bodies that fit side by side in a table
Rows = list[tuple[str, ...]]


def report(run: Path, quiet: bool = False) -> None:
    """Evaluate a finished run, draw its pictures, print a table and the paths."""
    from susd.evaluation.evaluate import evaluate_default, pictures

    folder = RunFolder.open(run)
    if not quiet:
        print("evaluating and drawing ..", file=sys.stderr, flush=True)
    results = evaluate_default(run)
    paths = pictures(run)
    if quiet:
        print(run)
        return
    for result in results:
        print_evaluation(run, result)
        print()
    figures = [folder.figures / "coverage.png", folder.figures / "control.png", *paths]
    print("\n".join(f"  {path}" for path in figures if path.exists()))


def print_evaluation(run: Path, result: dict[str, Any]) -> None:
    """One evaluation as a table."""
    _PRINTERS[result["evaluation"]](result)
    print(f"  {run / 'evaluation' / (result['evaluation'] + '.json')}")


def _print_coverage(result: dict[str, Any]) -> None:
    """Columns that say nothing are left out: the worst of one plane, landmarks where there are none, a single seed."""
    policies = [
        (str(of_seed["seed"]), label, numbers)
        for of_seed in result["results"]
        for label, numbers in of_seed.items()
        if label not in ("seed", "epoch")
    ]
    first = policies[0][2]
    planes = ("average", "worst") if len(first["per_plane"]) > 1 else ("average",)
    columns = (
        ["policy", "cells", "worst", "unique", "worst"] if len(planes) > 1 else ["policy", "cells", "unique positions"]
    )
    if first["landmarks"]:
        columns.append("landmarks reached")
    rows: Rows = []
    for _, label, numbers in policies:
        cells, unique, marks = numbers["cells"], numbers["unique"], numbers["landmarks"]
        row = [label, *(f"{cells[plane]:.0f} ({100 * cells[plane] / cells['of']:.0f}%)" for plane in planes)]
        row += [f"{unique[plane]:.0f}" for plane in planes]
        if marks:
            row.append(f"{sum(share > 0 for share in marks.values())} of {len(marks)}")
        rows.append(tuple(row))
    title = f"Coverage: {first['steps']} steps, new skill and reset every 200; {first['cells']['of']} cells"
    if len(planes) > 1:
        title += f"\nCells and unique positions: average over {len(first['per_plane'])} bodies, beside the worst"
    seeds = [seed for seed, _, _ in policies]
    _print_table(title, tuple(columns), rows, seeds)
    if 1 < len(first["per_plane"]) <= FEW and "moved" in next(iter(first["per_plane"].values())):
        print()
        names = [*first["per_plane"], *(name.replace("_", " ") for name in first["landmarks"])]
        shares: Rows = []
        for _, label, numbers in policies:
            of = [body["moved"] for body in numbers["per_plane"].values()] + list(numbers["landmarks"].values())
            shares.append((label, *(f"{100 * share:.0f}%" for share in of)))
        what = "Skills that moved a body more than a hundredth of its box" + (", or did" * bool(first["landmarks"]))
        _print_table(what, ("policy", *names), shares, seeds)


def _print_control(result: dict[str, Any]) -> None:
    rows: Rows = []
    for of_seed in result["results"]:
        numbers = [of_seed[name] for name in ("diagonal", "off_diagonal", "ratio")] if "ratio" in of_seed else []
        rows.append(tuple(f"{number:.2f}" for number in numbers) or ("-", "-", "-"))
    columns = ("own factor (diagonal)", "other factors", "ratio")
    seeds = [str(of_seed["seed"]) for of_seed in result["results"]]
    if rows[0][0] != "-":
        _print_table("Control: change of a factor when one part of the skill is redrawn", columns, rows, seeds)
    spreads: Rows = [tuple(f"{x:.2f}" for x in of_seed["spread"].values()) for of_seed in result["results"]]
    names = tuple(result["results"][0]["spread"])
    _print_table("Spread: distance of a factor between two unrelated skills, in its own units", names, spreads, seeds)


def _print_decoding(result: dict[str, Any]) -> None:
    rows: Rows = []
    seeds: list[str] = []
    for of_seed in result["results"]:
        for label, numbers in of_seed.items():
            if label not in ("seed", "epoch"):
                errors = (numbers["error"], numbers["error_of_the_mean"], *numbers["per_factor"].values())
                rows.append((label, str(numbers["inputs"]), str(numbers["hidden"]), *(f"{error:.4f}" for error in errors)))
                seeds.append(str(of_seed["seed"]))
    names = result["results"][0]["phi"]["per_factor"]
    columns = ("read from", "numbers", "hidden", "error", "of the mean", *names)
    _print_table(
        "Decoding: mean squared error of every factor, read from the embedding, on unseen courses", columns, rows, seeds
    )


def _print_completions(result: dict[str, Any]) -> None:
    rows: Rows = []
    seeds: list[str] = []
    for of_seed in result["results"]:
        for task, numbers in of_seed.items():
            if task not in ("seed", "epoch"):
                rows.append((task, f"{numbers['mean']:.1f}", f"{numbers['std']:.1f}", str(numbers["of"])))
                seeds.append(str(of_seed["seed"]))
    columns = ("task", "steps completed", "std", "of")
    _print_table("Completions: steps in which random skills happen to do a task; 8 repetitions", columns, rows, seeds)


def _print_zero_shot(result: dict[str, Any]) -> None:
    names = {"goal": "for the goal", "random_skill": "at random", "as_released": "for the goal, as released"}
    rows: Rows = []
    seeds: list[str] = []
    for of_seed in result["results"]:
        for way in (name for name in names if name in of_seed):
            numbers = of_seed[way]
            low, high = numbers["interval"]
            offered, reached = sum(numbers["goals_offered"]), sum(numbers["goals_reached"])
            share = f"{reached} of {offered} ({100 * reached / offered:.0f}%)"
            rows.append((names[way], f"{numbers['mean']:.1f}", f"{low:.1f} to {high:.1f}", share))
            seeds.append(str(of_seed["seed"]))
    title = f"Zero-shot goals, {result['task']['name']}: reward of {result['steps']} steps, mean of 8 environment seeds"
    _print_table(title, ("skill", "reward", "95 % interval", "goals reached"), rows, seeds)


_PRINTERS = {
    "coverage": _print_coverage,
    "control": _print_control,
    "decoding": _print_decoding,
    "completions": _print_completions,
    "zero-shot": _print_zero_shot,
}


def show(run: Path) -> dict[str, Any]:
    """Where a run stands: config, epoch, the last metrics, and the checksum of the learner's whole state."""
    folder = RunFolder.open(run)
    found = checkpoint.checkpoints(folder.checkpoints)
    skipped: list[str] = []
    status: dict[str, Any] = {
        "run": str(run),
        **{name: folder.config[name] for name in ("env", "method", "preset", "seed", "seeds", "epochs")},
        "epoch": None,
        "checksum": None,
        "checkpoint": None,
        "finished": False,
    }
    for path in found:
        try:
            checksum, meta = checkpoint.digest_of(path), checkpoint.inspect(path)["meta"]
        except checkpoint.DamagedCheckpointError as error:
            skipped.append(str(error))
            continue
        status |= {"checksum": checksum, "checkpoint": str(path), "epoch": meta["epoch"]}
        status["train_seconds"] = meta["train_seconds"]
        break
    status["finished"] = status["epoch"] == folder.config["epochs"]
    metrics = folder.read_metrics()
    status |= {"skipped": skipped, "metrics": metrics[-1] if metrics else {}, "meta": folder.meta}
    return status


def print_show(status: dict[str, Any]) -> None:
    """`show` for a person."""
    last = status["seed"] + status["seeds"] - 1
    epoch = "nothing saved yet" if status["epoch"] is None else f"{status['epoch']} of {status['epochs']}"
    rows: Rows = [
        ("environment", status["env"]),
        ("method", f"{status['method']}, preset {status['preset']}"),
        ("seed", f"{status['seed']}" if status["seeds"] == 1 else f"{status['seed']} to {last}"),
        ("epoch", epoch + (", finished" if status["finished"] else "")),
    ]
    if status["epoch"] is not None:
        rows.append(("training", f"{status['train_seconds']:.1f} s"))
        rows += [(name, status[name]) for name in ("checksum", "checkpoint")]
    rows += [("skipped", text) for text in status["skipped"]]
    metrics = status["metrics"]
    if metrics:
        rows.append(("metrics", f"of epoch {metrics['epoch']}, seed {metrics['seed']}"))
        shown = {name: value for name, value in metrics.items() if "/" not in name and name not in ("epoch", "seed")}
        rows += [(f"  {name}", f"{value:.6g}") for name, value in shown.items()]
    print(status["run"])
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"  {name:{width}}  {value}")


def _print_table(title: str, columns: tuple[str, ...], rows: Rows, seeds: list[str]) -> None:
    """Plain text that is the same in a terminal and in a file; seeds get a column when there are several."""
    if len(set(seeds)) > 1:
        columns = ("seed", *columns)
        rows = [(seed, *row) for seed, row in zip(seeds, rows, strict=True)]
    widths = [max(len(cell) for cell in column) for column in zip(columns, *rows, strict=True)]
    print(title)
    for row in (columns, *rows):
        print("  " + "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())

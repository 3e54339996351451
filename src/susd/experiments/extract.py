"""What the files of a finished job say, as facts: (subject, step, metric, value)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from susd.downstream.config import KINDS
from susd.evaluation import ZERO_SHOT
from susd.runs.folder import RunFolder

Numbers = Iterator[tuple[str, int, str, float]]
TRAINING = ("coverage_worst", "coverage_average", "control_ratio", "accuracy")  # what is measured on the way
OF_SEED = ("seed", "epoch")  # entries of an evaluation that are no results


def of_training(folder: RunFolder) -> Numbers:
    """The measurements taken during training, by environment steps."""
    for row in folder.read_metrics():
        if "coverage_worst" in row:
            yield from (("", row["env_steps"], name, row[name]) for name in TRAINING if name in row)


def of_evaluation(report: dict[str, Any]) -> Numbers:
    """All numbers of one evaluation of the first agent of a run."""
    result = {name: value for name, value in report["results"][0].items() if name not in OF_SEED}
    read = {"coverage": _coverage, "control": _control, "decoding": _decoding, "completions": _completions}
    yield from (read | {ZERO_SHOT: _zero_shot})[report["evaluation"]](result)


def _coverage(result: dict[str, Any]) -> Numbers:
    """Shares of the grid, and unique positions; `step` is the length of the measurement."""
    for policy, first in result.items():
        for numbers in (first, first["longer"]) if "longer" in first else (first,):
            cells, step = numbers["cells"], numbers["steps"]
            for plane in ("worst", "average"):
                yield policy, step, f"cells_{plane}", cells[plane] / cells["of"]
                yield policy, step, f"unique_{plane}", numbers["unique"][plane]


def _control(result: dict[str, Any]) -> Numbers:
    """The matrix, cell by cell; its summary where parts and factors correspond; and the spread of every factor."""
    names = result["factors"]
    for part, row in enumerate(result["matrix"]):
        own = names[part] if len(result["matrix"]) == len(names) else f"part {part + 1}"
        yield from ((f"{own}>{factor}", 0, "change", value) for factor, value in zip(names, row, strict=True))
    yield from (("", 0, name, result[name]) for name in ("diagonal", "off_diagonal", "ratio") if name in result)
    yield from ((factor, 0, "spread", value) for factor, value in result["spread"].items())


def _decoding(result: dict[str, Any]) -> Numbers:
    for code, numbers in result.items():
        for name in ("error", "error_of_the_mean", "inputs", "hidden"):
            yield code, numbers["states"], name, numbers[name]
        for factor, error in numbers["per_factor"].items():
            yield f"{code}>{factor}", numbers["states"], "factor_error", error


def _completions(result: dict[str, Any]) -> Numbers:
    for task, numbers in result.items():
        yield from ((task, numbers["of"], name, numbers[name]) for name in ("mean", "std"))


def _zero_shot(result: dict[str, Any]) -> Numbers:
    """For each way to choose a skill the reward so far, mean over environment seeds, at a fifth of the curve's points."""
    for way, numbers in result.items():
        points = list(zip(numbers["curves"]["steps"], numbers["curves"]["mean"], strict=True))
        yield from ((way, step, "reward", value) for step, value in points[::-5][::-1])


def of_task(result: dict[str, Any]) -> Numbers:
    """Both curves of a task, by training episodes, and what they are held against."""
    subject, curve = f"{result['task'].partition('-')[2]}@{result['layout']}", result["curve"]
    for kind in KINDS:
        yield from ((subject, e, kind, v) for e, v in zip(curve["episode"], curve[kind][0], strict=True))
        last = curve["episode"][-1]
        yield subject, last, f"last_quarter_{kind}", result["last_quarter"][kind][0]
        known = [name for name in ("bound", "expert", "do_nothing") if name in result]
        yield from ((subject, last, f"{name}_{kind}", result[name][kind]) for name in known)

"""A result of a downstream task for people: as text and as a figure. Imports no JAX."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from susd.downstream.config import RETURNS, SUCCESS, WAYS

Result = dict[str, Any]  # what `result.json` holds


def format_result(result: Result, folder: Path) -> str:
    """Both returns of every policy on the test episodes, the share it solved, and the files of the result."""
    kinds = (*RETURNS, SUCCESS) if SUCCESS in result["final"] else RETURNS
    scores: list[tuple[str, Mapping[str, float]]] = [
        (label, result[name]) for name, label in (("bound", "bound"), ("expert", "scripted expert")) if name in result
    ]
    many = len(result["seeds"]) > 1
    for index, seed in enumerate(result["seeds"]):
        for name, label in (("final", "learned"), ("last_quarter", "  mean of the last quarter")):
            values = {kind: result[name][kind][index] for kind in kinds}
            scores.append((f"{label}, seed {seed}" if many else label, values))
    scores.append(("do nothing", result["do_nothing"]))
    lines = [("", dict(zip(kinds, kinds, strict=True)))]
    lines += [(label, {kind: f"{values[kind]:.2f}" for kind in kinds if kind in values}) for label, values in scores]
    width = max(len(label) for label, _ in lines)
    rows = [
        f"  {label:{width}}" + "".join(f"  {cells.get(kind, ''):>{len(kind)}}" for kind in kinds) for label, cells in lines
    ]
    budget = f"{result['env_steps']} steps, {result['gradient_steps']} gradient steps"
    count = result["test_episodes"]
    tests = f"{count} test episode{'s' * (count > 1)} ({budget})"
    title = f"Return of {result['task']}, layout {result['layout']}{_way(result)}, over {tests}"
    files = [folder / name for name in ("result.json", "curve.png", "episode.mp4") if (folder / name).exists()]
    return "\n".join([title, *rows, *(f"  {file}" for file in files)])


def draw_result(path: Path, result: Result) -> None:
    """The learning curves of all seeds with the bound, the expert and doing nothing."""
    from susd.viz import figures

    shown = ("bound", "expert", "do_nothing")
    references: dict[str, float] = {name: result[name]["discounted"] for name in shown if name in result}
    curves = dict(zip(result["seeds"], result["curve"]["discounted"], strict=True))
    skills = "no skills" if result["method"] == "flat" else f"skills of {result['method']}"
    title = f"{result['task']}, layout {result['layout']}, {skills}{_way(result)}"
    figures.task_curves(path, result["curve"]["episode"], curves, references, title)


def _way(result: Result) -> str:
    """How the skills are used, where it is not the paper's way."""
    return "".join(f", {WAYS[value]}" for value in (result["interface"], result["policy"]) if value in WAYS)

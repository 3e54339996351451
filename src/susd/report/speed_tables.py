"""The tables of measured speed, from benchmarks/results/*.json: columns and rows."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from susd.report.labels import environment_title

Rows = list[tuple[str, ...]]
QUANTITIES = {
    "env_steps_per_second": "environment steps/s",
    "gradient_steps_per_second": "gradient steps/s",
    "share_of_matmul_float32": "share of the matmul rate",
    "epoch_seconds": "seconds per epoch",
    "compile_seconds": "compile seconds",
    "task_seconds": "seconds in all, from the command to its end",
}

# When and where two trees were compared: the processor, and the ending of the file's name.
SITTINGS = (("AVX-512, first sitting", "-first"), ("AVX-512, second sitting", ""), ("AVX2", "-avx2"))


def _read(root: Path, name: str) -> Any:
    return json.loads((root / "benchmarks" / "results" / f"{name}.json").read_text())


def rates(root: Path, env: str) -> dict[str, float]:
    """Gradient steps per second of every method in one environment."""
    found = _read(root, f"methods-{env}-quick")["methods"]
    return {name: values["gradient_steps_per_second"] for name, values in found.items()}


def speed(root: Path) -> tuple[tuple[str, ...], Rows]:
    """The recorded benchmarks."""
    rows: Rows = []
    for path in sorted((root / "benchmarks" / "results").glob("[!m]*.json")):
        result = _read(root, path.stem)
        for key, title in QUANTITIES.items():
            if key in result:
                value = result[key]
                rows.append((f"`{path.stem}`", title, f"{value:,.0f}" if value >= 100 else f"{value:.3g}"))
    return ("benchmark", "quantity", "value"), rows


def simulators(root: Path) -> tuple[tuple[str, ...], Rows]:
    """Control steps per second of the MuJoCo environments, 16 in parallel, with random actions and resets."""
    bodies, kitchen = _read(root, "bodies"), _read(root, "kitchen")
    rows: Rows = []
    for env in ("ant", "half_cheetah"):
        for way, rate in bodies[env]["steps_per_second"].items():
            times = bodies[env]["times_gymnasium"].get(way)
            rows.append((environment_title(env), way, f"{rate:,.0f}", f"{times:.1f}" if times else "-"))
    rows += [(environment_title("kitchen"), way, f"{rate:,.0f}", "-") for way, rate in kitchen["steps_per_second"].items()]
    return ("environment", "", "steps/s", "susd is faster by"), rows


def method_speed(root: Path, environments: Sequence[str]) -> tuple[tuple[str, ...], Rows]:
    """Time and FLOPs of a gradient step of every method relative to SUSD's, measured alternately."""
    rows: Rows = []
    for env in environments:
        for name, values in _read(root, f"methods-{env}-quick")["methods"].items():
            ratios = (f"{values[key]:.2f}" for key in ("time_of_susd", "flops_of_susd"))
            rows.append((environment_title(env), f"`{name}`", f"{values['gradient_steps_per_second']:.0f}", *ratios))
    return ("environment", "method", "gradient steps/s", "time of SUSD's step", "FLOPs of SUSD's step"), rows


def release(root: Path) -> tuple[tuple[str, ...], Rows]:
    """Seconds per epoch of this package and of the authors' release, in both of its forms, and the ratios."""
    rows: Rows = []
    for row in _read(root, "release")["seconds_per_epoch"]:
        env, _, extra = row["environment"].partition(", ")
        title = environment_title(env.partition(" ")[0]) + (", release with ten more critics" if extra else "")
        ours, forms = row["susd"], (row["as_released"], row["one_backward"])
        cells = [f"{value:.3g} ({value / ours:.1f}x)" for value in forms]
        rows.append((title, str(row["hidden"]), f"{ours:.3g}", *cells))
    return ("environment", "hidden units", "susd, s per epoch", "as released", "released, one backward pass"), rows


def overlap(root: Path) -> tuple[tuple[str, ...], Rows]:
    """Seconds of an epoch whose halves take equally long, the gain of running them at once, and its limit."""
    rows: Rows = []
    for env, settings in _read(root, "overlap").items():
        if isinstance(settings, dict) and (found := settings.get("equal")):
            halves = (f"{found[f'{half}_seconds']:.2f}" for half in ("collect", "learn"))
            both = (f"{statistics.median(found['seconds'][way]):.2f}" for way in ("in turns", "overlap"))
            gains = (f"{found[name]:.2f}" for name in ("speedup", "speedup_limit"))
            rows.append((environment_title(env), str(found["gradient_steps"]), *halves, *both, *gains))
    return ("environment", "gradient steps", "collecting", "learning", "in turns", "at once", "gain", "at most"), rows


def first_start(root: Path) -> tuple[tuple[str, ...], Rows]:
    """Seconds of a first `susd train` with an empty cache, and of a second one with the programs it kept."""
    rows: Rows = []
    for env, found in _read(root, "first-start")["environments"].items():
        medians = (f"{statistics.median(found[name]):.1f}" for name in ("first", "compile", "second"))
        rows.append((environment_title(env), *medians))
    return ("environment", "first start, s", "of it compiling, s", "second start, s"), rows


def before_and_after(root: Path, envs: Sequence[str]) -> tuple[tuple[str, ...], Rows]:
    """Epochs of two source trees in turns: milliseconds for each gradient step, and the ratio."""
    head = ("environment", "processor", "before, ms", "after, ms", "ratio (of the best)", "ratio of CPU time", "commits")
    rows: Rows = []
    for processor, ending in SITTINGS:
        for env in envs:
            found = _read(root, f"alternate-{env}-quick{ending}")
            times = (f"{found[f'{name}_wall_ms']:.2f}" for name in ("old", "new"))
            ratios = f"{found['wall_speedup']:.2f} ({found['wall_speedup_best']:.2f})"
            commits = " and ".join(f"`{found[f'{name}_commit'][:7]}`" for name in ("old", "new"))
            rows.append((environment_title(env), processor, *times, ratios, f"{found['cpu_speedup']:.2f}", commits))
    return head, rows


def same_learning(root: Path) -> tuple[tuple[str, ...], Rows]:
    """What two source trees learn with the same options: mean and range over seeds."""
    record, rows = _read(root, "same-learning"), list[tuple[str, ...]]()
    for env in record["settings"]:
        for name, commit in record["commits"].items():
            seeds = list(record[env][name].values())
            columns = ([seed[metric] for seed in seeds] for metric in ("coverage", "control", "task"))
            cells = (f"{statistics.mean(of):.3g} ({min(of):.3g} to {max(of):.3g})" for of in columns)
            rows.append((environment_title(env), f"`{commit[:7]}`", str(len(seeds)), *cells))
    return ("environment", "commit", "seeds", "coverage, %", "control ratio", "task"), rows


def precision(root: Path) -> tuple[tuple[str, ...], Rows]:
    """Updates at `paper` sizes in float32 and bfloat16, on CPUs with and without instructions for bfloat16."""
    rows: Rows = []
    for processor, folder in (("without", ""), ("with", "avx512/")):
        for env in ("gunner", "multi_particle"):
            single, half = (_read(root, f"{folder}update-{env}-paper{ending}") for ending in ("", "-bfloat16"))
            product = half["matmul_bfloat16_flops_per_second"] / half["matmul_float32_flops_per_second"]
            rates = [found["gradient_steps_per_second"] for found in (single, half)]
            cells = (*(f"{rate:.2f}" for rate in rates), f"{rates[1] / rates[0]:.2f}", f"{product:.2f}")
            rows.append((environment_title(env), processor, *cells))
    head = ("environment", "AVX512-BF16", "float32, updates/s", "bfloat16, updates/s", "ratio", "ratio of one product")
    return head, rows


def time_to_paper(root: Path) -> tuple[tuple[str, ...], Rows]:
    """Seconds from nothing to the paper's score, one value per seed, and the authors' budget for their skills alone."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in _read(root, "time-to-paper")["rows"]:
        found.setdefault((row["environment"], row["task"]), []).append(row)
    rows: Rows = []
    for (env, task), seeds in found.items():
        totals = [f"{row['total_seconds']:.0f}" if row["total_seconds"] is not None else "not reached" for row in seeds]
        parts = (_mean([row[f"{part}_seconds"] for row in seeds]) for part in ("training", "task", "compile"))
        hours = f"{_authors_hours(root, env):.0f} h"
        rows.append((environment_title(env), f"`{task}`", f"{seeds[0]['paper']:g}", " / ".join(totals), *parts, hours))
    columns = ("environment", "task", "paper's score", "seconds to reach it, by seed", "training", "task", "compiling")
    return (*columns, "authors' training"), rows


def time_summary(root: Path) -> tuple[tuple[str, ...], Rows]:
    """The same for each environment: over its tasks and seeds."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in _read(root, "time-to-paper")["rows"]:
        found.setdefault(row["environment"], []).append(row)
    rows: Rows = []
    for env, runs in found.items():
        times = sorted(row["total_seconds"] for row in runs if row["total_seconds"] is not None)
        tasks = len({row["task"] for row in runs})
        middle = f"{statistics.median(times) / 60:.1f} min" if times else "-"
        longest = f"{times[-1] / 60:.1f} min" if len(times) == len(runs) else "-"
        counts = (str(tasks), f"{len(times)} of {len(runs)}")
        rows.append((environment_title(env), *counts, middle, longest, f"{_authors_hours(root, env):.0f} h"))
    return ("environment", "tasks", "runs that reach it", "median", "longest", "authors' training"), rows


def explorer(root: Path) -> tuple[tuple[str, ...], Rows]:
    """The page of `susd explore`: seconds from the command, rates, and the latency of a drag."""
    rows: Rows = []
    for env, found in _read(root, "explorer").items():
        if isinstance(found, dict) and "latency_ms" in found:
            times = (f"{found[f'{what}_seconds']:.1f}" for what in ("page", "first_step"))
            speeds = (f"{found[f'{what}_per_second']:.0f}" for what in ("frames", "steps"))
            latency = (f"{found['latency_ms'][at]:.0f} ms" for at in ("median", "90 %"))
            rows.append((environment_title(env), *times, *speeds, *latency, f"{found['resting_cpu_percent']:g} %"))
    columns = ("environment", "page after, s", "first step after, s", "frames/s", "steps/s")
    return (*columns, "from drag to drawing, median", "90 %", "CPU when paused"), rows


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):.0f}" if known else "-"


def _authors_hours(root: Path, env: str) -> float:
    """The published number of epochs at the seconds per epoch that the release needs with one backward pass."""
    release = _read(root, "release")
    rows = [row for row in release["seconds_per_epoch"] if row["environment"].split()[0] == env and row["hidden"] == 1024]
    return release["published_budget_of_the_paper"]["epochs"] * rows[0]["one_backward"] / 3600

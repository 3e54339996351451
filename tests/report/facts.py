"""Facts as suites leave them, for tests of the report."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from susd.experiments import metrics_store
from susd.experiments.extract import RANDOM
from susd.experiments.metrics_store import SECONDS, Fact
from susd.report.labels import base
from susd.report.load import load_results
from susd.report.parity import Line, compare
from susd.runs.folder import config_hash

BOUNDS = {"seq-easy": 56.2, "seq-medium": 37.1, "seq-hard": 18.4, "fp-easy": 19.1, "fp-medium": 47.8, "fp-hard": 76.5,
          "fp-difficult": 95.6, "lim": 173.2, "unlim": 173.2}  # fmt: skip
SKILL = {"susd": 0.7, "metra": 0.45, "lsd": 0.3, "csd": 0.4, "diayn": 0.35, "dusdi": 0.6, "flat": 0.15, "susd-w": 0.68,
         "susd-wf": 0.42, "metra-same-size": 0.55, "csd-same-size": 0.5}  # fmt: skip
SOME = ["susd", "metra", "flat", "susd-w", "metra-same-size"]
FACTORS = {"gunner": ["agent", "ammo", "target"], "multi_particle": [f"agent_{i}" for i in range(6)]}
Numbers = Iterator[tuple[str, int, str, float]]


def job(path: Path, env: str, label: str, seed: int, name: str, phase: str, numbers: Numbers, config: str = "0") -> None:
    """Add one finished job to a store."""
    run = f"{env}/{label}-s{seed}"
    shared = {"job": f"{run}/{name}", "run": run, "label": label, "method": label.split("-")[0], "environment": env}
    shared |= {"versions": "susd 0.1.0, jax 0.10.0", "commit": "0123abc", "config_hash": config}
    rows = [*numbers, ("", 0, SECONDS, 90.0)]
    metrics_store.append(
        path, [Fact(**shared, seed=seed, phase=phase, subject=s, step=i, metric=m, value=v) for s, i, m, v in rows]
    )


def task_numbers(rng: np.random.Generator, task: str, layout: str, skill: float, episodes: int = 1000) -> Numbers:
    """A learning curve with references."""
    bound, subject = BOUNDS[task], f"{task}@{layout}"
    level = bound * np.clip(skill + 0.12 * rng.normal() - (0.1 if layout == "random" else 0.0), 0.0, 0.97)
    steps = np.arange(0, episodes + 1, episodes // 20)
    curve = -1 + (level + 1) * (1 - np.exp(-5 * steps / episodes)) + 0.03 * bound * rng.normal(size=len(steps))
    for kind, scale in (("discounted", 1.0), ("undiscounted", 1.05)):
        yield from ((subject, int(e), kind, scale * float(v)) for e, v in zip(steps, curve, strict=True))
        yield subject, episodes, f"last_quarter_{kind}", scale * float(curve[-5:].mean())
        for name, value in (("bound", bound), ("expert", 0.95 * bound), ("do_nothing", -1.0)):
            yield subject, episodes, f"{name}_{kind}", scale * value


def coverage_numbers(rng: np.random.Generator, env: str, skill: float) -> Numbers:
    levels = {"trained, mean actions": 0.7 * skill, "trained, sampled actions": 0.8, "untrained, mean actions": 0.02}
    levels |= {"untrained, sampled actions": 0.92, "random actions": 0.93}
    for policy, level in levels.items():
        for step, gain in ((20_000, 1.0), (100_000, 1.2))[: 2 if env == "gunner" else 1]:
            average = float(np.clip(gain * level * (1 + 0.1 * rng.normal()), 0.0, 1.0))
            for plane, share in (("average", average), ("worst", average * (0.6 if env == "multi_particle" else 1.0))):
                yield policy, step, f"cells_{plane}", share
                yield policy, step, f"unique_{plane}", float(round(share * 12_000))


def control_numbers(rng: np.random.Generator, env: str, label: str) -> Numbers:
    names = FACTORS[env]
    factored = label.split("-")[0] in ("susd", "dusdi") and "wf" not in label
    for row in range(len(names)) if factored else range(1):
        own = names[row] if factored else "part 1"
        for column, factor in enumerate(names):
            yield (
                f"{own}>{factor}",
                0,
                "change",
                float((1 if not factored or row == column else 0.25) * rng.uniform(0.7, 1)),
            )
    if factored:
        yield from (("", 0, name, value) for name, value in (("diagonal", 0.85), ("off_diagonal", 0.21), ("ratio", 4.0)))
    yield from ((name, 0, "spread", float(rng.uniform(0.5, 2))) for name in names)


def decoding_numbers(rng: np.random.Generator, env: str, label: str) -> Numbers:
    size = 2 if label.split("-")[0] in ("metra", "csd", "lsd", "diayn") and "same" not in label else 2 * len(FACTORS[env])
    for code, error in (("phi", 0.5 / size**0.7), ("random projection to 2", 0.25))[: 1 + (size > 2)]:
        errors = {name: float(error * rng.uniform(0.8, 1.2)) for name in FACTORS[env]}
        yield from ((f"{code}>{name}", 100_000, "factor_error", value) for name, value in errors.items())
        numbers = {"error": float(np.mean(list(errors.values()))), "error_of_the_mean": 0.45, "inputs": size, "hidden": 40}
        yield from ((code, 100_000, name, value) for name, value in numbers.items())


def write_facts(folder: Path, tasks: dict[str, list[str]], labels: list[str], layouts: dict[str, list[str]]) -> Path:
    """Facts of three seeds as a suite leaves them."""
    rng, path = np.random.default_rng(0), folder / "facts.jsonl"
    for env, label, seed in itertools.product(tasks, labels, range(3)):
        skill = SKILL[base(label)]
        if label != "flat" and not label.endswith(RANDOM):
            steps = [("", 400_000 * i, "coverage_worst", 5.0 * i) for i in range(3)]
            done = [(f"{env}-{t}", 10_000, m, float(rng.integers(0, 300))) for t in tasks[env] for m in ("mean", "std")]
            job(path, env, label, seed, "train", "train", iter(steps))
            job(path, env, label, seed, "coverage", "coverage", coverage_numbers(rng, env, skill))
            job(path, env, label, seed, "control", "control", control_numbers(rng, env, label))
            job(path, env, label, seed, "decoding", "decoding", decoding_numbers(rng, env, label))
            job(path, env, label, seed, "completions", "completions", iter(done))
        for task, layout in itertools.product(tasks[env], layouts[env]):
            numbers = task_numbers(rng, task, layout.replace("S", str(seed + 1)), skill)
            job(path, env, label, seed, f"{task}@{layout.replace('S', str(seed + 1))}", "downstream", numbers)
    return folder


def suite_job(
    folder: Path,
    run: tuple[str, str, int],
    what: str,
    numbers: Numbers,
    trained: dict[str, Any],
    created: str = "",
    **options: Any,
) -> None:
    """Add one finished job of a suite, with its config; run is (environment, label, seed), what is train or TASK@LAYOUT."""
    phase = "downstream" if "@" in what else what
    config = {"phase": phase, "config": options, "trained": trained | ({"seed": run[2]} if run[2] else {})}
    name = config_hash(config)
    metrics_store.append_configs(folder / "configs.json", {name: {"config": config, "meta": {"created": created}}})
    job(folder / "facts.jsonl", *run, what, phase, numbers, name)


def lines_of(*folders: Path) -> list[Line]:
    """The comparison of folders of results with the paper."""
    return compare(load_results(folders, folders[0]))


def line_of(lines: list[Line], environment: str, subject: str, label: str, quantity: str = "downstream") -> Line:
    """The line of one value, at the end of training."""
    key = environment, subject, label, quantity, ""
    (found,) = (e for e in lines if (e.row.environment, e.row.subject, e.row.label, e.row.quantity, e.row.episode) == key)
    return found

"""Run folders as training, evaluations and tasks leave them, made without any of these."""

import json
from pathlib import Path
from typing import Any

META = {"versions": {"jax": "1"}, "commit": "abc"}
CONTROL = {"factors": ["a", "b"], "matrix": [[1.0, 0.2], [0.4, 0.8]], "spread": {"a": 1.0, "b": 2.0}, "ratio": 3.0,
           "diagonal": 0.9, "off_diagonal": 0.3, "balanced_ratio": 2.5}  # fmt: skip


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def task_result(config: dict[str, Any] | None, seeds: list[int], **way: str) -> dict[str, Any]:
    """The result of a task; earlier versions wrote neither interface nor policy."""
    pair = {"discounted": 1.0, "undiscounted": 2.0}
    each = {kind: [value + seed for seed in seeds] for kind, value in pair.items()}
    curves = {kind: [[0.0, value] for value in values] for kind, values in each.items()}
    return {
        "task": "gunner-lim", "env": "gunner", "layout": "0", "method": "susd" if config else "flat", "seeds": seeds,
        "last_quarter": each, "bound": pair, "do_nothing": pair, "curve": {"episode": [0, 100], **curves},
        "env_steps": 5000, "seconds": 60.0, "config": {"task": "gunner-lim"}, "meta": META,
        "skills": config and {"config": config, "epoch": 2, "seed": 0, "method": "susd"}, **way,
    }  # fmt: skip


def make_run(path: Path, **changes: Any) -> Path:
    """A run folder of two seeds with an evaluation and a task, as training and evaluating leave it."""
    config = {"env": "gunner", "method": "susd", "preset": "quick", "seed": 0, "seeds": 2, "epochs": 2, "env_options": {}}
    config |= changes
    write(path / "config.json", config)
    write(path / "meta.json", META)
    rows = [
        {"epoch": epoch, "seed": seed, "env_steps": 100 * epoch, "coverage_worst": 10.0 * epoch + seed, "loss": 1.0}
        for epoch in (1, 2)
        for seed in (0, 1)
    ]
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    results = [{"seed": seed, "epoch": 2, **CONTROL, "ratio": 3.0 + seed} for seed in (0, 1)]
    evaluated = {"evaluation": "control", "evaluation_seed": 0, "options": {}, "results": results, "meta": META}
    write(path / "evaluation" / "control.json", evaluated)
    write(path / "downstream" / "lim-0-s0-1" / "result.json", task_result(config, [0, 1]))
    return path

"""The files of a run folder as facts: training metrics, evaluations and downstream tasks.

Suites use the functions `*_values` job by job; `records_of` reads a whole run folder, also one that no suite made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from susd.downstream.config import USUAL
from susd.errors import UserError
from susd.evaluation.registry import OF_SEED, evaluation, value_facts
from susd.experiments import metrics_store
from susd.experiments.metrics_store import SECONDS, Fact
from susd.plugins import Trust, check_trust
from susd.runs import header
from susd.runs.folder import RunFolder, config_hash
from susd.runs.untrusted import interpreting, read_object

Value = tuple[str, int, str, float]  # subject, step, metric, value
TRAINING = {  # metrics that are measured during training, and what they are
    "coverage_worst": "cells visited, worst body (%)",
    "coverage_average": "cells visited, mean of bodies (%)",
    "control_ratio": "own factor moved / others",
    "accuracy": "skills recognised (share)",
}
FLAT = "flat"  # the interface and the label of a policy that acts without skills
RANDOM = "-random"  # ending of the label of runs that were pretrained on random layouts


@dataclass(frozen=True)
class Record:
    """What one job left in a run folder: the columns of its facts, what traces them, and the values."""

    columns: dict[str, Any]  # job, run, label, method, environment, seed, phase
    config: dict[str, Any]
    meta: dict[str, Any]
    values: list[Value]

    @property
    def hash(self) -> str:
        """Equal for records of the same config."""
        return config_hash(self.config)

    @property
    def facts(self) -> list[Fact]:
        """The values with their columns."""
        return list(to_facts(self.columns | {"config_hash": self.hash}, self.meta, self.values))


def to_facts(columns: dict[str, Any], meta: dict[str, Any], values: Iterable[Value]) -> Iterator[Fact]:
    """The values of one job with its columns; versions and commit are in the meta data."""
    versions = " ".join(f"{name}={number}" for name, number in meta["versions"].items())
    traced = columns | {"versions": versions, "commit": meta["commit"] or ""}
    for subject, step, metric, value in values:
        yield Fact(**traced, subject=subject, step=step, metric=metric, value=round(float(value), 6))


def training_values(folder: RunFolder, seed: int) -> Iterator[Value]:
    """The measurements of one seed during training, by environment steps, and the time that training took."""
    rows = [row for row in folder.read_metrics() if row.get("seed", seed) == seed]
    for row in rows:
        if "coverage_worst" in row:
            yield from (("", row["env_steps"], name, row[name]) for name in TRAINING if name in row)
    if (times := _last_checkpoint(folder)) and rows:
        yield from (("", rows[-1]["env_steps"], name, times[name]) for name in ("train_seconds", "compile_seconds"))


def _last_checkpoint(folder: RunFolder) -> dict[str, Any]:
    """The meta data of the newest checkpoint; empty if there is none."""
    found = header.checkpoints(folder.checkpoints)
    return header.training_meta(header.inspect(found[0]), found[0]) if found else {}


def evaluation_values(report: dict[str, Any], index: int = 0) -> Iterator[Value]:
    """The values of one evaluation of one seed; an evaluation that cannot be found gives all its numbers."""
    result = {name: value for name, value in report["results"][index].items() if name not in OF_SEED}
    try:
        read = evaluation(report["evaluation"]).facts
    except UserError:
        read = value_facts
    yield from read(result)


def task_values(result: dict[str, Any], index: int = 0) -> Iterator[Value]:
    """The learning curves of a task, by training episodes, and the returns that they are compared with.

    There is one for both returns and, in tasks that say when they are solved, one for the share of solved test episodes.
    """
    curve, subject = result["curve"], f"{task_name(result)}@{result['layout']}"
    last = curve["episode"][-1]
    for kind in (name for name in curve if name != "episode"):
        yield from ((subject, e, kind, v) for e, v in zip(curve["episode"], curve[kind][index], strict=True))
        yield subject, last, f"last_quarter_{kind}", result["last_quarter"][kind][index]
        known = [name for name in ("bound", "expert", "do_nothing") if kind in result.get(name, {})]
        yield from ((subject, last, f"{name}_{kind}", result[name][kind]) for name in known)
    yield subject, last, "env_steps", result["env_steps"]


def task_name(result: dict[str, Any]) -> str:
    """The name of a task without that of its environment."""
    return _last_part(result["task"]).removeprefix(f"{result['env']}-")


def way_of_task(interface: str, policy: str) -> str:
    """The ending of labels and jobs for what is not the paper's: -goal, -entity or -goal-entity."""
    return "".join(f"-{value}" for value in (interface, policy) if value not in (*USUAL, FLAT))


def task_label(label: str, interface: str, policy: str) -> str:
    """The label of a task's result: that of the run, with an ending for how its skills were used, unless it has it."""
    plain = label.removesuffix(RANDOM)
    missing = [value for value in way_of_task(interface, policy).split("-") if value and value not in plain.split("-")]
    return "-".join([plain, *missing]) + label[len(plain) :]


def is_run(path: Path) -> bool:
    """Whether a folder holds a run, or a task that was learned without skills."""
    return (path / "config.json").is_file() and any((path / name).is_file() for name in ("meta.json", "result.json"))


def facts_of_run(path: str | Path, label: str = "") -> list[Fact]:
    """All facts of a run folder; see `records_of`."""
    return [fact for record in records_of(path, label) for fact in facts_of(record, path)]


def facts_of(record: Record, path: str | Path) -> list[Fact]:
    """The facts of a record of a run folder, which any file of results may hold."""
    with interpreting(path, "the results of a run"):
        return metrics_store.checked(record.facts, str(path))


def records_of(path: str | Path, label: str = "", trust: Trust = False) -> list[Record]:
    """All records of a run folder; the label distinguishes runs of one method, and is its name by default.

    The values of an evaluation in a file (FILE.py:NAME) are read by its code, which has to be trusted.
    """
    path = Path(path)
    if (path / "result.json").is_file():
        return _task_records(path / "result.json", label)
    folder = RunFolder.open(path)
    label = label or default_label(folder.config)
    with interpreting(path, "the metrics of a run"):
        records = list(_of_training(folder, label))
    for file in sorted((path / "evaluation").glob("*.json")):
        with interpreting(file, "the results of an evaluation"):
            records += _of_evaluation(folder, file.stem, read_object(file), label, trust)
    for file in sorted(path.glob("downstream/*/result.json")):
        records += _task_records(file, label)
    return records


def _task_records(file: Path, label: str) -> list[Record]:
    with interpreting(file, "the result of a task"):
        return list(_of_task(read_object(file), label))


def default_label(config: dict[str, Any]) -> str:
    """The method, with an ending for pretraining on random layouts."""
    ending = RANDOM if config.get("env_options", {}).get("layout") == "random" else ""
    return f"{_last_part(config['method'])}{ending}"


def _last_part(name: str) -> str:
    """The name of what FILE.py:NAME or gymnasium:ID stands for."""
    return name.rpartition(":")[2]


def _columns(environment: str, label: str, method: str, seed: int, what: str, phase: str, run_seed: int) -> dict[str, Any]:
    environment = _last_part(environment)
    run = f"{environment}/{label}-s{run_seed}"
    columns = {"job": f"{run}/{what}", "run": run, "label": label, "method": method, "environment": environment}
    return columns | {"seed": seed, "phase": phase}


def _trained(config: dict[str, Any], epoch: int) -> dict[str, Any]:
    """What identifies a trained policy; a run that was continued has new facts."""
    return {"config": config, "epoch": epoch}


def _of_training(folder: RunFolder, label: str) -> Iterator[Record]:
    config = folder.config
    rows = folder.read_metrics()
    epoch = rows[-1]["epoch"] if rows else 0
    for seed in range(config["seed"], config["seed"] + config.get("seeds", 1)):
        if values := list(training_values(folder, seed)):
            seconds = [value for _, _, metric, value in values if metric == "train_seconds"]
            values += [("", 0, SECONDS, value) for value in seconds]
            columns = _columns(config["env"], label, _last_part(config["method"]), seed, "train", "train", seed)
            yield Record(columns, _trained(config, epoch), folder.meta, values)


def _of_evaluation(folder: RunFolder, name: str, report: dict[str, Any], label: str, trust: Trust) -> Iterator[Record]:
    config = folder.config
    check_trust([report["evaluation"]], trust, str(folder.path / "evaluation" / f"{name}.json"))
    asked = {key: value for key, value in report.items() if key not in ("results", "config", "meta", "run")}
    for index, result in enumerate(report["results"]):
        values, seed = list(evaluation_values(report, index)), result["seed"]
        columns = _columns(config["env"], label, _last_part(config["method"]), seed, name, name, seed)
        trained = config_hash(_trained(config, result["epoch"]))
        yield Record(columns, asked | {"trained": trained}, report["meta"], values)


def _of_task(result: dict[str, Any], label: str) -> Iterator[Record]:
    skills = result.get("skills") or {}
    label = (label or default_label(skills["config"])) if skills else FLAT
    way = result.get("interface", FLAT if not skills else USUAL[0]), result.get("policy", USUAL[1])
    subject = f"{task_name(result)}@{result['layout']}"
    for index, seed in enumerate(result["seeds"]):
        run_seed = skills.get("seed", seed)
        what = subject + way_of_task(*way) + ("" if seed == run_seed else f"-s{seed}")
        values = [*task_values(result, index), ("", 0, SECONDS, result["seconds"])]
        columns = _columns(result["env"], label, _last_part(result["method"]), seed, what, "downstream", run_seed)
        columns["label"] = task_label(label, *way)
        trained = config_hash(_trained(skills["config"], skills["epoch"])) if skills else ""
        yield Record(columns, result["config"] | {"run": trained}, result["meta"], values)

"""Tables of trials: settings that were compared before one was chosen, in benchmarks/results/trials/NAME."""

from __future__ import annotations

from pathlib import Path

from susd.envs.registry import environments
from susd.experiments import metrics_store
from susd.experiments.metrics_store import FACTS, Fact
from susd.report.aggregate import over_seeds
from susd.report.claims import format_estimate
from susd.report.labels import environment_title, split_way

SCORE, CONTROL, CELLS = "last_quarter_discounted", "ratio", "cells_worst"
POLICY = "trained, mean actions"
Column = tuple[str, str, str]  # environment, metric and task


def trial_facts(root: Path, name: str) -> list[Fact]:
    """The facts of a trial."""
    return metrics_store.load(root / "benchmarks" / "results" / "trials" / name / FACTS)


def trial(root: Path, name: str) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Head and rows: one row per setting, with the mean over seeds of each task's score, its control and its coverage."""
    values: dict[str, dict[Column, dict[int, float]]] = {}
    for fact in trial_facts(root, name):
        if (column := _column(fact)) is not None:
            seed = int(fact.run.rpartition("-s")[2])
            values.setdefault(split_way(fact.label)[0], {}).setdefault(column, {})[seed] = fact.value
    digits = {SCORE: 1, CONTROL: 2, CELLS: 2}
    known = dict.fromkeys(column for of in values.values() for column in of)
    columns = [column for env in environments() for metric in digits for column in known if column[:2] == (env, metric)]
    head = ("", *(_title(column) for column in columns))
    return head, [(f"`{label}`", *(_cell(of.get(c), digits[c[1]]) for c in columns)) for label, of in values.items()]


def _column(fact: Fact) -> Column | None:
    task = fact.subject.rpartition("@")[0] if fact.metric == SCORE else ""
    measured = (fact.phase, fact.subject, fact.metric) in (("control", "", CONTROL), ("coverage", POLICY, CELLS))
    return (fact.environment, fact.metric, task) if task or measured else None


def _title(column: Column) -> str:
    env, metric, task = column
    words = {CONTROL: "control ratio", CELLS: "cells of the worst body"}
    return f"{environment_title(env)}: {words.get(metric, f'`{task}`')}"


def _cell(values: dict[int, float] | None, digits: int) -> str:
    return "-" if values is None else format_estimate(over_seeds(values), digits)

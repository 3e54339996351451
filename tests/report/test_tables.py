"""The recorded results, and the tables of README and docs that are made from them."""

import csv
import json
import re
from pathlib import Path

import pytest

from susd.errors import UserError
from susd.experiments import metrics_store
from susd.experiments.metrics_store import select
from susd.report import parity, tables
from susd.report.build import found_in
from susd.report.load import load_results

RESULTS = tables.ROOT / "results"
FOLDERS = sorted(path.parent for path in RESULTS.glob("**/facts.jsonl"))


@pytest.mark.parametrize("name", tables.TABLES)
def test_tables_are_rectangular(name: str) -> None:
    rows = tables.TABLES[name]().splitlines()
    assert len(rows) > 2
    assert len({row.count("|") for row in rows}) == 1


def test_changed_value_is_corrected() -> None:
    right = tables.fill("a\n<!-- table quick --><!-- end -->\nb")
    assert right.startswith("a\n<!-- table quick -->\n\n| run |")
    assert right.endswith("|\n\n<!-- end -->\nb")
    wrong = re.sub(r"\d", lambda digit: str((int(digit[0]) + 1) % 10), right)
    assert tables.fill(wrong) == right != wrong
    with pytest.raises(UserError, match="there is no table 'slow'; choose one of kitchen_moved"):
        tables.fill("<!-- table slow --><!-- end -->")


def test_parity_is_of_the_recorded_facts(tmp_path: Path) -> None:
    data = load_results(list(found_in(RESULTS)), tmp_path)
    lines = parity.compare(data.facts, data.scores, data.protocols)
    recorded = (RESULTS / "parity.csv").read_text()
    assert parity.to_csv(lines) == recorded, "run `susd report`"
    assert sum(row["result"] != "not run" for row in csv.DictReader(recorded.splitlines())) > 90


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(RESULTS)))
def test_results_are_traceable(folder: Path) -> None:
    facts = metrics_store.load(folder / "facts.jsonl")
    assert all(fact.commit and fact.versions for fact in facts)
    if not (folder / "suite.toml").exists():
        configs = json.loads((folder / "configs.json").read_text())
        assert {fact.config_hash for fact in facts} <= set(configs)
        assert all(entry["meta"]["commit"] for entry in configs.values())
    assert (folder / "facts.jsonl").stat().st_size < 400_000


@pytest.mark.parametrize(("env", "times"), [("gunner", 4), ("multi_particle", 2)])
def test_quick_meets_its_learning_targets(env: str, times: int) -> None:
    facts = metrics_store.load(RESULTS / "quick" / env / "facts.jsonl")
    assert {fact.seed for fact in facts} == {0, 1, 2}
    for seed in range(3):
        mine = select(facts, seed=seed)
        values = {(fact.subject, fact.metric): fact.value for fact in mine}
        assert values["", "train_seconds"] < 600
        cells = values["trained, mean actions", "cells_worst"]
        assert cells >= times * values["untrained, mean actions", "cells_worst"]
        assert values["", "ratio"] >= 3.0
        if env == "gunner":
            assert cells >= 0.4
            marks = [fact.value for fact in mine if fact.metric == "landmark" and fact.subject.startswith("trained, mean")]
            assert len(marks) == 12
            assert all(share > 0 for share in marks)

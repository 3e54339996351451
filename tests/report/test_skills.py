"""The section on control: new results say what was left out, and those of earlier versions are shown as they are."""

from __future__ import annotations

from collections.abc import Iterable

from susd.evaluation.control import RARE
from susd.experiments.metrics_store import Fact
from susd.report.sections.skills import _control_table

OLD = [
    ("", "ratio", 1.4),
    ("", "diagonal", 0.9),
    ("", "off_diagonal", 0.6),
    ("cart", "spread", 2.0),
    ("lamp", "spread", 0.1),
]
NEW = [("", "pairs", 128), ("", "ratio_low", 1.1), ("", "ratio_high", 1.7), ("cart", "moved", 128), ("lamp", "moved", 1)]


def facts(values: Iterable[tuple[str, str, float]], seed: int = 0) -> list[Fact]:
    columns = {"job": "j", "run": "r", "label": "susd", "method": "susd", "environment": "own", "phase": "control"}
    traced = {"versions": "", "commit": "", "config_hash": "0", "seed": seed, "step": 0}
    return [Fact(**columns, **traced, subject=s, metric=m, value=v) for s, m, v in values]  # type: ignore[arg-type]


def test_earlier_results_have_no_invented_columns() -> None:
    head, rows = _control_table(["susd"], facts(OLD))
    assert head == ["method", "ratio", "diagonal", "off-diagonal", "spread of cart", "spread of lamp"]
    assert [len(row) for row in rows] == [6]
    assert "1.40" in rows[0][1]


def test_intervals_and_left_out_factors() -> None:
    assert RARE * 128 > 1
    head, rows = _control_table(["susd"], facts(OLD + NEW))
    assert head[-2:] == ["ratio, over pairs", "left out"]
    assert rows[0][-2:] == ["1.10 to 1.70", "lamp (1 of 128)"]


def test_old_and_new_results_together() -> None:
    _, rows = _control_table(["susd"], facts(OLD) + facts(OLD + NEW, seed=1))
    assert rows[0][-2:] == ["1.10 to 1.70", "lamp (1 of 128)"]

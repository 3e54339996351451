"""Our results compared with the paper's: each value, the protocol, and what differs in a sentence."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from susd.experiments.statistics import Estimate
from susd.report.candidates import Found, best, candidates
from susd.report.claims import format_estimate
from susd.report.labels import pretrained
from susd.report.load import ReportData
from susd.report.paper import SOURCES, Row, known_faults, paper_values

ONE_LAYOUT, ON_RANDOM = "Pretrained in one layout, as in the paper.", "pretrained on random layouts"


@dataclass(frozen=True)
class Line:
    """One value of the paper and ours."""

    row: Row
    ours: Estimate | None  # None: not run
    same: str  # "yes", "yes, 256 units", "no" or, where nothing was run, empty
    result: str
    notes: tuple[str, ...]  # sentences on what differs


def compare(data: ReportData) -> list[Line]:
    """Every value of the paper with ours."""
    both_ways = {fact.environment for fact in data.facts if pretrained(fact.label) == "random"}
    return [_line(row, data, row.environment in both_ways) for row in paper_values()]


def _line(row: Row, data: ReportData, both_ways: bool) -> Line:
    found = candidates(row, data)
    shown = best(found)
    if shown is None:
        return Line(row, None, "", "not run", known_faults(row))
    notes = [f"Ours: {', '.join(shown.reasons)}."] if shown.reasons else []
    if both_ways and ON_RANDOM not in shown.reasons:
        notes.append(ONE_LAYOUT)
    notes += [_also(row, other) for other in found if other is not shown]
    result = shown.result or _verdict(float(row.paper), shown.ours)
    return Line(row, shown.ours, shown.same, result, (*notes, *shown.notes, *known_faults(row)))


def _also(row: Row, found: Found) -> str:
    """A sentence on a result that is not the one to compare."""
    how = ", ".join(found.reasons) or "same protocol"
    return f"Also {format_estimate(found.ours, row.digits)} (n = {found.ours.seeds}): {how}."


def _verdict(theirs: float, ours: Estimate) -> str:
    if ours.known and ours.low <= theirs <= ours.high:
        return "paper's is inside our interval"
    side = "ours is higher" if ours.value > theirs else "ours is lower" if ours.value < theirs else "equal"
    return side if ours.known or side == "equal" else f"{side}, one seed"


def counts(lines: Sequence[Line]) -> dict[str, int]:
    """How many values of the paper were measured, and how."""
    ran = [line for line in lines if line.ours is not None]
    return {
        "values and claims of the paper": len(lines),
        "measured here": len(ran),
        ".. with an interval": sum(line.ours is not None and line.ours.known for line in ran),
        ".. with the same protocol": sum(line.same.startswith("yes") for line in ran),
        ".. of these with smaller networks": sum(line.same.startswith("yes,") for line in ran),
        ".. with the paper's value inside our interval": sum("inside" in line.result for line in ran),
    }


def to_csv(lines: Sequence[Line]) -> str:
    """The comparison as a table for programs."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    head = ("source", "environment", "quantity", "subject", "method", "episode", "paper", "paper_spread", "in_paper")
    writer.writerow([*head, "ours", "low", "high", "scores", "seeds", "same_protocol", "result", "note"])
    for line in lines:
        row, ours = line.row, line.ours
        numbers = [""] * 5 if ours is None else [f"{ours.value:.6g}", *_ends(ours), str(ours.count), str(ours.seeds)]
        first = [
            row.source,
            row.environment,
            row.quantity,
            row.subject,
            row.label,
            row.episode,
            row.paper,
            row.spread,
            row.printed,
        ]
        writer.writerow([*first, *numbers, line.same, line.result, " ".join([SOURCES[row.source], *line.notes]).strip()])
    return out.getvalue()


def _ends(found: Estimate) -> list[str]:
    """The interval; empty where nothing repeats."""
    return [f"{end:.6g}" for end in (found.low, found.high)] if found.known else ["", ""]

"""Tables as data, and as plain text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Row = tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A title, the names of the columns, and the rows as text."""

    title: str
    columns: Row
    rows: Sequence[Row]


def seed_table(title: str, columns: Row, rows: Sequence[tuple[int, Row]]) -> Table:
    """A table of (seed, row) pairs; the seed has a column only if there are several seeds."""
    if len({seed for seed, _ in rows}) > 1:
        return Table(title, ("seed", *columns), [(str(seed), *row) for seed, row in rows])
    return Table(title, columns, [row for _, row in rows])


def format_table(table: Table) -> str:
    """Plain text that looks the same in a terminal and in a file."""
    lines = (table.columns, *table.rows)
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    cells = ("  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join([table.title, *(f"  {line}".rstrip() for line in cells)])

"""Tables as plain text."""

from susd.runs.tables import Table, format_table, seed_table


def test_columns_are_aligned() -> None:
    text = format_table(Table("Title", ("name", "value"), [("a", "1"), ("longer", "")]))
    assert text.splitlines() == ["Title", "  name    value", "  a       1", "  longer"]


def test_seed_column_only_for_several_seeds() -> None:
    rows = [(3, ("a",)), (3, ("b",))]
    assert seed_table("T", ("x",), rows) == Table("T", ("x",), [("a",), ("b",)])
    assert seed_table("T", ("x",), [*rows, (4, ("c",))]).rows == [("3", "a"), ("3", "b"), ("4", "c")]
    assert seed_table("T", ("x",), [*rows, (4, ("c",))]).columns == ("seed", "x")

"""Titles, order and looks come from the registries."""

import itertools

from susd.methods.registry import methods
from susd.report.labels import in_order, is_rival, is_variant, looks, split_way, title_of

LABELS = [*methods(), "flat", "metra-same-size", "csd-same-size", "susd-4-factors", "other", "another"]


def test_titles() -> None:
    titles = {"susd": "SUSD", "flat": "no skills", "metra-same-size": "METRA (same size)", "mine": "mine"}
    assert {label: title_of(label) for label in titles} == titles


def test_ways_to_use_the_skills() -> None:
    """They are part of the title; a method with other high-level actions is no variant of itself."""
    titles = {
        "susd-goal": "SUSD, goal actions",
        "susd-goal-entity": "SUSD, goal actions, entity-wise",
        "susd-w-entity": "SUSD-w, entity-wise",
        "metra-same-size-goal": "METRA (same size), goal actions",
        "mine-goal": "mine, goal actions",
    }
    assert {label: title_of(label) for label in titles} == titles
    assert split_way("susd-goal-entity") == ("susd", ("goal", "entity"))
    assert [is_variant(label) for label in titles] == [0, 0, 1, 1, 0]
    assert [is_rival(label) for label in titles] == [0, 0, 0, 1, 1]
    assert in_order(["flat", "metra", "susd-goal", "susd"]) == ["susd", "susd-goal", "metra", "flat"]


def test_order() -> None:
    """Methods, other labels, no skills, registered variants, other variants."""
    some = ["csd-same-size", "susd-w", "flat", "other", "metra", "susd", "metra-same-size"]
    assert in_order(some) == ["susd", "metra", "other", "flat", "susd-w", "metra-same-size", "csd-same-size"]


def test_variants_and_rivals() -> None:
    assert [is_variant(label) for label in ("susd", "susd-w", "metra-same-size", "flat", "other")] == [0, 1, 1, 0, 0]
    assert [is_rival(label) for label in ("susd", "susd-w", "metra-same-size", "flat", "other")] == [0, 0, 1, 1, 1]


def test_no_colour_twice() -> None:
    found = looks(LABELS)
    assert len({look.colour.lower() for look in found.values()}) == len(LABELS)
    assert found["susd"].colour == methods()["susd"].colour
    assert len(looks([f"metra-{i}" for i in range(40)])) == 40


def test_figures_do_not_need_colour() -> None:
    """No two of the usual labels have the same marker, filling and line."""
    usual = [name for name, card in methods().items() if not card.base] + ["flat", "susd-w", "susd-wf", "metra-same-size"]
    found = looks(usual)
    for one, other in itertools.combinations(found.values(), 2):
        assert (one.marker, one.filled) != (other.marker, other.filled)
    assert len({str(look.line) for look in found.values() if look.filled}) == 7

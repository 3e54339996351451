"""A factorization is a partition of the observation in every notation; errors name the factor and the index."""

import json
import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susd.errors import UserError
from susd.factors import Factorization


@st.composite
def partitions(draw: st.DrawFn) -> dict[str, list[int]]:
    """Every index of a random size in a random factor; no factor empty, any order."""
    size = draw(st.integers(1, 24))
    order = draw(st.permutations(range(size)))
    cuts = sorted(draw(st.sets(st.integers(1, size - 1)))) if size > 1 else []
    blocks = [order[a:b] for a, b in zip([0, *cuts], [*cuts, size], strict=True)]
    names = draw(
        st.lists(st.text("abcxyz_0123", min_size=1, max_size=5), min_size=len(blocks), max_size=len(blocks), unique=True)
    )
    return dict(zip(names, blocks, strict=True))


def size_of(factors: dict[str, list[int]]) -> int:
    return sum(len(indices) for indices in factors.values())


@given(partitions())
def test_random_partitions_round_trip(factors: dict[str, list[int]]) -> None:
    made = Factorization.from_mapping(factors, size_of(factors))
    assert made.names == tuple(factors)
    assert [list(indices) for indices in made.indices] == list(factors.values())
    assert Factorization.from_mapping(json.loads(json.dumps(made.to_json())), made.size) == made
    text = ",".join(f"{name}={'+'.join(str(i) for i in indices)}" for name, indices in factors.items())
    assert Factorization.parse(text, made.size) == made


@given(partitions())
def test_membership(factors: dict[str, list[int]]) -> None:
    made = Factorization.from_mapping(factors, size_of(factors))
    assert len(made) == len(factors)
    assert made.sizes == tuple(len(indices) for indices in factors.values())
    assert made.membership.shape == (len(factors), made.size)
    np.testing.assert_array_equal(made.membership.sum(axis=0), 1.0)
    for row, indices in zip(made.membership, factors.values(), strict=True):
        assert set(np.flatnonzero(row)) == set(indices)


@given(partitions(), st.data())
def test_one_changed_index_is_refused(factors: dict[str, list[int]], data: st.DataObject) -> None:
    size = size_of(factors)
    name = data.draw(st.sampled_from(list(factors)))
    position = data.draw(st.integers(0, len(factors[name]) - 1))
    lost = factors[name][position]
    wrong = data.draw(st.integers(-3, size + 3).filter(lambda index: index != lost))
    changed = {key: list(indices) for key, indices in factors.items()}
    changed[name][position] = wrong
    with pytest.raises(UserError, match=rf"index {wrong}\b"):
        Factorization.from_mapping(changed, size)


def test_parse() -> None:
    made = Factorization.parse("agent=0:3, ammo=3:5+7 ,view=5:7", 8)
    assert made.names == ("agent", "ammo", "view")
    assert made.indices == ((0, 1, 2), (3, 4, 7), (5, 6))
    assert Factorization.parse("all=0:4", 4).indices == ((0, 1, 2, 3),)


def test_boundaries_are_contiguous_blocks() -> None:
    made = Factorization.from_boundaries((0, 6, 13, 18), ("agent", "ammo", "target"))
    assert made == Factorization.parse("agent=0:6,ammo=6:13,target=13:18", 18)


BAD: list[tuple[str, Callable[[], Factorization], str]] = [
    ("overlap", lambda: Factorization.parse("a=0:3,b=2:4", 4), "index 2 is in factor 'a' and again in factor 'b'"),
    ("twice in one factor", lambda: Factorization.parse("a=0:2+1", 2), "index 1 is in factor 'a' and again in factor 'a'"),
    ("gap", lambda: Factorization.parse("a=0:2,b=3:5", 6), "index 2 belongs to no factor (2 missing in total: [2, 5])"),
    ("missing end", lambda: Factorization.parse("a=0:2", 3), "index 2 belongs to no factor"),
    ("duplicate", lambda: Factorization.parse("a=0:2,a=2:4", 4), "factor 'a' is named twice"),
    ("duplicate names", lambda: Factorization(("a", "a"), ((0,), (1,)), 2), "factor 'a' is named twice"),
    ("empty range", lambda: Factorization.parse("a=0:4,b=4:4", 4), "factor 'b' is empty"),
    ("reversed range", lambda: Factorization.parse("a=3:0", 4), "factor 'a' is empty"),
    ("empty list", lambda: Factorization.from_mapping({"a": [0], "b": []}, 1), "factor 'b' is empty"),
    ("too high", lambda: Factorization.parse("a=0:2,b=2:5", 4), "factor 'b': index 4 is outside the observation"),
    ("negative", lambda: Factorization.parse("a=-1:2", 4), "factor 'a': index -1 is outside the observation"),
    ("huge", lambda: Factorization.parse("a=0:999999999999", 4), "factor 'a': '0:999999999999' is longer"),
    ("no name", lambda: Factorization.parse("=0:2", 2), "cannot read factor '=0:2'"),
    ("no range", lambda: Factorization.parse("a", 2), "cannot read factor 'a'"),
    ("nothing", lambda: Factorization.parse("", 2), "cannot read factor ''"),
    ("comma at the end", lambda: Factorization.parse("a=0:2,", 2), "cannot read factor ''"),
    ("no numbers", lambda: Factorization.parse("a=x:2", 2), "factor 'a': cannot read 'x:2'"),
    ("fraction", lambda: Factorization.parse("a=0:1.5", 2), "factor 'a': cannot read '0:1.5'"),
    ("no stop", lambda: Factorization.parse("a=0:", 2), "factor 'a': cannot read '0:'"),
    ("fraction in a mapping", lambda: Factorization.from_mapping({"a": [0, 1.5]}, 2), "factor 'a': 1.5 is not an index"),
    ("text in a mapping", lambda: Factorization.from_mapping({"a": [0, "1"]}, 2), "factor 'a': '1' is not an index"),
    ("no factors", lambda: Factorization.from_mapping({}, 3), "at least one factor"),
    ("unnamed", lambda: Factorization.from_mapping({"": [0]}, 1), "empty name"),
    ("too few names", lambda: Factorization.from_boundaries((0, 2, 4), ("a",)), "1 factor names for 2 index sets"),
    ("late start", lambda: Factorization.from_boundaries((1, 2, 4), ("a", "b")), "index 0 belongs to no factor"),
    ("backwards", lambda: Factorization.from_boundaries((0, 4, 2, 4), ("a", "b", "c")), "factor 'b' is empty"),
    ("no boundaries", lambda: Factorization.from_boundaries((), ()), "at least one factor"),
]


@pytest.mark.parametrize(("make", "message"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_errors(make: Callable[[], Factorization], message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        make()


def test_numpy_integers_are_indices() -> None:
    assert Factorization.from_mapping({"a": np.arange(3)}, 3).indices == ((0, 1, 2),)

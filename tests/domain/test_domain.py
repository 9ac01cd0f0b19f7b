from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dpdist.domain import OUTSIDE, Attribute, Domain, even_edges
from dpdist.errors import InvalidInput
from dpdist.size_limits import SIZES


@pytest.mark.parametrize(
    ("outside", "codes", "clipped"),
    [("clip", [0, 0, 1, 2, 2, -1], 2), ("drop", [-1, 0, 1, 2, -1, -1], 0), ("error", [-1, 0, 1, 2, -1, -1], 0)],
)
def test_bins(outside: str, codes: list[int], clipped: int) -> None:
    attribute = Attribute("age", edges=(0, 10, 20, 30), outside=outside)
    found, moved = attribute.encode(np.array([-5.0, 0.0, 19.9, 20.0, 30.0, np.nan]))
    assert found.tolist() == codes
    assert moved == clipped


@given(st.lists(st.integers(-3, 3), max_size=5))
def test_edges_increase_strictly_or_are_refused(edges: list[int]) -> None:
    """Also where labels of one's own hide that a bin is empty."""
    bins = max(0, len(edges) - 1)
    labels = tuple(str(i) for i in range(bins))
    if bins and edges == sorted(set(edges)):
        assert Attribute("x", edges=edges, labels=labels).size == bins
    else:
        with pytest.raises(InvalidInput, match="strictly increasing, at least two" if edges else "either categories or"):
            Attribute("x", edges=edges, labels=labels)


def test_categories() -> None:
    attribute = Attribute("c", categories=("b", "a", "longer"), outside="drop")
    assert attribute.encode(np.array(["a", "b", "longer", "longest", ""]))[0].tolist() == [1, 0, 2, -1, -1]


@pytest.mark.parametrize(
    "build",
    [
        lambda: Attribute("x"),
        lambda: Attribute("x", categories=("a",), edges=(0, 1)),
        lambda: Attribute("x", categories=("a", "a")),
        lambda: Attribute("x", categories=("a",), outside="clip"),
        lambda: Attribute("x", edges=(1, 1)),
        lambda: Attribute("x", edges=(0, float("inf"))),
        lambda: Attribute("x", edges=(0, 1), labels=("a", "b")),
        lambda: Domain(()),
        lambda: Domain((Attribute("x", edges=(0, 1)), Attribute("x", edges=(0, 1)))),
        lambda: Domain.of_shape((0,)),
        lambda: Domain.of_shape((2,)).axis("y"),
    ],
)
def test_refusals(build: object) -> None:
    with pytest.raises(InvalidInput):
        build()


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40, unique=True).map(sorted)
    | st.tuples(st.floats(-1e3, 1e3), st.floats(1e-3, 1e3), st.integers(1, 300)).map(
        lambda t: list(np.linspace(t[0], t[0] + t[1], t[2] + 1))
    )
    | st.tuples(st.integers(-1000, 1000), st.integers(1, 200)).map(lambda t: list(range(t[0], t[0] + t[1] + 1))),
    st.sampled_from(["clip", "drop"]),
    st.sampled_from([np.float64, np.float32, np.int64, np.int8, np.uint32]),
    st.integers(0, 2**32),
)
@settings(deadline=None, max_examples=300)
def test_bins_are_those_of_a_search(edges: list[float], outside: Any, kind: Any, seed: int) -> None:
    """Even, unit and uneven bins, whole and real columns, values on the very edges: against numpy.searchsorted."""
    assume((np.diff(edges) > 0).all())
    labels = tuple(str(i) for i in range(len(edges) - 1))
    attribute = Attribute("a", edges=tuple(edges), outside=outside, labels=labels)
    state = np.random.default_rng(seed)
    near = np.concatenate([np.asarray(edges), np.nextafter(edges, np.inf), np.nextafter(edges, -np.inf)])
    values = np.concatenate([near, state.uniform(edges[0] - 5, edges[-1] + 5, 50)])
    if np.dtype(kind).kind == "f":
        values = np.append(values, [np.nan, np.inf, -np.inf])
    else:
        values = np.clip(np.rint(values), np.iinfo(kind).min, np.iinfo(kind).max)
    column = values.astype(kind)
    if np.dtype(kind).kind != "f":
        column = np.append(column, np.array([np.iinfo(kind).min, np.iinfo(kind).max], dtype=kind))
    codes, clipped = attribute.encode(column)
    exact = column.astype(np.float64)
    expected = np.searchsorted(np.asarray(edges), exact, side="right") - 1
    out, missing = (expected < 0) | (expected >= attribute.size), np.isnan(exact)
    moved = int((out & ~missing).sum()) if outside == "clip" else 0
    expected = np.clip(expected, 0, attribute.size - 1) if outside == "clip" else np.where(out, OUTSIDE, expected)
    np.testing.assert_array_equal(codes, np.where(missing, OUTSIDE, expected))
    assert clipped == moved


NUMBERS = np.array([-5.0, 0.0, 25.0, 30.0, np.nan])
TEXTS = np.array(["a", "c", "", "b"])


@pytest.mark.parametrize(
    ("given", "labels", "size", "codes"),
    [
        ({"missing": "unknown"}, ("0 to <10", "10 to <30", "unknown"), 3, [-1, 0, 1, -1, 2]),
        ({"missing": "unknown", "outside": "clip"}, ("under 10", "10 or more", "unknown"), 3, [0, 0, 1, 1, 2]),
        ({"missing": "m", "other": "o"}, ("0 to <10", "10 to <30", "o", "m"), 4, [2, 0, 1, 2, 3]),
        ({"missing": "x", "other": "x"}, ("0 to <10", "10 to <30", "x"), 3, [2, 0, 1, 2, 2]),
        ({"missing": "drop", "other": "o"}, ("0 to <10", "10 to <30", "o"), 4, [2, 0, 1, 2, 3]),
        ({"missing": "drop", "other": "drop"}, ("0 to <10", "10 to <30"), 3, [2, 0, 1, 2, 2]),
        ({"missing": "", "other": ""}, ("0 to <10", "10 to <30"), 2, [-2, 0, 1, -2, -2]),
        ({"outside": "clip"}, ("under 10", "10 or more"), 2, [0, 0, 1, 1, -1]),
    ],
)
def test_bins_of_missing_and_other_values(given: Any, labels: tuple[str, ...], size: int, codes: list[int]) -> None:
    attribute = Attribute("age", edges=(0, 10, 30), **given)
    assert (attribute.labels, attribute.size, attribute.values) == (labels, size, 2)
    assert attribute.encode(NUMBERS)[0].tolist() == codes


@pytest.mark.parametrize(
    ("given", "codes"),
    [
        ({"outside": "drop"}, [0, -1, -1, 1]),
        ({"missing": "unknown", "other": "another"}, [0, 2, 3, 1]),
        ({"missing": "drop", "other": "another"}, [0, 2, 3, 1]),
        ({"missing": "unknown"}, [0, -1, 2, 1]),
    ],
)
def test_categories_of_missing_and_other_values(given: Any, codes: list[int]) -> None:
    """An empty text is no value, as in a CSV file."""
    assert Attribute("c", categories=("a", "b"), **given).encode(TEXTS)[0].tolist() == codes


def test_an_empty_text_may_be_declared() -> None:
    assert Attribute("c", categories=("a", ""), missing="unknown").encode(np.array(["a", ""]))[0].tolist() == [0, 1]


@pytest.mark.parametrize("many", [False, True], ids=["listed", "computed"])
def test_labels_of_clipped_bins(many: bool) -> None:
    sizes = dataclasses.replace(SIZES, listed_values=1) if many else SIZES
    given: Any = {"outside": "clip", "missing": "unknown"}
    ages = Attribute("age", edges=even_edges(0, 1, 91, sizes), **given)
    assert [ages.labels[i] for i in (0, 1, 90, 91)] == ["0 or less", "1", "90 or more", "unknown"]
    assert list(ages.labels[89:]) == ["89", "90 or more", "unknown"]
    wages = Attribute("wage", edges=even_edges(0, 20000, 5, sizes), **given)
    assert list(wages.labels[:2]) == ["under 20000", "20000 to <40000"]
    assert wages.labels[4] == "80000 or more"
    assert Attribute("x", edges=even_edges(0, 2, 1, sizes), outside="clip").labels[0] == "all values"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"other": "x", "outside": "clip"}, "'other' and 'outside'"),
        ({"missing": "10 to <30"}, "'10 to <30' is a declared value"),
    ],
)
def test_labels_that_cannot_be(given: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        Attribute("age", edges=(0, 10, 30), **given)

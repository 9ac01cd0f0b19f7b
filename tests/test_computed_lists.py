"""Edges, names, coefficients and tables of truth that are computed where they are read: the listed ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dpdist.domain import Attribute, Domain, EvenEdges
from dpdist.operators import Circulant, Toeplitz
from dpdist.operators.linear_operator import StoredEntries
from dpdist.operators.toeplitz import PowerCoefficients
from dpdist.size_limits import Sizes
from dpdist.workloads import dnf, filtered
from dpdist.workloads.time_filters import RowNames, window

BITS = Domain.of_shape((2,) * 9, Sizes(listed_values=100))
STEPS = 3000
SMALL = Sizes(listed_values=100)
"""What is computed beyond a million values is computed beyond a hundred."""


@given(
    st.integers(-50, 50),
    st.integers(1, 7),
    st.integers(1, 300),
    st.lists(st.one_of(st.floats(-100, 2500), st.integers(-100, 2500), st.just(float("nan"))), max_size=40),
    st.sampled_from(["clip", "drop"]),
)
def test_computed_edges_are_the_listed_ones(first: int, width: int, bins: int, values: list[float], outside: Any) -> None:
    edges = EvenEdges(first, width, bins)
    listed = tuple(float(first + i * width) for i in range(bins + 1))
    assert tuple(edges) == listed
    assert edges[-1] == listed[-1]
    assert tuple(edges[1:]) == listed[1:]
    np.testing.assert_array_equal(np.asarray(edges), listed)
    one, other = (Attribute("a", edges=e, outside=outside) for e in (edges, listed))
    assert tuple(one.labels) == other.labels
    assert one.size == other.size
    for kind in (np.array(values, dtype=np.float64), np.array([v for v in values if float(v).is_integer()], dtype=np.int64)):
        nearly = np.concatenate([kind, np.nextafter(listed, -np.inf)]) if kind.dtype.kind == "f" else kind
        found, expected = one.encode(nearly), other.encode(nearly)
        np.testing.assert_array_equal(found[0], expected[0])
        assert found[1] == expected[1]


def test_taps_that_follow_a_rule_are_the_listed_ones() -> None:
    for power in (0.0, 0.7, 2.0):
        lazy, listed = Toeplitz(200, PowerCoefficients(200, power)), Toeplitz(200, np.arange(1.0, 201.0) ** -power)
        assert lazy.fingerprint == listed.fingerprint
        assert lazy.integral == listed.integral
        np.testing.assert_array_equal(lazy.dense(), listed.dense())
    for each in (
        Toeplitz(200, np.arange(1.0, 40.0), -17),
        Toeplitz(200, np.arange(1.0, 40.0), 5),
        Circulant(256, np.ones(9), -3),
    ):
        whole = Circulant(256, each.coefficients, each.first_lag).coefficients
        pieces = [each.wrap_coefficients(256, start, min(256, start + 37)) for start in range(0, 256, 37)]
        np.testing.assert_array_equal(np.concatenate(pieces), whole)


def test_names_are_made_when_asked_for() -> None:
    block, short = (filtered(Domain.of_shape((STEPS,), sizes), "x0", [window(24)]).blocks[0] for sizes in (Sizes(), SMALL))
    labels, made = block.labels[0], short.labels[0]
    assert isinstance(labels, tuple)
    assert isinstance(made, RowNames)
    lazy = RowNames(block.factors[0], labels)
    assert made[5] == "at 5"
    assert list(made[10:13]) == ["at 10", "at 11", "at 12"]
    assert list(made[::1000]) == ["at 0", "at 1000", "at 2000"]
    assert len(lazy) == len(made) == STEPS


def test_tables_of_truth_are_computed() -> None:
    lazy, listed = (
        dnf(BITS, [["x0", "x1", "x4"], ["x2", "x3"], ["x5", "x6", "x7", "x8"]]),
        dnf(Domain.of_shape((2,) * 6, SMALL), [["x0", "x1"], ["x2", "x5"]]),
    )
    assert not isinstance(lazy.blocks[0].factors[0].entries, StoredEntries)
    assert isinstance(listed.blocks[0].factors[0].entries, StoredEntries)
    function: Any = lazy.blocks[0].factors[0]
    other = type(function)(function.values)
    assert other.fingerprint == function.fingerprint
    assert other.integral == function.integral

"""Tables that are read slab by slab give the estimates and variances of one pool of everything."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.arrays.lazy_vector import ArrayVector
from dpdist.errors import InvalidInput, OutOfMemory
from dpdist.operators import Groups, Identity, Matrix, Operator, Total
from dpdist.operators.range_operators import Prefix
from dpdist.plugins.combine import pooled_slabs
from dpdist.plugins.combine.independent_terms import IndependentTerm
from dpdist.plugins.combine.pooled_measurement import measured_parts, pool
from dpdist.plugins.combine.pooled_slabs import SlabPool, StoredTable, slab_axis
from dpdist.reconstruction.measured_space import NotMeasured
from dpdist.workloads import Block

SHAPE = (7, 3, 4)


def block(name: str, *factors: tuple[int, Operator]) -> Block:
    axes, operators = zip(*factors, strict=True)
    return Block(name, axes, operators, tuple(range(operator.shape[0]) for operator in operators))


def values_of(*axes: int) -> Block:
    return block(str(axes), *((axis, Identity(SHAPE[axis])) for axis in axes))


BLOCKS = [
    *(values_of(*axes) for axes in ((0, 1, 2), (0, 1), (1, 2), (0,), (2,))),
    block("all", (0, Total(7))),
    block("until", (0, Prefix(7)), (2, Identity(4))),
    block("levels", (0, Groups(np.array([0, 0, 1, 1, -1, 2, 2]), 3)), (1, Prefix(3))),
]
TABLES = (((0, 1, 2), 3.0), ((0, 1, 2), 2.0), ((0, 1), 1.5), ((1, 2), 1.0))
STATE = np.random.default_rng(1)
VALUES = [STATE.normal(0, 9, [SHAPE[axis] for axis in axes]).ravel() for axes, _ in TABLES]
TERMS = [IndependentTerm(axes, (None,) * len(axes), v, d) for (axes, d), v in zip(TABLES, VALUES, strict=True)]
STORED = [StoredTable(axes, ArrayVector(2 * v), 2 * d, 0.5) for (axes, d), v in zip(TABLES[:2], VALUES[:2], strict=True)]


@pytest.mark.parametrize("slab_values", [1, 30, 10**6])
def test_slabs_are_as_one_pool(slab_values: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slabs of one value, of some and of all; answers whose rows are values, prefixes and groups of the attribute, and totals."""
    monkeypatch.setattr(pooled_slabs, "SLAB_VALUES", slab_values)
    whole = pool(SHAPE, TERMS, BLOCKS)
    slabs = SlabPool(SHAPE, STORED, TERMS[2:], BLOCKS)
    measured_parts(SHAPE, TERMS, BLOCKS).check_measured(BLOCKS)
    for asked, (answers, variances) in zip(BLOCKS, slabs.estimates(), strict=True):
        expected, expected_variances = whole.estimate(asked)
        np.testing.assert_allclose(answers, expected, atol=1e-9)
        np.testing.assert_allclose(variances, expected_variances, rtol=1e-9)


def other_tables(axis: int) -> list[IndependentTerm]:
    """Tables without their means, weighted tables, levels of a geography and a running sum along the attributes beside one; a total."""
    state = np.random.default_rng(axis)
    differences = np.linalg.qr(np.column_stack([np.ones(SHAPE[axis]), state.normal(0, 1, (SHAPE[axis], SHAPE[axis] - 1))]))[
        0
    ]
    weighted = np.vstack([1.5 * np.eye(SHAPE[axis]), 2 * np.ones((1, SHAPE[axis]))])
    side, other = (each for each in range(3) if each != axis)
    levels = np.vstack([np.eye(SHAPE[side]), np.eye(SHAPE[side])[:1] + np.eye(SHAPE[side])[1:2]])
    rows: list[tuple[tuple[int, ...], dict[int, np.ndarray | None]]] = [
        ((axis,), {axis: differences[:, 1:].T}),
        ((axis, other), {axis: weighted, other: None}),
        ((0, 1, 2), {axis: weighted, side: levels, other: None}),
        ((0, 1, 2), {axis: None, side: None, other: np.tril(np.ones((SHAPE[other], SHAPE[other])))}),
        ((side,), {side: levels}),
    ]
    terms = []
    for axes, factors in rows:
        ordered = tuple(factors[each] for each in sorted(axes))
        size = np.prod([SHAPE[each] if factors[each] is None else len(factors[each]) for each in axes], dtype=int)
        terms.append(IndependentTerm(tuple(sorted(axes)), ordered, state.normal(0, 9, size), float(state.uniform(1, 3))))
    return terms


@pytest.mark.parametrize("slab_values", [1, 30])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_marginals_levels_and_series_in_slabs_are_dense_least_squares(
    axis: int, slab_values: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against the normal equations over all 84 cells: estimates and variances, along each attribute; 0 beside a table in the store."""
    monkeypatch.setattr(pooled_slabs, "SLAB_VALUES", slab_values)
    monkeypatch.setattr(pooled_slabs, "slab_axis", lambda *_: axis)
    terms, stored = other_tables(axis), STORED[:1] if axis == 0 else []
    rows, values, precisions = [], [], []
    for term in [*terms, *(TERMS[:1] if stored else [])]:
        matrix: Matrix = np.ones((1, 1))
        for each, size in enumerate(SHAPE):
            factor = term.factors[term.axes.index(each)] if each in term.axes else np.ones((1, size))
            matrix = np.kron(matrix, np.eye(size) if factor is None else factor)
        rows.append(matrix)
        values.append(term.values)
        precisions.append(np.full(len(matrix), term.deviation**-2))
    joined, weights = np.concatenate(rows), np.concatenate(precisions)
    inverse = np.linalg.pinv(joined.T @ (weights[:, None] * joined), rcond=1e-12, hermitian=True)
    cells = inverse @ (joined.T @ (weights * np.concatenate(values)))
    slabs = SlabPool(SHAPE, stored, terms, BLOCKS)
    for asked, (answers, variances) in zip(BLOCKS, slabs.estimates(), strict=True):
        queries = asked.operator(SHAPE).dense()
        np.testing.assert_allclose(answers, queries @ cells, atol=1e-8)
        np.testing.assert_allclose(variances, np.einsum("ij,jk,ik->i", queries, inverse, queries), rtol=1e-8)


def test_the_attribute_of_slabs_is_the_largest_along_which_all_are_tables() -> None:
    assert slab_axis(SHAPE, [], TERMS, BLOCKS) == 0
    series = IndependentTerm((0,), (np.tril(np.ones((7, 7))),), np.zeros(7), 1.0)
    assert slab_axis(SHAPE, [], [*TERMS, series], BLOCKS) == 2
    assert slab_axis((7,), [], [series], []) is None
    condition = Block("condition", (0, 1), (Identity(21),), (tuple(range(21)),))
    assert slab_axis(SHAPE, [], TERMS, [condition]) is None
    with pytest.raises(InvalidInput, match="no attribute has rows of tables"):
        SlabPool((7,), [], [series])


@pytest.mark.parametrize("slab_values", [1, 30, 10**6])
def test_slabs_contradict_each_other_as_one_pool_does(slab_values: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The squared distance and what is expected of it, also where no query asks for the attribute of the slabs."""
    monkeypatch.setattr(pooled_slabs, "SLAB_VALUES", slab_values)
    found: list[tuple[float, int]] = []
    monkeypatch.setattr(pooled_slabs, "check_disagreement", lambda *distance: found.append(distance))
    SlabPool(SHAPE, STORED, TERMS[2:], [values_of(2)]).estimates(compare=True)
    whole = pool(SHAPE, TERMS)
    assert found == [(pytest.approx(whole.disagreement), whole.freedom)]


def test_what_is_not_read_in_slabs_is_refused() -> None:
    with pytest.raises(InvalidInput, match="same first attribute"):
        SlabPool(SHAPE, [STORED[0], StoredTable((1, 2), ArrayVector(VALUES[3]), 1.0)], [], BLOCKS)
    series = IndependentTerm((0,), (np.tril(np.ones((7, 7))),), np.zeros(7), 1.0)
    with pytest.raises(InvalidInput, match="along which the others are tables, too"):
        SlabPool(SHAPE, STORED, [series], BLOCKS)
    with pytest.raises(OutOfMemory, match="joining measurements"):
        SlabPool(SHAPE, STORED, [], BLOCKS, memory_bytes=1000)
    with pytest.raises(NotMeasured):
        measured_parts(SHAPE, TERMS[2:3]).check_measured([values_of(0, 2)])
    part = SlabPool(SHAPE, [StoredTable((0, 1), ArrayVector(VALUES[2]), 1.0)], [], [values_of(0, 2)])
    with pytest.raises(NotMeasured):
        part.estimates()

"""Groups of queries that differ in one attribute alone: one product, with the optimum over all cells, and what ``auto`` makes of it."""

from __future__ import annotations

import itertools
from unittest import mock

import numpy as np
import pytest

from dpdist.domain import Domain
from dpdist.mechanisms.comparison import compared_mechanisms
from dpdist.mechanisms.mechanism_registry import mechanism_of
from dpdist.operators import AllRanges, Dense, Identity, Operator, Prefix, TallMatrix, identity_rows
from dpdist.reconstruction.kronecker_terms import is_identity
from dpdist.strategies import coa, identity, kronecker, residual
from dpdist.strategies.dense.minimax import least_worst
from dpdist.strategies.tables.product_bound import product_bound
from dpdist.strategies.tables.product_optimum import kronecker_worst
from dpdist.workloads import Block, Workload
from dpdist.workloads.product_form import merge_blocks

STATISTICS = 7
"""Values of an attribute of amounts."""


def random_queries(state: np.random.Generator, size: int) -> Operator:
    """Queries of an attribute of so many values."""
    dense = Dense(state.integers(-2, 3, (int(state.integers(1, 4)), size)).astype(np.float64) + np.eye(1, size))
    options: list[Operator] = [Identity(size), Prefix(size), AllRanges(size), dense]
    return options[state.integers(len(options))]


def random_groups(seed: int) -> Workload:
    """Two to four products over two or three attributes, which differ in what they ask of one; some sum over it, some weigh its rows."""
    state = np.random.default_rng(seed)
    shape = tuple(state.integers(2, 5, int(state.integers(2, 4))).tolist())
    axis = int(state.integers(len(shape)))
    common = {other: random_queries(state, size) for other, size in enumerate(shape)}
    blocks = []
    for number in range(int(state.integers(2, 5))):
        asked = {**common, axis: random_queries(state, shape[axis])}
        if number and state.random() < 0.3:
            del asked[axis]
        scales = tuple(
            state.uniform(0.5, 2.0, factor.shape[0]) if other == axis and state.random() < 0.3 else None
            for other, factor in asked.items()
        )
        labels = tuple(tuple(map(str, range(factor.shape[0]))) for factor in asked.values())
        blocks.append(
            Block(f"{number}", tuple(asked), tuple(asked.values()), labels, float(state.uniform(0.5, 3.0)), scales)
        )
    return Workload(Domain.of_shape(shape), tuple(blocks))


GROUPS = [workload for workload in map(random_groups, range(40)) if workload.kind.is_product]


def test_the_groups_are_many_and_a_product_has_their_gram() -> None:
    assert len(GROUPS) > 30
    for workload in GROUPS:
        product = merge_blocks(workload.blocks)
        assert product is not None
        merged = Workload(workload.domain, (product,))
        np.testing.assert_allclose(merged.gram(), workload.gram(), atol=1e-9)


def test_the_optimum_is_that_over_all_cells() -> None:
    """Every cost, from the strategy's rows, and every bound: what ``auto`` takes has the least error that there is."""
    for workload in GROUPS:
        product, dense = kronecker(workload, tolerance=1e-8), coa(workload, tolerance=1e-8)
        assert product.workload_cost is not None
        assert dense.lower_bound is not None
        assert product.cost(workload) == pytest.approx(product.workload_cost, rel=1e-6)
        assert dense.lower_bound * (1 - 1e-6) <= product.workload_cost <= dense.lower_bound * (1 + 1e-5)
        assert dense.lower_bound * (1 - 1e-3) <= product_bound(workload) <= product.workload_cost
        for other in (residual(workload), identity(workload.shape[1], workload)):
            assert other.workload_cost is not None
            assert product.workload_cost <= other.workload_cost * (1 + 1e-6)


def test_the_largest_error_is_that_over_all_cells() -> None:
    for workload in GROUPS[:12]:
        product, dense = kronecker_worst(workload), least_worst(workload)
        assert product.solve is not None
        assert dense.solve is not None
        (least, found) = dense.solve.history[-1], product.solve.history[-1]
        weighted = np.asarray(workload.operator.dense()) @ np.linalg.pinv(product.matrix())
        assert np.square(weighted).sum(axis=1).max() * product.l2_sensitivity**2 == pytest.approx(found.objective, rel=1e-6)
        assert found.objective / (1 + found.gap) <= least.objective <= found.objective * (1 + least.gap)
        assert found.gap < (2e-4 if product.solve.stop == "converged" else 0.03)
        unweighted = np.asarray(workload.unweighted.dense()) @ np.linalg.pinv(product.matrix())
        largest = float(np.sqrt(np.square(unweighted).sum(axis=1).max())) * product.l2_sensitivity
        assert product.worst(workload) == pytest.approx(largest, rel=1e-6)
        assert product.solve.largest is not None
        answers = [
            scale
            * np.prod([values.sum() if values is not None else size for values, size in zip(arrays, sizes, strict=True)])
            for (scale, arrays), sizes in zip(
                product.solve.largest.answers, ([f.shape[0] for f in b.factors] for b in workload.blocks), strict=True
            )
        ]
        assert sum(answers) == pytest.approx(1.0)


def statistics_of(groups: int) -> Workload:
    """Counts, sums and squares of so many groups, as a release of means and variances asks for them."""
    values = np.arange(STATISTICS)
    rows = [None, values, np.ones(STATISTICS), values**2]
    blocks = []
    for number, row in enumerate(rows):
        factors = (Identity(groups), *(() if row is None else (Dense(row[None].astype(np.float64)),)))
        labels = tuple(tuple(map(str, range(factor.shape[0]))) for factor in factors)
        blocks.append(Block(f"{number}", tuple(range(len(factors))), factors, labels, 1.0 + number))
    return Workload(Domain.of_shape((groups, STATISTICS)), tuple(blocks))


@pytest.mark.parametrize("groups", [20, 300, 1_000, 10_000])
def test_many_groups_have_the_optimum_of_one_each(groups: int) -> None:
    """``auto`` compares it with the cells alone, whatever the number of groups; few of them are solved over all cells, as they were."""
    workload, one = statistics_of(groups), coa(statistics_of(1))
    names = compared_mechanisms("auto", "l2", workload)
    assert names[0] == ("coa" if groups == 20 else "kronecker")
    assert not {"residual", "kronecker", "coa"} & set(names[1:])
    assert mechanism_of("kronecker").planning_bytes(workload) < 2**24
    product = kronecker(workload)
    assert product.workload_cost is not None
    assert one.workload_cost is not None
    assert product.workload_cost == pytest.approx(groups * one.workload_cost, rel=1e-5)
    assert product.worst(workload) == pytest.approx(kronecker(statistics_of(5)).worst(statistics_of(5)), rel=1e-6)


def test_groups_that_differ_in_two_attributes_are_none() -> None:
    common, shape = (("0",),), (3, 4)
    first = Block("first", (0,), (Prefix(3),), common * 1)
    second = Block("second", (1,), (Prefix(4),), common * 1)
    for blocks in itertools.permutations((first, second)):
        assert not Workload(Domain.of_shape(shape), blocks).kind.is_product
        assert merge_blocks(blocks) is None


@pytest.mark.parametrize("size", [1, 2, 9])
def test_the_rows_of_an_identity_are_a_view(size: int) -> None:
    for dtype in (np.float64, np.int64):
        rows = identity_rows(size, dtype)
        np.testing.assert_array_equal(rows, np.eye(size))
        assert rows.dtype == dtype
        assert rows.base is not None
        assert is_identity(rows)
        assert is_identity(rows.copy())
        for shifted in (1, -1):  # windows of the same line that begin elsewhere
            line = np.zeros(2 * size + 1, dtype=dtype)
            line[size + shifted] = 1
            assert not is_identity(np.lib.stride_tricks.sliding_window_view(line, size)[::-1][1:-1])
    assert identity_rows(2**20).shape == (2**20, 2**20)


def test_rows_that_lie_elsewhere_are_not_read_to_compare_shapes() -> None:
    """A classification is made in every process that has the workload."""
    unread = mock.Mock(shape=(5, 3), spec=["shape", "read"])
    blocks = (
        Block("rows", (0,), (TallMatrix(unread),), (tuple(range(5)),)),
        Block("cdf", (0,), (Prefix(3),), (tuple(range(3)),)),
    )
    assert Workload(Domain.of_shape(3), blocks).kind.is_product
    unread.read.assert_not_called()

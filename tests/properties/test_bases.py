"""Queries and the integer basis that they are read from say the same, whatever the order of their blocks."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from dpdist.domain import Attribute, Domain
from dpdist.operators import Dense, Kronecker, ListedRanges, Operator
from dpdist.workloads import Workload, integer_basis, marginals, predicates, union
from dpdist.workloads.integer_basis import column_codes
from dpdist.workloads.product_queries import listed_marginals
from dpdist.workloads.range_workloads import cdf, ranges_of

DOMAIN = Domain(
    (
        Attribute("age", edges=tuple(range(6))),
        Attribute("sex", categories=("m", "f")),
        Attribute("work", categories=("a", "b", "c")),
    )
)
BLOCKS: dict[str, Workload] = {
    "total": listed_marginals(DOMAIN, [()]),
    "one interval": ranges_of(DOMAIN, ("age",), intervals={"age": [(1, 3)]}),
    "another interval": ranges_of(DOMAIN, ("age",), intervals={"age": [(2, 2)]}),
    "by sex": ranges_of(DOMAIN, ("age",), ("sex",), intervals={"age": [(0, 0)]}),
    "distribution": cdf(DOMAIN, "age", ("work",)),
    "work": listed_marginals(DOMAIN, [("work",)]),
    "either": predicates(DOMAIN, ["sex == 'm' or work == 'a'"]),
    "neither": predicates(DOMAIN, ["age >= 4 and work != 'b'", "age < 1 or sex == 'f'"]),
    "pairs": marginals(DOMAIN, 2),
}


def says_the_same(workload: Workload) -> None:
    """W = C B, weighted and plain; and a cell is merged with another only where every query treats both alike."""
    basis = integer_basis(workload)
    columns = basis.columns(np.arange(workload.domain.cells))
    rows = workload.unweighted.dense()
    for weighted, truth in ((False, rows), (True, workload.operator.dense())):
        np.testing.assert_allclose(basis.coordinates(0, workload.shape[0], weighted=weighted) @ columns, truth, atol=1e-9)
    # C'C may be singular on a basis of more rows than W's rank: what it says about the cells is the gram
    np.testing.assert_allclose(columns.T @ basis.gram() @ columns, workload.gram(), atol=1e-8)
    distinct = np.unique(rows.T, axis=0).shape[0]
    assert distinct <= np.unique(columns.T, axis=0).shape[0]


@given(some.lists(some.sampled_from(sorted(BLOCKS)), min_size=1, max_size=4, unique=True))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_random_unions_are_read_exactly(names: list[str]) -> None:
    says_the_same(union(*(BLOCKS[name] for name in names), weights=tuple(0.5 + i for i in range(len(names)))))


@pytest.mark.parametrize("names", [("one interval", "another interval", "by sex"), ("either", "one interval", "neither")])
def test_the_order_of_blocks_does_not_matter(names: tuple[str, ...]) -> None:
    """The last block alone separates cells that the others do not, whichever block is the last."""
    for order in permutations(names):
        says_the_same(union(*(BLOCKS[name] for name in order)))


def equal_columns(operator: Operator) -> np.ndarray:
    """Which pairs of columns are equal, by comparing them."""
    dense = operator.dense()
    return (dense[:, :, None] == dense[:, None, :]).all(axis=0)


OPERATORS: dict[str, Operator] = {
    "differ in the last row": Dense(np.vstack([np.ones((6, 5)), [[1, 1, 2, 2, 3]]])),
    "differ in the middle": Dense(np.vstack([np.zeros((3, 4)), [[0, 0, 7, 0]], np.zeros((3, 4))])),
    "differ first and last": Dense(np.array([[1, 1, 0, 0], [5, 5, 5, 5], [0, 2, 0, 2]])),
    "all equal": Dense(np.ones((7, 3))),
    "intervals": ListedRanges(6, np.array([[0, 5], [0, 2], [0, 4]])),
    "products": Kronecker((Dense(np.array([[1, 1, 1], [1, 1, 4]])), Dense(np.array([[2, 2]])))),
}


@pytest.mark.parametrize("block_bytes", [1, 64, 2**20])
@pytest.mark.parametrize("case", OPERATORS)
def test_columns_get_one_code_exactly_where_all_rows_agree(case: str, block_bytes: int) -> None:
    operator = OPERATORS[case]
    codes = column_codes(operator, block_bytes)
    assert ((codes[:, None] == codes[None, :]) == equal_columns(operator)).all()


@given(some.integers(1, 6), some.integers(1, 5), some.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_random_columns_get_the_right_codes(rows: int, columns: int, seed: int) -> None:
    operator = Dense(np.random.default_rng(seed).integers(0, 2, (rows, columns)).astype(float))
    codes = column_codes(operator, 1)
    assert ((codes[:, None] == codes[None, :]) == equal_columns(operator)).all()

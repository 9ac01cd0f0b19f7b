"""Weighted marginals lie near the bound on every strategy for Laplace noise."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.domain import Domain
from dpdist.strategies import laplace_bound, weighted_marginals
from dpdist.strategies.lower_bounds import (
    marginals_bound,
    shared_length_bound,
    tables_bound,
)
from dpdist.workloads import marginals, union
from dpdist.workloads.product_queries import listed_marginals


@pytest.mark.parametrize(
    ("sizes", "order", "most"),
    [((8, 8, 8), 2, 1.65), ((6, 6, 6), 2, 1.5), ((3, 3, 3), 2, 1.15), ((2, 2, 2), 2, 1.06), ((2, 2), 1, 1.18)],
)
def test_tables_that_share_attributes_lie_near_it(sizes: tuple[int, ...], order: int, most: float) -> None:
    """Of the last three the marginals are the best strategy that a search over all signed rows finds, too."""
    found = weighted_marginals(marginals(sizes, order))
    assert found.workload_cost is not None
    assert 1 <= found.workload_cost / laplace_bound(marginals(sizes, order)) < most


@pytest.mark.parametrize(
    ("sizes", "asked"),
    [
        ((8, 8, 8), {(0, 1): 1.0, (0, 2): 1.0, (1, 2): 1.0}),
        ((4, 5, 6), {(): 1.0, (0,): 2.0, (0, 1): 1.0, (1, 2): 0.5}),
        ((30, 30), {(0,): 1.0, (1,): 3.0}),
        ((7, 1, 3), {(0, 1): 1.0, (2,): 1.0}),
        ((6, 9, 2), {(0, 1): 1.0}),
    ],
)
def test_marginals_are_bounded_in_closed_form(sizes: tuple[int, ...], asked: dict[tuple[int, ...], float]) -> None:
    """As by all cells, but for how curves are put together between their corners; so of more cells that are all alike."""
    domain = Domain.of_shape(sizes)
    parts = [listed_marginals(domain, [[domain.names[axis] for axis in of]]) for of in asked]
    workload = union(*parts, weights=tuple(asked.values()))
    found = marginals_bound(workload)
    assert found == pytest.approx(shared_length_bound(workload.gram(), np.ones(workload.shape[1])), rel=0.03)
    assert found <= weighted_marginals(workload).workload_cost


def test_marginals_of_many_cells_lie_near_their_bound() -> None:
    large = marginals(Domain.of_shape((50, 50, 50)), (2,))
    assert 1 <= weighted_marginals(large).workload_cost / tables_bound(large) < 1.14

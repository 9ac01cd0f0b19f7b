"""A matrix is queries or their gram by the name that it is given, and never by its numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse.linalg

import dpdist as dp
from dpdist.errors import InvalidInput
from tests.support.complete_tree import installed_strategies, needs_plugin

QUERIES = np.eye(8) + np.ones((8, 8))
"""Symmetric, and positive definite, so that it could be a gram, too."""
OPTIMUM_OF_QUERIES, OPTIMUM_OF_GRAM = 32.0, 12.5
FORMS: dict[str, Callable[[Any], Any]] = {
    "array": np.asarray,
    "sparse array": scipy.sparse.csr_array,
    "sparse matrix": scipy.sparse.coo_matrix,
    "operator": scipy.sparse.linalg.aslinearoperator,
}
OPTIMISERS = ["coa", "eigen_design", "p_identity", *installed_strategies("low_rank", "smoothing", "weighted_design")]
BOUNDS = ["singular_value_bound", "laplace_bound"]
WORKLOADS_ALONE = [
    "symmetric",
    *installed_strategies("oblique"),
    "residual",
    pytest.param("triangular", marks=needs_plugin("mechanism.triangular")),
    "kronecker",
    *installed_strategies("fourier", "datacube"),
    "least_worst",
    "gaussian",
]


@pytest.mark.parametrize("form", FORMS)
def test_a_matrix_is_what_it_is_called(form: str) -> None:
    matrix = FORMS[form](QUERIES)
    assert dp.strategies.coa(dp.workloads.explicit(matrix)).workload_cost == pytest.approx(OPTIMUM_OF_QUERIES)
    assert dp.strategies.coa(dp.workloads.gram(matrix)).workload_cost == pytest.approx(OPTIMUM_OF_GRAM)


@pytest.mark.parametrize("name", [*OPTIMISERS, *BOUNDS, "effort"])
@pytest.mark.parametrize("form", ["array", "operator"])
def test_a_matrix_without_a_name_is_refused_with_both_names(name: str, form: str) -> None:
    message = r"dp\.workloads\.explicit\(matrix\) for the queries W, or dp\.workloads\.gram\(matrix\) for their gram"
    with pytest.raises(InvalidInput, match=message):
        getattr(dp.strategies, name)(FORMS[form](QUERIES))


@pytest.mark.parametrize("name", WORKLOADS_ALONE)
def test_what_needs_a_workload_says_so(name: str) -> None:
    with pytest.raises(InvalidInput, match=r"a workload is needed, found ndarray; make one of an array by"):
        getattr(dp.strategies, name)(QUERIES)


@pytest.mark.parametrize("name", ["identity", "wavelet", "hierarchical"])
def test_a_matrix_is_no_shape(name: str) -> None:
    with pytest.raises(InvalidInput, match="positive whole sizes, found ndarray"):
        getattr(dp.strategies, name)(QUERIES)


@pytest.mark.parametrize("scale", [1e160, 1e200])
def test_queries_whose_squares_overflow_say_so(scale: float) -> None:
    with pytest.raises(InvalidInput, match=r"squares of .* overflow; divide all rows by their largest entry"):
        dp.workloads.explicit(QUERIES * scale)
    weighted = dp.workloads.union(dp.workloads.explicit(QUERIES * 1e100), weights=(scale / 1e90,))
    with pytest.raises(InvalidInput, match=r"squares of .* overflow; divide all queries by their largest entry"):
        dp.strategies.coa(weighted)


def test_queries_whose_squares_vanish_say_so() -> None:
    with pytest.raises(
        InvalidInput, match=r"the squares of their entries, are zero everywhere, .* multiply entries below 1e-160"
    ):
        dp.workloads.explicit(QUERIES * 1e-170)

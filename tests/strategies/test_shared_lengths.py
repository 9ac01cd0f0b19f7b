"""The bound under Laplace noise that sees shared lengths: closed forms, optima by search, random strategies, and known growth."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from dpdist.strategies import laplace_bound, p_identity
from dpdist.strategies.bounds import shared_length_bound, singular_value_bound
from dpdist.workloads import all_ranges, marginals, prefix
from tests.often import first_of


def cost(gram: np.ndarray, rows: np.ndarray) -> float:
    """2 tr(V (A'A)^-1) of rows whose columns are brought to an L1 length of 1; infinite where they do not answer every query."""
    scaled = rows / np.maximum(np.abs(rows).sum(axis=0), 1e-300)
    precision = scaled.T @ scaled
    if np.linalg.cond(precision) > 1e12:
        return math.inf
    return float(2.0 * np.trace(np.linalg.solve(precision, gram)))


def optimum(gram: np.ndarray, rows: int, starts: int = 3) -> float:
    """The least cost of so many rows that a local search finds."""
    state, cells = np.random.default_rng(0), len(gram)
    found = [
        scipy.optimize.minimize(
            lambda flat: min(cost(gram, flat.reshape(rows, cells)), 1e12),
            state.normal(size=rows * cells),
            method="Nelder-Mead",
            options={"maxiter": 2000, "fatol": 1e-9, "xatol": 1e-6},
        ).fun
        for _ in range(starts)
    ]
    return float(min(found))


@pytest.mark.parametrize("cells", [1, 2, 5, 40])
def test_it_is_the_optimum_of_the_identity_and_of_a_total(cells: int) -> None:
    equal = np.ones(cells)
    assert shared_length_bound(9.0 * np.eye(cells), equal) == pytest.approx(18 * cells, rel=1e-9)
    assert shared_length_bound(np.ones((cells, cells)), equal) == pytest.approx(2, rel=1e-9)
    blocks = np.kron(np.eye(3), np.ones((cells, cells)))  # a total for each of three groups
    assert shared_length_bound(blocks, np.ones(3 * cells)) == pytest.approx(6, rel=1e-9)
    assert shared_length_bound(np.zeros((cells, cells)), equal) == 0


@pytest.mark.parametrize("name", first_of(1, ["prefix", "ranges", "counts and total"]))
def test_no_search_over_all_strategies_of_two_cells_beats_it(name: str) -> None:
    gram = {"prefix": prefix(2).gram(), "ranges": all_ranges(2).gram(), "counts and total": np.eye(2) + 1}[name]
    found = min(optimum(gram, rows) for rows in (2, 3))
    bound = laplace_bound(gram)
    assert bound <= found * (1 + 1e-9)
    assert found < 1.2 * bound, found / bound


@given(st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_no_strategy_costs_less(cells: int, seed: int) -> None:
    """Of any workload, weights of the cells and strategy; also strategies near the identity, whose cost comes near."""
    state = np.random.default_rng(seed)
    queries = state.integers(-2, 3, (state.integers(1, 8), cells)) * state.choice([0.01, 1.0, 100.0], (1, cells))
    gram, weights = queries.T @ queries, state.choice([0.0, 0.2, 1.0], cells) + 1e-3
    rows = np.vstack(
        [np.eye(cells) + state.choice([0, 0.1, 1]) * state.normal(size=(cells, cells)), state.normal(size=(2, cells))]
    )
    for strategy in (rows, rows[:cells], np.eye(cells)):
        assert shared_length_bound(gram, weights) <= cost(gram, strategy) * (1 + 1e-9) + 1e-12


def test_it_grows_as_the_cube_of_the_logarithm() -> None:
    """Twice the singular value bound grows as its square: the ratio of both rises by the same for every doubling."""
    of = [prefix(n).gram() for n in (16, 32, 64, 128)]
    ratios = [laplace_bound(gram) / (2 * singular_value_bound(gram)) for gram in of]
    assert ratios[0] > 1.4
    assert np.diff(ratios) == pytest.approx(np.full(3, 0.14), abs=0.03), ratios


@pytest.mark.parametrize(("queries", "most"), [(prefix, 2.0), (all_ranges, 1.9)])
def test_known_strategies_lie_near_it(queries: object, most: float) -> None:
    found = p_identity(queries(64))
    assert found.workload_cost / laplace_bound(queries(64)) < most
    assert found.gap == pytest.approx(found.workload_cost / laplace_bound(queries(64)) - 1)


def test_it_is_never_below_the_singular_value_bound() -> None:
    for workload in (marginals((4, 4, 4), 1), marginals((3, 5), 2), prefix(7)):
        assert laplace_bound(workload) >= 2 * singular_value_bound(workload) * (1 - 1e-12)


def test_of_more_cells_it_is_twice_the_singular_value_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = prefix(16)
    whole, plain = laplace_bound(workload), 2 * singular_value_bound(workload)
    monkeypatch.setattr("dpdist.strategies.bounds.CELLS", 15)
    assert laplace_bound(workload) == pytest.approx(plain)
    assert whole > 1.2 * plain

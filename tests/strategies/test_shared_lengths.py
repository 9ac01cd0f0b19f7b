"""The bound under Laplace noise that sees shared lengths: closed forms, optima by search, random strategies, and known growth."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from dpdist.domain import Attribute, Domain
from dpdist.strategies import dual_bound, laplace_bound, lower_bounds, p_identity
from dpdist.strategies.lower_bounds import (
    _curve,
    _least_cost,
    marginals_bound,
    separate_tables_bound,
    shared_length_bound,
    singular_value_bound,
    tables_bound,
)
from dpdist.workloads import Gram, Workload, all_ranges, marginals, prefix, union
from dpdist.workloads.product_queries import listed_marginals
from tests.case_selection import slow_after_first
from tests.support.verifier_findings import verifier


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


@pytest.mark.parametrize("name", slow_after_first(1, ["prefix", "ranges", "counts and total"]))
def test_no_search_over_all_strategies_of_two_cells_beats_it(name: str) -> None:
    gram = {"prefix": prefix(2).gram(), "ranges": all_ranges(2).gram(), "counts and total": np.eye(2) + 1}[name]
    found = min(optimum(gram, rows) for rows in (2, 3))
    bound = laplace_bound(Gram(gram))
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
    bound = shared_length_bound(gram, weights)
    for strategy in (rows, rows[:cells], np.eye(cells)):
        assert bound <= cost(gram, strategy) * (1 + 1e-9) + 1e-12


def test_it_grows_as_the_cube_of_the_logarithm() -> None:
    """Twice the singular value bound grows as its square: the ratio of both rises by the same for every doubling."""
    of = [prefix(n).gram() for n in (16, 32, 64, 128)]
    ratios = [laplace_bound(Gram(gram)) / (2 * singular_value_bound(Gram(gram))) for gram in of]
    assert ratios[0] > 1.4
    assert np.diff(ratios) == pytest.approx(np.full(3, 0.14), abs=0.03), ratios


@pytest.mark.parametrize(("queries", "most"), [(prefix, 2.0), (all_ranges, 1.9)])
def test_known_strategies_lie_near_it(queries: object, most: float) -> None:
    found = p_identity(queries(64))
    assert found.workload_cost / laplace_bound(queries(64)) < most
    assert found.gap == pytest.approx(found.workload_cost / laplace_bound(queries(64)) - 1)


@given(st.integers(1, 5), st.integers(0, 2**32 - 1), st.floats(-8, 2))
def test_no_row_follows_a_field_further(cells: int, seed: int, log: float) -> None:
    """All rows of signs and zeros, the corners of what a row can be, and as many others: vectors of at most (s (k + s))^(1/2)."""
    state = np.random.default_rng(seed)
    columns = state.integers(-2, 3, (3, cells)) + 1e-3 * state.normal(size=(3, cells))
    damped = state.uniform(0.1, 1, 3)
    shares, spread = state.dirichlet(np.ones(cells)), math.exp(log)
    curve = _curve(columns, shares, damped, copies=1)
    fields = damped[:, None] * columns / np.linalg.norm(damped[:, None] * columns, axis=0)
    fields *= curve.scaled(spread)[0] / curve.missed[0]
    signs = np.array(list(itertools.product((-1.0, 0.0, 1.0), repeat=cells)))
    for rows in (signs, signs * state.uniform(0, 1, signs.shape)):
        lengths = np.abs(rows) @ shares
        assert (
            np.linalg.norm((rows * shares) @ fields.T, axis=1) <= np.sqrt(lengths * (spread + lengths)) * (1 + 1e-9)
        ).all()


@given(st.lists(st.floats(-12, 0), min_size=1, max_size=6), st.floats(-12, 3), st.integers(0, 2**32 - 1))
def test_no_lengths_cost_less(logs: list[float], log: float, seed: int) -> None:
    """And of two steps a fine search comes as near as one likes."""
    steps, spread = np.exp(np.array(logs)), math.exp(log)
    least = _least_cost(steps, spread)
    for lengths in np.random.default_rng(seed).dirichlet(np.ones(steps.size), 50):
        assert least <= (steps**2 / (lengths * (spread + lengths))).sum() * (1 + 1e-9)
    if steps.size == 2:
        first = 1 / (1 + np.exp(np.linspace(-30, 30, 20001)))
        found = min(sum(d**2 / (s * (spread + s)) for d, s in zip(steps, (first, 1 - first), strict=True)))
        assert least == pytest.approx(found, rel=1e-5)


@pytest.mark.parametrize(
    "workload", [marginals((5, 4, 3), 2), prefix(20), marginals((4, 4), 1)], ids=["tables", "prefix", "one-way"]
)
def test_the_checker_of_certificates_proves_as_much(workload: Workload) -> None:
    cells = workload.shape[1]
    for weights in (np.ones(cells), np.linspace(0, 2, cells)):
        checked = verifier().ReleaseClaims.shared_bound(SimpleNamespace(gram=workload.gram()), weights / weights.sum())
        assert checked == pytest.approx(shared_length_bound(workload.gram(), weights), rel=1e-8)


def test_marginals_of_many_attributes_are_bounded_in_no_closed_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpdist.strategies.lower_bounds.MAX_MARGINAL_AXES", 2)
    assert marginals_bound(marginals((3, 3), 1)) > 0
    assert marginals_bound(marginals((3, 3, 3), 1)) == marginals_bound(prefix(5)) == 0
    first, *others = marginals((3, 3), 1).blocks
    unequal = replace(first, scales=(np.array([1.0, 2.0, 1.0]), *first.scales[1:]))
    assert marginals_bound(Workload(Domain.of_shape((3, 3)), (unequal, *others))) == 0


def test_it_is_never_below_the_singular_value_bound() -> None:
    for workload in (marginals((4, 4, 4), 1), marginals((3, 5), 2), prefix(7)):
        assert laplace_bound(workload) >= 2 * singular_value_bound(workload) * (1 - 1e-12)


def test_of_more_cells_it_is_twice_the_singular_value_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = prefix(16)
    whole, plain = laplace_bound(workload), 2 * singular_value_bound(workload)
    monkeypatch.setattr("dpdist.strategies.lower_bounds.CELLS", 15)
    assert laplace_bound(workload) == pytest.approx(plain)
    assert whole > 1.2 * plain


TABLES = Domain((Attribute("a", edges=(0, 1, 2, 3)), Attribute("b", categories=("x", "y")), Attribute("c", edges=(0, 1, 2))))


def tables(*asked: tuple[tuple[str, ...], float]) -> Workload:
    """Tables with their weights."""
    return union(*(listed_marginals(TABLES, [of]) for of, _ in asked), weights=tuple(weight for _, weight in asked))


def test_the_volume_of_what_separate_tables_cannot_exceed() -> None:
    """The bound is 2 n (2^n / volume)^(2/n): the volume by a million points, off by 3 % with a probability below 1e-5."""
    workload = tables((("a",), 1.0), (("b",), 2.0))
    queries = workload.unweighted.dense() * workload.weights[:, None]
    columns = scipy.linalg.qr(queries, mode="economic", pivoting=True)
    rank, state = 4, np.random.default_rng(0)
    along = columns[0][:, :rank].T @ queries  # the queries of every cell in an orthonormal basis, (rank, cells)
    points = state.uniform(-2, 2, (10**6, rank))
    volume = 4.0**rank * float((np.abs(points @ along).max(axis=1) <= 1).mean())
    assert separate_tables_bound(workload) == pytest.approx(2 * rank * (2**rank / volume) ** (2 / rank), rel=0.03)


def test_it_is_the_optimum_of_one_table_and_near_that_of_large_ones() -> None:
    assert separate_tables_bound(tables((("a", "b"), 3.0))) == pytest.approx(2 * 6 * 9, rel=1e-9)
    large = marginals(Domain.of_shape((100, 100, 100)), (1,))
    best = 2 * 3**2 * 300  # each table by itself, with a third of the length
    assert 0.9 * best < separate_tables_bound(large) < best
    several = marginals((5, 5, 5), 1)
    assert separate_tables_bound(several) > 1.1 * laplace_bound(several)


@pytest.mark.parametrize("asked", [(("a", "b"), ("b",)), (("a",), ("a",))])
def test_tables_that_share_an_attribute_have_another_bound(asked: tuple[tuple[str, ...], ...]) -> None:
    assert separate_tables_bound(tables(*((of, 1.0) for of in asked))) == 0
    assert separate_tables_bound(prefix(3)) == 0


@given(st.integers(0, 2**32 - 1))
def test_no_strategy_for_separate_tables_costs_less(seed: int) -> None:
    """Also strategies near the tables themselves, whose cost comes near."""
    state = np.random.default_rng(seed)
    workload = tables(*((of, float(state.choice([0.1, 1.0, 5.0]))) for of in (("a",), ("b",), ("c",))))
    rows, gram, size = workload.unweighted.dense(), workload.gram(), state.choice([0, 0.05, 0.5])
    shares = state.uniform(0.1, 1, 3).repeat((3, 2, 2))
    for strategy in (shares[:, None] * rows, shares[:, None] * rows + size * state.normal(size=rows.shape)):
        scaled = strategy / np.abs(strategy).sum(axis=0).max()
        precision = np.linalg.pinv(scaled.T @ scaled, rcond=1e-10, hermitian=True)
        told = np.linalg.norm(rows - rows @ precision @ scaled.T @ scaled) < 1e-6  # every query is answered
        assert not told or separate_tables_bound(workload) <= 2 * np.trace(gram @ precision) * (1 + 1e-6)


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1))
def test_no_strategy_for_tables_that_share_attributes_costs_less(seed: int) -> None:
    state = np.random.default_rng(seed)
    asked = [(of, float(state.choice([0.1, 1.0, 5.0]))) for of in (("a", "b"), ("b", "c"), ("c",), ("a", "c"))]
    workload = tables(*asked)
    rows, gram = workload.unweighted.dense() * workload.weights[:, None], workload.gram() + 1e-9 * np.eye(12)
    bound = marginals_bound(workload)
    for strategy in (rows * state.uniform(0.1, 1, (len(rows), 1)), state.normal(size=(14, 12)), np.eye(12)):
        near_identity = np.vstack([strategy, 0.02 * np.eye(12)])
        assert bound <= cost(gram, near_identity) * (1 + 1e-9)


def test_it_is_the_optimum_of_one_marginal() -> None:
    for bound in (marginals_bound, tables_bound):
        assert bound(tables((("a",), 1.0))) == pytest.approx(6, rel=1e-8)


@pytest.mark.parametrize("first", [True, False])
def test_groups_that_are_asked_alike_are_bounded_by_one_of_them(first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound of equal blocks is that of all cells together; one entry that differs, or one weight, is seen."""
    monkeypatch.setattr(lower_bounds, "SMALLEST_GRAM", 0)
    rows = np.array([[1.0, 1.0, 1.0], [0.5, 2.0, 7.0], [0.0, 1.0, -3.0]])
    block = rows.T @ rows
    gram = np.kron(np.eye(7), block) if first else np.kron(block, np.eye(7))
    assert lower_bounds._equal_blocks(gram, np.ones(21))[0].shape == (3, 3)
    altered, weights = gram.copy(), np.ones(21)
    altered[0, 0] *= 1.5
    weights[2] = 0.5
    cases = [(gram, np.ones(21)), (altered, np.ones(21)), (gram, weights)]

    def bounds() -> list[float]:
        return [bound for each in cases for bound in (shared_length_bound(*each), dual_bound(Gram(each[0]), each[1]))]

    found = bounds()
    monkeypatch.setattr(lower_bounds, "_equal_blocks", lambda gram, weights: (gram, weights, 1))
    whole = bounds()
    assert found == pytest.approx(whole, rel=1e-9)
    assert whole[2] > 1.005 * whole[0]


@pytest.mark.parametrize("seed", range(4))
def test_blocks_that_differ_in_one_number_are_not_taken_as_equal(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each entry of each block, each weight, and the order of two weights; cells of different blocks lie among each other."""
    monkeypatch.setattr(lower_bounds, "SMALLEST_GRAM", 0)
    state = np.random.default_rng(seed)
    size, copies = int(state.integers(2, 5)), int(state.integers(2, 6))
    rows = state.normal(size=(size + 1, size))
    block_of = state.permutation(np.repeat(np.arange(copies), size))
    cells = np.argsort(block_of, kind="stable").reshape(copies, size)
    gram, weights = np.zeros((block_of.size,) * 2), np.empty(block_of.size)
    for own in cells:
        gram[np.ix_(own, own)], weights[own] = rows.T @ rows, np.arange(1.0, size + 1)
    block, _, found = lower_bounds._equal_blocks(gram, weights)
    assert (block.shape[0], found) == (size, copies)
    for own in cells:
        for one, other in itertools.combinations_with_replacement(own, 2):
            altered, other_weights = gram.copy(), weights.copy()
            altered[[one, other], [other, one]] *= 1.5
            assert lower_bounds._equal_blocks(altered, weights)[2] == 1
            other_weights[[one, other]] = weights[[other, one]] if one != other else 1.5 * weights[one]
            assert lower_bounds._equal_blocks(gram, other_weights)[2] == 1


def test_as_many_cells_as_two_blocks_need_not_be_two_blocks() -> None:
    """Three cells that hang together by one of them, and one by itself: pairs of them look alike."""
    gram = np.eye(4)
    gram[[0, 1, 2, 2], [2, 2, 0, 1]] = 0.5
    assert lower_bounds._equal_blocks(gram, np.ones(4))[2] == 1

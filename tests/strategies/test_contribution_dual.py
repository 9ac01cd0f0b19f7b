"""The optimum for persons: closed forms, figures of the program, and its dual certificate."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest

from dpdist.measurement.sensitivity import group_contribution as grids
from dpdist.measurement.sensitivity.group_contribution import exact_gram, squared_cells_bound
from dpdist.stability import Distance
from dpdist.strategies.baselines import wavelet
from dpdist.strategies.contribution_dual import _balance_weights, least_error, root_of, squared_length
from dpdist.strategies.dual_certificates import PersonsBound
from dpdist.strategies.group_optimum import persons_by_cell
from dpdist.strategies.representations import DenseStrategy
from dpdist.strategies.strategy import matrix_mechanism_cost
from dpdist.workloads import Gram, explicit, marginals, prefix
from tests.case_selection import slow_after_first


def cost_of(found: DenseStrategy, gram: np.ndarray, most: int) -> float:
    """Total variance at multiplier 1 for persons in up to so many cells: by every set of them, or by their number where cells are alike."""
    matrix = found.matrix()
    precision = matrix.T @ matrix
    cells = len(gram)
    if cells > 12:
        longest = max(s * precision[0, 0] + s * (s - 1) * precision[0, 1] for s in range(1, most + 1))
    else:
        longest = max(squared_length(precision, each) for s in range(1, most + 1) for each in combinations(range(cells), s))
    return longest * float(np.trace(gram @ np.linalg.pinv(precision, rcond=1e-11, hermitian=True)))


@pytest.mark.parametrize(
    ("cells", "most", "ratio"),
    [(7, 7, 0.474), (12, 12, 0.414), (52, 52, 0.324), (100, 50, 0.599), (100, 10, 0.952), (7, 1, 1.0)],
)
def test_persons_by_group_against_every_cell_by_itself(cells: int, most: int, ratio: float) -> None:
    """Variance over that of the identity (mathematics.md); the gap is rounding."""
    found, gram = persons_by_cell(Gram(np.eye(cells)), Distance(1, replaced=False, groups=most)), np.eye(cells)
    cost = cost_of(found, gram, most)
    assert cost / (cells * most) == pytest.approx(ratio, abs=6e-4)
    assert found.persons is not None
    assert found.persons.lower_bound <= cost * (1 + 1e-12) <= found.persons.lower_bound * (1 + 1e-9)
    mean = found.persons.mean_square(cells)
    total, _ = root_of(gram, mean)
    assert total**2 == pytest.approx(found.persons.lower_bound, rel=1e-9)


@pytest.mark.parametrize(("cells", "most"), [(2, 1), (3, 2), (5, 3), (7, 3), (7, 7), (6, 6), (6, 1)])
@pytest.mark.parametrize("more", [-0.12, 0.0, 2.0])
def test_persons_who_are_replaced_by_group_are_certified(cells: int, most: int, more: float) -> None:
    """Every difference of two persons, by brute force, for groups and their total: the gap is rounding, and the proof is from weights."""
    gram = np.eye(cells) + more
    found = persons_by_cell(Gram(gram), Distance(1, replaced=True, groups=most))
    matrix, proof = found.matrix(), found.persons
    assert proof is not None
    precision = matrix.T @ matrix
    both = [np.array(d) for d in product((-1, 0, 1), repeat=cells) if d.count(1) <= most and d.count(-1) <= most]
    cost = max(float(d @ precision @ d) for d in both) * float(np.trace(gram @ np.linalg.inv(precision)))
    assert proof.lower_bound <= cost <= proof.lower_bound * (1 + 1e-7)
    mean = sum(
        weight * np.mean([np.outer(d, d) for d in both if ((d > 0).sum(), (d < 0).sum()) in {(s, t), (t, s)}], axis=0)
        for (s, t), weight in proof.sizes.items()
    )
    np.testing.assert_allclose(proof.mean_square(cells), mean, atol=1e-12)
    again = PersonsBound.of(json.loads(json.dumps(proof.facts())))
    assert again == proof


@pytest.mark.parametrize("most", [8, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 3))])
def test_prefix_sums_of_persons_are_certified(most: int) -> None:
    """No strategy that is known has less, the proof is computed again from its weights, and one record is COA's own problem."""
    workload = prefix(8)
    gram = workload.gram()
    found = persons_by_cell(workload, Distance(1, replaced=False, groups=most))
    assert found.persons is not None
    cost, bound = cost_of(found, gram, most), found.persons
    assert bound.lower_bound <= cost < bound.lower_bound * (1 + 1e-5)
    assert sum(bound.weights) == pytest.approx(1.0)
    assert max(map(len, bound.columns)) <= most
    values = np.linalg.eigvals(bound.mean_square(8) @ gram)
    assert float(np.sqrt(np.maximum(values.real, 0)).sum()) ** 2 == pytest.approx(bound.lower_bound, rel=1e-9)
    if most == 1:
        assert cost == pytest.approx(matrix_mechanism_cost(found.matrix().T @ found.matrix(), gram), rel=1e-9)
    for other in (np.eye(8), np.tril(np.ones((8, 8)))):
        made = DenseStrategy("coa", found.operator)
        assert cost <= cost_of(made, gram, most)
        precision = other.T @ other
        every = [squared_length(precision, each) for s in range(1, most + 1) for each in combinations(range(8), s)]
        assert bound.lower_bound <= max(every) * float(np.trace(gram @ np.linalg.inv(precision)))


def test_few_columns_are_found_one_after_the_other() -> None:
    """Sets of two that are not neighbours, of five cells, by an oracle that looks at all of them."""
    every = [c for s in (1, 2) for c in combinations(range(5), s) if s == 1 or c[1] - c[0] > 1]
    gram = prefix(5).gram()
    found = least_error(
        gram, {(0, 2): 1.0}, lambda x: [max(every, key=lambda each: squared_length(x, each))], tolerance=1e-6
    )
    assert found.longest <= 1 + 1e-6
    assert set(found.bound.columns) <= set(every)


def test_weights_are_the_same_from_cells_and_from_their_products(monkeypatch: pytest.MonkeyPatch) -> None:
    square = np.random.default_rng(6).normal(size=(8, 8))
    gram, columns = square @ square.T, [(cell,) for cell in range(8)] + list(combinations(range(8), 3))
    start = np.full(len(columns), 1.0 / len(columns))
    found = _balance_weights(gram, columns, start, 30)
    monkeypatch.setattr("dpdist.strategies.contribution_dual.PRODUCTS", 1)
    np.testing.assert_allclose(_balance_weights(gram, columns, start, 30), found, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("alike", [True, False])
def test_bounds_of_whole_numbers_are_never_below(seed: int, alike: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every person, and every difference of two; exact where cells are alike, or few."""
    state = np.random.default_rng(seed)
    cells = int(state.integers(2, 7))
    most = int(state.integers(1, cells + 1))
    rows = state.integers(-(2**20), 2**20, (cells, cells))
    if alike:
        rows = np.eye(cells, dtype=np.int64) * 10**6 - int(state.integers(-(10**5), 10**6 // cells))
    gram = exact_gram(rows)
    np.testing.assert_array_equal(gram, rows.T.astype(object) @ rows.astype(object))
    every = [np.array(u) for u in product((0, 1), repeat=cells) if sum(u) <= most]
    alone = max(int(u @ gram @ u) for u in every)
    both = max(int((u - v) @ gram @ (u - v)) for u in every for v in every)
    assert squared_cells_bound(gram, most, replaced=False) == alone
    found = squared_cells_bound(gram, most, replaced=True)
    assert both <= found <= 4 * alone
    if alike:
        assert found == both
    monkeypatch.setattr(grids, "LISTED_SETS", 0)
    assert alone <= squared_cells_bound(gram, most, replaced=False) <= 2 * alone


@pytest.mark.parametrize("seed", range(6))
def test_each_bound_of_a_person_s_cells_is_what_it_says(seed: int) -> None:
    """In Python's integers, of odd and even numbers: none is a unit above, and none below.

    Differences of persons are listed by their numbers of cells, of which the whole numbers between are left out by the product.
    """
    state = np.random.default_rng(seed)
    cells = int(state.integers(2, 8))
    rows = state.integers(-9, 10, (cells + seed % 2, cells))
    gram = exact_gram(rows)
    entries = [[int(entry) for entry in row] for row in gram]
    alone = max(entries[cell][cell] for cell in range(cells))
    pair = max(entries[i][j] for i in range(cells) for j in range(cells) if i != j)
    least = min(map(min, entries))
    for most in range(1, cells + 1):
        assert grids._bound_by_number(gram, most) == max(s * alone + s * (s - 1) * pair for s in range(1, most + 1))
        sums = [
            entries[i][i] + sum(sorted((max(entries[i][j], 0) for j in range(cells) if j != i), reverse=True)[: most - 1])
            for i in range(cells)
        ]
        assert grids._bound_by_rows(gram, most) == sum(sorted(sums, reverse=True)[:most])
        every = [np.array(u) for u in product((0, 1), repeat=cells) if sum(u) <= most]
        assert grids._bound_by_sets(gram, most) == max(int(u @ gram @ u) for u in every if u.any())
        assert grids._two_person_bound(gram, most) == max(
            (s + t) * alone + (s * (s - 1) + t * (t - 1)) * pair - 2 * s * t * least
            for s in range(1, most + 1)
            for t in range(min(most, cells - s) + 1)
        )


def pivots(matrix: np.ndarray) -> list[Fraction]:
    """Of Gaussian elimination in fractions: all above zero for a positive definite matrix alone."""
    rest, found = np.array([[Fraction(int(entry)) for entry in row] for row in matrix], object), []
    for first in range(len(rest)):
        found.append(rest[first, first])
        rest = rest - np.outer(rest[:, first], rest[first]) / rest[first, first]
    return found


@pytest.mark.parametrize("seed", range(6))
def test_the_concave_bound_is_proven_in_whole_numbers(seed: int) -> None:
    """At the largest numbers: products to the last digit, a diagonal above G by exact minors however low it begins, and every set below."""
    state = np.random.default_rng(seed)
    cells, most = 5, int(state.integers(1, 6))
    gram = exact_gram(state.integers(-(2**30), 2**30, (cells, cells)))
    units = state.integers(0, 2**21, cells)
    assert grids._exact_product(gram, units).tolist() == (gram.astype(object) @ units.astype(object)).tolist()
    scale = int(np.diag(gram).max())
    for lower in (0.0, 1.0):
        whole = grids._prove_diagonal(gram, scale, np.full(cells, lower))
        rest = np.diag(whole) - gram.astype(object)
        assert min(pivots(rest)) > 0
        every = [np.array(u) for u in product((0, 1), repeat=cells) if sum(u) <= most]
        point = state.random(cells)
        assert max(int(u @ gram.astype(object) @ u) for u in every) <= grids._prove_bound(gram, whole, point, most)


def test_more_diagonals_prove_a_lower_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 25 cells: the first diagonal is moved by what eigenvectors of nearly the largest eigenvalue say."""
    gram = exact_gram(np.random.default_rng(0).integers(0, 1000, (20, 25)))
    known = 2**40
    found = grids._bound_by_tangents(gram, 3, known)
    monkeypatch.setattr(grids, "DIAGONALS", 1)
    assert grids._bound_by_sets(gram, 3) <= found < grids._bound_by_tangents(gram, 3, known) < known


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize(
    ("rows", "most", "searched"),
    [
        (wavelet((4, 6, 5)).matrix(), 3, False),
        (np.concatenate([np.ones((1, 60)), np.diag(np.linspace(0.2, 0.3, 60))]), 4, False),
        (np.random.default_rng(1).standard_normal((50, 12)), 8, True),
    ],
)
def test_diagonals_that_cannot_lower_a_bound_are_not_searched_for(
    rows: np.ndarray, most: int, searched: bool, replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No eigen-decomposition where the bound of rows is below what every diagonal gives; the bound is that of the whole search."""
    gram = exact_gram(np.rint(rows / np.abs(rows).max() * 2**20).astype(np.int64))
    decompositions, decompose = [], np.linalg.eigh
    monkeypatch.setattr(grids, "LISTED_SETS", 0)
    monkeypatch.setattr(np.linalg, "eigh", lambda matrix: decompositions.append(matrix.shape) or decompose(matrix))
    found = squared_cells_bound(gram, most, replaced=replaced)
    assert bool(decompositions) == searched
    monkeypatch.setattr(grids, "_floor", lambda real, point: -math.inf)
    assert squared_cells_bound(gram, most, replaced=replaced) == found
    assert decompositions


@pytest.mark.parametrize("seed", range(20))
def test_no_diagonal_bounds_persons_below_the_floor(seed: int) -> None:
    """At any point of the convex hull of persons: neither the search's bound, nor that of a diagonal with the largest eigenvalue or row."""
    state = np.random.default_rng(seed)
    cells, most = int(state.integers(2, 12)), int(state.integers(1, 4))
    real = state.standard_normal((cells, 6))
    real = real @ real.T
    real /= np.diag(real).max()
    rows = np.abs(real).sum(axis=1)
    least = min(
        grids._tangent(diagonal, np.diag(diagonal) - real, most)[0]
        for diagonal in (np.full(cells, np.linalg.eigvalsh(real)[-1]), rows, rows + state.random(cells))
    )
    points = [np.full(cells, min(1.0, most / cells)), *(min(1.0, most) * state.dirichlet(np.ones(cells)) for _ in range(8))]
    assert max(grids._floor(real, point) for point in points) <= least


@pytest.mark.parametrize(("most", "beyond"), slow_after_first(1, [(1, 1.02), (2, 1.12), (3, 1.1), (8, 1.12)]))
def test_more_cells_get_a_strategy_near_the_optimum(most: int, beyond: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is below the certified optimum and the strategy's error above it, for every set of cells. The proof is computed again
    from what is kept."""
    moved, workload = Distance(1, replaced=False, groups=most), prefix(8)
    best = persons_by_cell(workload, moved)
    monkeypatch.setattr("dpdist.strategies.group_optimum.UNLIKE_CELLS", 4)
    found = persons_by_cell(workload, moved)
    assert found.persons is not None
    assert best.persons is not None
    assert found.persons.chain is not None
    least, cost = cost_of(best, workload.gram(), most), cost_of(found, workload.gram(), most)
    assert 0.9 * best.persons.lower_bound < found.persons.lower_bound <= least * (1 + 1e-9)
    assert least * (1 - 1e-4) <= cost <= beyond * least
    again = PersonsBound.of(json.loads(json.dumps(found.persons.facts())), found.persons.numbers)
    assert root_of(workload.gram(), again.mean_square(8))[0] ** 2 == pytest.approx(found.persons.lower_bound, rel=1e-9)


def test_more_cells_of_which_less_is_asked_get_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not asked needs no precision, and the strategy has some of it all the same."""
    moved, rows = Distance(1, replaced=False, groups=2), np.kron(np.tri(4), np.ones(2))
    monkeypatch.setattr("dpdist.strategies.group_optimum.UNLIKE_CELLS", 4)
    found = persons_by_cell(explicit(rows), moved)
    assert found.persons is not None
    assert np.linalg.matrix_rank(found.matrix()) == 8
    gram = rows.T @ rows
    assert found.persons.lower_bound <= cost_of(found, gram, 2) <= 1.2 * found.persons.lower_bound


def test_the_better_of_two_strategies_is_certified_where_not_all_sets_are_gone_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The larger bound of both, and no less error than the strategy has, by every set of cells."""
    moved, workload = Distance(1, replaced=False, groups=3), prefix(8)
    least = cost_of(persons_by_cell(workload, moved), workload.gram(), 3)
    monkeypatch.setattr("dpdist.strategies.group_optimum.LISTED_SETS", 0)
    found = persons_by_cell(workload, moved)
    assert found.persons is not None
    assert found.solve is not None
    cost, step = cost_of(found, workload.gram(), 3), found.solve.history[-1]
    assert step.objective == pytest.approx(found.persons.lower_bound * (1 + step.gap))
    assert 0.9999 * least < found.persons.lower_bound <= least * (1 + 1e-9) <= cost * (1 + 2e-9)
    assert cost * (1 - 1e-9) <= step.objective <= 1.05 * least


def test_more_cells_of_which_only_some_sums_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a singular gram had no inverse: planning stopped with an error."""
    moved, workload = Distance(1, replaced=False, groups=2), marginals((3, 4), 1)
    best = cost_of(persons_by_cell(workload, moved), workload.gram(), 2)
    monkeypatch.setattr("dpdist.strategies.group_optimum.UNLIKE_CELLS", 4)
    found = persons_by_cell(workload, moved)
    assert found.persons is not None
    cost = cost_of(found, workload.gram(), 2)
    assert found.persons.lower_bound <= best * (1 + 1e-6)
    assert best * (1 - 1e-4) <= cost <= 1.2 * best


@pytest.mark.parametrize(("cells", "most"), slow_after_first(1, [(64, 3), (64, 8), (256, 8)]))
def test_one_cell_more_costs_as_little_as_it_asks(cells: int, most: int) -> None:
    """Where the search for the optimum ends, and where it once did: the error of 256 prefixes was 15.7, of 257 it was 18.1."""
    errors, moved = [], Distance(1, replaced=False, groups=most)
    for size in (cells, cells + 1):
        workload = prefix(size)
        found = persons_by_cell(workload, moved)
        grid = found.measurement_for(workload, moved)
        errors.append(math.sqrt(found.cost(workload) / size) * grid.sensitivity * grid.spacing / found.sensitivity)
    assert errors[1] == pytest.approx(errors[0], rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("most", "gap"), [(3, 0.03), (8, 0.1)])
def test_128_prefixes_of_persons(most: int, gap: float) -> None:
    """0.20 and 0.46 by the optimum for records."""
    workload, moved = prefix(128), Distance(1, replaced=False, groups=most)
    found = persons_by_cell(workload, moved)
    grid = found.measurement_for(workload, moved)
    assert found.persons is not None
    cost = found.cost(workload) * (grid.sensitivity * grid.spacing / found.sensitivity) ** 2
    assert found.persons.lower_bound < cost < (1 + gap) * found.persons.lower_bound

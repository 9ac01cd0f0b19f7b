"""The optimum for persons: closed forms, figures of the program, and its dual certificate."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from dpdist.grids import groups as grids
from dpdist.grids.groups import exact_gram, squared_over_cells
from dpdist.stability import Distance
from dpdist.strategies.base import matrix_mechanism_cost
from dpdist.strategies.groups import persons_by_cell
from dpdist.strategies.persons import least_error, length, root_of
from dpdist.strategies.representations import DenseStrategy
from dpdist.workloads import prefix


def cost_of(found: DenseStrategy, gram: np.ndarray, most: int) -> float:
    """Total variance at multiplier 1 for persons in up to so many cells: by every set of them, or by their number where cells are alike."""
    matrix = found.matrix()
    precision = matrix.T @ matrix
    cells = len(gram)
    if cells > 12:
        longest = max(s * precision[0, 0] + s * (s - 1) * precision[0, 1] for s in range(1, most + 1))
    else:
        longest = max(length(precision, each) for s in range(1, most + 1) for each in combinations(range(cells), s))
    return longest * float(np.trace(gram @ np.linalg.inv(precision)))


@pytest.mark.parametrize(
    ("cells", "most", "ratio"),
    [(7, 7, 0.474), (12, 12, 0.414), (52, 52, 0.324), (100, 50, 0.599), (100, 10, 0.952), (7, 1, 1.0)],
)
def test_persons_by_group_against_every_cell_by_itself(cells: int, most: int, ratio: float) -> None:
    """Variance over that of the identity (mathematics.md); the gap is rounding."""
    found, gram = persons_by_cell(np.eye(cells), Distance(1, replaced=False, groups=most)), np.eye(cells)
    cost = cost_of(found, gram, most)
    assert cost / (cells * most) == pytest.approx(ratio, abs=6e-4)
    assert found.persons is not None
    assert found.persons.lower_bound <= cost * (1 + 1e-12) <= found.persons.lower_bound * (1 + 1e-9)
    mean = found.persons.mean_square(cells)
    total, _ = root_of(gram, mean)
    assert total**2 == pytest.approx(found.persons.lower_bound, rel=1e-9)


@pytest.mark.parametrize("most", [1, 3, 8])
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
        every = [length(precision, each) for s in range(1, most + 1) for each in combinations(range(8), s)]
        assert bound.lower_bound <= max(every) * float(np.trace(gram @ np.linalg.inv(precision)))


def test_few_columns_are_found_one_after_the_other() -> None:
    """Sets of two that are not neighbours, of five cells, by an oracle that looks at all of them."""
    every = [c for s in (1, 2) for c in combinations(range(5), s) if s == 1 or c[1] - c[0] > 1]
    gram = prefix(5).gram()
    found = least_error(gram, {(0, 2): 1.0}, lambda x: [max(every, key=lambda each: length(x, each))], tolerance=1e-6)
    assert found.longest <= 1 + 1e-6
    assert set(found.bound.columns) <= set(every)


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
    assert squared_over_cells(gram, most, replaced=False) == alone
    found = squared_over_cells(gram, most, replaced=True)
    assert both <= found <= 4 * alone
    if alike:
        assert found == both
    monkeypatch.setattr(grids, "LISTED_SETS", 0)
    assert alone <= squared_over_cells(gram, most, replaced=False) <= 2 * alone

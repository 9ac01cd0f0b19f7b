"""Every sensitivity of every grid against the list of all moves of a person's records: both relations, k = 1 to 3, L1 and L2."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from dpdist.arrays.lazy_vector import ArrayVector, to_array
from dpdist.domain import Attribute, Domain
from dpdist.engine import inline
from dpdist.errors import InvalidInput
from dpdist.measurement.coefficient_vectors import Coefficients, Form
from dpdist.measurement.filter_measurement import FilterMeasurement, filter_measurement
from dpdist.measurement.hadamard_measurement import hadamard_measurement
from dpdist.measurement.sensitivity.bounded_totals import Totals, totals_l1, totals_l2_squared
from dpdist.measurement.sensitivity.column_norms import l1_sensitivity, sensitivity_squared
from dpdist.measurement.sensitivity.participation import gram_squared_bound
from dpdist.measurement.term_measurement import TermMeasurement
from dpdist.operators import Dense, Hadamard, Identity, Matrix, Operator, Prefix
from dpdist.runtime.stored_vectors import StoreWorkspace
from dpdist.size_limits import SIZES
from dpdist.stability import Neighbours
from dpdist.storage.array_store import Store
from dpdist.strategies import (
    Strategy,
    coa,
    convolution,
    hierarchical,
    identity,
    laplace,
    square_root,
)
from dpdist.strategies.dense.adaptive_mechanism import eigen_queries
from dpdist.strategies.representations import DirectStrategy
from dpdist.strategies.tables.marginal_optimum import marginal_optimum
from dpdist.workloads import Workload, dnf, filtered, marginals, predicates, prefix, union
from dpdist.workloads.time_filters import exponential, running_sum, window
from tests.support.complete_tree import installed_mechanisms, installed_strategies, plugin_object
from tests.support.measurement_readers import filter_of
from tests.support.oracles import brute_force_sensitivity

BOTH: tuple[Neighbours, ...] = ("add-remove", "replace-one")
EVERY = [(neighbours, most) for neighbours in BOTH for most in (1, 2, 3)]

DIAGONALS = {
    "one cell": [5],
    "twice the largest": [5, 5, 1],
    "twice the largest, signs": [-5, 5, 1],
    "twice the second": [5, 1, 1],
    "all alike": [3, 3, 3],
    "zeros": [4, 0, 0],
    "negative": [-7, -2, 6],
}


def dense(mixing: Matrix, base: Operator) -> Matrix:
    rows = base.dense().astype(np.int64)
    return mixing[:, None] * rows if mixing.ndim == 1 else mixing @ rows


def close(found: int, truth: int, most: int) -> bool:
    """Never below, and above by no more than rounding one record's distance up."""
    return truth <= found <= truth * (1 + Fraction(1, 10**12)) + most**2


@pytest.mark.parametrize("name", DIAGONALS)
@pytest.mark.parametrize("base", [Identity, Prefix])
def test_diagonals_with_equal_entries(name: str, base: type[Identity | Prefix]) -> None:
    mixing = np.array(DIAGONALS[name], dtype=np.int64)
    rows = dense(mixing, base(mixing.size))
    for neighbours, most in EVERY:
        squared = sensitivity_squared(mixing, base(mixing.size), neighbours) * most**2
        truth = brute_force_sensitivity(rows, neighbours, most, power=2)
        assert squared == truth or (base is Prefix and neighbours == "replace-one" and close(squared, truth, most))
        length = l1_sensitivity(mixing, base(mixing.size), neighbours) * most
        assert length == brute_force_sensitivity(rows, neighbours, most, power=1)


def test_a_diagonal_that_takes_no_memory() -> None:
    for cells, neighbours in product((1, 2, 9), BOTH):
        alike = np.broadcast_to(np.int64(-6), (cells,))
        several = neighbours == "replace-one" and cells > 1
        assert sensitivity_squared(alike, Identity(cells), neighbours) == (72 if several else 36)
        assert l1_sensitivity(alike, Identity(cells), neighbours) == (12 if several else 6)


@pytest.mark.parametrize("seed", range(12))
def test_random_rows_of_both_signs(seed: int) -> None:
    """Exactly while pairs of cells are compared, from above beyond that; the limit itself still compares."""
    state = np.random.default_rng(seed)
    cells, rows = int(state.integers(1, 5)), int(state.integers(1, 5))
    mixing = state.integers(-9, 10, (rows, cells))
    mixing[:, state.integers(cells)] = mixing[:, 0]  # equal columns
    base: Operator = Identity(cells) if seed % 2 else Dense(state.integers(-3, 4, (cells, cells)).astype(np.float64))
    for neighbours, most in EVERY:
        truths = [brute_force_sensitivity(dense(mixing, base), neighbours, most, power=power) for power in (1, 2)]
        for limit in (cells, cells - 1):
            sizes = replace(SIZES, pair_cells=limit, pair_work=limit**2 * rows)
            squared = sensitivity_squared(mixing, base, neighbours, sizes) * most**2
            length = l1_sensitivity(mixing, base, neighbours, sizes) * most
            if neighbours == "add-remove" or limit == cells:
                assert close(squared, truths[1], most)
                assert length == truths[0]
                assert neighbours == "replace-one" or squared == truths[1]
            else:
                assert truths[1] <= squared == 4 * brute_force_sensitivity(dense(mixing, base), "add-remove", most, power=2)
                assert truths[0] <= length == 2 * brute_force_sensitivity(dense(mixing, base), "add-remove", most, power=1)


@pytest.mark.parametrize("neighbours", BOTH)
@pytest.mark.parametrize("seed", range(4))
def test_entries_whose_sums_are_no_number_of_double_precision(seed: int, neighbours: Neighbours) -> None:
    """Odd numbers of 55 bits, whose absolute values are added up, and of 45, whose squares are: not one is lost."""
    state = np.random.default_rng(seed)
    for power, bits, sensitivity in ((1, 55, l1_sensitivity), (2, 45, sensitivity_squared)):
        mixing = state.integers(-(2**bits), 2**bits, (3, 5)) | 1
        truth = brute_force_sensitivity(mixing, neighbours, 1, power=power)
        found = sensitivity(mixing, Identity(5), neighbours)
        assert found == truth or (power == 2 and neighbours == "replace-one" and close(found, truth, 1))


def _farthest(columns: Matrix, neighbours: Neighbours, power: int) -> int:
    """The largest distance of two columns of Python's integers, or of one from nothing."""
    points = [np.zeros(len(columns), dtype=object), *columns.T]
    others = points if neighbours == "replace-one" else points[:1]
    return max(sum(abs(entry) ** power for entry in one - other) for one in points for other in others)


def _farthest_within_totals(rows: Matrix, neighbours: Neighbours, power: int) -> int:
    """The same of the corners of persons whose totals are bounded (``TOTALS``)."""
    bins = rows.reshape(len(rows), -1, TOTALS.bins)
    none, full = (bins[:, :, 0] * shares[0] + bins[:, :, 1] * shares[1] for shares in (TOTALS.none, TOTALS.full))
    missing = sum(TOTALS.none) * bins[:, :, 2]
    ends = np.concatenate([none, missing, full], axis=1)
    corners = TOTALS.matrix(none.shape[1] + missing.shape[1], full.shape[1]).astype(object)
    return _farthest(ends @ corners.T, neighbours, power)


def _farthest_in_steps(rows: Matrix, neighbours: Neighbours, power: int) -> int:
    """The square of what a person in up to two steps adds at most, whatever the signs of both."""
    factor = _steps(rows)
    gram = abs(factor.T @ factor)
    return max(int(gram[i, i] + gram[j, j] + 2 * gram[i, j]) for i in range(len(gram)) for j in range(i))


def _steps(rows: Matrix) -> Matrix:
    """A series of six steps."""
    return np.tril(rows[:6])


TOTALS = Totals(records=50, times=20, bins=3, none=(6, 3), full=(-4, 13))
Bound = tuple[Callable[[Matrix, Neighbours], int], Callable[[Matrix, Neighbours, int], int], int, int, int]
BOUNDS: dict[str, Bound] = {
    "L1": (lambda rows, relation: l1_sensitivity(rows, Identity(6), relation), _farthest, 1, 54, 62),
    "L2": (lambda rows, relation: sensitivity_squared(rows, Identity(6), relation), _farthest, 2, 43, 62),
    "L1 of totals": (
        lambda rows, relation: totals_l1(TOTALS, iter([rows]), relation, SIZES),
        _farthest_within_totals,
        *(1, 44, 62),
    ),
    "L2 of totals": (
        lambda rows, relation: totals_l2_squared(TOTALS, iter([rows]), relation, SIZES),
        _farthest_within_totals,
        *(2, 39, 62),
    ),
    "L2 of steps": (lambda rows, relation: gram_squared_bound(_steps(rows), 2, 1), _farthest_in_steps, 2, 29, 31),
}
"""What computes a bound for 48 rows over six columns, the truth, its power, and bits of entries up to which none is refused and to which
they may have at most."""


@pytest.mark.parametrize("neighbours", BOTH)
@pytest.mark.parametrize("name", BOUNDS)
def test_a_bound_is_exact_or_refused_however_large_the_numbers(name: str, neighbours: Neighbours) -> None:
    """With each further bit, up to the largest of 64: never a sum that has wrapped, and no refusal where numbers fit."""
    bound, truth, power, taken, most_bits = BOUNDS[name]
    above = Fraction(1, 4) if name == "L2 of steps" else Fraction(1, 2**40)
    refused = list[int]()
    for bits in range(taken - 2, most_bits + 1):
        for sign in (1, -1):
            rows = np.random.default_rng(bits).integers(2**bits - 2 ** (bits - 3), 2**bits, (48, 6)) * sign
            rows[:, 1:5] *= np.array([1, -1, 1, -1])
            try:
                found = bound(rows, neighbours)
            except InvalidInput:
                refused.append(bits)
            else:
                true = truth(rows.astype(object), neighbours, power)
                assert true <= found <= true + above * true + 4
    assert taken < min(refused) <= max(refused) == most_bits


GRIDS: dict[str, tuple[Strategy, Workload]] = {
    "identity": (identity(3), prefix(3)),
    "identity, L1": (identity(3, norm="l1"), prefix(3)),
    "laplace": (laplace(prefix(3)), prefix(3)),
    "hierarchical, L1": (hierarchical((4,), prefix(4), branching=2, norm="l1"), prefix(4)),
}
A_AND_B = Domain((Attribute("a", edges=(0, 1, 2, 3)), Attribute("b", categories=("x", "y"))))
TABLES, WINDOWS = marginals(A_AND_B, 1), filtered(A_AND_B, "a", [window(2)], by=("b",))
for name, asked in {"tables and windows": union(TABLES, WINDOWS), "windows and tables": union(WINDOWS, TABLES)}.items():
    GRIDS[name] = (coa(asked), asked)
for low_rank in installed_strategies("low_rank").values():
    GRIDS["low rank, L1"] = (low_rank(prefix(3), norm="l1"), prefix(3))
if installed_mechanisms("weighted-design"):
    weighted_design = plugin_object("dpdist.plugins.laplace_designs.weighted_designs:weighted_design")
    eigenvectors = eigen_queries(prefix(4).gram())[0]
    GRIDS["weighted design, L1"] = (weighted_design(prefix(3)), prefix(3))
    GRIDS["weighted eigen-queries, L1"] = (weighted_design(prefix(4), design=eigenvectors), prefix(4))


@pytest.mark.parametrize("name", GRIDS)
def test_grids_carry_the_sensitivity_of_their_rows(name: str) -> None:
    strategy, workload = GRIDS[name]
    for neighbours, most in EVERY:
        grid = strategy.measurement(workload, neighbours=neighbours, most_records=most)
        rows = np.concatenate(list(grid.row_blocks()))
        if grid.norm == "l1":
            assert grid.sensitivity_squared == brute_force_sensitivity(rows, neighbours, most, power=1) ** 2
        else:
            assert close(grid.sensitivity_squared, brute_force_sensitivity(rows, neighbours, most, power=2), most)


def unit_rows(grid: FilterMeasurement) -> Matrix:
    cells = int(np.prod(grid.shape))
    return np.stack([grid.measure(unit.reshape(grid.shape)) for unit in np.eye(cells, dtype=np.int64)], axis=1)


FILTERS = {
    "coefficients of one sign": filter_of(np.array([0.8, 0.5, 0.3]), (3,), circular=False),
    "coefficients of both signs": filter_of(np.array([1.0, -0.9, 0.1]), (3,), circular=False),
    "a circle": filter_of(np.array([0.8, 0.0, 0.6, 0.0]), (3,), circular=True),
    "a circle, both signs": filter_of(np.array([0.7, -0.7, 0.1, 0.0]), (4,), circular=True),
    "a circle of one step": filter_of(np.array([1.0]), (1,), circular=True),
    "series side by side": filter_of(np.array([0.9, -0.4, 0.0, 0.1]), (2, 2), circular=True, place=1),
    "series of one sign": filter_of(np.array([0.9, 0.4, 0.2, 0.1]), (2, 2), circular=True, place=1),
    "series of the past": filter_of(np.array([0.9, -0.4]), (2, 2), circular=False, place=1),
}


@pytest.mark.parametrize("name", FILTERS)
def test_filters(name: str) -> None:
    """Exactly for add-remove and for replace-one around a circle; a bound for filters of the past."""
    given = FILTERS[name]
    for neighbours, most in EVERY:
        grid = filter_measurement(given, neighbours=neighbours, most_records=most)
        truth = brute_force_sensitivity(unit_rows(grid), neighbours, most, power=2)
        if neighbours == "add-remove" or (given.circular and (given.steps > 1 or len(given.axes) == 2)):
            assert grid.sensitivity_squared == truth
        else:
            assert truth <= grid.sensitivity_squared <= 4 * truth


@pytest.mark.parametrize("name", ["a circle", "a circle, both signs", "series side by side", "series of one sign"])
def test_filters_in_the_store(name: str, tmp_path: Path) -> None:
    work = StoreWorkspace(Store(tmp_path), inline())
    given = replace(FILTERS[name], values=work.write(FILTERS[name].whole_values), form=Form.STORED, work=work)
    for neighbours, most in EVERY:
        grid = filter_measurement(given, neighbours=neighbours, most_records=most)
        held_ones = replace(grid, coefficients=ArrayVector(to_array(grid.coefficients)), form=Form.IN_MEMORY)
        assert grid.sensitivity_squared == brute_force_sensitivity(unit_rows(held_ones), neighbours, most, power=2)


def test_characters() -> None:
    workload = dnf(2, [["x0"], ["x0", "x1"]])
    strategy = convolution(workload)
    for neighbours, most in EVERY:
        grid = strategy.measurement(workload, neighbours=neighbours, most_records=most)
        rows = (to_array(grid.weights)[:, None] * Hadamard(len(grid.axes)).dense())[grid.characters]
        assert grid.sensitivity_squared == brute_force_sensitivity(rows, neighbours, most, power=2)


@pytest.mark.parametrize("place", range(1, 8))
def test_characters_wherever_two_cells_are_farthest_apart(place: int) -> None:
    """Weights for which the farthest cells differ by ``place``: each of the differences decides once."""
    hadamard = Hadamard(3).dense()
    weights = np.sqrt(1.0 - 0.9 * hadamard[place])
    given = Coefficients(ArrayVector(weights / np.linalg.norm(weights)), (0, 1, 2), (2, 2, 2), Form.IN_MEMORY, ())
    for neighbours, most in EVERY:
        grid = hadamard_measurement(given, neighbours=neighbours, most_records=most)
        rows = to_array(grid.weights)[:, None] * hadamard.astype(np.int64)
        assert grid.sensitivity_squared == brute_force_sensitivity(rows, neighbours, most, power=2)


def test_terms_with_their_rounding() -> None:
    """Tables of any records and all their neighbours: what is rounded moves by up to a unit a value more."""
    domain = Domain((Attribute("a", edges=(0, 1, 2)), Attribute("b", categories=("x", "y"))))
    workload = marginals(domain, (1, 2))
    state = np.random.default_rng(2)
    for neighbours, most in EVERY:
        grid = marginal_optimum(workload).measurement(workload, neighbours=neighbours, most_records=most)
        assert isinstance(grid, TermMeasurement)

        def measure(x: Matrix, grid: TermMeasurement = grid) -> list[int]:
            tables = (x.sum(axis=tuple(a for a in (0, 1) if a not in term.axes)) for term in grid.terms)
            return [int(v) for term, t in zip(grid.terms, tables, strict=True) for v in term.measure(t)]

        owned = [np.reshape(c, (2, 2)) for c in product(range(most + 1), repeat=4) if sum(c) <= most]
        before = owned if neighbours == "replace-one" else [np.zeros((2, 2), dtype=np.int64)]
        rest = state.integers(0, 40, (2, 2))
        sides = [[measure(rest + own) for own in some] for some in (before, owned)]
        worst = max(sum((u - v) ** 2 for u, v in zip(a, b, strict=True)) for a, b in product(*sides))
        assert 0.4 * grid.sensitivity_squared < worst <= grid.sensitivity_squared


@pytest.mark.parametrize("make", [convolution, square_root])
def test_real_filters(make: object) -> None:
    workload = filtered(3, "x0", [running_sum(3) if make is convolution else exponential(0.7, 3)])
    strategy = make(workload)
    for neighbours, most in EVERY:
        grid = strategy.measurement(workload, neighbours=neighbours, most_records=most)
        assert isinstance(grid, FilterMeasurement)
        assert brute_force_sensitivity(unit_rows(grid), neighbours, most, power=2) <= grid.sensitivity_squared


def test_weighted_predicates() -> None:
    """A direct strategy whose diagonal of weights has equal entries, over rows that are no identity."""
    workload = predicates(Domain((Attribute("a", edges=(0, 1, 2, 3)),)), ["a == 0", "a == 1", "a >= 1"])
    strategy = DirectStrategy("direct", workload.unweighted, norm="l1")
    for neighbours, most in EVERY:
        grid = strategy.measurement(workload, neighbours=neighbours, most_records=most)
        rows = np.concatenate(list(grid.row_blocks()))
        assert grid.sensitivity_squared == brute_force_sensitivity(rows, neighbours, most, power=1) ** 2


def test_a_strategy_computes_its_sensitivity_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planning asks for it five times; over an integer basis it is half of a plan whose strategy is kept."""
    strategy = coa(prefix(8))
    kind, calls = type(strategy.operator), []
    norms = kind.column_norms_squared
    monkeypatch.setattr(kind, "column_norms_squared", lambda operator: (calls.append(operator), norms(operator))[1])
    assert len({strategy.l2_sensitivity, strategy.sensitivity, strategy.unit_error}) == 1
    assert len(calls) == 1

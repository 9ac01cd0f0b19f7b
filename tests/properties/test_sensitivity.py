"""No pair of neighbours moves what is measured by more than the noise was made for: filters of all signs, DAWA's parts, unions.

Every mechanism with its own strategies: contracts/test_mechanisms.py.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist import strategies
from dpdist.domain import Attribute, Domain, Layout
from dpdist.engine import inline
from dpdist.measurement.integer_measurement import Norm
from dpdist.measurement.sensitivity import column_norms
from dpdist.operators import Dense
from dpdist.privacy.accounting import Loss
from dpdist.size_limits import Sizes
from dpdist.storage.array_store import Store
from dpdist.strategies import Strategy
from dpdist.strategies.representations import FilterStrategy
from dpdist.workloads import marginals, union
from dpdist.workloads.time_filters import filtered, running_sum, window
from tests.support.measurement_readers import filter_of, measured
from tests.support.oracles import brute_force_sensitivity

NEIGHBOURS: Any = ("add-remove", "replace-one")
TABLES = marginals(Domain((Attribute("x", edges=(0, 1, 2, 3)), Attribute("y", categories=("a", "b")))), (1, 2))
SERIES = filtered(5, "x0", [running_sum(5), window(2)])


def filter_strategy(coefficients: list[float], *, circular: bool) -> Strategy:
    """A filter over five steps with these coefficients, of unit length."""
    values = np.zeros(7 if circular else 5)
    values[: len(coefficients)] = coefficients
    unit = filter_of(values / np.linalg.norm(values), (5,), circular=circular)
    return FilterStrategy("convolution", Dense(np.eye(5)), coefficients=unit)


CASES = {
    "past, coefficients of one sign": filter_strategy([1.0, 0.9, 0.2], circular=False),
    "past, coefficients of both signs": filter_strategy([1.0, -0.9], circular=False),
    "circle, coefficients of both signs": filter_strategy([1.0, -0.9, 0.1], circular=True),
}


def owned(cells: int, most: int) -> list[np.ndarray]:
    """Everything that one person with up to ``most`` records may hold."""
    picks = [p for k in range(most + 1) for p in combinations_with_replacement(range(cells), k)]
    return [np.bincount(np.array(p, dtype=np.int64), minlength=cells) for p in picks]


def farthest(moved: list[np.ndarray], neighbours: str) -> int:
    """The largest distance between neighbours: a person's records appear, or become any others."""
    before = moved if neighbours == "replace-one" else moved[:1]
    worst = 0
    for one in before:
        for other in moved:
            worst = max(worst, sum(value**2 for value in (one - other).tolist()))
    return worst


@pytest.mark.parametrize("case", CASES)
def test_the_noise_covers_every_pair_of_neighbours(case: str, tmp_path: Path) -> None:
    """The exact integers of all neighbours of one histogram, through the pipeline's own measurement."""
    strategy, store, engine = CASES[case], Store(tmp_path), inline()
    cells, base = SERIES.domain.cells, np.random.default_rng(1).integers(0, 50, SERIES.domain.cells)
    layout = Layout(SERIES.domain.shape)

    def integers(found: Any, x: np.ndarray, name: str) -> np.ndarray:
        return measured(store, engine, found, store.put(name, x), layout)

    for neighbours in NEIGHBOURS:
        any_grid = strategy.measurement(SERIES, neighbours=neighbours, most_records=1)  # the bound changes no integer
        held = owned(cells, 2)
        moved = [integers(any_grid, base + one, f"{neighbours}-{i}") for i, one in enumerate(held[: 1 + cells])]
        rows = np.array(moved[1:]) - moved[0]
        moved += [moved[0] + one @ rows for one in held[1 + cells :]]
        assert (integers(any_grid, base + held[-1], f"{neighbours}-last") == moved[-1]).all()
        for most in (1, 2):
            found = strategy.measurement(SERIES, neighbours=neighbours, most_records=most)
            worst = farthest(moved[: len(owned(cells, most))], neighbours)
            assert 0 < worst <= found.sensitivity_squared
            if neighbours == "add-remove":
                assert worst == found.sensitivity_squared  # neither more noise than is needed
            assert worst <= found.noise(Loss.gaussian(Fraction(1, 9))).scale ** 2 * Fraction(2, 9)


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_the_bound_without_comparing_pairs_holds_too(norm: Norm) -> None:
    """Columns that point away from each other are twice their length apart."""
    mixing = np.array([[5, -5, 1], [3, -3, 0]])
    base = Dense(np.eye(3))
    worst = brute_force_sensitivity(mixing, "replace-one", 1, power=1 if norm == "l1" else 2)
    measure = column_norms.l1_sensitivity if norm == "l1" else column_norms.sensitivity_squared
    assert worst <= measure(mixing, base, "replace-one") <= worst + 1  # compared in floating point, rounded up
    none = Sizes(pair_cells=1, pair_work=1)
    assert measure(mixing, base, "replace-one", none) >= worst
    assert measure(mixing, base, "add-remove", none) == brute_force_sensitivity(
        mixing, "add-remove", 1, power=1 if norm == "l1" else 2
    )


def test_a_union_is_covered_in_every_order() -> None:
    """The strategy of a union of blocks is measured on the grid whatever block comes first."""
    blocks = [marginals(TABLES.domain, 1), filtered(TABLES.domain, "x", [window(2)], by=("y",))]
    for order in (blocks, blocks[::-1]):
        workload = union(*order)
        strategy = strategies.coa(workload)
        for neighbours in NEIGHBOURS:
            found: Any = strategy.measurement(workload, neighbours=neighbours, most_records=1)
            rows = np.concatenate(list(found.row_blocks()))
            assert brute_force_sensitivity(rows, neighbours, 1, power=2) <= found.sensitivity_squared

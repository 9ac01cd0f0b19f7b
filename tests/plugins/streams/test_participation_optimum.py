"""Optima and bounds for persons who are in several steps of a series."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.domain import Domain
from dpdist.measurement.sensitivity.participation import longest_chain_steps
from dpdist.plugins.streams import participation_optimum
from dpdist.plugins.streams.participation_optimum import optimise_participation, steps_bound
from dpdist.plugins.streams.triangular_factor import strategy_over_series
from dpdist.stability import Distance
from dpdist.strategies.group_optimum import persons_by_cell
from dpdist.workloads import filtered, prefix
from dpdist.workloads.time_filters import running_sum


def visiting(most: int, separation: int) -> Distance:
    return Distance(1, replaced=False, participations=most, separation=separation)


@pytest.mark.parametrize(
    ("steps", "most", "separation", "least"),
    [
        (12, 4, 3, 133.0),
        pytest.param(24, 4, 6, 322.8, marks=pytest.mark.slow),
        pytest.param(26, 4, 4, 523.0, marks=pytest.mark.slow),
    ],
)
def test_running_sums_of_persons_in_several_steps(steps: int, most: int, separation: int, least: float) -> None:
    """Squared error on the whole numbers that are measured: 230 and 529 by the best strategies before, for 12 and 24 steps."""
    workload, moved = filtered(steps, "x0", [running_sum(steps)]), visiting(most, separation)
    found = strategy_over_series(workload, optimise_participation(workload, moved))
    grid = found.measurement_for(workload, moved)
    assert found.workload_cost is not None
    assert found.persons is not None
    cost = found.workload_cost * (grid.sensitivity * grid.spacing / found.sensitivity) ** 2
    assert found.persons.lower_bound <= cost < least
    assert cost < found.persons.lower_bound * (1 + (5e-3 if steps == 26 else 3e-4))
    chosen = np.array([max(b - a for a, b in zip(c, c[1:], strict=False)) for c in found.persons.columns if len(c) > 1])
    assert chosen.min() >= separation
    assert np.triu(found.factor, 1).max() == 0
    short = steps_bound(workload, moved)
    assert found.persons.lower_bound * 0.99 < short.lower_bound <= cost


def test_an_attribute_that_no_query_names_bounds_nothing() -> None:
    """The bound of two series of six steps is that over a domain with a third attribute, too."""
    asked, more = (filtered(Domain.of_shape(shape), "x0", [running_sum(6)], ("x1",)) for shape in ((6, 2), (6, 2, 5)))
    assert steps_bound(more, visiting(2, 2)).lower_bound == steps_bound(asked, visiting(2, 2)).lower_bound
    one = steps_bound(filtered(6, "x0", [running_sum(6)]), visiting(2, 2)).lower_bound
    assert steps_bound(asked, visiting(2, 2)).lower_bound == 2 * one


@pytest.mark.parametrize("most", [1, 2, 3])
def test_no_proof_knows_of_persons_in_more_cells_or_steps_than_they_may_be_in(most: int) -> None:
    """A lower bound from longer persons would be none."""
    by_cell = persons_by_cell(prefix(5), Distance(1, replaced=False, groups=most)).persons
    line = filtered(7, "x0", [running_sum(7)])
    by_step = optimise_participation(line, visiting(most, 2)).persons
    for proof, reach in ((by_cell, 1), (by_step, 2)):
        assert proof is not None
        assert max(map(len, proof.columns)) <= most
        assert all(b - a >= reach for chain in proof.columns for a, b in zip(chain, chain[1:], strict=False))


def test_long_persons_are_found_without_trying_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 30 random precisions the search finds the longest person of up to four steps in 27."""
    monkeypatch.setattr(participation_optimum, "TRIED", 0)
    state, found = np.random.default_rng(3), 0
    for _ in range(30):
        factor = state.normal(size=(16, 16)) * state.uniform(0.05, 0.3, 16)
        precision = factor @ factor.T + np.diag(state.uniform(0.1, 0.2, 16))
        chains = participation_optimum._LongChains(4, 2)(precision)
        longest = longest_chain_steps(precision, 4, 2)
        length, most = (max(precision[np.ix_(chain, chain)].sum() for chain in several) for several in (chains, [longest]))
        assert length <= most * (1 + 1e-12)
        found += length >= most * (1 - 1e-12)
    assert found >= 26

"""Neighbouring files of drawn specs, from records to what noise hides: rounds and buckets are moved by no more than is declared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dpdist.domain import Layout
from dpdist.errors import InvalidInput, UnknownValue
from dpdist.planner.release_kinds import ReleasePlan
from dpdist.plugins.adaptive.aim import AimMeasurement, Rounds, one_way_weight, weight_of_rounds
from dpdist.plugins.adaptive.dawa import DawaMeasurement, interval_costs, longest_interval
from dpdist.plugins.adaptive.measured_tables import model_unbiased_tables
from tests.case_selection import slow_after_first
from tests.properties.random_specs import Content, Draw
from tests.stability.test_drawn_specs import drawn, files_of, integers

LINES = tuple(seed for seed in range(300) if [*Draw(seed).kinds.values()] in (["whole"], ["edges"], ["dates"]))
"""Draws of one ordered attribute, whose values are put into buckets."""
CLOSE = (24, 36, 53)
"""Draws whose neighbours reach what is declared of replaced records, and of a person's several ones."""
TABLES = (*CLOSE, *(seed for seed in range(60) if len(Draw(seed).kinds) > 1 and seed not in CLOSE))
"""Draws of several attributes, whose tables are chosen in rounds."""


def counted(
    seed: int, mechanism: str, query: Content, budget: Content, folder: Path
) -> tuple[ReleasePlan, list[np.ndarray]] | None:
    """The plan of a drawn spec with a mechanism, and what is counted of a file and of its neighbours.

    None where the mechanism does not go with the rest of the spec, or the records are refused.
    """
    draw = Draw(seed)
    content = {name: part for name, part in draw.content.items() if name not in ("objective", "noise", "sums")}
    cap = dict.fromkeys(budget, 10**4)
    draw.content = content | {
        "mechanism": mechanism,
        "workload": [query],
        "budget": budget,
        "ledger": {"dataset": "drawn", "cap": cap},
    }
    found = drawn(draw)
    if found is None or not isinstance(found[1].measurement, AimMeasurement | DawaMeasurement):
        return None
    schema, planned = draw.table().schema, found[1]
    tables = (pa.Table.from_pylist(rows, schema) for rows in files_of(draw, planned))
    try:
        return planned, [integers(planned, draw.content, each, folder / str(n)) for n, each in enumerate(tables)]
    except (InvalidInput, UnknownValue):
        return None


@pytest.mark.parametrize("seed", slow_after_first(4, TABLES))
def test_neighbours_move_rounds_by_no_more_than_is_declared(seed: int, tmp_path: Path) -> None:
    """All tables that rounds may measure, in the weights of any number of rounds, and all scores that they choose by, for one model."""
    found = counted(seed, "adaptive", {"marginals": {"ways": [2]}}, {"rho": 1}, tmp_path)
    if found is None:
        return
    planned, (first, *after) = found
    grid, layout = planned.measurement, Layout(planned.measurement.shape, planned.measurement.tables)
    assert isinstance(grid, AimMeasurement)

    def tables(counts: np.ndarray) -> dict[tuple[int, ...], np.ndarray]:
        whole = counts.astype(np.int64)
        return {axes: layout.table(whole, axes) for axes in (*grid.one_way_tables, *grid.importances)}

    model = model_unbiased_tables(
        grid.shape,
        {axes: tables(first)[axes].astype(float) for axes in grid.one_way_tables},
        dict.fromkeys(grid.one_way_tables, 1),
        planned.noise,
    )
    omitted = dict.fromkeys(grid.importances, 0)

    def scores(counts: np.ndarray) -> np.ndarray:
        rounds = Rounds(grid, counts.astype(np.int64), layout, planned.noise, planned.budget_loss.rho, bytes(32))
        return np.array(rounds.scores([*grid.importances], model, omitted))

    before = tables(first), scores(first)
    for counts in after:
        moved = {axes: np.abs(table - before[0][axes]) for axes, table in tables(counts).items()}
        assert max(int(table.sum()) for table in moved.values()) <= grid.distance
        assert (np.abs(scores(counts) - before[1]) <= np.array([*grid.importances.values()]) * grid.distance).all()
        squares = {axes: int((table**2).sum()) for axes, table in moved.items()}
        for number in range(1, len(grid.importances) + 1):
            farthest = sorted((squares[axes] for axes in grid.importances), reverse=True)[:number]
            one_way = one_way_weight(grid) ** 2 * sum(squares[axes] for axes in grid.one_way_tables)
            assert one_way + weight_of_rounds(grid, number) ** 2 * sum(farthest) <= grid.sensitivity_squared


@pytest.mark.parametrize("seed", slow_after_first(3, LINES))
def test_neighbours_move_buckets_by_no_more_than_is_declared(seed: int, tmp_path: Path) -> None:
    """The costs of all intervals of one length together, none of which overlap, and the counts that buckets add up."""
    found = counted(seed, "dawa", {"cdf": {"of": next(iter(Draw(seed).kinds))}}, {"epsilon": 1}, tmp_path)
    if found is None:
        return
    planned, (first, *after) = found
    grid = planned.measurement
    assert isinstance(grid, DawaMeasurement)
    for counts in after:
        assert np.abs(counts - first).sum() <= grid.changes
        pairs = zip(interval_costs(counts), interval_costs(first), strict=True)
        for level, (costs, before) in enumerate(pairs):
            moved = np.abs(costs - before)
            for start in range(2**level):  # where the first of the intervals begins
                assert moved[start :: 2**level].sum() < 2 * longest_interval(grid.cells) * grid.changes

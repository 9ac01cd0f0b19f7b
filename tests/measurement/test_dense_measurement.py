"""Grids of dense strategies: how far one record moves them is worked out once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dpdist.domain import Attribute, Domain
from dpdist.measurement import dense_measurement
from dpdist.measurement.dense_measurement import DenseMeasurement, Norm, integer_rows, round_dense_strategy
from dpdist.operators import Dense, Identity
from dpdist.stability import Neighbours
from dpdist.workloads import marginals

MIXING = np.array([[3.0, -1.0, 0.5], [0.0, 2.0, -2.0]])


@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_the_longest_column_is_found_once(norm: Norm, neighbours: Neighbours, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def watched(found: Callable[..., int]) -> Callable[..., int]:
        def record_call(mixing: Any, base: Any, neighbours: str, *sizes: Any) -> int:
            asked.append(neighbours)
            return found(mixing, base, neighbours, *sizes)

        return record_call

    for name in ("sensitivity_squared", "l1_sensitivity"):
        monkeypatch.setattr(dense_measurement, name, watched(getattr(dense_measurement, name)))
    domain = Domain((Attribute("a", categories=("x", "y", "z")),))
    grid = round_dense_strategy(Identity(3), MIXING, 3.0, norm, domain, neighbours=neighbours, most_records=2)
    assert isinstance(grid, DenseMeasurement)
    lengths = np.abs(grid.mixing).sum(axis=0) ** 2 if norm == "l1" else np.square(grid.mixing).sum(axis=0)
    assert grid.column_squared == int(lengths.max())
    assert asked == list(dict.fromkeys([neighbours, "add-remove"]))


def test_cells_alike_are_named_by_their_number_as_others_are_by_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all would be too many to hash: another multiple, another number of cells, another spacing, another name."""

    def digests() -> list[str]:
        made = [(6, 9, 1.0), (7, 9, 1.0), (6, 10, 1.0), (6, 9, 2.0)]
        return [
            DenseMeasurement(np.broadcast_to(np.int64(times), (cells,)), Identity(cells), spacing, 36).digest
            for times, cells, spacing in made
        ]

    listed = digests()
    monkeypatch.setattr("dpdist.measurement.dense_measurement.DIGEST_BYTES", 71)  # nine cells take 72
    named = digests()
    assert len({*listed, *named}) == 8
    assert digests() == named
    monkeypatch.setattr("dpdist.measurement.dense_measurement.DIGEST_BYTES", 80)  # as do ten: 'at most' is hashed
    assert digests() == listed


@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("rows", ["of the queries", "of others", "whole numbers"])
def test_whole_rows_and_their_mixing_are_the_strategy(rows: str, norm: Norm) -> None:
    """Whether its rows are made of what is asked or not; completing rows come after them."""
    workload = marginals(Domain((Attribute("a", categories=("x", "y", "z")), Attribute("b", categories=("f", "m")))), 1)
    state = np.random.default_rng(3)
    basis = workload.unweighted.dense()
    strategy = {
        "of the queries": state.standard_normal((4, len(basis))) @ basis,
        "of others": state.standard_normal((4, 6)),
        "whole numbers": state.integers(-3, 4, (4, 6)).astype(np.float64),
    }[rows]
    base, mixing = integer_rows(Dense(strategy), workload, norm)
    made = base.dense() if mixing is None else mixing @ base.dense()
    assert np.array_equal(base.dense(), np.rint(base.dense()))
    np.testing.assert_allclose(made[: len(strategy)], strategy, atol=1e-9)
    assert mixing is None or np.linalg.matrix_rank(mixing) == mixing.shape[1]

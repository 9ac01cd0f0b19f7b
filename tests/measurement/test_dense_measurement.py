"""Grids of dense strategies: how far one record moves them is worked out once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dpdist.domain import Attribute, Domain
from dpdist.measurement import dense_measurement
from dpdist.measurement.dense_measurement import DenseMeasurement, Norm, round_dense_strategy
from dpdist.operators import Identity
from dpdist.stability import Neighbours

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

"""Nominal seconds, by which ``auto`` decides what it compares, are those that planning takes."""

from __future__ import annotations

import pytest

from benchmarks.planning_effort import CASES, plan_time

FACTOR = 3.0
"""Between prediction and CPU time: 2 on a machine at rest (benchmarks/planning_effort.py), and what other processes add."""


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_nominal_seconds_are_those_that_planning_takes(name: str) -> None:
    """Relative to a product of matrices that is timed beside it, so that the machine does not matter."""
    case = plan_time(name)
    assert 1 / FACTOR < case.ratio < FACTOR, case

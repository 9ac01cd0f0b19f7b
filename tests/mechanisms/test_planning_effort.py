"""What planning takes is known before it takes it: nominal seconds, by which ``auto`` decides what it compares, and bytes."""

from __future__ import annotations

import tracemalloc

import pytest

from benchmarks.planning_effort import CASES, plan_time
from dpdist.domain import Domain
from dpdist.mechanisms.mechanism_registry import REGISTRY
from dpdist.operators import Identity, Prefix
from dpdist.workloads import Block, Workload, prefix

FACTOR = 3.0
"""Between prediction and CPU time: 2 on a machine at rest (benchmarks/planning_effort.py), and what other processes add."""
CELLS = 3000
PAIRS_BYTES = 8 * CELLS**2
BY_GROUP = Workload(
    Domain.of_shape((CELLS, 2)),
    (
        Block("all", (0,), (Prefix(CELLS),), ((),)),
        Block("each", (0, 1), (Prefix(CELLS), Identity(2)), ((), ())),
    ),
)
"""Two groups of queries that differ in one attribute: one product."""
WORKLOADS = {"one attribute": prefix(CELLS), "groups": BY_GROUP}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_nominal_seconds_are_those_that_planning_takes(name: str) -> None:
    """Relative to a product of matrices that is timed beside it, so that the machine does not matter."""
    case = plan_time(name)
    assert 1 / FACTOR < case.ratio < FACTOR, case


@pytest.mark.parametrize("asked", WORKLOADS)
@pytest.mark.parametrize("name", REGISTRY)
def test_what_planning_takes_is_known_without_an_array_over_pairs_of_values(name: str, asked: str) -> None:
    """Of 20,000 places in three levels ``auto`` took eight GiB and minutes only to find that one mechanism was out of reach."""
    mechanism, workload = REGISTRY[name], WORKLOADS[asked]
    if mechanism.reason_refused(workload) is not None:
        return
    tracemalloc.start()
    try:
        mechanism.effort(workload)
        mechanism.planning_bytes(workload)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < PAIRS_BYTES / 4

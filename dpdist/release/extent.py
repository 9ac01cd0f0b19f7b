"""How much work a release is, by its spec: whether one process does it before a cluster of processes has started."""

from __future__ import annotations

from dpdist.mechanisms.planner import considered_with, planned_effort
from dpdist.spec import ReleaseSpec

CELLS = 2**18
"""Cells that one process measures and answers from in a second or two."""
ANSWERS = 20_000
RECORD_BYTES = 2**24
"""Bytes of records that it counts in a few seconds: ten million rows of three columns as Parquet, half a million as CSV."""
OPERATIONS = 2.0**36
"""Multiplications of an optimiser: about three seconds of one core."""


def plans_in_one_process(spec: ReleaseSpec) -> bool:
    """Whether planning takes one process a few seconds at most."""
    rows, cells = spec.queries.shape
    effort = planned_effort(spec.queries, considered_with(spec.chosen, spec.norms, spec.queries, spec.limits.limits))
    operations = 2.0 * effort.products * effort.rank**2 * effort.cells
    return cells <= CELLS and rows <= ANSWERS and operations <= OPERATIONS


def fits_one_process(spec: ReleaseSpec, record_bytes: int) -> bool:
    """Whether one process publishes a release in less than about ten seconds."""
    return plans_in_one_process(spec) and record_bytes <= RECORD_BYTES

"""How much work a release is, by its spec: whether one process does it before a cluster of processes has started."""

from __future__ import annotations

from dpdist.mechanisms.comparison import compared_for_norms, planned_effort
from dpdist.spec import Job
from dpdist.strategies.solver_resources import Effort

CELLS = 2**18
"""Cells that one process measures and answers from in a second or two."""
ANSWERS = 20_000
RECORD_BYTES = 2**24
"""Bytes of records that it counts in a few seconds: ten million rows of three columns as Parquet, half a million as CSV."""
OPTIMISER_SECONDS = 3.0
"""Nominal ones of an optimiser."""


def effort_of(job: Job) -> Effort:
    """What the optimisers of all mechanisms that are compared take."""
    job_workload = job.workload
    return planned_effort(
        job_workload.queries,
        compared_for_norms(job_workload.mechanism, job.norms, job_workload.queries, job_workload.limits, job.setting),
    )


def plans_in_one_process(job: Job) -> bool:
    """Whether planning takes one process a few seconds at most."""
    rows, cells = job.workload.queries.shape
    return cells <= CELLS and rows <= ANSWERS and effort_of(job).nominal_seconds <= OPTIMISER_SECONDS


def fits_one_process(job: Job, record_bytes: int) -> bool:
    """Whether one process publishes a release in less than about ten seconds."""
    return record_bytes <= RECORD_BYTES and plans_in_one_process(job)

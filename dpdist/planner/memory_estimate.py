"""What every stage of a release takes, computed before it runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpdist.arrays.lazy_vector import BATCH
from dpdist.counting import histogram_counting
from dpdist.domain import Layout
from dpdist.engine import Engine
from dpdist.errors import OutOfMemory
from dpdist.measurement.integer_measurement import IntegerMeasurement
from dpdist.operators import TallMatrix
from dpdist.process.resource_limits import cores, explain_limits
from dpdist.reconstruction.answer_fitting import AnswerFitting
from dpdist.runtime import gram_computation
from dpdist.size_limits import SIZES
from dpdist.strategies import lower_bounds
from dpdist.strategies.solver_resources import Effort
from dpdist.workloads import Workload

TEXT_BYTES = 400
"""What a published row takes while its names are made."""

DELIVERED_ROW_BYTES, DELIVERED_BYTES = 600, 512 * 2**20
"""What writing into a warehouse takes, by row and at most: some batches, and files not yet full (benchmarks/warehouse_delivery.py)."""

FIT_COPIES = 4
"""Of rows and inverse: decompositions and solves write their results beside what they are given."""

PROOF_COPIES = 8
"""Of W'W over the cells, while weights that prove the lower bound are evaluated."""

COLUMN_COPIES = 12
"""Of the answers, while they are read, and held to a public number of records without an estimate of the cells."""


@dataclass(frozen=True)
class StageMemory:
    """Memory of one stage.

    Attributes:
        bytes: what it takes beyond the program itself: a task on a worker, or the process that runs the flow.
        limit: what there is, less what the program itself takes.
        on_workers: whether tasks of workers take it, each so much.
    """

    stage: str
    bytes: int
    limit: int
    on_workers: bool


def memory_plan(
    workload: Workload,
    measurement: IntegerMeasurement,
    layout: Layout,
    optimising: Effort,
    engine: Engine,
    *,
    fitted: bool = False,
    by_tables: bool = False,
    joining_bytes: int = 0,
    fitting: AnswerFitting | None = None,
    rounding_bytes: int = 0,
    delivered: bool = False,
) -> list[StageMemory]:
    """Every stage with what it takes: an upper bound (tests compare it with the measured peak).

    Args:
        fitted: whether one estimate of the cells is fitted to known counts, other releases, or to be non-negative.
        by_tables: whether answers are fitted without an estimate of the cells.
        joining_bytes: what it takes in this process to join it with other releases table by table.
        fitting: what makes the answers non-negative.
        rounding_bytes: what it takes to make whole numbers of all answers together.
        delivered: whether the answers go into a warehouse, too.
    """
    worker, own_bytes = engine.task_bytes, engine.own_bytes
    stage_bytes = measurement.memory(workload, layout, engine.memory_bytes)
    stages = [
        StageMemory("count", histogram_counting.task_bytes(layout, engine), worker, True),
        StageMemory("optimise", optimising.memory_bytes, engine.largest_worker_bytes, False),
        StageMemory("measure", stage_bytes.measure, own_bytes, False),
        StageMemory("answer", stage_bytes.answer, worker, True),
        StageMemory("publish", publish_bytes(workload), own_bytes, False),
    ]
    if rounding_bytes:
        stages.insert(4, StageMemory("round", rounding_bytes, engine.largest_worker_bytes, False))
    if delivered:
        delivering = min(workload.shape[0] * DELIVERED_ROW_BYTES, DELIVERED_BYTES)
        stages.append(StageMemory("deliver", delivering, own_bytes, False))
    if joining_bytes:
        stages.insert(3, StageMemory("fit", joining_bytes, own_bytes, False))
    elif fitted:
        # rows over all cells, and the inverse of those that are independent
        rows, cells = measurement.rows, workload.shape[1]
        fit_bytes = 8 * FIT_COPIES * (rows * cells + min(rows, cells) ** 2)
        cell_bytes = 0 if fitting is None else fitting.cell_bytes(cells)
        stages.insert(3, StageMemory("fit", fit_bytes + cell_bytes, engine.largest_worker_bytes, False))
    elif by_tables:
        if fitting is None:
            stages.insert(3, StageMemory("fit", COLUMN_COPIES * 8 * workload.shape[0], own_bytes, False))
        elif held_bytes := fitting.held_bytes(workload):
            stages.insert(3, StageMemory("fit", held_bytes, engine.largest_worker_bytes, False))
        elif task_bytes := fitting.task_bytes(workload):
            stages.insert(3, StageMemory("fit", max(stage_bytes.answer, task_bytes), worker, True))
    if any(isinstance(factor, TallMatrix) for block in workload.blocks for factor in block.factors):
        stages.insert(
            1, StageMemory("gram", gram_computation.task_bytes(workload.shape[1], engine.memory_bytes), worker, True)
        )
    return stages


def check(plan: list[StageMemory], cure: str) -> None:
    """Raises: OutOfMemory for the first stage that does not fit."""
    for stage in plan:
        if stage.bytes > stage.limit:
            raise OutOfMemory(f"stage {stage.stage!r}", stage.bytes, stage.limit, f"{explain_limits()}; {cure}")


def publish_bytes(workload: Workload, *, writers: int | None = None) -> int:
    """What publishing takes, whatever the number of answers: some batches of rows, or the proof of the certificate's bound before them.

    Args:
        writers: of parts, at once; default: as many as this process has.
    """
    rows, cells = workload.shape
    proof = PROOF_COPIES * 8 * cells**2 if cells <= lower_bounds.MOST_CELLS else 0
    batch = min(rows, SIZES.batch_rows) * TEXT_BYTES
    at_once = writers or min(cores() + 1, math.ceil(rows / SIZES.file_rows) + 1)
    return max(proof, at_once * (batch + 8 * 8 * min(rows, BATCH)))

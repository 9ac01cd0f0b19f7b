"""What every stage of a release takes, computed before it runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpdist.columns import COLUMN_BATCH
from dpdist.domain import Layout
from dpdist.engine import Engine
from dpdist.errors import OutOfMemory
from dpdist.limits import cores
from dpdist.operators import Identity, Tall
from dpdist.operators.base import ROW_BLOCK_BYTES
from dpdist.passes import MEMORY_SHARE, SLAB_BYTES
from dpdist.records import counting
from dpdist.release import gram
from dpdist.sizes import SIZES
from dpdist.strategies.dawa import AdaptiveGrid
from dpdist.strategies.dense_grid import DenseGrid
from dpdist.strategies.filter_grid import LongGrid
from dpdist.strategies.grid import Grid, TableGrid
from dpdist.strategies.planner import Effort
from dpdist.strategies.term_grid import TermGrid
from dpdist.workloads import Workload
from dpdist.workloads.basis import SubsetBasis

HELD_COPIES = 6
"""Copies of counts and measurements that measuring and reading hold at once, where they are not worked on shard by shard."""
SHARD_COPIES = 4
"""Copies of a shard while it is read, changed, hashed and written."""
SMALL_BYTES = 2**20
"""What the codecs of one small shard take."""
TEXT_BYTES = 400
"""What a published row takes while its names are made."""


@dataclass(frozen=True)
class StageMemory:
    """Memory of one stage.

    Attributes:
        bytes: what it takes beyond the program itself: a task on a worker, or the process that runs the flow.
        limit: what there is.
        on_workers: whether tasks of workers take it, each so much.
    """

    stage: str
    bytes: int
    limit: int
    on_workers: bool


def memory_plan(workload: Workload, grid: Grid, layout: Layout, optimising: Effort, engine: Engine) -> list[StageMemory]:
    """Every stage with what it takes: an upper bound (tests compare it with the measured peak)."""
    worker, here = engine.memory_bytes, engine.own_bytes
    out = [
        StageMemory("count", counting.task_bytes(layout, engine), worker, True),
        StageMemory("optimise", optimising.memory_bytes, engine.largest_worker_bytes, False),
        StageMemory("measure", measure_bytes(grid, layout, workload), here, False),
        StageMemory("answer", answer_bytes(workload, grid, worker), worker, True),
        StageMemory("publish", publish_bytes(workload), here, False),
    ]
    if any(isinstance(factor, Tall) for block in workload.blocks for factor in block.factors):
        out.insert(1, StageMemory("gram", gram.task_bytes(workload.shape[1], worker), worker, True))
    return out


def check(plan: list[StageMemory], cure: str) -> None:
    """Raises: OutOfMemory for the first stage that does not fit."""
    for stage in plan:
        if stage.bytes > stage.limit:
            raise OutOfMemory(f"stage {stage.stage!r}", stage.bytes, stage.limit, cure)


def cell_by_cell(workload: Workload, grid: Grid) -> bool:
    """Whether the answers are the measured cells themselves, in their order."""
    axes = tuple(range(len(workload.domain.shape)))
    (block, *others) = workload.blocks
    alone = not others and block.axes == axes and all(isinstance(f, Identity) for f in block.factors)
    return isinstance(grid, DenseGrid) and grid.multiple is not None and alone


def measure_bytes(grid: Grid, layout: Layout, workload: Workload) -> int:
    """What measuring takes, and reading what was measured."""
    shards = SHARD_COPIES * min((cores() + 1) * SIZES.shard_bytes, 8 * max(layout.size, grid.rows) + SMALL_BYTES)
    if isinstance(grid, TableGrid):
        return HELD_COPIES * 8 * (layout.size + 6 * grid.rows)  # limbs and their spectra
    if isinstance(grid, LongGrid):
        return shards
    if isinstance(grid, TermGrid):
        return shards if grid.streamed else HELD_COPIES * 8 * (layout.size + grid.rows)
    if isinstance(grid, DenseGrid) and grid.multiple is not None:
        return shards if cell_by_cell(workload, grid) else HELD_COPIES * 8 * layout.size
    over_cells = isinstance(grid, AdaptiveGrid) or (isinstance(grid, DenseGrid) and not isinstance(grid.base, SubsetBasis))
    mixing = 2 * int(grid.mixing.nbytes) if isinstance(grid, DenseGrid) else 0
    return HELD_COPIES * 8 * (grid.rows + (layout.size if over_cells else 0)) + mixing


def answer_bytes(workload: Workload, grid: Grid, worker_bytes: int) -> int:
    """What a task of answering takes: the inverse of the strategy and some rows of queries; or a slab."""
    if isinstance(grid, LongGrid) or (isinstance(grid, TermGrid) and grid.streamed):
        return min(SLAB_BYTES, worker_bytes // MEMORY_SHARE)
    if cell_by_cell(workload, grid):
        return 0
    inverse = int(grid.mixing.nbytes) if isinstance(grid, DenseGrid) else HELD_COPIES * 8 * min(workload.shape[0], 2**22)
    tall = any(isinstance(factor, Tall) for block in workload.blocks for factor in block.factors)
    return 3 * inverse + 3 * ROW_BLOCK_BYTES + (SIZES.row_block_bytes if tall else 0)


def publish_bytes(workload: Workload) -> int:
    """What publishing takes, whatever the number of answers: some batches of rows."""
    rows = workload.shape[0]
    batch = min(rows, SIZES.batch_rows) * TEXT_BYTES
    writers = min(cores() + 1, math.ceil(rows / SIZES.file_rows) + 1)
    return writers * (batch + 8 * 8 * min(rows, COLUMN_BATCH))

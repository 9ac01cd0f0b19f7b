"""The rows of a thresholded histogram, drawn by the workers that may, as ``distributed_noise`` draws measured values: no key is sent.

A task draws some shards and writes their rows, which are what is published, under a name of its own. Another half of the workers draws
every one of them again and compares digests, and the process of the release some. Rows are a function of key and shard, so they are the
same whoever draws them.
"""

from __future__ import annotations

import hashlib
import secrets
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from dpdist.counting.sparse_counts import SparseCounts
from dpdist.engine import this_worker
from dpdist.engine.shuffle import RunKey
from dpdist.errors import KeyUnavailable, LedgerError, StoreError
from dpdist.pipeline.distributed_noise import REDRAWN_SHARDS, RESOURCE, Claim
from dpdist.privacy.keys import Secret
from dpdist.privacy.selection.thresholded_histogram import Integers, ThresholdedHistogram, in_order
from dpdist.runtime.context import Context

TASKS_PER_WORKER = 4


@dataclass(frozen=True)
class ShardTask:
    """Some shards to be drawn: an item that the engine gives to the scheduler, and never writes.

    Attributes:
        run_key: under which their counts are sealed.
        claim: with the digest of all exact counts.
    """

    shards: range
    run_key: RunKey = field(repr=False)
    claim: Claim


@dataclass(frozen=True)
class RowsReport:
    """What a worker says of some shards.

    Attributes:
        name: of what it wrote in the store.
        rows: how many it published.
        digest: SHA-256 of them; None when it drew nothing.
        refusal: why it drew nothing.
    """

    worker: str
    name: str = ""
    rows: int = 0
    digest: str | None = None
    refusal: str = ""


@dataclass(frozen=True)
class SparseShards:
    """The shards of a thresholded histogram, as workers draw them. No key and no digest is in it, so that it may be left in the store."""

    counted: SparseCounts = field(repr=False)
    rule: ThresholdedHistogram

    def rows(self, task: ShardTask, key: Secret) -> Integers:
        """Cells and noisy counts of the published rows of some shards, (2, rows)."""
        counted = replace(self.counted, key=task.run_key)
        drawn = in_order(self.rule.draw_shard(*shard, key.reveal()) for shard in counted.read_shards(task.shards))
        return np.stack(drawn)

    def draw(self, task: ShardTask) -> RowsReport:
        """Draw and write some shards, on a worker. It draws nothing where the key or the ledger say so: the flow does it then."""
        try:
            with task.claim.key() as ask:
                rows = self.rows(task, ask())
                ask()  # the attempt may have ended meanwhile: what comes late is not written
                name = f"{self.counted.folder}/{uuid.uuid4().hex}"
                if rows.size:
                    self.counted.store.put_values(name, rows)
                return RowsReport(this_worker(), name, rows.shape[1], _digest(rows))
        except (KeyUnavailable, LedgerError) as error:
            return RowsReport(this_worker(), refusal=str(error))

    def agrees(self, drawn: tuple[ShardTask, str]) -> bool | None:
        """Whether this worker draws the same rows; None where it may not draw."""
        task, digest = drawn
        try:
            with task.claim.key() as ask:
                return _digest(self.rows(task, ask())) == digest
        except (KeyUnavailable, LedgerError):
            return None

    def written_rows(self, report: RowsReport) -> Integers:
        """The rows that a worker wrote. Raises: StoreError where they are not those that it said."""
        content = self.counted.store.get_values(report.name, 0, 16 * report.rows) if report.rows else memoryview(b"")
        rows = np.frombuffer(content, dtype=np.int64).reshape(2, report.rows)
        if _digest(rows) != report.digest:
            raise _row_error(report.worker)
        return rows


def draw_rows(
    context: Context, claim: Claim, rule: ThresholdedHistogram, counted: SparseCounts, key: Secret
) -> tuple[Integers, Integers]:
    """The published rows of a thresholded histogram, drawn by the workers that may, or here where there is none.

    Raises: StoreError when what a worker wrote is not the noise of the key.
    """
    shards = SparseShards(replace(counted, key=RunKey(b""), digest=""), rule)
    workers = context.engine.with_resource(RESOURCE)
    if not workers:
        return in_order(rule.draw_shard(*shard, key.reveal()) for shard in counted.read_shards(range(rule.shards)))
    task_count = min(rule.shards, TASKS_PER_WORKER * len(workers))
    bounds = [number * rule.shards // task_count for number in range(task_count + 1)]
    tasks = [ShardTask(range(first, end), counted.key, claim) for first, end in pairwise(bounds)]
    reports = _reports_of_workers(context, shards, tasks)
    _check(context, shards, tasks, reports, key)
    drawn = [
        shards.rows(task, key) if report is None else shards.written_rows(report)
        for task, report in zip(tasks, reports, strict=True)
    ]
    return in_order((rows[0], rows[1]) for rows in drawn)


def _reports_of_workers(context: Context, shards: SparseShards, tasks: Sequence[ShardTask]) -> list[RowsReport | None]:
    """What was drawn for each task; None where the flow must draw."""
    reports = context.engine.map_where(RESOURCE, shards.draw, tasks)
    for worker, refusal in sorted({(each.worker, each.refusal) for each in reports if each is not None and each.refusal}):
        context.progress(
            "warning", f"the worker at {worker} with the resource 'noise' drew nothing, and this process does it: {refusal}"
        )
    return [None if report is None or report.digest is None else report for report in reports]


def _check(
    context: Context,
    shards: SparseShards,
    tasks: Sequence[ShardTask],
    reports: Sequence[RowsReport | None],
    key: Secret,
) -> None:
    """All rows are drawn again by a worker of the half to which their author does not belong, or here; some here in any case.

    Raises: StoreError.
    """
    workers = context.engine.with_resource(RESOURCE)
    halves = workers[::2], workers[1::2]
    unchecked = list[tuple[ShardTask, RowsReport]]()
    written = [(task, report) for task, report in zip(tasks, reports, strict=True) if report is not None]
    for authors, others in (halves, halves[::-1]):
        authored = [(task, report) for task, report in written if (report.worker in halves[1]) == (authors is halves[1])]
        items = [(task, report.digest or "") for task, report in authored]
        for (task, report), agrees in zip(
            authored, context.engine.map_where(RESOURCE, shards.agrees, items, among=others), strict=True
        ):
            if agrees is None:
                unchecked.append((task, report))
            elif not agrees:
                raise _row_error(report.worker)
    unchecked += secrets.SystemRandom().sample(written, min(REDRAWN_SHARDS, len(written)))
    for task, report in unchecked:
        if _digest(shards.rows(task, key)) != report.digest:
            raise _row_error(report.worker)


def _digest(rows: Integers) -> str:
    return hashlib.sha256(np.ascontiguousarray(rows).tobytes()).hexdigest()


def _row_error(worker: str) -> StoreError:
    return StoreError(
        f"rows of the thresholded histogram, which the worker at {worker} drew, are not the noise of this release's key. Nothing is "
        "committed: stop that worker, look at its memory and its version of dpdist, and run again: the same noise is drawn"
    )

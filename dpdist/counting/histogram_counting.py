"""Records to counts: one int64 a cell, in the store, however many records there are.

Sources are Parquet and CSV files (plain or gz) and folders of them. Each task counts some partitions into a partial
histogram; a second round sums the partials shard by shard. A histogram that does not fit in a worker's memory is counted
sparsely: tasks write (position, count) pairs, dealt out by ranges of positions. When a person column bounds contributions,
records are first dealt out by a hash of the person, so that all records of one person meet in one task whatever
file they are in. The hash has a key of the run, and what is dealt out is sealed under it; it exists in memory only: what a killed
run leaves tells nothing of anybody.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpdist.counting.contribution_bounding import count_by_person
from dpdist.counting.partial_counts import DENSE_COPIES, PAIR_COPIES, Batch, Counter, is_sparse
from dpdist.counting.record_cells import CountSummary, cells_of, cells_of_partitions, tables_of
from dpdist.domain import Attribute, Domain, EvenEdges, Layout
from dpdist.engine import Engine, ProgressCallback
from dpdist.engine.shuffle import DealtObject, RunKey, ShuffleIndex, gather
from dpdist.engine.tree_reduction import reduce_groups
from dpdist.errors import InvalidInput, OutOfMemory
from dpdist.measurement.integer_measurement import check_record_limit
from dpdist.privacy import keys
from dpdist.privacy.keys import Secret
from dpdist.size_limits import SIZES
from dpdist.sources.formats.array_files import cells_of_part, part_bytes
from dpdist.sources.formats.format_registry import row_format
from dpdist.sources.formats.record_format import BATCH_ROWS, Partition
from dpdist.sources.formats.weighted_rows import counted_rows
from dpdist.sources.record_sources import Source, check_columns, group_partitions, partitions_of, without_files
from dpdist.storage.array_store import ArrayPlan, Store, StoredArray

PARTS_A_WORKER = 4
BESIDE = 16
"""A part of this size of a task's memory may be a histogram that is counted beside something else."""


def count(
    source: Source,
    domain: Domain,
    store: Store,
    engine: Engine,
    *,
    root: Secret,
    tables: tuple[tuple[int, ...], ...] = (),
    report_progress: ProgressCallback | None = None,
) -> tuple[StoredArray, CountSummary]:
    """The histogram of all records, counted once for each content of the source and domain.

    Args:
        tables: attribute sets whose marginal tables are counted instead of all cells, which may then be up to 2^63.
        root: the root key, under which histograms are named: a plain digest of records tells more than a name should.
    Returns: (counts,) int64 in the order of ``Layout``, in the store under ``histograms/<commitment to source and domain>``, and the tally.
    Raises: UnknownValue, InvalidSpec (missing columns), InvalidInput (more than 2^63 cells).
    """
    name = _histogram_name(source, domain, tables, root)
    if store.exists(name):
        stored = store.open(name)
        return stored, CountSummary(**stored.facts["private_tally"])
    draft, key = _draft_of(name, source, domain, store, engine, tables), RunKey.generate()
    try:
        tasks = engine.workers * PARTS_A_WORKER
        groups = group_partitions(partitions_of(source), tasks)
        if source.person is not None:
            tally, dealt = count_by_person(source, domain, draft.counter, engine, key, groups, tasks, report_progress)
        else:
            tasks = len(groups)
            items = [(number, group, key) for number, group in enumerate(groups)]
            counted = engine.map(
                partial(_count_partitions, draft.source, domain, draft.counter), items, report_progress=report_progress
            )
            tally = sum((tally for tally, _ in counted), CountSummary())
            dealt = [dealt_block for _, task_dealt in counted for dealt_block in task_dealt]
        if source.counts is not None or row_format(source.files[0][0]) is None:
            check_record_limit(tally.read)  # before sums of them could overflow
        stored = _sum_partials(draft.counter, draft.plan, engine, tally, key, tasks, dealt)
    finally:
        store.delete(draft.counter.work)
    return stored, tally


@dataclass(frozen=True)
class HistogramDraft:
    """A histogram that is not in the store yet: what tasks need to count it.

    Attributes:
        source: without files.
        counter: where partial counts go.
        plan: of the array.
    """

    source: Source
    domain: Domain
    counter: Counter
    plan: ArrayPlan

    def finish(self, engine: Engine, tally: CountSummary, key: RunKey, tasks: int) -> None:
        """Store what so many tasks counted."""
        try:
            _sum_partials(self.counter, self.plan, engine, tally, key, tasks, ())
        finally:
            self.counter.store.delete(self.counter.work)


def draft_beside(
    source: Source, domain: Domain, store: Store, engine: Engine, *, root: Secret, tables: tuple[tuple[int, ...], ...]
) -> HistogramDraft | None:
    """A histogram to be counted in the same reading as something else; None where it is counted already, or must be by itself.

    Arguments and errors: as of ``count``.
    """
    name, layout = _histogram_name(source, domain, tables, root), _layout_of(domain, tables)
    is_small = DENSE_COPIES * 8 * layout.size <= bytes_beside(engine)
    is_of_records = source.counts is None and all(row_format(path) for path, _ in source.files)
    if store.exists(name) or not is_small or not is_of_records:
        return None
    draft = _draft_of(name, source, domain, store, engine, tables)
    return replace(draft, counter=replace(draft.counter, sparse=False))  # it is small, also beside a batch of records


def bytes_beside(engine: Engine) -> int:
    """What a task takes for a histogram that is counted beside something else."""
    return engine.memory_bytes // BESIDE


def _histogram_name(source: Source, domain: Domain, tables: tuple[tuple[int, ...], ...], root: Secret) -> str:
    return f"histograms/{keys.commitment(root, 'histogram', _count_digest(source, domain, tables))[:32]}"


def _layout_of(domain: Domain, tables: tuple[tuple[int, ...], ...]) -> Layout:
    return Layout(domain.shape, tables, domain.shares_per_record, domain.max_abs_shares)


def _draft_of(
    name: str, source: Source, domain: Domain, store: Store, engine: Engine, tables: tuple[tuple[int, ...], ...]
) -> HistogramDraft:
    """Raises: as ``count``, what can be refused before records are read."""
    layout = _layout_of(domain, tables)
    _check_totals(source, domain)
    check_columns(source, domain)
    path, tags = source.files[0][0], source.tags[0]
    needed_bytes = 0 if row_format(path) else part_bytes(path, tags)
    if needed_bytes > engine.memory_bytes // 4:  # parts of arrays fit into a task
        raise OutOfMemory("count", needed_bytes, engine.memory_bytes // 4, "store the array in smaller chunks")
    kinds = math.prod(attribute.kinds for attribute in domain.attributes)
    if kinds >= 2**63:
        raise InvalidInput(f"a domain has up to 2^63 cells, found {float(kinds):.3g}; use fewer attributes")
    plan = store.plan(name, (layout.size,), np.int64)
    # shards whose counts one task sums from pairs: as many as take a quarter of a worker's memory
    shards = max(1, min(plan.shards // max(1, engine.workers), engine.memory_bytes // 4 // (8 * plan.shard_rows)))
    sparse, divided = is_sparse(layout, engine), domain if domain.amounts else None
    counter = Counter(layout, store, store.scratch(), plan.shard_rows * shards, sparse, divided)
    return HistogramDraft(without_files(source), domain, counter, plan)


def summary_of(source: Source, domain: Domain, engine: Engine) -> CountSummary:
    """How reading the records goes, without their counts. Raises: as ``count``."""
    check_columns(source, domain)
    groups = group_partitions(partitions_of(source), engine.workers * PARTS_A_WORKER)
    return sum(engine.map(partial(_summary_of, without_files(source), domain), groups), CountSummary())


def _summary_of(source: Source, domain: Domain, partitions: list[Partition]) -> CountSummary:
    if source.counts is None:
        return sum((summary for _, summary in cells_of_partitions(source, domain, partitions)), CountSummary())
    found = CountSummary()
    for partition in partitions:
        for table in tables_of(source, domain, partition):
            found += counted_cells(table, source, domain, partition)[2]
    return found


def _check_totals(source: Source, domain: Domain) -> None:
    """Accept bounds on totals where persons are distinguished, with as many records as the sensitivity takes for granted."""
    for attribute in domain.amounts:
        bound = None if attribute.amounts is None else attribute.amounts.bound
        person = source.person
        record_bound = source.most_records * ((person and person.most_groups) or 1)
        if bound is not None and (person is None or record_bound != bound.records):
            raise InvalidInput(
                f"the total of {attribute.name!r} is bounded for persons with up to {bound.records} records, found "
                f"{'no person column' if person is None else f'up to {record_bound}'}; give both to the same column"
            )


def task_bytes(layout: Layout, engine: Engine) -> int:
    """What a task of counting takes: all counts, or pending pairs and then the counts of a range."""
    batch = 2 * BATCH_ROWS * 64
    if not is_sparse(layout, engine):
        return DENSE_COPIES * 8 * layout.size + batch
    return max(PAIR_COPIES * 16 * SIZES.pending_pairs, engine.memory_bytes // 4 + 2 * SIZES.shard_bytes) + batch


def _edge_facts(edges: Sequence[float]) -> Sequence[object]:
    return ["even", edges.first, edges.width, edges.bins] if isinstance(edges, EvenEdges) else edges


def _extra_facts(attribute: Attribute) -> list[object]:
    """What decides where values are counted besides edges and categories; nothing for attributes that have nothing else."""
    labelled = attribute.missing is not None or attribute.other is not None
    totals = [] if attribute.total is None else [["total", attribute.total]]
    times = [] if attribute.times is None else [attribute.times.facts]
    column_amounts, derivation = attribute.amounts, attribute.line
    derivation_facts = (
        []
        if derivation is None
        else [[derivation.coefficients, [_facts(source_attribute) for source_attribute in derivation.of]]]
    )
    amounts: list[object] = (
        [] if column_amounts is None else [[str(column_amounts.first), str(column_amounts.step), column_amounts.steps]]
    )
    if column_amounts is not None and column_amounts.bound is not None:
        amounts.append([column_amounts.low, column_amounts.width, column_amounts.bound.records, column_amounts.bound.times])
    return [*([[attribute.missing, attribute.other]] if labelled else []), *totals, *times, *amounts, *derivation_facts]


def _facts(attribute: Attribute) -> list[object]:
    """What decides where records are counted."""
    return [attribute.name, attribute.categories, _edge_facts(attribute.edges), attribute.outside, *_extra_facts(attribute)]


def _count_digest(source: Source, domain: Domain, tables: tuple[tuple[int, ...], ...]) -> str:
    facts = [_facts(attribute) for attribute in domain.attributes]
    level_facts = [
        [level_attribute.apart, level_attribute.levels_counted]
        for level_attribute in domain.attributes
        if level_attribute.apart
    ]
    digest_content = [facts, tables, *([domain.tables, level_facts] if level_facts else [])]
    return hashlib.sha256(f"{source.digest}{json.dumps(digest_content)}".encode()).hexdigest()[:32]


def _count_partitions(
    source: Source, domain: Domain, counter: Counter, task: tuple[int, list[Partition], RunKey]
) -> tuple[CountSummary, list[DealtObject]]:
    number, partitions, key = task
    tallies: list[CountSummary] = []

    def batches() -> Iterator[Batch]:
        for partition in partitions:
            if row_format(partition.path) is None:
                assert partition.group is not None
                cells, numbers = cells_of_part(partition.path, partition.group, partition.tags)
                tallies.append(CountSummary(int(numbers.sum())))
                yield cells, numbers
                continue
            for table in tables_of(source, domain, partition):
                cells, numbers, tally = counted_cells(table, source, domain, partition)
                tallies.append(tally)
                yield cells, numbers

    def batches_of_records() -> Iterator[Batch]:
        for cells, tally in cells_of_partitions(source, domain, partitions):
            tallies.append(tally)
            yield cells, None

    records = source.counts is None and all(row_format(partition.path) for partition in partitions)
    dealt = counter.count(number, key, batches_of_records() if records else batches())
    return sum(tallies, CountSummary()), dealt


def counted_cells(
    table: pa.Table, source: Source, domain: Domain, partition: Partition
) -> tuple[NDArray[np.int64], NDArray[np.int64], CountSummary]:
    """The cells of rows that stand for several records each, and for how many."""
    assert source.counts is not None
    rows, numbers = counted_rows(table, source.counts, partition.source_label)
    cells, tally = cells_of(rows, source, domain, partition.source_label)
    return cells, numbers, replace(tally, read=int(numbers.sum()), dropped=int(numbers[cells < 0].sum()), unread=0)


def _sum_partials(
    counter: Counter,
    plan: ArrayPlan,
    engine: Engine,
    tally: CountSummary,
    key: RunKey,
    tasks: int,
    dealt: Sequence[DealtObject],
) -> StoredArray:
    store, step = counter.store, counter.range_size // plan.shard_rows
    store.begin(plan)
    ranges = [range(first_shard, min(first_shard + step, plan.shards)) for first_shard in range(0, plan.shards, step)]
    if counter.sparse:
        partials: Sequence[str] | ShuffleIndex = gather(store, counter.work, key, counter.ranges, dealt)
    else:
        (partials,) = reduce_groups(store, engine, [[f"{counter.work}/{task}" for task in range(tasks)]])
    digests = engine.map(partial(_sum_range, counter, plan, partials), [(shards, key) for shards in ranges])
    return store.finish(
        plan, [digest for range_digests in digests for digest in range_digests], {"private_tally": tally.__dict__}
    )


def _sum_range(
    counter: Counter, plan: ArrayPlan, partials: Sequence[str] | ShuffleIndex, task: tuple[range, RunKey]
) -> list[str]:
    shards, key = task
    return [counter.store.write_shard(plan, shard, counts) for shard, counts in counter.total(plan, shards, partials, key)]

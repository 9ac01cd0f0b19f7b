"""Contributions are bounded by dealing records into buckets by a keyed hash of the person, and keeping the first of each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpdist.counting.group_choice import are_in_first_groups, mix_bits
from dpdist.counting.partial_counts import Batch, Counter
from dpdist.counting.person_keys import PersonKey, person_hashes
from dpdist.counting.record_cells import CountSummary, cells_of, explain_conversion_errors, tables_of
from dpdist.domain import Attribute, Domain
from dpdist.engine import Engine, ProgressCallback
from dpdist.engine.shuffle import DealtObject, PendingRows, Rows, RunKey, ShuffleIndex, gather
from dpdist.errors import InvalidSpec
from dpdist.process import arrow_arrays
from dpdist.size_limits import Sizes
from dpdist.sources.formats.column_conversion import (
    convert_column,
)
from dpdist.sources.formats.record_format import BATCH_ROWS, Partition
from dpdist.sources.record_sources import Participations, Source, without_files
from dpdist.sources.source_labels import SourceLabel
from dpdist.storage.array_store import Store

HASHED = np.dtype([("high", "<u8"), ("low", "<u8"), ("cell", "<i8")])
"""A record that is dealt out: the keyed hash of its person, and its cell."""
DEALT_BYTES = 8
"""What a byte of a file of records becomes at most when it is dealt out: a record takes three bytes or more there."""
PART_BYTES = 2**26
"""Of a part at most, as far as file sizes tell: the records of larger ones are put in order in five times the time, because they are
gathered from all over the memory (benchmarks/page_views.py)."""
PART_COPIES = 6
"""Arrays of a part's records while persons are distinguished."""


def choose_part_count(source: Source, engine: Engine, tasks: int) -> int:
    """How many parts records are dealt out to: as many for every task as bring a part into a quarter of a worker's memory."""
    part_bytes = max(1, min(engine.memory_bytes // 4 // PART_COPIES, PART_BYTES))
    return tasks * max(1, math.ceil(DEALT_BYTES * sum(tags.size for tags in source.tags) / part_bytes / tasks))


def pending_rows(sizes: Sizes, engine: Engine) -> int:
    """Records that a task holds before it deals them out: few enough that those of a part are gathered from a processor's caches.

    A quarter of them takes a tenth less CPU time than all (benchmarks/page_views.py).
    """
    return min(max(1, sizes.pending_pairs // 4), max(BATCH_ROWS, engine.memory_bytes // (8 * HASHED.itemsize)))


def count_by_person(
    source: Source,
    domain: Domain,
    counter: Counter,
    engine: Engine,
    key: RunKey,
    groups: list[list[Partition]],
    tasks: int,
    report_progress: ProgressCallback | None,
) -> tuple[CountSummary, list[DealtObject]]:
    """Count at most ``source.most_records`` records of each person into the counter's partial counts, in so many tasks.

    Args:
        groups: of partitions, in the order of files and rows, a task each.
    """
    part_count = choose_part_count(source, engine, tasks)
    pending = pending_rows(counter.store.sizes, engine)
    dealing = Dealing(without_files(source), domain, counter.store, counter.work, part_count, pending)
    summary, shuffle_index = dealing.deal_all(engine, key, groups, report_progress)
    counting = partial(_count_parts, without_files(source), domain, counter, shuffle_index)
    parts_per_task = part_count // tasks
    counted = engine.map(
        counting,
        [(task, range(task * parts_per_task, (task + 1) * parts_per_task), key) for task in range(tasks)],
        report_progress=report_progress,
    )
    tally = sum((tally for tally, _ in counted), summary)
    return tally, [dealt_object for _, task_dealt in counted for dealt_object in task_dealt]


@dataclass(frozen=True)
class Dealing:
    """How records are dealt out by person: with the keyed hash of their person, their cell and some amounts, in record order.

    Attributes:
        work: a folder of the store.
        part_count: how many there are.
        pending: records that a task holds before it deals them out.
        columns: whose amounts go along.
        complete: columns of which every record within the domain must have an amount.
    """

    source: Source
    domain: Domain
    store: Store
    work: str
    part_count: int
    pending: int
    columns: tuple[Attribute, ...] = ()
    complete: tuple[Attribute, ...] = ()

    def deal_all(
        self, engine: Engine, key: RunKey, groups: list[list[Partition]], report_progress: ProgressCallback | None = None
    ) -> tuple[CountSummary, ShuffleIndex]:
        """Deal out all records so that those of one person are in one part, in the order of files and rows.

        Args:
            key: what is dealt out is sealed under it.
            groups: of partitions, in the order of files and rows, a task each.
        """
        results = engine.map(self.deal, [(group, key) for group in groups], report_progress=report_progress)
        tally = sum((tally for tally, _ in results), CountSummary())
        dealt_objects = [dealt_object for _, task_dealt in results for dealt_object in task_dealt]
        return tally, gather(self.store, self.work, key, self.part_count, dealt_objects)

    def deal(self, task: tuple[list[Partition], RunKey]) -> tuple[CountSummary, list[DealtObject]]:
        """Deal out the records of some partitions."""
        partitions, key = task
        person_key, tally = PersonKey(key.derive_key(b"persons")), [CountSummary()]

        def batches() -> Iterator[Rows]:
            for partition in partitions:
                for number, table in enumerate(tables_of(self.source, self.domain, partition)):
                    table_summary, rows = self._rows(table, partition, number, person_key)
                    tally.append(table_summary)
                    yield rows

        waiting = PendingRows(self.store, self.work, key, self.part_count, self.pending, self.dtype, divide_by_person)
        dealt_objects = waiting.deal_all(batches())
        return sum(tally, CountSummary()), dealt_objects

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of a record that is dealt out."""
        return np.dtype([*HASHED.descr, *((amount_of(column_index), "<f8") for column_index in range(len(self.columns)))])

    def _rows(self, table: pa.Table, partition: Partition, number: int, key: PersonKey) -> tuple[CountSummary, Rows]:
        """The records of a table that lie within the domain and have a person."""
        cells, tally = cells_of(table, self.source, self.domain, partition.source_label)
        check_complete(table, self.complete, self.source, cells, partition.source_label)
        persons, dropped = person_hashes(table, self.source, partition, number, key)
        is_counted = cells >= 0
        tally = replace(tally, dropped=tally.dropped + int((is_counted & dropped).sum()))
        is_counted &= ~dropped
        amounts = {
            amount_of(column_index): amounts_of(table, column, self.source, partition.source_label)
            for column_index, column in enumerate(self.columns)
        }
        return tally, person_rows(persons, cells, is_counted, self.dtype, amounts)


def person_rows(
    hashes: NDArray[np.uint64],
    cells: NDArray[np.int64],
    is_counted: NDArray[np.bool_],
    dtype: np.dtype[Any] = HASHED,
    amounts: Mapping[str, NDArray[np.float64]] | None = None,
) -> Rows:
    """The records that count, as they are dealt out.

    Args:
        hashes: of the person of every record, (records, 2).
        cells: of every record.
        amounts: further fields, of every record.
    """
    rows = np.empty(cells.size, dtype=dtype)
    columns = {"high": hashes[:, 0], "low": hashes[:, 1], "cell": cells, **(amounts or {})}
    for name, values in columns.items():
        rows[name] = values
    return rows if is_counted.all() else rows.compress(is_counted)


def divide_by_person(rows: Rows, part_count: int) -> tuple[Rows, NDArray[np.int64]]:
    """Records, and the part of each by the hash of its person."""
    return rows, (rows["high"] % np.uint64(part_count)).astype(np.int64)


def amount_of(column_index: int) -> str:
    """The field of a record that is dealt out with the amount of one of the columns."""
    return f"amount {column_index}"


def amounts_of(table: pa.Table, column: Attribute, source: Source, source_label: SourceLabel) -> NDArray[np.float64]:
    """The amount of every record, NaN where there is none."""
    name = source.columns.get(column.name, column.name)
    with explain_conversion_errors(source_label, f"the column {name!r}"):
        return arrow_arrays.floats_of(convert_column(table[name], "number"))


def check_complete(
    table: pa.Table, columns: Sequence[Attribute], source: Source, cells: NDArray[np.int64], called: SourceLabel
) -> None:
    """Accept records that all have an amount of some columns, where the spec does not say what else becomes of them.

    Args:
        cells: of every record, negative where it lies outside the domain.
    Raises: InvalidSpec.
    """
    for column in columns:
        if np.isnan(amounts_of(table, column, source, called)[cells >= 0]).any() and column.missing is None:
            raise InvalidSpec(
                f"{called} holds records without {column.name!r}; set 'missing: drop' for it, or complete them"
            )


def _count_parts(
    source: Source, domain: Domain, counter: Counter, shuffle_index: ShuffleIndex, task: tuple[int, range, RunKey]
) -> tuple[CountSummary, list[DealtObject]]:
    """Keep the chosen records of each person and count them, part after part."""
    number, part_range, key = task
    tallies = [CountSummary()]

    def batches() -> Iterator[Batch]:
        opened = shuffle_index.open_parts(counter.store, key)
        for part_number in part_range:
            rows = opened.whole_part(part_number, HASHED)
            yield from batches_of_persons(source, domain, counter, rows, tallies)

    dealt = counter.count(number, key, batches())
    return sum(tallies, CountSummary()), dealt


def batches_of_persons(
    source: Source, domain: Domain, counter: Counter, rows: Rows, tallies: list[CountSummary]
) -> Iterator[Batch]:
    """The chosen records of each person of a part, once for each table in which persons are counted by themselves.

    Args:
        rows: all records of these persons, in the order of files and rows.
        tallies: what becomes of the others is appended.
    """
    in_groups = source.person is not None and source.person.most_groups is not None
    for number, table in enumerate(domain.person_tables):
        placed = rows_in_groups(rows, domain, table)
        counted_rows = placed.take(select_records(with_group_bound(source, domain, table), domain, placed))
        if number == 0:
            repeated = count_repetitions(rows, groups_of(rows, domain)) if in_groups and source.most_records == 1 else 0
            tallies.append(CountSummary(beyond_bound=rows.size - counted_rows.size - repeated, repeated=repeated))
        yield (counted_rows["cell"] if counter.divided is None else scale_to_total(counted_rows, counter.divided), None)


def select_records(source: Source, domain: Domain, rows: Rows) -> NDArray[np.int64]:
    """The places of the records that count of each person: the first ones, or those of the first groups, or of steps that are apart.

    Without a person column all count.
    """
    person = source.person
    if person is None:
        return np.arange(rows.size)
    if person.participations is not None:
        axis = domain.axis(person.participations.attribute)
        kinds = tuple(attribute.kinds for attribute in domain.attributes)
        steps = np.unravel_index(rows["cell"], kinds)[axis].astype(np.int64)
        return first_of_steps(rows, steps, person.participations, source.most_records)
    if person.most_groups is not None:
        return first_of_groups(rows, groups_of(rows, domain), person.most_groups, source.most_records)
    return first_records(rows, source.most_records)


def groups_of(rows: Rows, domain: Domain) -> NDArray[np.int64]:
    """The group of every record: one whatever its amounts are."""
    return np.asarray(rows["cell"] // math.prod(attribute.kinds for attribute in domain.amounts))


def with_group_bound(source: Source, domain: Domain, table: Sequence[str | None]) -> Source:
    """The source with the bound on a person's groups in a table of persons, where a level of it has a smaller one."""
    person = source.person
    if person is None or person.most_groups is None:
        return source
    return replace(source, person=replace(person, most_groups=min(person.most_groups, domain.groups_in(table)[1])))


def rows_in_groups(rows: Rows, domain: Domain, table: Sequence[str | None]) -> Rows:
    """The records in the groups of a table in which persons are counted by themselves (``Domain.apart``)."""
    kinds = [entry.kinds for entry in domain.attributes]
    bins = [entry.grouping_by(name).bins for entry, name in zip(domain.attributes, table, strict=True)]
    mapped_rows = rows if all(entry is None for entry in bins) else rows.copy()
    for axis, group_codes in enumerate(bins):
        if group_codes is not None:
            step = math.prod(kinds[axis + 1 :])
            code = mapped_rows["cell"] // step % kinds[axis]
            mapped_rows["cell"] += (group_codes[code] - code) * step
    return mapped_rows


def count_repetitions(rows: Rows, group: NDArray[np.int64]) -> int:
    """How many records are of a person who has another one in the same group: all but one of each person and group.

    Persons and groups are told apart by 64 bits of a hash, so that in one of ten million parts of 2^21 records one is counted too many.
    """
    words = np.sort(mix_bits(rows["high"] ^ mix_bits(rows["low"] ^ mix_bits(group.astype(np.uint64)))))
    return int((words[1:] == words[:-1]).sum())


def number_persons(rows: Rows) -> NDArray[np.int64]:
    """The person of every record: 0, 1, 2, ... in no order that means anything."""
    ordered, number = order_by_person(rows), np.empty(rows.size, dtype=np.int64)
    number[ordered.places] = ordered.person_numbers
    return number


def first_records(rows: Rows, record_bound: int) -> NDArray[np.int64]:
    """The places of the first ``record_bound`` records of each person."""
    ordered = order_by_person(rows)
    places, starts, _ = ordered
    if record_bound == 1:
        return places[starts]
    return places[np.arange(rows.size) - starts[ordered.person_numbers] < record_bound]


class OrderedRecords(NamedTuple):
    """Records in an order in which those of a person follow each other, as they came.

    Attributes:
        places: of the records among those that were ordered.
        starts: where each person's begin.
        rows: the records.
    """

    places: NDArray[np.int64]
    starts: NDArray[np.int64]
    rows: Rows

    @property
    def person_numbers(self) -> NDArray[np.int64]:
        """The person of every record: 0, 1, 2, ... in this order."""
        return np.repeat(np.arange(self.starts.size), np.diff(self.starts, append=self.rows.size))

    def compress(self, is_kept: NDArray[np.bool_]) -> OrderedRecords:
        """Some of them, in their order."""
        if is_kept.all():
            return self
        rows = self.rows.compress(is_kept)
        return OrderedRecords(self.places.compress(is_kept), _starts_of_persons(rows), rows)


def order_by_person(rows: Rows) -> OrderedRecords:
    """The records by person. Those that are in such an order already stay in it, which takes a quarter of the time."""
    if (rows["high"][1:] >= rows["high"][:-1]).all():
        starts = _starts_of_persons(rows)
        if _hashes_rise(rows, starts):
            return OrderedRecords(np.arange(rows.size), starts, rows)
    # values are sorted in a fifth of the time of places: the last bits of each hash give way to the place
    place_bits = np.uint64((1 << (rows.size - 1).bit_length()) - 1)
    packed = np.sort(rows["high"] & ~place_bits | np.arange(rows.size, dtype=np.uint64))
    places = (packed & place_bits).view(np.int64)
    ordered = rows.take(places)
    starts = _starts_of_persons(ordered)
    if not _hashes_rise(ordered, starts):  # two share the bits that are left
        places = np.lexsort((rows["low"], rows["high"]))
        ordered = rows.take(places)
        starts = _starts_of_persons(ordered)
    return OrderedRecords(places, starts, ordered)


def _starts_of_persons(rows: Rows) -> NDArray[np.int64]:
    return find_runs(rows["high"], rows["low"])


def _hashes_rise(rows: Rows, starts: NDArray[np.int64]) -> bool:
    """Whether the first halves of the hashes rise from person to person, so that the records of each are one run."""
    halves = rows["high"][starts]
    return bool((halves[1:] > halves[:-1]).all())


def first_of_groups(rows: Rows, group: NDArray[np.int64], groups: int, record_bound: int) -> NDArray[np.int64]:
    """The places of the first ``record_bound`` records of each person in each of the first ``groups`` groups that the person has records
    in.

    Args:
        group: of every record.
    """
    places, starts, _ = order_by_person(rows)
    return places[are_in_first_groups(starts, group[places], groups, record_bound)]


def first_of_steps(
    rows: Rows, steps: NDArray[np.int64], participations: Participations, record_bound: int
) -> NDArray[np.int64]:
    """The places of the first ``record_bound`` records of each person in the person's earliest step and each next one that is far enough.

    Whether a step counts depends on the person's own steps up to it: later records change nothing that was counted before.
    """
    ordered = order_by_person(rows)
    places, persons, _ = ordered
    person = ordered.person_numbers
    # persons are further apart than any two steps
    times = person * (int(steps.max(initial=0)) + 1 + participations.separation) + steps[places]
    by_time = np.argsort(times, kind="stable")
    order, time = places[by_time], times[by_time]
    is_counted = np.zeros(rows.size, dtype=bool)
    positions = persons
    for _ in range(participations.most_steps):
        if not positions.size:
            break
        last_times = time[positions]
        record_counts = np.minimum(np.searchsorted(time, last_times, side="right") - positions, record_bound)
        before = np.repeat(np.cumsum(record_counts) - record_counts, record_counts)
        is_counted[np.repeat(positions, record_counts) + np.arange(before.size) - before] = True
        following = np.searchsorted(time, last_times + participations.separation)
        inside = following < rows.size
        inside[inside] = person[following[inside]] == person[positions[inside]]
        positions = following[inside]
    return np.asarray(order[is_counted])


def scale_to_total(rows: Rows, domain: Domain) -> NDArray[np.int64]:
    """The kinds of records after every person's amounts are scaled down to the bound on their total; as they are without a bound.

    Args:
        rows: records that are counted, in the order of their persons: all of each of them.
        domain: whose last attribute is the column of amounts, if its total is bounded.

    A person with a total of V > S steps has S / V of each amount, rounded down to a whole number of steps: a function of the amounts
    alone, whatever order they are in.
    """
    kinds = rows["cell"]
    column = domain.attributes[-1]
    if column.amounts is None or column.amounts.bound is None or rows.size == 0:
        return kinds
    width = column.amounts.width
    code = kinds % column.kinds
    steps = np.where(code <= width, code, 0)  # a record without an amount adds nothing
    starts = _starts_of_persons(rows)
    totals = np.repeat(np.add.reduceat(steps, starts), np.diff(starts, append=rows.size))
    total_bound = width * column.amounts.bound.times
    return np.asarray(kinds - steps + np.where(totals > total_bound, steps * total_bound // np.maximum(totals, 1), steps))


def find_runs(*columns: NDArray[Any]) -> NDArray[np.int64]:
    """Where runs of rows begin that agree in all columns."""
    begins = np.ones(columns[0].size, dtype=bool)
    begins[1:] = False
    for column in columns:
        begins[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(begins)

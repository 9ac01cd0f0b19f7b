"""What is counted of each person's records before a release: their numbers, their amounts and what bounds leave out.

Records are dealt out by person as they are to be counted, and the parts are counted one after the other in the memory of this process:
neither the numbers nor all records are anywhere at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpdist.counting.contribution_bounding import (
    HASHED,
    Dealing,
    amount_of,
    amounts_of,
    check_complete,
    choose_part_count,
    find_runs,
    first_records,
    groups_of,
    number_persons,
    pending_rows,
    select_records,
)
from dpdist.counting.person_keys import PersonKey
from dpdist.counting.record_cells import CountSummary, cells_of, tables_of
from dpdist.domain import Attribute, Domain
from dpdist.engine import Engine
from dpdist.engine.shuffle import Rows, RunKey, ShuffleIndex
from dpdist.privacy.noisy_truncation_loss import FINEST, NoisyBoundLoss
from dpdist.sources.record_sources import Source, check_columns, group_partitions, partitions_of, without_files
from dpdist.storage.array_store import Store

Numbers = NDArray[np.int64]
Values = NDArray[np.float64]


@dataclass(frozen=True)
class CountedSizes:
    """How many persons have so many records, or records such an amount, from 0 to the most told apart, and how many records were read."""

    counts: Numbers = field(repr=False)
    records_read: int = field(repr=False)

    @property
    def digest(self) -> str:
        """SHA-256 of the numbers: only a commitment of it may be written down."""
        return hashlib.sha256(self.counts.astype("<i8").tobytes()).hexdigest()


@dataclass(frozen=True)
class CountedValues:
    """How many records of each group have which amount, and how many records were read.

    Attributes:
        values: for each column the group, the steps above its smallest amount, and the number of records; rising by group and steps.
    """

    values: tuple[Numbers, ...] = field(repr=False)
    records_read: int = field(repr=False)

    @property
    def digest(self) -> str:
        """SHA-256 of the numbers: only a commitment of it may be written down."""
        hasher = hashlib.sha256()
        for column_values in self.values:
            hasher.update(column_values.shape[1].to_bytes(8, "little") + column_values.astype("<i8").tobytes())
        return hasher.hexdigest()


@dataclass(frozen=True)
class PartitionedRecords:
    """Where the records of a release are read, and as what.

    Attributes:
        domain: with whose cells they are counted.
        complete: columns of which every record within the domain must have an amount, now or for something that is found later: each
            reading refuses what a later one would, so that nothing is charged before.
        person_key: makes the hashes of persons that decide which names of a person count: the same whenever the release is run.
    """

    source: Source
    domain: Domain
    store: Store
    engine: Engine
    person_key: PersonKey
    complete: tuple[Attribute, ...] = ()

    def record_batches(self, *columns: Attribute) -> Generator[tuple[Rows, tuple[Values, ...], int]]:
        """Some records within the domain after others: all of each of their persons, the amounts of some columns, and how many were read.

        They are read as counting will read them: what that refuses is refused here, before anything is charged. Without a person column,
        parts are batches of files.
        Raises: InvalidSpec, UnknownValue, StoreError. No message tells a number that depends on the records.
        """
        check_columns(self.source, self.domain)
        partitions = partitions_of(self.source)
        if self.source.person is None:
            for partition in partitions:
                for table in tables_of(self.source, self.domain, partition):
                    cells, tally = cells_of(table, self.source, self.domain, partition.source_label)
                    rows = np.zeros(int((cells >= 0).sum()), dtype=HASHED)
                    rows["cell"] = cells[cells >= 0]
                    check_complete(table, self.complete, self.source, cells, partition.source_label)
                    column_amounts = (amounts_of(table, column, self.source, partition.source_label) for column in columns)
                    yield rows, tuple(column[cells >= 0] for column in column_amounts), tally.read
            return
        tallies = [CountSummary()]

        def deal_records(key: RunKey, work: str, part_count: int) -> ShuffleIndex:
            tasks, pending = group_partitions(partitions, self.engine.workers), pending_rows(self.store.sizes, self.engine)
            dealing = Dealing(
                without_files(self.source), self.domain, self.store, work, part_count, pending, columns, self.complete
            )
            summary, shuffle_index = dealing.deal_all(self.engine, key, tasks)
            tallies.append(summary)
            return shuffle_index

        with closing(self._read_dealt_parts(deal_records)) as opened:
            for rows in opened:
                amounts = tuple(rows[amount_of(column_index)] for column_index in range(len(columns)))
                yield rows[["high", "low", "cell"]].astype(HASHED), amounts, 0
        yield np.zeros(0, dtype=HASHED), tuple(np.zeros(0) for _ in columns), sum(tallies, CountSummary()).read

    def _read_dealt_parts(self, deal_records: Callable[[RunKey, str, int], ShuffleIndex]) -> Generator[Rows]:
        """The records of one part after those of another, where a part has any."""
        key, work, part_count = RunKey.generate(), self.store.scratch(), choose_part_count(self.source, self.engine, 1)
        try:
            opened = deal_records(key, work, part_count).open_parts(self.store, key)
            for part_number in range(part_count):
                row_blocks = list(opened.rows_of_part(part_number))
                if row_blocks:
                    yield np.concatenate(row_blocks)
        finally:
            self.store.delete(work)

    def counted_positions(self, rows: Rows) -> Numbers:
        """The places of the records that count."""
        return select_records(self.source, self.domain, rows)

    def sum_parts(self, size: int, counted: Callable[..., Numbers], *columns: Attribute) -> CountedSizes:
        """So many numbers of each part, added up.

        Args:
            counted: gives those of a part, from its records and the amounts of each column.
        """
        counts, records_read = np.zeros(size, dtype=np.int64), 0
        with closing(self.record_batches(*columns)) as parts_reader:
            for rows, amounts, number in parts_reader:
                counts += counted(rows, *amounts)
                records_read += number
        return CountedSizes(counts, records_read)


def count_truncation_loss(records: PartitionedRecords, rule: NoisyBoundLoss, *, persons: bool) -> CountedSizes:
    """What lies beyond the bounds: of persons the records that do not count, of those that do the amounts outside their range.

    Args:
        persons: whether persons are counted in each group, so that their further records in a group are no loss.
    Raises: as ``RecordsInParts.parts``.
    """
    columns = [records.domain.attribute(name) for name in rule.columns]

    def count_part(rows: Rows, *amounts: Values) -> Numbers:
        counted_positions, blocks = records.counted_positions(rows), []
        if rule.most_lost_records is not None:
            person = number_persons(rows)
            kept_per_person = np.bincount(person[counted_positions], minlength=person.max(initial=-1) + 1)
            several = _count_pairs(person, groups_of(rows, records.domain))[0] if persons else person
            blocks.append(
                rule.person_totals(kept_per_person, np.bincount(several, minlength=kept_per_person.size) - kept_per_person)
            )
        excess = (
            _excess(column_amounts[counted_positions], column)
            for column_amounts, column in zip(amounts, columns, strict=True)
        )
        return np.concatenate(
            [*blocks, *(rule.amount_totals(column_amounts[~np.isnan(column_amounts)]) for column_amounts in excess)]
        )

    return records.sum_parts(sum(rule.sizes), count_part, *columns)


def records_of_persons(records: PartitionedRecords, largest_count: int, *, groups: bool = False) -> CountedSizes:
    """Persons by the number of their records that lie within the domain; whoever has more than ``largest_count`` counts as having so many.

    Args:
        groups: whether all records of a person in one group are taken for one.
    Raises: as ``RecordsInParts.parts``.
    """

    def count_part(rows: Rows) -> Numbers:
        person = number_persons(rows)
        several = _count_pairs(person, groups_of(rows, records.domain))[0] if groups else person
        return np.bincount(np.minimum(np.bincount(several), largest_count), minlength=largest_count + 1)

    return records.sum_parts(largest_count + 1, count_part)


def counts_of_amounts(records: PartitionedRecords, name: str, largest_step: int) -> CountedSizes:
    """The records that count by their amount, in steps above the smallest one; whatever is larger than ``largest_step`` counts as that.

    Raises: as ``RecordsInParts.parts``.
    """
    column = records.domain.attribute(name)

    def count_part(rows: Rows, amounts: Values) -> Numbers:
        assert column.amounts is not None
        steps = column.amounts.steps_of(amounts[records.counted_positions(rows)])
        return np.bincount(steps[steps >= 0], minlength=largest_step + 1)

    return records.sum_parts(largest_step + 1, count_part, column)


def values_by_group(records: PartitionedRecords, group_names: Sequence[str], columns: Sequence[Attribute]) -> CountedValues:
    """The records that count by group and by their amounts in some columns. Records in no labelled group are left out.

    Raises: as ``RecordsInParts.parts``.
    """
    values_by_column, records_read = [np.zeros((3, 0), dtype=np.int64) for _ in columns], 0
    with closing(records.record_batches(*columns)) as parts_reader:
        for rows, amounts, number in parts_reader:
            counted_positions, records_read = records.counted_positions(rows), records_read + number
            group, has_labels = _labelled_groups(rows["cell"][counted_positions], records.domain, group_names)
            for column_index, (column, values) in enumerate(zip(columns, amounts, strict=True)):
                assert column.amounts is not None
                steps = column.amounts.steps_of(values[counted_positions])
                is_selected = has_labels & (steps >= 0)
                earlier_values, numbers = values_by_column[column_index], np.ones(int(is_selected.sum()), dtype=np.int64)
                extended_values = np.concatenate([earlier_values, [group[is_selected], steps[is_selected], numbers]], axis=1)
                values_by_column[column_index] = np.stack(
                    _count_pairs(extended_values[0], extended_values[1], extended_values[2])
                )
    return CountedValues(tuple(values_by_column), records_read)


def steps_of_amounts(records: PartitionedRecords, *, bounded: bool) -> int:
    """How many steps the amounts of all records within the domain have together. Raises: as ``RecordsInParts.parts``.

    Args:
        bounded: whether the bounds on persons leave records out: of all records there are more.
    """

    def counted(rows: Rows) -> Numbers:
        cells = rows["cell"][records.counted_positions(rows)] if bounded else rows["cell"]
        return np.array([records.domain.divide_records(cells)[1].sum()])

    return int(records.sum_parts(1, counted).counts[0])


def steps_of_records(
    records: PartitionedRecords, name: str, steps_of: Callable[[Values], Numbers], size: int
) -> CountedSizes:
    """Records by a number of theirs; of each person the first ``source.most_records`` that have one of the declared values.

    Args:
        name: of an attribute of numbers; those of records beyond its bins are in none.
        steps_of: gives the step of every number, 0..size-1.
    Raises: as ``RecordsInParts.parts``.
    """
    attribute, axis = records.domain.attribute(name), records.domain.axis(name)

    def count_part(rows: Rows, numbers: Values) -> Numbers:
        positions = np.flatnonzero(_codes(rows["cell"], records.domain)[axis] < attribute.values)
        if records.source.person is not None:
            positions = positions[first_records(rows[positions], records.source.most_records)]
        return np.bincount(steps_of(numbers[positions]), minlength=size)

    return records.sum_parts(size, count_part, attribute)


def _codes(cells: Numbers, domain: Domain) -> tuple[Numbers, ...]:
    return np.unravel_index(cells, tuple(attribute.kinds for attribute in domain.attributes))


def _labelled_groups(cells: Numbers, domain: Domain, group_names: Sequence[str]) -> tuple[Numbers, NDArray[np.bool_]]:
    """The group of every record by some attributes, and whether it is one that has labels."""
    codes = _codes(cells, domain)
    group, has_labels = np.zeros(cells.size, dtype=np.int64), np.ones(cells.size, dtype=bool)
    for name in group_names:
        code, shown = codes[domain.axis(name)], domain.attribute(name).shown
        group, has_labels = group * shown + code, has_labels & (code < shown)
    return group, has_labels


def _count_pairs(
    first_keys: Numbers, second_keys: Numbers, numbers: Numbers | None = None
) -> tuple[Numbers, Numbers, Numbers]:
    """Different pairs in rising order, and how often each occurs, or the sum of its numbers."""
    order = np.lexsort((second_keys, first_keys))
    first_keys, second_keys = first_keys[order], second_keys[order]
    starts, _ = find_runs(first_keys, second_keys)
    counted = np.ones(first_keys.size, dtype=np.int64) if numbers is None else numbers[order]
    return first_keys[starts], second_keys[starts], np.add.reduceat(counted, starts) if starts.size else counted


def _excess(values: Values, column: Attribute) -> Values:
    """How far every amount lies outside the range, in ``FINEST`` parts of it: 0 within it, below it negative, NaN where there is none."""
    assert column.amounts is not None
    low, high = column.amounts.range
    with np.errstate(invalid="ignore", over="ignore"):
        excess = np.where(values > high, values - high, np.where(values < low, values - low, 0.0)) * (FINEST / (high - low))
    return np.where(np.isnan(values), np.nan, excess)

"""What is counted of each person's records before a release: their numbers, their amounts and what bounds leave out.

Records are dealt out by person as they are to be counted, and the parts are counted one after the other in the memory of this process:
neither the numbers nor all records are anywhere at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpdist.counting.contribution_bounding import (
    HASHED,
    Dealing,
    PersonKey,
    amount_of,
    amounts_of,
    check_complete,
    dealt_by_person,
    first_of_each,
    groups_of,
    kept_records,
    numbered,
    parts_of,
    pending_rows,
    runs_of,
)
from dpdist.counting.record_cells import CountSummary, cells_of, tables_of
from dpdist.domain import Attribute, Domain
from dpdist.engine import Engine
from dpdist.engine.shuffle import Gathered, Rows, RunKey, gather
from dpdist.privacy.noisy_truncation_loss import FINEST, Beyond
from dpdist.sources.record_sources import Source, check_columns, grouped, partitions_of, without_files
from dpdist.storage.array_store import Store

Numbers = NDArray[np.int64]
Values = NDArray[np.float64]


@dataclass(frozen=True)
class CountedSizes:
    """How many persons have so many records, or records such an amount, from 0 to the most told apart, and how many records were read."""

    counts: Numbers = field(repr=False)
    read: int = field(repr=False)

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
    read: int = field(repr=False)

    @property
    def digest(self) -> str:
        """SHA-256 of the numbers: only a commitment of it may be written down."""
        found = hashlib.sha256()
        for each in self.values:
            found.update(each.shape[1].to_bytes(8, "little") + each.astype("<i8").tobytes())
        return found.hexdigest()


@dataclass(frozen=True)
class RecordsInParts:
    """Where the records of a release are read, and as what.

    Attributes:
        domain: with whose cells they are counted.
        complete: columns of which every record within the domain must have an amount, now or for something that is found later: each
            reading refuses what a later one would, so that nothing is charged before.
    """

    source: Source
    domain: Domain
    store: Store
    engine: Engine
    complete: tuple[Attribute, ...] = ()

    def parts(self, *columns: Attribute) -> Generator[tuple[Rows, tuple[Values, ...], int]]:
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
                    cells, tally = cells_of(table, self.source, self.domain, partition.called)
                    rows = np.zeros(int((cells >= 0).sum()), dtype=HASHED)
                    rows["cell"] = cells[cells >= 0]
                    check_complete(table, self.complete, self.source, cells, partition.called)
                    found = (amounts_of(table, each, self.source, partition.called) for each in columns)
                    yield rows, tuple(each[cells >= 0] for each in found), tally.read
            return
        tallies = [CountSummary()]

        def dealt(key: RunKey, work: str, parts: int) -> Gathered:
            tasks, pending = grouped(partitions, self.engine.workers), pending_rows(self.store, self.engine)
            dealing = Dealing(
                without_files(self.source), self.domain, self.store, work, parts, pending, columns, self.complete
            )
            read, gathered = dealing.dealt(self.engine, key, tasks)
            tallies.append(read)
            return gathered

        with closing(self._opened(dealt)) as opened:
            for rows in opened:
                amounts = tuple(rows[amount_of(place)] for place in range(len(columns)))
                yield rows[["high", "low", "cell"]].astype(HASHED), amounts, 0
        yield np.zeros(0, dtype=HASHED), tuple(np.zeros(0) for _ in columns), sum(tallies, CountSummary()).read

    def dealt_out(self, batches: Callable[[PersonKey], Iterable[Rows]]) -> Generator[Rows]:
        """Records that are made in this process, some after others: all of each of their persons.

        Args:
            batches: gives them, with hashes of their persons under a key.
        """

        def dealt(key: RunKey, work: str, parts: int) -> Gathered:
            made, pending = batches(PersonKey(key.derived(b"persons"))), pending_rows(self.store, self.engine)
            out = dealt_by_person(made, np.zeros(0, dtype=HASHED), self.store, work, key, parts, pending)
            return gather(self.store, work, key, parts, out)

        return self._opened(dealt)

    def _opened(self, dealt: Callable[[RunKey, str, int], Gathered]) -> Generator[Rows]:
        """The records of one part after those of another, where a part has any."""
        key, work, parts = RunKey.fresh(), self.store.scratch(), parts_of(self.source, self.engine, 1)
        try:
            opened = dealt(key, work, parts).opened(self.store, key)
            for part in range(parts):
                some = list(opened.of(part))
                if some:
                    yield np.concatenate(some)
        finally:
            self.store.delete(work)

    def kept(self, rows: Rows) -> Numbers:
        """The places of the records that count."""
        return kept_records(self.source, self.domain, rows)

    def summed(self, size: int, counted: Callable[..., Numbers], *columns: Attribute) -> CountedSizes:
        """So many numbers of each part, added up.

        Args:
            counted: gives those of a part, from its records and the amounts of each column.
        """
        counts, read = np.zeros(size, dtype=np.int64), 0
        with closing(self.parts(*columns)) as parts:
            for rows, amounts, number in parts:
                counts += counted(rows, *amounts)
                read += number
        return CountedSizes(counts, read)


def beyond_bounds(records: RecordsInParts, rule: Beyond, *, persons: bool) -> CountedSizes:
    """What lies beyond the bounds: of persons the records that do not count, of those that do the amounts outside their range.

    Args:
        persons: whether persons are counted in each group, so that their further records in a group are no loss.
    Raises: as ``RecordsInParts.parts``.
    """
    columns = [records.domain.attribute(name) for name in rule.columns]

    def counted(rows: Rows, *amounts: Values) -> Numbers:
        kept, blocks = records.kept(rows), []
        if rule.most is not None:
            person = numbered(rows)
            own = np.bincount(person[kept], minlength=person.max(initial=-1) + 1)
            several = _pairs(person, groups_of(rows, records.domain))[0] if persons else person
            blocks.append(rule.of_persons(own, np.bincount(several, minlength=own.size) - own))
        excess = (_excess(each[kept], column) for each, column in zip(amounts, columns, strict=True))
        return np.concatenate([*blocks, *(rule.of_amounts(each[~np.isnan(each)]) for each in excess)])

    return records.summed(sum(rule.sizes), counted, *columns)


def records_of_persons(records: RecordsInParts, most: int, *, groups: bool = False) -> CountedSizes:
    """Persons by the number of their records that lie within the domain; whoever has more than ``most`` counts as having so many.

    Args:
        groups: whether all records of a person in one group are taken for one.
    Raises: as ``RecordsInParts.parts``.
    """

    def counted(rows: Rows) -> Numbers:
        person = numbered(rows)
        several = _pairs(person, groups_of(rows, records.domain))[0] if groups else person
        return np.bincount(np.minimum(np.bincount(several), most), minlength=most + 1)

    return records.summed(most + 1, counted)


def counts_of_amounts(records: RecordsInParts, name: str, most: int) -> CountedSizes:
    """The records that count by their amount, in steps above the smallest one; whatever is larger than ``most`` counts as that.

    Raises: as ``RecordsInParts.parts``.
    """
    column = records.domain.attribute(name)

    def counted(rows: Rows, amounts: Values) -> Numbers:
        assert column.amounts is not None
        steps = column.amounts.steps_of(amounts[records.kept(rows)])
        return np.bincount(steps[steps >= 0], minlength=most + 1)

    return records.summed(most + 1, counted, column)


def values_by_group(records: RecordsInParts, by: Sequence[str], of: Sequence[Attribute]) -> CountedValues:
    """The records that count by group and by their amounts in some columns. Records in no labelled group are left out.

    Raises: as ``RecordsInParts.parts``.
    """
    found, read = [np.zeros((3, 0), dtype=np.int64) for _ in of], 0
    with closing(records.parts(*of)) as parts:
        for rows, amounts, number in parts:
            kept, read = records.kept(rows), read + number
            group, known = _labelled(rows["cell"][kept], records.domain, by)
            for place, (column, values) in enumerate(zip(of, amounts, strict=True)):
                assert column.amounts is not None
                steps = column.amounts.steps_of(values[kept])
                some = known & (steps >= 0)
                before, numbers = found[place], np.ones(int(some.sum()), dtype=np.int64)
                more = np.concatenate([before, [group[some], steps[some], numbers]], axis=1)
                found[place] = np.stack(_pairs(more[0], more[1], more[2]))
    return CountedValues(tuple(found), read)


def steps_of_amounts(records: RecordsInParts, *, bounded: bool) -> int:
    """How many steps the amounts of all records within the domain have together. Raises: as ``RecordsInParts.parts``.

    Args:
        bounded: whether the bounds on persons leave records out: of all records there are more.
    """

    def counted(rows: Rows) -> Numbers:
        cells = rows["cell"][records.kept(rows)] if bounded else rows["cell"]
        return np.array([records.domain.divided(cells)[1].sum()])

    return int(records.summed(1, counted).counts[0])


def steps_of_records(records: RecordsInParts, name: str, steps_of: Callable[[Values], Numbers], size: int) -> CountedSizes:
    """Records by a number of theirs; of each person the first ``source.most_records`` that have one of the declared values.

    Args:
        name: of an attribute of numbers; those of records beyond its bins are in none.
        steps_of: gives the step of every number, 0..size-1.
    Raises: as ``RecordsInParts.parts``.
    """
    attribute, axis = records.domain.attribute(name), records.domain.axis(name)

    def counted(rows: Rows, numbers: Values) -> Numbers:
        known = np.flatnonzero(_codes(rows["cell"], records.domain)[axis] < attribute.values)
        if records.source.person is not None:
            known = known[first_of_each(rows[known], records.source.most_records)]
        return np.bincount(steps_of(numbers[known]), minlength=size)

    return records.summed(size, counted, attribute)


def _codes(cells: Numbers, domain: Domain) -> tuple[Numbers, ...]:
    return np.unravel_index(cells, tuple(each.kinds for each in domain.attributes))


def _labelled(cells: Numbers, domain: Domain, by: Sequence[str]) -> tuple[Numbers, NDArray[np.bool_]]:
    """The group of every record by some attributes, and whether it is one that has labels."""
    codes = _codes(cells, domain)
    group, known = np.zeros(cells.size, dtype=np.int64), np.ones(cells.size, dtype=bool)
    for name in by:
        code, shown = codes[domain.axis(name)], domain.attribute(name).shown
        group, known = group * shown + code, known & (code < shown)
    return group, known


def _pairs(first: Numbers, second: Numbers, numbers: Numbers | None = None) -> tuple[Numbers, Numbers, Numbers]:
    """Different pairs in rising order, and how often each occurs, or the sum of its numbers."""
    order = np.lexsort((second, first))
    first, second = first[order], second[order]
    starts, _ = runs_of(first, second)
    counted = np.ones(first.size, dtype=np.int64) if numbers is None else numbers[order]
    return first[starts], second[starts], np.add.reduceat(counted, starts) if starts.size else counted


def _excess(values: Values, column: Attribute) -> Values:
    """How far every amount lies outside the range, in ``FINEST`` parts of it: 0 within it, below it negative, NaN where there is none."""
    assert column.amounts is not None
    low, high = column.amounts.range
    with np.errstate(invalid="ignore", over="ignore"):
        beyond = np.where(values > high, values - high, np.where(values < low, values - low, 0.0)) * (FINEST / (high - low))
    return np.where(np.isnan(values), np.nan, beyond)

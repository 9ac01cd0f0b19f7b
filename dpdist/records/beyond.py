"""What is counted of each person's records before a release: their numbers, their amounts and what bounds leave out."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpdist.domain import Attribute, Domain
from dpdist.errors import InvalidInput, InvalidSpec
from dpdist.privacy.beyond import FINEST, Beyond
from dpdist.process import compute as pc
from dpdist.process.limits import left_bytes
from dpdist.records.persons import HASHED, PersonKey, first_of_each, groups_of, kept_records, person_hashes
from dpdist.records.rows import cells_of, explained, tables_of
from dpdist.records.sources import Source, check_columns, partitions_of
from dpdist.records.types import converted
from dpdist.records.wording import Called

SORTED_COPIES = 4
"""Of the persons of all records while they are sorted."""


@dataclass(frozen=True)
class CountedSizes:
    """How many persons have so many records, or records such an amount, from 0 to the most told apart, and how many records were read."""

    counts: NDArray[np.int64] = field(repr=False)
    read: int = field(repr=False)

    @property
    def digest(self) -> str:
        """SHA-256 of the numbers: only a commitment of it may be written down."""
        return hashlib.sha256(self.counts.astype("<i8").tobytes()).hexdigest()


@dataclass(frozen=True)
class RecordsOfFile:
    """Some records as counting will read them.

    Attributes:
        cells: of every record, -1 where it is dropped.
        persons: keyed hashes, (rows, 2); of no meaning without a person column.
        kept: which of them lie within the domain and have a person, or need none.
        read: how many records were read.
    """

    table: pa.Table = field(repr=False)
    called: Called
    cells: NDArray[np.int64] = field(repr=False)
    persons: NDArray[np.uint64] = field(repr=False)
    kept: NDArray[np.bool_] = field(repr=False)
    read: int = field(repr=False)


def read_records(source: Source, domain: Domain) -> Iterator[RecordsOfFile]:
    """All records, in bounded batches, as counting will read them: what that refuses is refused here. Raises: InvalidSpec, UnknownValue."""
    check_columns(source, domain)
    key = PersonKey(os.urandom(32))
    for partition in partitions_of(source):
        for place, table in enumerate(tables_of(source, domain, partition)):
            cells, tally = cells_of(table, source, domain, partition.called)
            hashes, absent = np.zeros((cells.size, 2), dtype=np.uint64), np.zeros(cells.size, dtype=bool)
            if source.person is not None:
                hashes, absent = person_hashes(table, source, partition, place, key)
            kept = (cells >= 0) & ~(absent & (source.person_missing == "drop"))
            yield RecordsOfFile(table, partition.called, cells, hashes, kept, tally.read)


Excess = NDArray[np.float64]


def beyond_bounds(source: Source, domain: Domain, rule: Beyond, *, persons: bool) -> CountedSizes:
    """What lies beyond the bounds: of persons the records that do not count, of those that do the amounts outside their range.

    The records are read as counting will read them: what that refuses is refused here, before anything is charged.

    Args:
        persons: whether persons are counted in each group, so that their further records in a group are no loss.
    Raises: InvalidSpec, UnknownValue, InvalidInput. No message tells a number that depends on the records.
    """
    columns = [domain.attribute(name) for name in rule.columns]
    if source.person is None:
        read, sums = 0, [np.zeros(size, dtype=np.int64) for size in rule.sizes]
        for found in read_records(source, domain):
            read += found.read
            for place, column in enumerate(columns):
                sums[place] += rule.of_amounts(_given(_excess(found, column, source)[found.kept]))
        return CountedSizes(np.concatenate(sums), read)
    rows, excess, read = _held(source, domain, columns, _excess)
    kept = kept_records(source, domain, rows)
    person = np.unique(rows[["high", "low"]], return_inverse=True)[1].reshape(-1)
    counted, several = np.bincount(person[kept], minlength=person.max(initial=-1) + 1), person
    if persons:  # of a person's records in a group one can count
        several = np.unique(np.stack([person, groups_of(rows, domain)]), axis=1)[0]
    lost = np.bincount(several, minlength=counted.size) - counted
    blocks = [] if rule.most is None else [rule.of_persons(counted.astype(np.int64), lost.astype(np.int64))]
    return CountedSizes(np.concatenate([*blocks, *(rule.of_amounts(_given(each[kept])) for each in excess)]), read)


def records_of_persons(source: Source, domain: Domain, most: int, *, groups: bool = False) -> CountedSizes:
    """Persons by the number of their records that lie within the domain; whoever has more than ``most`` counts as having so many.

    Args:
        groups: whether all records of a person in one group are taken for one.
    Raises: as ``beyond_bounds``.
    """
    rows, _, read = _held(source, domain, [], _amounts)
    if groups:
        rows["cell"] = groups_of(rows, domain)
        rows = np.unique(rows)
    _, counts = np.unique(rows[["high", "low"]], return_counts=True)
    return CountedSizes(np.bincount(np.minimum(counts, most), minlength=most + 1).astype(np.int64), read)


def counts_of_amounts(source: Source, domain: Domain, name: str, most: int) -> CountedSizes:
    """The records that count by their amount, in steps above the smallest one; whatever is larger than ``most`` counts as that.

    Raises: as ``beyond_bounds``.
    """
    column, read, counts = domain.attribute(name), 0, np.zeros(most + 1, dtype=np.int64)
    assert column.amounts is not None
    if source.person is None:
        for found in read_records(source, domain):
            read += found.read
            steps = column.amounts.steps_of(_amounts(found, column, source)[found.kept])
            counts += np.bincount(steps[steps >= 0], minlength=most + 1)
        return CountedSizes(counts, read)
    rows, (amounts,), read = _held(source, domain, [column], _amounts)
    steps = column.amounts.steps_of(amounts[kept_records(source, domain, rows)])
    return CountedSizes(np.bincount(steps[steps >= 0], minlength=most + 1).astype(np.int64), read)


@dataclass(frozen=True)
class CountedValues:
    """How many records of each group have which amount, and how many records were read.

    Attributes:
        values: for each column the group, the steps above its smallest amount, and the number of records; rising by group and steps.
    """

    values: tuple[NDArray[np.int64], ...] = field(repr=False)
    read: int = field(repr=False)

    @property
    def digest(self) -> str:
        """SHA-256 of the numbers: only a commitment of it may be written down."""
        found = hashlib.sha256()
        for each in self.values:
            found.update(each.shape[1].to_bytes(8, "little") + each.astype("<i8").tobytes())
        return found.hexdigest()


def values_by_group(source: Source, domain: Domain, by: Sequence[str], of: Sequence[Attribute]) -> CountedValues:
    """The records that count by group and by their amounts in some columns. Records in no labelled group are left out.

    Raises: as ``beyond_bounds``.
    """
    rows, amounts, read = _held(source, domain, list(of), _amounts)
    kept = np.arange(rows.size) if source.person is None else kept_records(source, domain, rows)
    codes = np.unravel_index(rows["cell"][kept], tuple(each.kinds for each in domain.attributes))
    group, known = np.zeros(kept.size, dtype=np.int64), np.ones(kept.size, dtype=bool)
    for name in by:
        code, shown = codes[domain.axis(name)], domain.attribute(name).shown
        group, known = group * shown + code, known & (code < shown)
    found = []
    for column, values in zip(of, amounts, strict=True):
        assert column.amounts is not None
        name, steps = column.name, column.amounts.steps_of(values[kept])
        if column.missing is None and (steps < 0).any():
            raise InvalidSpec(f"the records hold some without {name!r}; set 'missing: drop' for it, or complete them")
        some = known & (steps >= 0)
        size = column.amounts.width + 1
        pairs, counts = np.unique(group[some] * size + steps[some], return_counts=True)
        found.append(np.stack([*np.divmod(pairs, size), counts]))
    return CountedValues(tuple(found), read)


def steps_of_records(
    source: Source, domain: Domain, name: str, steps_of: Callable[[Excess], NDArray[np.int64]], size: int
) -> CountedSizes:
    """Records by a number of theirs; of each person the first ``source.most_records`` that have one of the declared values.

    Args:
        name: of an attribute of numbers; those of records beyond its bins are in none.
        steps_of: gives the step of every number, 0..size-1.
    Raises: as ``beyond_bounds``.
    """
    rows, (numbers,), read = _held(source, domain, [domain.attribute(name)], _amounts)
    codes = np.unravel_index(rows["cell"], tuple(each.kinds for each in domain.attributes))[domain.axis(name)]
    known = np.flatnonzero(codes < domain.attribute(name).values)
    if source.person is not None:
        known = known[first_of_each(rows[known], source.most_records)]
    return CountedSizes(np.bincount(steps_of(numbers[known]), minlength=size).astype(np.int64), read)


def _held(
    source: Source, domain: Domain, columns: list[Attribute], told: Callable[[RecordsOfFile, Attribute, Source], Excess]
) -> tuple[NDArray[np.void], list[Excess], int]:
    """All records with their persons and cells, and what is told of the amounts of each column."""
    held: list[tuple[NDArray[np.void], list[Excess]]] = []
    read = 0
    for found in read_records(source, domain):
        rows = np.empty(int(found.kept.sum()), dtype=HASHED)
        rows["high"], rows["low"], rows["cell"] = *found.persons[found.kept].T, found.cells[found.kept]
        held.append((rows, [told(found, column, source)[found.kept] for column in columns]))
        read += found.read
        if SORTED_COPIES * sum(some.nbytes + sum(each.nbytes for each in excess) for some, excess in held) > left_bytes():
            raise InvalidInput(
                "'left_out', 'quantiles' and 'private' bounds and edges need more memory for the records than this process has: give it "
                "more, or declare bounds and edges, and leave 'left_out' and 'quantiles' out"
            )
    rows = np.concatenate([np.zeros(0, dtype=HASHED), *(some for some, _ in held)])
    excess = [np.concatenate([np.zeros(0), *(each[place] for _, each in held)]) for place in range(len(columns))]
    return rows, excess, read


def _given(excess: Excess) -> Excess:
    """Those of records that have an amount."""
    return excess[~np.isnan(excess)]


def _amounts(found: RecordsOfFile, column: Attribute, source: Source) -> Excess:
    """The amount of every record, NaN where there is none."""
    name = source.columns.get(column.name, column.name)
    with explained(found.called, f"the column {name!r}"):
        values = pc.fill_null(converted(found.table[name], "number"), float("nan")).to_numpy()
    return np.asarray(values, dtype=np.float64)


def _excess(found: RecordsOfFile, column: Attribute, source: Source) -> Excess:
    """How far every amount lies outside the range, in ``FINEST`` parts of it: 0 within it, below it negative, NaN where there is none."""
    assert column.amounts is not None
    (low, high), values = column.amounts.range, _amounts(found, column, source)
    with np.errstate(invalid="ignore", over="ignore"):
        beyond = np.where(values > high, values - high, np.where(values < low, values - low, 0.0)) * (FINEST / (high - low))
    return np.where(np.isnan(values), np.nan, beyond)

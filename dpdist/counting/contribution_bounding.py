"""Contributions are bounded by dealing records into buckets by a keyed hash of the person, and keeping the first of each."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpdist.counting.partial_counts import Batch, Counter
from dpdist.counting.record_cells import CountSummary, cells_of, explained, tables_of
from dpdist.domain import Attribute, Domain
from dpdist.engine import Engine, OnDone
from dpdist.engine.shuffle import Dealt, Gathered, Rows, RunKey, deal, gather
from dpdist.errors import InvalidSpec
from dpdist.process import arrow_arrays
from dpdist.sources.formats.column_conversion import WORDS, Column, Unconvertible, converted, family_of, texts_of
from dpdist.sources.formats.record_format import BATCH_ROWS, Partition
from dpdist.sources.record_sources import Participations, PersonType, Source, without_files
from dpdist.sources.source_labels import Called
from dpdist.storage.array_store import Store

HASHED = np.dtype([("high", "<u8"), ("low", "<u8"), ("cell", "<i8")])
"""A record that is dealt out: the keyed hash of its person, and its cell."""
DEALT_BYTES = 8
"""What a byte of a file of records becomes at most when it is dealt out: a record takes three bytes or more there."""
PART_COPIES = 6
"""Arrays of a part's records while persons are told apart."""


def parts_of(source: Source, engine: Engine, tasks: int) -> int:
    """How many parts records are dealt out to: as many for every task as bring a part into a quarter of a worker's memory."""
    part_bytes = max(1, engine.memory_bytes // 4 // PART_COPIES)
    return tasks * max(1, math.ceil(DEALT_BYTES * sum(each.size for each in source.tags) / part_bytes / tasks))


def pending_rows(store: Store, engine: Engine) -> int:
    """Records that a task holds before it deals them out."""
    return min(store.sizes.pending_pairs, max(BATCH_ROWS, engine.memory_bytes // (8 * HASHED.itemsize)))


def count_by_person(
    source: Source,
    domain: Domain,
    counter: Counter,
    engine: Engine,
    key: RunKey,
    groups: list[list[Partition]],
    tasks: int,
    on_done: OnDone | None,
) -> tuple[CountSummary, list[Dealt]]:
    """Count at most ``source.most_records`` records of each person into the counter's partial counts, in so many tasks.

    Args:
        groups: of partitions, in the order of files and rows, a task each.
    """
    parts = parts_of(source, engine, tasks)
    pending = pending_rows(counter.store, engine)
    dealing = Dealing(without_files(source), domain, counter.store, counter.work, parts, pending)
    read, gathered = dealing.dealt(engine, key, groups, on_done)
    counting = partial(_count_parts, without_files(source), domain, counter, gathered)
    each = parts // tasks
    counted = engine.map(
        counting, [(task, range(task * each, (task + 1) * each), key) for task in range(tasks)], on_done=on_done
    )
    tally = sum((tally for tally, _ in counted), read)
    return tally, [one for _, some in counted for one in some]


@dataclass(frozen=True)
class Dealing:
    """How records are dealt out by person: with the keyed hash of their person, their cell and some amounts, in record order.

    Attributes:
        work: a folder of the store.
        parts: how many there are.
        pending: records that a task holds before it deals them out.
        columns: whose amounts go along.
        complete: columns of which every record within the domain must have an amount.
    """

    source: Source
    domain: Domain
    store: Store
    work: str
    parts: int
    pending: int
    columns: tuple[Attribute, ...] = ()
    complete: tuple[Attribute, ...] = ()

    def dealt(
        self, engine: Engine, key: RunKey, groups: list[list[Partition]], on_done: OnDone | None = None
    ) -> tuple[CountSummary, Gathered]:
        """Deal out all records so that those of one person are in one part, in the order of files and rows.

        Args:
            key: what is dealt out is sealed under it.
            groups: of partitions, in the order of files and rows, a task each.
        """
        found = engine.map(self.deal, [(group, key) for group in groups], on_done=on_done)
        tally = sum((tally for tally, _ in found), CountSummary())
        return tally, gather(self.store, self.work, key, self.parts, [each for _, some in found for each in some])

    def deal(self, task: tuple[list[Partition], RunKey]) -> tuple[CountSummary, list[Dealt]]:
        """Deal out the records of some partitions."""
        partitions, key = task
        person_key, tally = PersonKey(key.derived(b"persons")), [CountSummary()]

        def batches() -> Iterator[Rows]:
            for partition in partitions:
                for number, table in enumerate(tables_of(self.source, self.domain, partition)):
                    part, rows = self._rows(table, partition, number, person_key)
                    tally.append(part)
                    yield rows

        out = dealt_by_person(batches(), np.zeros(0, dtype=self.dtype), self.store, self.work, key, self.parts, self.pending)
        return sum(tally, CountSummary()), out

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of a record that is dealt out."""
        return np.dtype([*HASHED.descr, *((amount_of(place), "<f8") for place in range(len(self.columns)))])

    def _rows(self, table: pa.Table, partition: Partition, number: int, key: PersonKey) -> tuple[CountSummary, Rows]:
        """The records of a table that lie within the domain and have a person."""
        cells, tally = cells_of(table, self.source, self.domain, partition.called)
        check_complete(table, self.complete, self.source, cells, partition.called)
        persons, dropped = person_hashes(table, self.source, partition, number, key)
        kept = cells >= 0
        tally = replace(tally, dropped=tally.dropped + int((kept & dropped).sum()))
        kept &= ~dropped
        rows = np.empty(int(kept.sum()), dtype=self.dtype)
        rows["high"], rows["low"], rows["cell"] = persons[kept, 0], persons[kept, 1], cells[kept]
        for place, column in enumerate(self.columns):
            rows[amount_of(place)] = amounts_of(table, column, self.source, partition.called)[kept]
        return tally, rows


def dealt_by_person(
    batches: Iterable[Rows], none: Rows, store: Store, work: str, key: RunKey, parts: int, pending: int
) -> list[Dealt]:
    """Deal records out by the hash of their person, so many at a time.

    Args:
        none: no record, of the type of all.
        pending: records that are held before they are dealt out.
    """
    held, out = [none], list[Dealt]()

    def flush() -> None:
        rows = np.concatenate(held)
        held[:] = [none]
        part = (rows["high"] % np.uint64(parts)).astype(np.int64)
        out.append(deal(store, work, key, parts, part, rows))

    for rows in batches:
        held.append(rows)
        if sum(some.size for some in held) >= pending:
            flush()
    flush()
    return out


def amount_of(place: int) -> str:
    """The field of a record that is dealt out with the amount of one of the columns."""
    return f"amount {place}"


def amounts_of(table: pa.Table, column: Attribute, source: Source, called: Called) -> NDArray[np.float64]:
    """The amount of every record, NaN where there is none."""
    name = source.columns.get(column.name, column.name)
    with explained(called, f"the column {name!r}"):
        return arrow_arrays.floats_of(converted(table[name], "number"))


def check_complete(
    table: pa.Table, columns: Sequence[Attribute], source: Source, cells: NDArray[np.int64], called: Called
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


@dataclass(frozen=True)
class PersonKey:
    """Makes hashes of persons that nobody can make without it: random for a run, and never written to a file."""

    content: bytes = field(repr=False)

    def hashed(self, persons: Iterable[str], *, alone: bool = False) -> NDArray[np.uint64]:
        """128 bits of keyed BLAKE2b of each person, (persons, 2).

        Args:
            alone: whether they are not persons' names, but the places of records that name none.
        """
        begun = hashlib.blake2b(key=self.content, digest_size=16, person=b"alone" if alone else b"").copy
        found = bytearray()
        for person in persons:  # to copy what has read the key takes half the time of a new one
            each = begun()
            each.update(person.encode())
            found += each.digest()
        return np.frombuffer(found, dtype=np.uint64).reshape(-1, 2)


def _count_parts(
    source: Source, domain: Domain, counter: Counter, gathered: Gathered, task: tuple[int, range, RunKey]
) -> tuple[CountSummary, list[Dealt]]:
    """Keep the chosen records of each person and count them, part after part."""
    number, parts, key = task
    in_groups = source.person is not None and source.person.most_groups is not None
    tallies = [CountSummary()]

    def batches() -> Iterator[Batch]:
        opened = gathered.opened(counter.store, key)
        for part in parts:
            rows = np.concatenate([np.zeros(0, dtype=HASHED), *opened.of(part)])
            for number, table in enumerate(domain.apart):
                placed = taken_by(rows, domain, table)
                kept = placed[kept_records(within(source, domain, table), domain, placed)]
                if number == 0:
                    repeated = repetitions(rows, groups_of(rows, domain)) if in_groups and source.most_records == 1 else 0
                    tallies.append(CountSummary(beyond_bound=rows.size - kept.size - repeated, repeated=repeated))
                yield kept["cell"] if counter.divided is None else within_total(kept, counter.divided), None

    dealt = counter.count(number, key, batches())
    return sum(tallies, CountSummary()), dealt


def kept_records(source: Source, domain: Domain, rows: Rows) -> NDArray[np.int64]:
    """The places of the records that count of each person: the first ones, or those of the first groups, or of steps that are apart.

    Without a person column all count.
    """
    person = source.person
    if person is None:
        return np.arange(rows.size)
    if person.participations is not None:
        axis = domain.axis(person.participations.of)
        kinds = tuple(attribute.kinds for attribute in domain.attributes)
        steps = np.unravel_index(rows["cell"], kinds)[axis].astype(np.int64)
        return first_of_steps(rows, steps, person.participations, source.most_records)
    if person.most_groups is not None:
        return first_of_groups(rows, groups_of(rows, domain), person.most_groups, source.most_records)
    return first_of_each(rows, source.most_records)


def groups_of(rows: Rows, domain: Domain) -> NDArray[np.int64]:
    """The group of every record: one whatever its amounts are."""
    return np.asarray(rows["cell"] // math.prod(attribute.kinds for attribute in domain.amounts))


def within(source: Source, domain: Domain, table: Sequence[str | None]) -> Source:
    """The source with the bound on a person's groups in a table of persons, where a level of it has a smaller one."""
    person = source.person
    if person is None or person.most_groups is None:
        return source
    return replace(source, person=replace(person, most_groups=min(person.most_groups, domain.groups_in(table)[1])))


def taken_by(rows: Rows, domain: Domain, table: Sequence[str | None]) -> Rows:
    """The records in the groups of a table in which persons are counted by themselves (``Domain.apart``)."""
    kinds = [each.kinds for each in domain.attributes]
    bins = [each.taken(name).bins for each, name in zip(domain.attributes, table, strict=True)]
    out = rows if all(each is None for each in bins) else rows.copy()
    for axis, other in enumerate(bins):
        if other is not None:
            step = math.prod(kinds[axis + 1 :])
            code = out["cell"] // step % kinds[axis]
            out["cell"] += (other[code] - code) * step
    return out


def repetitions(rows: Rows, group: NDArray[np.int64]) -> int:
    """How many records are of a person who has another one in the same group: all but one of each person and group."""
    order = np.lexsort((group, rows["low"], rows["high"]))
    starts, _ = runs_of(rows["high"][order], rows["low"][order], group[order])
    return rows.size - starts.size


def numbered(rows: Rows) -> NDArray[np.int64]:
    """The person of every record: 0, 1, 2, ... in no order that means anything."""
    (order, starts, _), number = by_person(rows), np.empty(rows.size, dtype=np.int64)
    number[order] = np.repeat(np.arange(starts.size), np.diff(np.append(starts, rows.size)))
    return number


def first_of_each(rows: Rows, most: int) -> NDArray[np.int64]:
    """The places of the first ``most`` records of each person."""
    order, _, place = by_person(rows)
    return order[place < most]


def by_person(rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The places of the records in an order in which those of a person follow each other, as they came; where persons begin in it, and
    which of their person each record is.
    """
    order = np.argsort(rows["high"], kind="stable")
    high, low = rows["high"][order], rows["low"][order]
    if ((high[1:] == high[:-1]) & (low[1:] != low[:-1])).any():  # two persons who share half a hash
        order = np.lexsort((rows["low"], rows["high"]))
        high, low = rows["high"][order], rows["low"][order]
    return order, *runs_of(high, low)


def first_of_groups(rows: Rows, group: NDArray[np.int64], groups: int, most: int) -> NDArray[np.int64]:
    """The places of the first ``most`` records of each person in each of the first ``groups`` groups that the person has records in.

    Args:
        group: of every record.
    """
    order = np.lexsort((group, rows["low"], rows["high"]))
    starts, place = runs_of(rows["high"][order], rows["low"][order], group[order])
    firsts = order[starts]  # where each person comes to each group, in the order of files and rows
    came = np.lexsort((firsts, rows["low"][firsts], rows["high"][firsts]))
    rank = np.empty(firsts.size, dtype=np.int64)
    rank[came] = runs_of(rows["high"][firsts[came]], rows["low"][firsts[came]])[1]
    of_group = np.cumsum(place == 0) - 1
    return np.asarray(order[(rank[of_group] < groups) & (place < most)]) if rows.size else order


def first_of_steps(rows: Rows, steps: NDArray[np.int64], participations: Participations, most: int) -> NDArray[np.int64]:
    """The places of the first ``most`` records of each person in the person's earliest step and each next one that is far enough.

    Whether a step counts depends on the person's own steps up to it: later records change nothing that was counted before.
    """
    order = np.lexsort((steps, rows["low"], rows["high"]))
    persons = runs_of(rows["high"][order], rows["low"][order])[0]
    person = np.searchsorted(persons, np.arange(rows.size), side="right") - 1
    span = int(steps.max(initial=0)) + 1
    time = (
        person * (span + participations.separation) + steps[order]
    )  # ascending; persons are further apart than any two steps
    kept = np.zeros(rows.size, dtype=bool)
    at = persons
    for _ in range(participations.most):
        if not at.size:
            break
        last = time[at]
        firsts = np.minimum(np.searchsorted(time, last, side="right") - at, most)
        before = np.repeat(np.cumsum(firsts) - firsts, firsts)
        kept[np.repeat(at, firsts) + np.arange(before.size) - before] = True
        following = np.searchsorted(time, last + participations.separation)
        inside = following < rows.size
        inside[inside] = person[following[inside]] == person[at[inside]]
        at = following[inside]
    return np.asarray(order[kept])


def within_total(rows: Rows, domain: Domain) -> NDArray[np.int64]:
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
    starts, _ = runs_of(rows["high"], rows["low"])
    totals = np.repeat(np.add.reduceat(steps, starts), np.diff(np.append(starts, rows.size)))
    most = width * column.amounts.bound.times
    return np.asarray(kinds - steps + np.where(totals > most, steps * most // np.maximum(totals, 1), steps))


def runs_of(*columns: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where runs of rows begin that agree in all columns, and the place of every row in its run."""
    size = columns[0].size
    fresh = np.ones(size, dtype=bool)
    fresh[1:] = np.any([each[1:] != each[:-1] for each in columns], axis=0)
    starts = np.flatnonzero(fresh)
    return starts, np.arange(size) - np.repeat(starts, np.diff(np.append(starts, size)))


def person_hashes(
    table: pa.Table, source: Source, partition: Partition, place: int, key: PersonKey
) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """The keyed hash of each record's person, (rows, 2) uint64: equal for equal persons, whatever the file. And which are dropped.

    Each record that names no person has a hash that no other record has, or is dropped.

    Args:
        place: of the table among those of the partition.
    Raises: InvalidSpec where a record names none, and the source does not say what to do with it.
    """
    column = source.person
    assert column is not None
    with explained(partition.called, f"the person column {column.name!r}"):
        encoded = persons_of(table[column.name], column.type).dictionary_encode()
        persons = ["", *encoded.dictionary.to_pylist()]
    codes = arrow_arrays.places_of(encoded) + 1
    absent = np.isin(codes, [code for code, person in enumerate(persons) if person == ""])
    if absent.any() and column.missing is None:
        called, number = partition.called, " or others than whole numbers" if column.type == "integer" else ""
        raise InvalidSpec(
            f"{called}: the person column {column.name!r} has missing values{number}; set 'missing' of 'person' to 'drop' or "
            "'each', or remove those records first"
        )
    hashes = key.hashed(persons)[codes]
    if absent.any():
        rows = (f"{partition.path}\0{partition.group}\0{place}\0{row}" for row in np.flatnonzero(absent).tolist())
        hashes[absent] = key.hashed(rows, alone=True)
    return hashes, absent & (column.missing == "drop")


def persons_of(column: Column, kind: PersonType) -> pa.Array:
    """The one text that names each record's person, however the column is stored; null where a number is meant and none is there.

    Raises: Unconvertible for columns that should name nobody: 1.0 and 1, or two NaN, are no two persons or one.
    """
    family = family_of(column.type)
    if family not in ("nothing", "text", "whole", "decimal"):
        raise Unconvertible(f"holds {WORDS[family]}; persons are named by text or whole numbers: convert it")
    return texts_of(converted(column, "whole") if kind == "integer" else column)

"""The names that an attribute has in the records, with their weights: private, sealed in the store, never all of them in one place.

The records are read by tasks of the engine. Names are known by a keyed hash of 127 bits. Where persons are told apart, records are dealt
out by person, and of each person some names count; shares of names are dealt out by name, and what frequent names give back by person
again (``dpdist.privacy.selection.adaptive_weights``). The texts of those names that a private selection has selected
(``dpdist.privacy.selection.partition_selection``) are read from the records once more. All that is written is sealed under a key of the
run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpdist.counting.contribution_bounding import (
    check_complete,
    choose_part_count,
    divide_by_person,
    number_persons,
    order_by_person,
    pending_rows,
)
from dpdist.counting.group_choice import choose_groups
from dpdist.counting.person_histograms import PartitionedRecords
from dpdist.counting.person_keys import PersonKey, person_hashes
from dpdist.counting.record_cells import cells_of, tables_of
from dpdist.counting.sparse_counts import CountingKeys
from dpdist.domain import Attribute, Domain
from dpdist.domain.labels import apparent
from dpdist.engine import Engine
from dpdist.engine.shuffle import DealtObject, PendingRows, Rows, RunKey, ShuffleIndex, deal, gather
from dpdist.privacy.selection.adaptive_weights import UNIT_BITS, AdaptiveWeights, Weights, returned_shares
from dpdist.process import arrow_arrays
from dpdist.sources.formats.column_conversion import texts_of
from dpdist.sources.formats.record_format import Partition
from dpdist.sources.formats.weighted_rows import counted_rows
from dpdist.sources.reader_errors import reading
from dpdist.sources.record_sources import Source, check_columns, group_partitions, partitions_of, without_files
from dpdist.storage.array_store import Store

LONGEST = 200
"""Characters of a name that can be selected; records with longer ones are counted with the others."""
HASH_BITS, SHARD_BITS = 63, 12
"""Names are divided into 4,096 shards by the first bits of their hash, whoever counts them."""
PERSON_FIELDS = ["high", "low"]
PERSON = [("high", "<u8"), ("low", "<u8")]
NAME = np.dtype([("name", "<i8"), ("rest", "<u8")])
"""The hash of a name."""
RECORD, RETURNED = np.dtype([*PERSON, *NAME.descr]), np.dtype([*PERSON, ("share", "<i8")])
PAIR, SUM = np.dtype([*PERSON, *NAME.descr, ("names", "<i8")]), np.dtype([*NAME.descr, ("weight", "<i8")])
LETTER = np.dtype([("byte", "u1")])
"""What is dealt out: a record, a person's name with how many names the person has, what came back to a person, a part of a weight; and
the texts of selected names, byte by byte."""


@dataclass(frozen=True)
class NameCounts:
    """The weights of names, and how many records were read; nothing shows in a repr.

    Attributes:
        reader: reads the records.
        tasks: what the reader reads, a task each.
        index: of what was written, by parts of neighbouring shards.
        digest: SHA-256 of all names and weights: only a commitment of it may be written down.
    """

    reader: NameCounting = field(repr=False)
    engine: Engine = field(repr=False)
    tasks: list[tuple[list[Partition], CountingKeys]] = field(repr=False)
    index: ShuffleIndex = field(repr=False)
    digest: str = field(repr=False)
    records_read: int = field(repr=False)

    def blocks(self) -> Iterator[tuple[Rows, Weights]]:
        """Names and their weights, part by part, in the order of their hashes. Raises: StoreError."""
        opened = self.index.open_parts(self.reader.store, self.tasks[0][1].run)
        for part in range(self.index.part_count):
            rows = opened.whole_part(part, SUM)
            yield rows[["name", "rest"]], np.ascontiguousarray(rows["weight"])

    def find_texts(self, names: Rows) -> list[str]:
        """The texts of some names, in the order of their UTF-8 bytes: neither these nor hashes are sent, as nothing is committed yet."""
        if not names.size:
            return []
        store, work, key = self.reader.store, self.reader.work, self.tasks[0][1].run
        selected = deal(store, work, key, 1, np.zeros(names.size, dtype=np.int64), np.array(names.tolist(), dtype=NAME))
        read_texts = partial(self.reader.read_texts, gather(store, work, key, 1, [selected]))
        dealt = gather(store, work, key, 1, self.engine.map(read_texts, self.tasks))
        found = (json.loads(letters.tobytes()) for letters in dealt.open_parts(store, key).rows_of_part(0))
        return sorted({text for texts in found for text in texts}, key=str.encode)

    def delete(self) -> None:
        """Delete what is in the store."""
        self.reader.store.delete(self.reader.work)


def count_names(
    records: PartitionedRecords,
    attribute: str,
    excluded_names: frozenset[str],
    weights: AdaptiveWeights | None,
    saturation: int = 0,
) -> NameCounts:
    """Every name of an attribute with its weight: that of its records or, where persons are told apart, of the persons who have it.

    The records are read as counting will read them: what that refuses is refused here, before anything is charged.

    Args:
        records: with placeholders in place of the attribute's names.
        excluded_names: names that stand for something else, such as the bin of other names.
        weights: how persons share a weight out; None where records count.
        saturation: the shares that a name takes, units.
    Raises: InvalidSpec for a missing column or a file that cannot be read; UnknownValue; StoreError. No message tells a number that
        depends on the records.
    """
    reader, tasks = _reader_of(records, attribute, excluded_names, weights, saturation)
    engine, keys = records.engine, tasks[0][1]
    key, count, workers = keys.run, reader.part_count, max(1, engine.workers)
    parts = [(range(task * count // workers, (task + 1) * count // workers), keys) for task in range(workers)]

    def index_of(dealt: Iterable[list[DealtObject]]) -> ShuffleIndex:
        return gather(records.store, reader.work, key, count, [entry for entries in dealt for entry in entries])

    try:
        read = engine.map(reader.deal_records, tasks)
        sums = [entries for _, entries in read]
        if weights is not None:
            by_person = index_of(sums)
            shared = engine.map(partial(reader.share_weights, by_person), parts)
            taken = engine.map(partial(reader.take_shares, index_of(pairs for pairs, _ in shared)), parts)
            returned = index_of(shares for shares, _ in taken)
            handed = engine.map(partial(reader.hand_back, by_person, returned), parts)
            sums = [*(beyond for _, beyond in shared), *(kept for _, kept in taken), *handed]
        added = engine.map(partial(reader.add_up, index_of(sums)), parts)
        index = index_of(entries for entries, _ in added)
    except BaseException:
        records.store.delete(reader.work)
        raise
    digest = hashlib.sha256(b"".join(digests for _, digests in added)).hexdigest()
    return NameCounts(reader, engine, tasks, index, digest, sum(number for number, _ in read))


def check_names(records: PartitionedRecords, attribute: str, excluded_names: frozenset[str]) -> None:
    """Accept records that can be counted, before something else is found. Raises: as ``count_names``."""
    reader, tasks = _reader_of(records, attribute, excluded_names, None, 0)
    try:
        records.engine.map(reader.read_all, tasks)
    finally:
        records.store.delete(reader.work)


def _reader_of(
    records: PartitionedRecords,
    attribute: str,
    excluded_names: frozenset[str],
    weights: AdaptiveWeights | None,
    saturation: int,
) -> tuple[NameCounting, list[tuple[list[Partition], CountingKeys]]]:
    """What reads the records, and what each task reads."""
    check_columns(records.source, records.domain)
    engine, keys = records.engine, CountingKeys(RunKey.generate(), records.person_key)
    reader = NameCounting(
        without_files(records.source),
        records.domain,
        records.complete,
        records.store,
        attribute,
        frozenset(map(apparent, excluded_names)),
        weights,
        saturation,
        records.store.scratch(),
        min(1 << SHARD_BITS, 2 * choose_part_count(records.source, engine, max(1, engine.workers))),
        pending_rows(records.store.sizes, engine),
    )
    return reader, [(group, keys) for group in group_partitions(partitions_of(records.source), engine.workers)]


def is_distinguishable(name: str, excluded_names: frozenset[str]) -> bool:
    """Whether a name can stand on a page: as readers see it, printable, not too long, and none that stands for something else.

    Args:
        excluded_names: as readers see them.
    """
    return 0 < len(name) <= LONGEST and name.isprintable() and name == apparent(name) and name not in excluded_names


@dataclass(frozen=True)
class NameCounting:
    """What tasks do to count names: no key is in it, so that it may be left in the store.

    Attributes:
        source: without files.
        complete: columns of which every record within the domain must have an amount.
        work: a folder of the store.
        part_count: into how many parts persons, and names, are dealt.
        pending: rows that a task holds before it deals them out.
    """

    source: Source
    domain: Domain
    complete: tuple[Attribute, ...]
    store: Store
    attribute: str
    excluded_names: frozenset[str]
    weights: AdaptiveWeights | None
    saturation: int
    work: str
    part_count: int
    pending: int

    def deal_records(self, task: tuple[list[Partition], CountingKeys]) -> tuple[int, list[DealtObject]]:
        """Read some partitions and deal their records out: by person, or by name where records count. And how many were read."""
        (partitions, keys), read_counts = task, [0]

        def rows_of_persons() -> Iterator[Rows]:
            for table, (partition, table_index), codes, hashes, numbers in self._tables(partitions, keys.persons):
                read_counts.append(int(numbers.sum()))
                persons, dropped = person_hashes(table, self.source, partition, table_index, keys.persons)
                counts = (codes >= 0) & ~dropped
                rows = np.empty(int(counts.sum()), dtype=RECORD)
                rows["high"], rows["low"] = persons[counts].T
                rows["name"], rows["rest"] = hashes["name"][codes[counts]], hashes["rest"][codes[counts]]
                yield rows

        def sums() -> Iterator[Rows]:
            for _, _, codes, hashes, numbers in self._tables(partitions, keys.persons):
                read_counts.append(int(numbers.sum()))
                totals = np.zeros(hashes.size, dtype=np.int64)
                np.add.at(totals, codes[codes >= 0], numbers[codes >= 0] << UNIT_BITS)
                yield _sums(hashes[totals > 0], totals[totals > 0])

        if self.weights is None:
            dealt = self._waiting(SUM, keys.run).deal_all(sums())
            return sum(read_counts), dealt
        dealt = self._waiting(RECORD, keys.run).deal_all(rows_of_persons())
        return sum(read_counts), dealt

    def share_weights(
        self, index: ShuffleIndex, task: tuple[range, CountingKeys]
    ) -> tuple[list[DealtObject], list[DealtObject]]:
        """Deal out by name what persons of some parts share out, but for shares that certainly come back; and what they add beyond it."""
        assert self.weights is not None
        part_range, keys = task
        shared, beyond = self._waiting(PAIR, keys.run), self._waiting(SUM, keys.run)
        for part in part_range:
            pairs, is_full = self._chosen_pairs(index, part, keys.run)
            shared.add(pairs[~is_full])
            beyond.add(_sums(pairs, (self.weights.weights - self.weights.shares)[pairs["names"]]))
        return shared.finish(), beyond.finish()

    def take_shares(
        self, index: ShuffleIndex, task: tuple[range, CountingKeys]
    ) -> tuple[list[DealtObject], list[DealtObject]]:
        """Deal out by person what the names of some parts give back, and by name what they keep."""
        part_range, keys = task
        back, kept = self._waiting(RETURNED, keys.run), self._waiting(SUM, keys.run)
        for part in part_range:
            pairs, shares, returned = self._returned_shares(self._rows(index, part, keys.run, PAIR))
            comes_back = returned > 0
            rows = np.empty(int(comes_back.sum()), dtype=RETURNED)
            rows["high"], rows["low"] = pairs["high"][comes_back], pairs["low"][comes_back]
            rows["share"] = returned[comes_back]
            back.add(rows)
            kept.add(_sums(pairs, shares - returned))
        return back.finish(), kept.finish()

    def hand_back(
        self, by_person: ShuffleIndex, returned: ShuffleIndex, task: tuple[range, CountingKeys]
    ) -> list[DealtObject]:
        """Deal out by name what the persons of some parts hand to all of their names of what came back to them."""
        assert self.weights is not None
        part_range, keys = task
        waiting = self._waiting(SUM, keys.run)
        for part in part_range:
            pairs, is_full = self._chosen_pairs(by_person, part, keys.run)
            back = self._rows(returned, part, keys.run, RETURNED)
            persons = number_persons(np.concatenate([pairs[PERSON_FIELDS], back[PERSON_FIELDS]]))
            totals = np.zeros(persons.max(initial=-1) + 1, dtype=np.int64)
            np.add.at(totals, persons[: pairs.size][is_full], self.weights.shares[pairs["names"][is_full]])
            np.add.at(totals, persons[pairs.size :], back["share"])
            handed = totals[persons[: pairs.size]] // self.weights.names_per_person  # shares are whole multiples of it
            waiting.add(_sums(pairs[handed > 0], handed[handed > 0]))
        return waiting.finish()

    def add_up(self, index: ShuffleIndex, task: tuple[range, CountingKeys]) -> tuple[list[DealtObject], bytes]:
        """Write the weights of the names of some parts; and the digest of each of their shards."""
        part_range, keys = task
        waiting, digests = self._waiting(SUM, keys.run), list[bytes]()
        for part in part_range:
            rows = _add_up(self._rows(index, part, keys.run, SUM))
            first, end = (-(-(number << SHARD_BITS) // self.part_count) for number in (part, part + 1))
            starts = np.searchsorted(rows["name"] >> (HASH_BITS - SHARD_BITS), range(first + 1, end))
            digests += [hashlib.sha256(shard.tobytes()).digest() for shard in np.split(rows, starts)]
            waiting.add(rows)
        return waiting.finish(), b"".join(digests)

    def read_texts(self, selected: ShuffleIndex, task: tuple[list[Partition], CountingKeys]) -> DealtObject:
        """Write those texts of some partitions whose hashes were selected."""
        partitions, keys = task
        wanted, found = set(self._rows(selected, 0, keys.run, NAME).tolist()), set[str]()
        for table, (partition, _) in self._read_tables(partitions):
            texts = self._texts(table, partition)[0]
            found.update(
                text for text, name in zip(texts, name_hashes(texts, keys.persons).tolist(), strict=True) if name in wanted
            )
        letters = np.frombuffer(json.dumps(sorted(found)).encode(), dtype=LETTER)
        return deal(self.store, self.work, keys.run, 1, np.zeros(letters.size, dtype=np.int64), letters)

    def read_all(self, task: tuple[list[Partition], CountingKeys]) -> None:
        """Read some partitions, for what refuses them."""
        for _ in self._tables(*task[:1], task[1].persons):
            pass

    def _tables(
        self, partitions: list[Partition], key: PersonKey
    ) -> Iterator[tuple[pa.Table, tuple[Partition, int], Weights, Rows, Weights]]:
        """The records: of which partition and where in it, the place of every row's name, -1 where it has none, the hashes of all names,
        and how many records the rows stand for.
        """
        source = self.source
        for read_table, (partition, table_index) in self._read_tables(partitions):
            table, numbers = read_table, np.ones(read_table.num_rows, dtype=np.int64)
            if source.counts is not None:
                table, numbers = counted_rows(read_table, source.counts, partition.source_label)
            cells = cells_of(table, source, self.domain, partition.source_label)[0]
            check_complete(table, self.complete, source, cells, partition.source_label)
            texts, text_codes = self._texts(table, partition)
            is_name = np.array([*(is_distinguishable(text, self.excluded_names) for text in texts), False])
            codes = np.where(is_name, np.arange(is_name.size), -1)[text_codes]
            yield table, (partition, table_index), codes, name_hashes(texts, key), numbers

    def _read_tables(self, partitions: list[Partition]) -> Iterator[tuple[pa.Table, tuple[Partition, int]]]:
        for partition in partitions:
            for table_index, table in enumerate(tables_of(self.source, self.domain, partition)):
                yield table, (partition, table_index)

    def _texts(self, table: pa.Table, partition: Partition) -> tuple[list[str], NDArray[np.integer]]:
        """The different texts of the attribute, and the place of every row's text among them, -1 where it has none."""
        with reading(partition.source_label):
            column = table[self.source.columns.get(self.attribute, self.attribute)]
            encoded = texts_of(column).dictionary_encode()
            return encoded.dictionary.to_pylist(), arrow_arrays.dictionary_indices(encoded)

    def _chosen_pairs(self, index: ShuffleIndex, part: int, key: RunKey) -> tuple[Rows, NDArray[np.bool_]]:
        """The names that count of each person of a part, each once, and whose share comes back whatever other persons there are.

        That is so where the names' persons of this part who come before fill it: with others there would be more of them.
        """
        assert self.weights is not None
        _, starts, rows = order_by_person(self._rows(index, part, key, RECORD))
        places, _ = choose_groups(rows, starts, rows["name"], rows["rest"], self.weights.names_per_person)
        person = number_persons(rows[places])
        pairs = np.empty(places.size, dtype=PAIR)
        for column in RECORD.names or ():
            pairs[column] = rows[column][places]
        pairs["names"] = np.bincount(person)[person]
        pairs, shares, returned = self._returned_shares(pairs)
        return pairs, returned == shares

    def _returned_shares(self, pairs: Rows) -> tuple[Rows, Weights, Weights]:
        """The pairs by name, and by person in it; their shares, and what comes back of each."""
        assert self.weights is not None
        pairs = pairs[_order_by_name_and_person(pairs)]
        shares = self.weights.shares[pairs["names"]]
        return pairs, shares, returned_shares(_starts(pairs), shares, self.saturation)

    def _rows(self, index: ShuffleIndex, part: int, key: RunKey, dtype: np.dtype[np.void]) -> Rows:
        return index.open_parts(self.store, key).whole_part(part, dtype)

    def _waiting(self, dtype: np.dtype[np.void], key: RunKey) -> PendingRows:
        """Rows that wait to be dealt out: by person records and what came back, others by name."""
        divide = divide_by_person if dtype in (RECORD, RETURNED) else _divide_by_name
        return PendingRows(self.store, self.work, key, self.part_count, self.pending, dtype, divide)


def _divide_by_name(rows: Rows, part_count: int) -> tuple[Rows, Weights]:
    """Rows with the part of each by its name's shard; parts of weights are added up first."""
    rows = _add_up(rows) if rows.dtype == SUM else rows
    return rows, (rows["name"] >> (HASH_BITS - SHARD_BITS)) * part_count >> SHARD_BITS


def name_hashes(texts: Sequence[str], key: PersonKey) -> Rows:
    """A keyed hash of every name."""
    words, rows = key.hash_persons(texts, purpose=b"names"), np.empty(len(texts), dtype=NAME)
    rows["name"], rows["rest"] = words[:, 0] >> np.uint64(64 - HASH_BITS), words[:, 1]
    return rows


def _sums(names: Rows, weights: Weights) -> Rows:
    rows = np.empty(names.size, dtype=SUM)
    rows["name"], rows["rest"], rows["weight"] = names["name"], names["rest"], weights
    return rows


def _add_up(rows: Rows) -> Rows:
    """The names in the order of their hashes, each once, with the sum of its weights."""
    order = np.argsort(rows["name"])
    rows = rows.take(order)
    if ((np.diff(rows["name"]) == 0) & (rows["rest"][1:] != rows["rest"][:-1])).any():
        rows = rows[np.lexsort((rows["rest"], rows["name"]))]
    starts = _starts(rows)
    summed = rows.take(starts)
    if starts.size:
        summed["weight"] = np.add.reduceat(rows["weight"], starts)
    return summed


def _starts(rows: Rows) -> NDArray[np.int64]:
    """Where names begin in rows in their order."""
    is_new = np.ones(rows.size, dtype=bool)
    is_new[1:] = (rows["name"][1:] != rows["name"][:-1]) | (rows["rest"][1:] != rows["rest"][:-1])
    return np.flatnonzero(is_new)


def _order_by_name_and_person(pairs: Rows) -> NDArray[np.int64]:
    """The places of different pairs in an order of names, and in it of persons."""
    order = np.argsort(pairs["high"])
    order = order[np.argsort(pairs["name"][order], kind="stable")]
    name, rest, high = (pairs[column][order] for column in ("name", "rest", "high"))
    # two names or two persons that agree in 63 bits
    if ((name[1:] == name[:-1]) & ((rest[1:] != rest[:-1]) | (high[1:] == high[:-1]))).any():
        order = np.lexsort((pairs["low"], pairs["high"], pairs["rest"], pairs["name"]))
    return order

"""The names that an attribute has in the records, with their weights: private, in this process's memory alone.

No name is written, sent to a worker or put into an error: the records are read here, batch by batch. Where persons are distinguished, they
are dealt out by person, sealed, with the numbers of their names, and counted part by part. Names are published only after a private
selection (``dpdist.privacy.partition_selection``).
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpdist.counting.contribution_bounding import check_complete, number_persons, person_rows
from dpdist.counting.group_choice import choose_groups
from dpdist.counting.person_histograms import PartitionedRecords
from dpdist.counting.person_keys import person_hashes
from dpdist.counting.record_cells import cells_of, tables_of
from dpdist.domain.labels import apparent
from dpdist.engine.shuffle import Rows
from dpdist.errors import InvalidSpec, OutOfMemory
from dpdist.privacy.partition_selection import UNIT_BITS, Weights, weight_of
from dpdist.process import arrow_arrays
from dpdist.process.resource_limits import free_bytes
from dpdist.sources.formats.column_conversion import texts_of
from dpdist.sources.formats.record_format import Partition
from dpdist.sources.formats.weighted_rows import counted_rows
from dpdist.sources.reader_errors import reading
from dpdist.sources.record_sources import check_columns, partitions_of

LONGEST = 200
"""Characters of a name that can be selected; records with longer ones are counted with the others."""
NAME_BYTES = 512
"""What a name takes while its records are counted and it is put in order."""


@dataclass(frozen=True)
class NameCounts:
    """Names in the order of their UTF-8 bytes, with the weight of each in parts of 2^24, and how many records were read.

    Nothing shows in a repr.
    """

    names: tuple[str, ...] = field(repr=False)
    weights: NDArray[np.int64] = field(repr=False)
    records_read: int = field(repr=False)

    @property
    def digest(self) -> str:
        """SHA-256 of names and weights: only a commitment of it may be written down."""
        hasher = hashlib.sha256()
        for name, weight in zip(self.names, self.weights.tolist(), strict=True):
            text = name.encode()
            hasher.update(len(text).to_bytes(8, "big") + text + weight.to_bytes(8, "big"))
        return hasher.hexdigest()


def check_memory(candidates: int) -> None:
    """Accept a declared number of names that fit into this process, before a record is read. Raises: OutOfMemory."""
    needed_bytes, available_bytes = NAME_BYTES * candidates, free_bytes()
    if needed_bytes > available_bytes:
        cure = f"give it more memory, lower 'candidates' ({candidates:,}), or list the categories"
        raise OutOfMemory("counting names in this process", needed_bytes, available_bytes, cure)


def count_names(
    records: PartitionedRecords,
    attribute: str,
    excluded_names: frozenset[str],
    candidates: int,
    names_per_person: int | None,
) -> NameCounts:
    """Every name of an attribute with its weight: that of its records or, where persons are told apart, of the persons who have it.

    The records are read as counting will read them: what that refuses is refused here, before anything is charged.

    Args:
        records: with placeholders in place of the attribute's names.
        excluded_names: names that stand for something else, such as the bin of other names.
        candidates: the most different names, as declared.
        names_per_person: how many different names of a person count at most; None where records count.
    Raises: InvalidSpec for a missing column, a file that cannot be read, or more names; UnknownValue; OutOfMemory; StoreError. No message
        tells a number that depends on the records.
    """
    check_memory(candidates)
    check_columns(records.source, records.domain)
    names = _NameReader(records, attribute, excluded_names, candidates)
    weights = np.zeros(0, dtype=np.int64)
    if names_per_person is None:
        for _, _, codes, numbers in names.tables():
            row_counts = np.ones(codes.size, dtype=np.int64) if numbers is None else numbers
            weights = _add_weights(weights, codes[codes >= 0], row_counts[codes >= 0] << UNIT_BITS)
    else:
        with closing(records.deal_out(names.rows())) as person_parts:
            for rows in person_parts:
                weights = _add_weights(weights, *names.choose_names(rows, names_per_person))
    texts, order = list(names.name_numbers), names.sorted_numbers
    # a person can have names that do not count and that nobody else has
    weights = _add_weights(weights, order, np.zeros(order.size, dtype=np.int64))[order]
    return NameCounts(
        tuple(texts[number] for number in order[weights > 0].tolist()), weights[weights > 0], names.records_read
    )


def check_names(records: PartitionedRecords, attribute: str, left_out: frozenset[str], candidates: int) -> None:
    """Accept records with as many different names as are declared, before something else is found. Raises: as ``names_of``."""
    check_memory(candidates)
    check_columns(records.source, records.domain)
    for _ in _NameReader(records, attribute, left_out, candidates).tables():
        pass


def is_distinguishable(name: str, excluded_names: frozenset[str]) -> bool:
    """Whether a name can stand on a page: as readers see it, printable, not too long, and none that stands for something else."""
    if not name or len(name) > LONGEST or name != apparent(name) or name in map(apparent, excluded_names):
        return False
    return not any(unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") for letter in name)


@dataclass
class _NameReader:
    """The names of the records as they are read.

    Attributes:
        name_numbers: every name, with its number in the order in which names come.
        records_read: how many records were read.
    """

    records: PartitionedRecords
    attribute: str
    excluded_names: frozenset[str]
    candidates: int
    name_numbers: dict[str, int] = field(default_factory=dict, repr=False)
    records_read: int = field(default=0, repr=False)

    def tables(self) -> Iterator[tuple[pa.Table, tuple[Partition, int], NDArray[np.int64], NDArray[np.int64] | None]]:
        """The records: of which partition and where in it, the number of every row's name, -1 where it has none, and how many records the
        rows stand for.
        """
        source, domain, name_numbers = self.records.source, self.records.domain, self.name_numbers
        for partition in partitions_of(source):
            for table_index, read_table in enumerate(tables_of(source, domain, partition)):
                table, numbers = (
                    (read_table, None)
                    if source.counts is None
                    else counted_rows(read_table, source.counts, partition.source_label)
                )
                cells = cells_of(table, source, domain, partition.source_label)[0]
                check_complete(table, self.records.complete, source, cells, partition.source_label)
                with reading(partition.source_label):
                    encoded = texts_of(table[source.columns.get(self.attribute, self.attribute)]).dictionary_encode()
                    texts = encoded.dictionary.to_pylist()
                    text_codes = arrow_arrays.dictionary_indices(encoded)
                is_name = [is_distinguishable(text, self.excluded_names) for text in texts]
                codes = [
                    name_numbers.setdefault(text, len(name_numbers)) if name else -1
                    for text, name in zip(texts, is_name, strict=True)
                ]
                if len(name_numbers) > self.candidates:
                    raise InvalidSpec(
                        f"the records hold more than {self.candidates:,} different names of {self.attribute!r}, the most that its "
                        "'selection' allows: raise 'candidates', clean the names, or list the categories"
                    )
                self.records_read += table.num_rows if numbers is None else int(numbers.sum())
                yield table, (partition, table_index), np.array([*codes, -1], dtype=np.int64)[text_codes], numbers

    def rows(self) -> Iterator[Rows]:
        """The records that have a name and a person, with the number of the name as their cell."""
        key = self.records.person_key
        for table, (partition, table_index), codes, _ in self.tables():
            hashed, dropped = person_hashes(table, self.records.source, partition, table_index, key)
            is_counted = (codes >= 0) & ~dropped
            yield person_rows(hashed, codes, is_counted)

    @cached_property
    def sorted_numbers(self) -> NDArray[np.int64]:
        """The numbers of all names in the order of their UTF-8 bytes, once all records were read."""
        texts = list(self.name_numbers)
        return np.array(sorted(range(len(texts)), key=lambda number: texts[number].encode()), dtype=np.int64)

    @cached_property
    def name_hashes(self) -> NDArray[np.uint64]:
        """A keyed hash of every name, once all records were read."""
        return self.records.person_key.hash_persons(self.name_numbers, purpose=b"names")[:, 0]

    def choose_names(self, rows: Rows, names_per_person: int) -> tuple[Weights, Weights]:
        """The names that count of each person, each once and in no order that means anything, and what the person adds to them."""
        ranks = np.empty_like(self.sorted_numbers)
        ranks[self.sorted_numbers] = np.arange(ranks.size)
        numbers = rows["cell"]
        places, _ = choose_groups(rows, ranks[numbers], self.name_hashes[numbers], names_per_person)
        person = number_persons(rows[places])
        weights_by_count = np.array([0, *map(weight_of, range(1, names_per_person + 1))])
        return numbers[places], weights_by_count[np.bincount(person)[person]]


def _add_weights(weights: Weights, numbers: Weights, added_weights: Weights) -> Weights:
    """The weights by name with those of further names, of which some may be the same."""
    grown_weights = np.zeros(max(weights.size, int(numbers.max(initial=-1)) + 1), dtype=np.int64)
    grown_weights[: weights.size] = weights
    np.add.at(grown_weights, numbers, added_weights)
    return grown_weights

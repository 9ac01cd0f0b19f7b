"""How many records, or persons, are complete, have a missing value or lie outside the domain: each is in one class of the three.

A person is in the worst class that a record of theirs is in, whatever bounds leave out, so that one person moves one number by one.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpdist.api.sources import Partition, partitions_of, tables_of
from dpdist.api.steps import (
    HASHED,
    CountedSizes,
    CountSummary,
    Dealing,
    Domain,
    PartitionedRecords,
    PersonKey,
    Rows,
    RunKey,
    ShuffleIndex,
    cells_of,
    check_columns,
    check_complete,
    group_partitions,
    number_persons,
    pending_rows,
    person_hashes,
    person_rows,
    without_files,
)

Numbers = NDArray[np.int64]

CLASSES = ("complete", "missing", "outside")
"""Of records, from good to bad: all values are declared ones; one is missing, as the attribute allows; they count nowhere."""


def count_completeness(records: PartitionedRecords) -> CountedSizes:
    """Records, or persons where they are told apart, in each class. Raises: as ``PartitionedRecords.record_batches``."""
    check_columns(records.source, records.domain)
    counts, records_read = np.zeros(len(CLASSES), dtype=np.int64), 0
    if records.source.person is None:
        for partition in partitions_of(records.source):
            for table in tables_of(records.source, records.domain, partition):
                cells, summary = cells_of(table, records.source, records.domain, partition.source_label)
                check_complete(table, records.complete, records.source, cells, partition.source_label)
                counts += np.bincount(classes_of(cells, records.domain), minlength=len(CLASSES))
                records_read += summary.read
        return CountedSizes(counts, records_read)
    summaries = list[CountSummary]()
    with closing(_dealt_parts(records, summaries)) as parts:
        for rows in parts:
            person = number_persons(rows)
            worst = np.zeros(int(person.max(initial=-1)) + 1, dtype=np.int64)
            np.maximum.at(worst, person, rows["cell"])
            counts += np.bincount(worst, minlength=len(CLASSES))
    return CountedSizes(counts, sum(summaries, CountSummary()).read)


def classes_of(cells: Numbers, domain: Domain) -> Numbers:
    """The place of the class of every record among ``CLASSES``.

    Args:
        cells: of every record, negative where it lies outside the domain.
    """
    codes = np.unravel_index(np.maximum(cells, 0), tuple(attribute.kinds for attribute in domain.attributes))
    is_missing = np.zeros(cells.size, dtype=bool)
    for attribute, attribute_codes in zip(domain.attributes, codes, strict=True):
        if attribute.missing is not None:
            is_missing |= attribute_codes == attribute.missing_kind
    return np.where(cells < 0, CLASSES.index("outside"), is_missing.astype(np.int64))


def _dealt_parts(records: PartitionedRecords, summaries: list[CountSummary]) -> Generator[Rows]:
    """The classes of all records, in place of their cells: those of one person in one part."""
    partitions = partitions_of(records.source)

    def deal_records(key: RunKey, work: str, part_count: int) -> ShuffleIndex:
        tasks, pending = (
            group_partitions(partitions, records.engine.workers),
            pending_rows(records.store.sizes, records.engine),
        )
        source = without_files(records.source)
        dealing = ClassDealing(source, records.domain, records.store, work, part_count, pending, complete=records.complete)
        summary, shuffle_index = dealing.deal_all(records.engine, key, tasks)
        summaries.append(summary)
        return shuffle_index

    return records.read_dealt_parts(deal_records)


@dataclass(frozen=True)
class ClassDealing(Dealing):
    """Deals out every record that has a person, within the domain or not, with its class in place of its cell."""

    def _rows(self, table: pa.Table, partition: Partition, number: int, key: PersonKey) -> tuple[CountSummary, Rows]:
        cells, summary = cells_of(table, self.source, self.domain, partition.source_label)
        check_complete(table, self.complete, self.source, cells, partition.source_label)
        persons, dropped = person_hashes(table, self.source, partition, number, key)
        summary = replace(summary, dropped=summary.dropped + int(((cells >= 0) & dropped).sum()))
        return summary, person_rows(persons, classes_of(cells, self.domain), ~dropped, HASHED)

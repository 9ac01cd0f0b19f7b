"""Rows of records to cells of the domain, in bounded batches; what is outside is dropped, clipped or refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from numpy.typing import NDArray

from dpdist.domain import OUTSIDE, Attribute, Domain
from dpdist.errors import InvalidInput, InvalidSpec, UnknownValue
from dpdist.records import listing
from dpdist.records.csv_files import csv_batches
from dpdist.records.hashing import HashedFile
from dpdist.records.reading import reading
from dpdist.records.sources import BATCH_ROWS, Partition, Source, arrow_file, wanted_columns
from dpdist.records.wording import Called, kind_called
from dpdist.times import FINER_THAN_DAYS, Times


@dataclass(frozen=True)
class CountSummary:
    """How reading went. Private: for the operator's eyes, never part of anything published.

    Attributes:
        read, dropped, beyond_bound: records.
        clipped: values that were moved to the nearest bin.
    """

    read: int = 0
    dropped: int = 0
    clipped: int = 0
    beyond_bound: int = 0

    def __add__(self, other: CountSummary) -> CountSummary:
        return CountSummary(
            self.read + other.read,
            self.dropped + other.dropped,
            self.clipped + other.clipped,
            self.beyond_bound + other.beyond_bound,
        )


def tables_of(source: Source, domain: Domain, partition: Partition) -> Iterator[pa.Table]:
    """The needed columns of a partition, in bounded batches, with those that its folders name."""
    wanted = [name for name in wanted_columns(source, domain) if name not in dict(partition.named)]
    readers = {"csv": csv_batches, "parquet": _parquet_batches, "arrow": _arrow_batches}
    batches = readers[listing.kind_of(partition.path) or "csv"](source, domain, partition, wanted)
    while True:
        with reading(partition.called):
            batch = next(batches, None)
        if batch is None:
            return
        table = pa.Table.from_batches([batch])
        for name, column in _named_columns(source, domain, partition, batch.num_rows):
            table = table.append_column(name, column)
        yield table


def _named_columns(source: Source, domain: Domain, partition: Partition, rows: int) -> Iterator[tuple[str, pa.Array]]:
    """The columns that a file's folders name: texts, or numbers for attributes that have bins."""
    binned = {source.columns.get(a.name, a.name): a.name for a in domain.attributes if a.edges and a.times is None}
    for name, value in partition.named:
        if name not in binned or value is None:
            yield name, pa.repeat(pa.scalar(value, pa.float64() if name in binned else pa.string()), rows)
            continue
        try:
            yield name, pa.repeat(pa.scalar(float(value)), rows)
        except ValueError:
            raise InvalidSpec(
                f"a folder calls {name} something that is no number, and attribute {binned[name]!r} has bins; declare categories"
            ) from None


def _parquet_batches(source: Source, domain: Domain, partition: Partition, wanted: list[str]) -> Iterator[pa.RecordBatch]:
    del source, domain
    with HashedFile(partition.path, partition.tags) as file:
        parquet = pyarrow.parquet.ParquetFile(file, page_checksum_verification=True)
        listing.check_names(parquet.schema_arrow.names, wanted, partition.called, list(dict(partition.named)))
        yield from parquet.iter_batches(BATCH_ROWS, row_groups=[partition.group], columns=wanted)


def _arrow_batches(source: Source, domain: Domain, partition: Partition, wanted: list[str]) -> Iterator[pa.RecordBatch]:
    del source, domain
    with HashedFile(partition.path, partition.tags) as file:
        reader = arrow_file(file)
        listing.check_names(reader.schema.names, wanted, partition.called, list(dict(partition.named)))
        batch = reader.get_batch(partition.group).select(wanted)
        batch.validate(full=True)
        for start in range(0, batch.num_rows, BATCH_ROWS):
            yield batch.slice(start, BATCH_ROWS)


def cells_of(table: pa.Table, source: Source, domain: Domain, called: Called) -> tuple[NDArray[np.int64], CountSummary]:
    """Cell of every record, or its kind where records are divided (``Domain.divided``); -1 where it is dropped."""
    rows = table.num_rows
    flat = np.zeros(rows, dtype=np.int64)
    lost = np.zeros(rows, dtype=bool)
    clipped = 0
    for attribute in domain.attributes:
        with reading(called):
            codes, moved = _codes(table[source.columns.get(attribute.name, attribute.name)], attribute, called)
        outside = codes == OUTSIDE
        if attribute.amounts is not None and outside.any():
            raise InvalidSpec(
                f"{called} holds records without {attribute.name!r}; set 'missing: drop' for it under 'sums', or complete them"
            )
        if attribute.outside == "error" and outside.any():
            raise UnknownValue(attribute.name, called, not attribute.categories)
        lost |= codes < 0
        clipped += moved
        flat *= attribute.kinds
        flat += codes
    flat[lost] = -1
    return flat, CountSummary(rows, int(lost.sum()), clipped)


def _codes(column: pa.ChunkedArray, attribute: Attribute, called: Called) -> tuple[NDArray[np.int64], int]:
    if pa.types.is_null(column.type):  # a file in which no record has a value
        column = column.cast(pa.string() if attribute.categories or attribute.times else pa.float64())
    if attribute.times is not None:
        return attribute.encode(_steps(column, attribute, attribute.times, called))
    if attribute.edges:
        if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_decimal(column.type)):
            raise InvalidSpec(
                f"{called}: attribute {attribute.name!r} has bins, its column holds {kind_called(column.type)}; "
                "declare categories or convert the column to numbers"
            )
        if pa.types.is_integer(column.type) and column.null_count == 0:
            return attribute.encode(column.to_numpy())
        numbers = column.cast(pa.float64(), safe=False)  # rounds whole numbers beyond 2^53, as encode does
        return attribute.encode(pc.fill_null(numbers, float("nan")).to_numpy())
    encoded = texts_of(column, called).dictionary_encode()
    known, _ = attribute.encode(np.array(encoded.dictionary.to_pylist() or [""], dtype=str))
    codes = known[np.asarray(pc.fill_null(encoded.indices, 0))]
    return np.where(np.asarray(encoded.is_null()), attribute.missing_code, codes), 0


def _steps(column: pa.ChunkedArray, attribute: Attribute, times: Times, called: Called) -> NDArray[np.float64]:
    """Step of every date, time or ISO text of a column, NaN where there is none."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    dates = pa.types.is_date(kind)
    if dates and times.every in FINER_THAN_DAYS:
        raise InvalidSpec(
            f"{called}: attribute {attribute.name!r} counts by the {times.every}, its column holds dates; give 'every: day'"
        )
    try:
        if dates or pa.types.is_timestamp(kind):
            found = column.cast(kind).combine_chunks().to_numpy(zero_copy_only=False)
            aware = pa.types.is_timestamp(kind) and kind.tz is not None
            return times.numbers(times.local(found) if aware else found)
        if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            encoded = texts_of(column, called).dictionary_encode()
            known = times.of_texts(encoded.dictionary.to_pylist() or [""])
            if attribute.outside == "clip":  # a text that is no date lies on neither side
                known[np.isinf(known)] = np.nan
            steps = known[np.asarray(pc.fill_null(encoded.indices, 0))]
            return np.where(np.asarray(encoded.is_null()), np.nan, steps)
    except InvalidInput as error:
        raise InvalidSpec(f"{called}: attribute {attribute.name!r}: {error}") from None
    raise InvalidSpec(
        f"{called}: attribute {attribute.name!r} has dates, its column holds {kind_called(kind)}; allowed are dates, timestamps and "
        "ISO texts such as 2026-09-01"
    )


def texts_of(column: pa.ChunkedArray, called: Called) -> pa.Array:
    """A column's values as texts. Raises: InvalidSpec for types without one way to write them, and for bytes that are not UTF-8."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_nested(kind):
        raise InvalidSpec(
            f"{called}: a column holds {kind_called(kind)}, allowed are texts, numbers, dates and yes or no; write one value a row"
        )
    texts = column.cast(pa.string()).combine_chunks()
    texts.validate(full=True)
    return texts

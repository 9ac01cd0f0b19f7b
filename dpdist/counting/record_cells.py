"""Rows of records to cells of the domain, in bounded batches; what is outside is dropped, clipped or refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from operator import add

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpdist.domain import EXCLUDED, OUTSIDE, Attribute, Domain, numbers_of
from dpdist.domain.calendar import FINER_THAN_DAYS, Times
from dpdist.errors import DpdistError, InvalidInput, InvalidSpec, UnknownValue
from dpdist.process import arrow_arrays
from dpdist.process import arrow_compute as pc
from dpdist.sources.column_types import ColumnType
from dpdist.sources.formats.column_conversion import Unconvertible, convert_column, encoded_texts, family_of, moments_of
from dpdist.sources.formats.format_registry import row_format
from dpdist.sources.formats.record_format import BATCH_ROWS, UNREADABLE, Partition, WantedRows
from dpdist.sources.reader_errors import reading
from dpdist.sources.record_sources import Source, rows_to_read
from dpdist.sources.source_labels import SourceLabel
from dpdist.sources.verified_files import HashedFile


@dataclass(frozen=True)
class CountSummary:
    """How reading went. Private: for the operator's eyes, never part of anything published.

    Attributes:
        read, dropped: records.
        clipped: values that were moved to the nearest bin.
        beyond_bound: other records that do not count because of the bound of their person.
        out_of_range: amounts that were moved to an end of their range.
        repeated: where one record counts in each group, a person's further records in a group.
        unread: records that count, none of whose values could be read, or whose text for a number or a time is none.
    """

    read: int = 0
    dropped: int = 0
    clipped: int = 0
    beyond_bound: int = 0
    out_of_range: int = 0
    repeated: int = 0
    unread: int = 0

    def __add__(self, other_summary: CountSummary) -> CountSummary:
        return CountSummary(*map(add, vars(self).values(), vars(other_summary).values()))

    def sentence(self, *, persons: bool) -> str:
        """For the operator: what became of the records.

        Args:
            persons: whether persons are counted, so that their further records in a group are no loss.
        """
        lost, repeated = self.beyond_bound, ""
        if persons:
            repeated = f", {self.repeated:,} more of a person in a group, who counts once there"
        else:
            lost += self.repeated
        bound_text = f"{lost:,} beyond the bound of one person{repeated}"
        return (
            f"{self.read:,} records read, {self.dropped:,} dropped, {self.clipped:,} clipped, {self.out_of_range:,} amounts moved into "
            f"their range, {bound_text}"
        )


def tables_of(source: Source, domain: Domain, partition: Partition) -> Iterator[pa.Table]:
    """The needed columns of a partition, in bounded batches, with those that its folders name; of the types that are declared."""
    batches = _batches(partition, rows_to_read(source, domain, partition))
    moments = {
        source.columns.get(attribute.name, attribute.name)
        for attribute in domain.column_attributes
        if attribute.times is not None
    }
    types = {name: kind for name, kind in source.types.items() if name not in moments}
    while True:
        with reading(partition.source_label):
            batch = next(batches, None)
        if batch is None:
            return
        table = pa.Table.from_batches([batch])
        for name, value in partition.named:
            table = table.append_column(name, pa.repeat(arrow_arrays.text(value), batch.num_rows))
        yield convert_declared(table, types, partition.source_label)


def convert_declared(table: pa.Table, types: Mapping[str, ColumnType], source_label: SourceLabel) -> pa.Table:
    """The table with the columns that have a declared type converted to it, value by value. Raises: InvalidSpec."""
    for column_index, name in enumerate(table.column_names):
        if name in types:
            with explain_conversion_errors(
                source_label, f"the column {name!r}, declared {types[name]!r} in 'records.types',"
            ):
                table = table.set_column(column_index, name, convert_column(table[name], types[name]))
    return table


@contextmanager
def explain_conversion_errors(source_label: SourceLabel, column_label: str) -> Iterator[None]:
    """What cannot be converted in the block is reported of a column of a file."""
    try:
        with reading(source_label):
            yield
    except Unconvertible as error:
        raise InvalidSpec(f"{source_label}: {column_label} {error}") from None


def _batches(partition: Partition, wanted_rows: WantedRows) -> Iterator[pa.RecordBatch]:
    format_ = row_format(partition.path)
    assert format_ is not None
    with HashedFile(partition.path, partition.tags) as file:
        yield from format_.batches(file, partition, wanted_rows)


def cells_of(
    table: pa.Table, source: Source, domain: Domain, source_label: SourceLabel
) -> tuple[NDArray[np.int64], CountSummary]:
    """Cell of every record, or its kind where records are divided (``Domain.divided``); -1 where it is dropped."""
    rows = table.num_rows
    flat = np.zeros(rows, dtype=np.int64)
    lost, unread, missing = np.zeros(rows, dtype=bool), np.zeros(rows, dtype=bool), np.ones(rows, dtype=bool)
    clipped = out_of_range = 0
    for attribute in domain.attributes:
        if attribute.line is None:
            codes, moved = _attribute_codes(table, attribute, source, source_label)
        else:
            source_codes = [
                _attribute_codes(table, source_attribute, source, source_label)[0] for source_attribute in attribute.line.of
            ]
            codes, moved = attribute.encode(numbers_of(attribute.line, source_codes))[0], 0
            # one of its attributes has no declared value
            codes = np.where(np.minimum(*source_codes) < 0, EXCLUDED, codes)
        lost |= codes < 0
        without = codes == attribute.missing_kind if attribute.missing is not None else lost
        missing &= without
        if attribute.missing is not None and attribute.line is None and not attribute.categories and without.any():
            unread |= without & _has_text(table[source.columns.get(attribute.name, attribute.name)])
        if attribute.amounts is None:
            clipped += moved
        else:
            out_of_range += moved
        flat *= attribute.kinds
        flat += codes
    flat[lost] = -1
    if UNREADABLE in table.column_names:
        unread |= table[UNREADABLE].to_numpy()
    unread = (unread | missing) & ~lost
    return flat, CountSummary(rows, int(lost.sum()), clipped, out_of_range=out_of_range, unread=int(unread.sum()))


def _has_text(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Where a column of texts holds one; nowhere in other columns."""
    if family_of(column.type) != "text":
        return np.zeros(len(column), dtype=bool)
    return np.array([bool(text and text.strip()) for text in column.to_pylist()], dtype=bool)


def cells_of_partitions(
    source: Source, domain: Domain, partitions: Iterable[Partition]
) -> Iterator[tuple[NDArray[np.int64], CountSummary]]:
    """Cells of all records of partitions, as ``cells_of`` gives them; those of small files together. Raises: as for one file."""
    for table_group in _group_small_tables(
        (table, partition.source_label) for partition in partitions for table in tables_of(source, domain, partition)
    ):
        if len(table_group) > 1:
            try:
                cells_and_summary = cells_of(
                    pa.concat_tables([table for table, _ in table_group]).combine_chunks(), source, domain, table_group[0][1]
                )
            except DpdistError:
                pass  # one of the files is refused below, by its own name
            else:
                yield cells_and_summary
                continue
        for table, source_label in table_group:
            yield cells_of(table, source, domain, source_label)


def _group_small_tables(tables: Iterable[tuple[pa.Table, SourceLabel]]) -> Iterator[list[tuple[pa.Table, SourceLabel]]]:
    """Tables in their order, those of the same columns together up to ``BATCH_ROWS`` records."""
    table_group: list[tuple[pa.Table, SourceLabel]] = []
    rows = 0
    for table, source_label in tables:
        if table_group and (rows + len(table) > BATCH_ROWS or table.schema != table_group[0][0].schema):
            yield table_group
            table_group, rows = [], 0
        table_group.append((table, source_label))
        rows += len(table)
    if table_group:
        yield table_group


def _attribute_codes(
    table: pa.Table, attribute: Attribute, source: Source, source_label: SourceLabel
) -> tuple[NDArray[np.int64], int]:
    """Code of every record, and how many were moved to the nearest bin. Raises: UnknownValue, InvalidSpec."""
    name = source.columns.get(attribute.name, attribute.name)
    with explain_conversion_errors(source_label, f"{_attribute_text(attribute)}, its column"):
        codes, moved = _codes(table[name], attribute, source.types.get(name))
    outside = codes == OUTSIDE
    if attribute.amounts is not None and outside.any():
        raise InvalidSpec(
            f"{source_label} holds records without {attribute.name!r}; set 'missing: drop' for it under 'sums', or complete them"
        )
    if attribute.outside == "error" and outside.any():
        raise UnknownValue(attribute.name, source_label, not attribute.categories)
    return codes, moved


def _attribute_text(attribute: Attribute) -> str:
    form = "dates" if attribute.times is not None else "bins" if attribute.edges else "categories"
    return f"attribute {attribute.name!r} has {form}"


def _codes(column: pa.ChunkedArray, attribute: Attribute, kind: ColumnType | None) -> tuple[NDArray[np.int64], int]:
    if attribute.times is not None:
        return attribute.encode(_steps(column, attribute, attribute.times, kind))
    if attribute.edges:
        if pa.types.is_integer(column.type) and column.null_count == 0 and _exact(column):
            return attribute.encode(arrow_arrays.values_of(column))  # as below, in less time
        return attribute.encode(arrow_arrays.floats_of(convert_column(column, "number")))
    encoded = encoded_texts(column)
    codes_by_text, _ = attribute.encode(np.array(encoded.dictionary.to_pylist() or [""], dtype=str))
    return np.append(codes_by_text, attribute.missing_code)[arrow_arrays.dictionary_indices(encoded)], 0


def _exact(column: pa.ChunkedArray) -> bool:
    """Whether whole numbers are the same as floating-point numbers: else one missing value beside them could change them."""
    ends = pc.min_max(column).as_py()
    return not len(column) or (ends["min"] >= -(2**53) and ends["max"] <= 2**53)


def _steps(column: pa.ChunkedArray, attribute: Attribute, times: Times, kind: ColumnType | None) -> NDArray[np.float64]:
    """Step of every date, time or ISO text of a column, NaN where there is none."""
    if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
        if pa.types.is_date(column.type) and times.every in FINER_THAN_DAYS:
            raise Unconvertible(f"holds dates, and counted is by the {times.every}; give 'every: day'")
        moments = column.combine_chunks().to_numpy(zero_copy_only=False)
        try:
            aware = pa.types.is_timestamp(column.type) and column.type.tz is not None
            return times.numbers(times.local(moments) if aware else moments)
        except InvalidInput as error:
            raise Unconvertible(f"cannot be counted: {error}") from None
    encoded = moments_of(column, finer=times.every in FINER_THAN_DAYS).dictionary_encode()
    try:
        step_numbers = times.of_texts(encoded.dictionary.to_pylist() or [""])
    except InvalidInput as error:
        raise Unconvertible(f"cannot be counted: {error}") from None
    # a text that is no date lies on neither side
    if attribute.outside == "clip" or kind in ("date", "time"):
        step_numbers[np.isinf(step_numbers)] = np.nan
    return np.append(step_numbers, np.nan)[arrow_arrays.dictionary_indices(encoded)]

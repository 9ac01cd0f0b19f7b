"""Files whose columns have types: Parquet and Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

from dpdist.sources.formats.record_format import BATCH_ROWS, Partition, TypedFormat, WantedRows, check_names
from dpdist.sources.reader_errors import reading as explained
from dpdist.sources.source_labels import File
from dpdist.sources.verified_files import HashedFile, Tags

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

DICTIONARY_BYTES = 2**16
"""In a file: a larger dictionary would be looked up as a whole for every batch of records."""


class Arrow(TypedFormat):
    """Tables of typed columns."""

    name = "arrow"
    endings = (".arrow", ".feather", ".ipc")

    def partitions(self, path: str, tags: Tags, named: tuple[tuple[str, str | None], ...]) -> list[Partition]:
        with explained(tags.source_label), HashedFile(path, tags) as file:
            groups = _opened(file).num_record_batches
        return [Partition(path, group, tags, named) for group in range(groups)]

    def schema(self, file: HashedFile | IO[bytes]) -> pa.Schema:
        return _opened(file).schema

    def batches(self, file: HashedFile, partition: Partition, reading: WantedRows) -> Iterator[pa.RecordBatch]:
        reader = _opened(file)
        check_names(reader.schema.names, reading.columns, partition.source_label, list(dict(partition.named)))
        batch = reader.get_batch(partition.group).select(reading.columns)
        batch.validate(full=True)
        for start in range(0, batch.num_rows, BATCH_ROWS):
            yield batch.slice(start, BATCH_ROWS)

    def every_batch(self, file: IO[bytes]) -> Iterator[pa.RecordBatch]:
        reader = _opened(file)
        yield from (reader.get_batch(number) for number in range(reader.num_record_batches))

    def is_empty(self, file: HashedFile, source_file: File, reading: WantedRows) -> bool:
        return bool(_opened(file).count_rows() == 0)


def _encoded_columns(metadata: pq.FileMetaData, group: int) -> list[str]:
    """The columns of texts that a row group has as places in a small dictionary: their values need not be copied to be counted."""
    columns = [
        (metadata.row_group(group).column(number), metadata.schema.column(number)) for number in range(metadata.num_columns)
    ]
    return [
        chunk.path_in_schema
        for chunk, column in columns
        if column.logical_type.type == "STRING"
        and chunk.has_dictionary_page
        and chunk.data_page_offset - chunk.dictionary_page_offset <= DICTIONARY_BYTES
    ]


def _opened(file: HashedFile | IO[bytes]) -> pa.RecordBatchFileReader:
    import pyarrow as pa

    return pa.ipc.open_file(pa.PythonFile(file, mode="r"))


def _buffered_file(file: HashedFile, tags: Tags) -> HashedFile | pa.BufferReader:
    """A file of one block is read at once: Arrow does not ask for its parts one by one."""
    import pyarrow as pa

    return pa.BufferReader(file.read()) if tags.is_one_block else file


class Parquet(TypedFormat):
    """Tables of typed columns."""

    name = "parquet"
    endings = (".parquet",)

    def partitions(self, path: str, tags: Tags, named: tuple[tuple[str, str | None], ...]) -> list[Partition]:
        import pyarrow.parquet

        if tags.is_one_block:  # one task reads it: to ask how many row groups it has takes as long
            return [Partition(path, None, tags, named)]
        with explained(tags.source_label), HashedFile(path, tags) as file:
            groups = pyarrow.parquet.read_metadata(file).num_row_groups
        return [Partition(path, group, tags, named) for group in range(groups)]

    def schema(self, file: HashedFile | IO[bytes]) -> pa.Schema:
        import pyarrow.parquet

        return pyarrow.parquet.read_schema(file)

    def batches(self, file: HashedFile, partition: Partition, reading: WantedRows) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet

        opened, group = _buffered_file(file, partition.tags), partition.group
        metadata = encoded = None
        if group is not None:
            metadata = pyarrow.parquet.read_metadata(opened)
            encoded = _encoded_columns(metadata, group)
        parquet = pyarrow.parquet.ParquetFile(
            opened, metadata=metadata, read_dictionary=encoded, page_checksum_verification=True
        )
        check_names(parquet.schema_arrow.names, reading.columns, partition.source_label, list(dict(partition.named)))
        groups = None if group is None else [group]
        yield from parquet.iter_batches(
            BATCH_ROWS, row_groups=groups, columns=list(reading.columns), use_threads=not partition.tags.is_one_block
        )

    def every_batch(self, file: IO[bytes]) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet

        yield from pyarrow.parquet.ParquetFile(file).iter_batches()

    def is_empty(self, file: HashedFile, source_file: File, reading: WantedRows) -> bool:
        import pyarrow.parquet

        return bool(pyarrow.parquet.read_metadata(file).num_rows == 0)

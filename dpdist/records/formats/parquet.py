"""Parquet files, row group by row group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

from dpdist.records.formats.base import BATCH_ROWS, Partition, TypedFormat, WantedRows, check_names
from dpdist.records.hashing import HashedFile, Tags
from dpdist.records.reading import reading as explained
from dpdist.records.wording import File

if TYPE_CHECKING:
    import pyarrow as pa


class Parquet(TypedFormat):
    """Tables of typed columns."""

    name = "parquet"
    endings = (".parquet",)

    def partitions(self, path: str, tags: Tags, named: tuple[tuple[str, str | None], ...]) -> list[Partition]:
        import pyarrow.parquet

        with explained(tags.called), HashedFile(path, tags) as file:
            groups = int(pyarrow.parquet.ParquetFile(file).num_row_groups)
        return [Partition(path, group, tags, named) for group in range(groups)]

    def schema(self, file: HashedFile | IO[bytes]) -> pa.Schema:
        import pyarrow.parquet

        return pyarrow.parquet.read_schema(file)

    def batches(self, file: HashedFile, partition: Partition, reading: WantedRows) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet

        parquet = pyarrow.parquet.ParquetFile(file, page_checksum_verification=True)
        check_names(parquet.schema_arrow.names, reading.columns, partition.called, list(dict(partition.named)))
        yield from parquet.iter_batches(BATCH_ROWS, row_groups=[partition.group], columns=list(reading.columns))

    def every_batch(self, file: IO[bytes]) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet

        yield from pyarrow.parquet.ParquetFile(file).iter_batches()

    def is_empty(self, file: HashedFile, at: File, reading: WantedRows) -> bool:
        import pyarrow.parquet

        return bool(pyarrow.parquet.read_metadata(file).num_rows == 0)

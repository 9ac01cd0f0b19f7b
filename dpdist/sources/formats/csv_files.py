"""CSV files (plain or gz), by a declared grammar. Each column has the type that its attribute needs, whatever the first rows look like."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import IO, TYPE_CHECKING

from dpdist.sources.formats.csv_grammar import has_times, moment_of
from dpdist.sources.formats.record_format import UNREADABLE, Partition, RowFormat, WantedRows, check_names
from dpdist.sources.source_labels import File
from dpdist.sources.verified_files import HashedFile

if TYPE_CHECKING:
    import pyarrow as pa


class Csv(RowFormat):
    """Texts between marks, one record a line."""

    name = "csv"
    endings = (".csv", ".csv.gz")
    first_row_may_be_a_record = True

    def column_names(self, file: HashedFile | IO[bytes], source_file: File, reading: WantedRows) -> Sequence[str]:
        from dpdist.sources.formats import csv_batches

        return reading.header or csv_batches.header_of(
            decompressed_stream(file, source_file.path), reading.grammar, source_file.source_label
        )

    def batches(self, file: HashedFile, partition: Partition, reading: WantedRows) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from dpdist.process import arrow_compute as pc
        from dpdist.sources.formats import csv_batches
        from dpdist.sources.formats.number_parsing import unreadable_texts

        path, grammar, source_label = partition.path, reading.grammar, partition.source_label
        with HashedFile(path, partition.tags) as beginning:
            file_columns = self.column_names(beginning, File(path, source_label), reading)
        check_names(file_columns, reading.columns, source_label, list(dict(partition.named)), csv=True)
        column_names = reading.columns or tuple(file_columns[:1])  # records are counted, too, where folders name all columns
        stream = decompressed_stream(file, path)
        numbers = reading.numbers & set(column_names)
        for batch in csv_batches.batches(
            stream, grammar, column_names, source_label, header=reading.header, numbers=numbers
        ):
            columns = {name: batch[name] for name in column_names}
            unreadable = [batch[UNREADABLE]] if UNREADABLE in batch.schema.names else []
            if grammar.dates is not None:
                for name in reading.dates & set(column_names):
                    columns[name] = dates_of_texts(batch[name], grammar.dates)
                    unreadable.append(unreadable_texts(batch[name], columns[name]))
            yield pa.record_batch({**columns, **({UNREADABLE: reduce(pc.or_, unreadable)} if unreadable else {})})

    def is_empty(self, file: HashedFile, source_file: File, reading: WantedRows) -> bool:
        from dpdist.sources.formats import csv_batches

        return csv_batches.is_empty(
            decompressed_stream(file, source_file.path), reading.grammar, source_file.source_label, header=not reading.header
        )


def decompressed_stream(file: HashedFile | IO[bytes], path: str) -> pa.NativeFile:
    """The bytes of a CSV file, plain or gz."""
    import pyarrow as pa

    raw_stream = pa.PythonFile(file, mode="r")
    return pa.CompressedInputStream(raw_stream, "gzip") if path.lower().endswith(".gz") else raw_stream


def dates_of_texts(texts: pa.Array, form: str) -> pa.Array:
    """The date or time that each text is, in a form; null where it has another one."""
    import pyarrow as pa

    encoded = texts.dictionary_encode()
    moments = [moment_of(text, form) for text in encoded.dictionary.to_pylist()]
    if has_times(form):
        kind = pa.timestamp("us", tz="UTC" if "%z" in form.replace("%%", "") else None)
        dates = pa.array(moments, kind)
    else:
        dates = pa.array([moment and moment.date() for moment in moments], pa.date32())
    return dates.take(encoded.indices) if len(dates) else pa.nulls(len(texts), dates.type)

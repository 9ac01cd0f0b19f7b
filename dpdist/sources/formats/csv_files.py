"""CSV files (plain or gz), by a declared grammar. Each column has the type that its attribute needs, whatever the first rows look like."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING

from dpdist.sources.formats.csv_grammar import has_times, moment_of
from dpdist.sources.formats.record_format import Partition, RowFormat, WantedRows, check_names
from dpdist.sources.source_labels import File
from dpdist.sources.verified_files import HashedFile

if TYPE_CHECKING:
    import pyarrow as pa


class Csv(RowFormat):
    """Texts between marks, one record a line."""

    name = "csv"
    endings = (".csv", ".csv.gz")
    first_row_may_be_a_record = True

    def column_names(self, file: HashedFile | IO[bytes], at: File, reading: WantedRows) -> Sequence[str]:
        from dpdist.sources.formats import csv_batches

        return reading.header or csv_batches.header_of(unpacked(file, at.path), reading.grammar, at.called)

    def batches(self, file: HashedFile, partition: Partition, reading: WantedRows) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from dpdist.sources.formats import csv_batches

        path, grammar, called = partition.path, reading.grammar, partition.called
        with HashedFile(path, partition.tags) as beginning:
            found = self.column_names(beginning, File(path, called), reading)
        check_names(found, reading.columns, called, list(dict(partition.named)), csv=True)
        wanted = reading.columns or tuple(found[:1])  # records are counted, too, where folders name all columns
        stream = unpacked(file, path)
        numbers = reading.numbers & set(wanted)
        for batch in csv_batches.batches(stream, grammar, wanted, called, header=reading.header, numbers=numbers):
            columns = {name: batch[name] for name in wanted}
            if grammar.dates is not None:
                columns |= {name: dates_of_texts(batch[name], grammar.dates) for name in wanted if name in reading.dates}
            yield pa.record_batch(columns)

    def is_empty(self, file: HashedFile, at: File, reading: WantedRows) -> bool:
        from dpdist.sources.formats import csv_batches

        return csv_batches.is_empty(unpacked(file, at.path), reading.grammar, at.called, header=not reading.header)


def unpacked(file: HashedFile | IO[bytes], path: str) -> pa.NativeFile:
    """The bytes of a CSV file, plain or gz."""
    import pyarrow as pa

    plain = pa.PythonFile(file, mode="r")
    return pa.CompressedInputStream(plain, "gzip") if path.lower().endswith(".gz") else plain


def dates_of_texts(texts: pa.Array, form: str) -> pa.Array:
    """The date or time that each text is, in a form; null where it has another one."""
    import pyarrow as pa

    encoded = texts.dictionary_encode()
    found = [moment_of(text, form) for text in encoded.dictionary.to_pylist()]
    if has_times(form):
        kind = pa.timestamp("us", tz="UTC" if "%z" in form.replace("%%", "") else None)
        known = pa.array(found, kind)
    else:
        known = pa.array([each and each.date() for each in found], pa.date32())
    return known.take(encoded.indices) if len(known) else pa.nulls(len(texts), known.type)

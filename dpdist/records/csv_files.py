"""The columns of a CSV file as attributes need them: texts, numbers, dates, whole numbers; what is none of them is missing."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from dpdist.domain import Domain
from dpdist.records import csv_lines, listing
from dpdist.records.csv_grammar import has_times, moment_of
from dpdist.records.hashing import HashedFile
from dpdist.records.sources import Partition, Source, header_of, unpacked


def csv_batches(source: Source, domain: Domain, partition: Partition, wanted: list[str]) -> Iterator[pa.RecordBatch]:
    """Each column has the type that its attribute needs, whatever the first rows look like."""
    path, grammar = partition.path, source.grammar
    found = header_of(source, path, partition.tags)
    listing.check_names(found, wanted, partition.called, list(dict(partition.named)), csv=True)
    wanted = wanted or list(found[:1])  # records are counted, too, where folders name all columns
    of = {source.columns.get(attribute.name, attribute.name): attribute for attribute in domain.attributes}
    dates = {name for name, attribute in of.items() if attribute.times} - {source.person}
    numbers = {name for name, attribute in of.items() if attribute.edges} - {*dates, source.person}
    numbers |= {name for name, kind in source.types.items() if kind == "number"} & {*wanted} - {source.person}
    with HashedFile(path, partition.tags) as file:
        stream = unpacked(file, path)
        for batch in csv_lines.batches(stream, grammar, wanted, partition.called, header=source.header, numbers=numbers):
            columns = {name: batch[name] for name in wanted}
            if grammar.dates is not None:
                columns |= {name: dates_of_texts(batch[name], grammar.dates) for name in wanted if name in dates}
            yield pa.record_batch(columns)


def dates_of_texts(texts: pa.Array, form: str) -> pa.Array:
    """The date or time that each text is, in a form; null where it has another one."""
    encoded = texts.dictionary_encode()
    found = [moment_of(text, form) for text in encoded.dictionary.to_pylist()]
    if has_times(form):
        kind = pa.timestamp("us", tz="UTC" if "%z" in form.replace("%%", "") else None)
        known = pa.array(found, kind)
    else:
        known = pa.array([each and each.date() for each in found], pa.date32())
    return known.take(encoded.indices) if len(known) else pa.nulls(len(texts), known.type)

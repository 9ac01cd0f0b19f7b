"""The columns of a CSV file as attributes need them: texts, numbers, dates, whole numbers; what is none of them is missing."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from dpdist.domain import Domain
from dpdist.errors import InvalidSpec
from dpdist.records import csv_lines, listing
from dpdist.records.csv_grammar import has_times, moment_of
from dpdist.records.hashing import HashedFile
from dpdist.records.sources import Partition, Source, header_of, unpacked
from dpdist.records.wording import Called


def csv_batches(source: Source, domain: Domain, partition: Partition, wanted: list[str]) -> Iterator[pa.RecordBatch]:
    """Each column has the type that its attribute needs, whatever the first rows look like."""
    path, grammar = partition.path, source.grammar
    found = header_of(source, path, partition.tags)
    listing.check_names(found, wanted, partition.called, list(dict(partition.named)), csv=True)
    wanted = wanted or list(found[:1])  # records are counted, too, where folders name all columns
    whole = [source.counts, *([source.person] if source.person_type == "integer" else [])]
    texts = [source.person, *(source.columns.get(a.name, a.name) for a in domain.attributes if a.categories or a.times)]
    dates = {source.columns.get(a.name, a.name) for a in domain.attributes if a.times} - {source.person}
    numbers = set(wanted) - {*whole, *texts}
    with HashedFile(path, partition.tags) as file:
        stream = unpacked(file, path)
        for batch in csv_lines.batches(stream, grammar, wanted, partition.called, header=source.header, numbers=numbers):
            columns = {name: batch[name] for name in wanted}
            columns |= {name: _whole(batch[name], name, partition.called) for name in wanted if name in whole}
            if grammar.dates is not None:
                columns |= {name: dates_of_texts(batch[name], grammar.dates) for name in wanted if name in dates}
            yield pa.record_batch(columns)


def _whole(texts: pa.Array, name: str, called: Called) -> pa.Array:
    """Texts as whole numbers, int64; null where a text is empty. Raises: InvalidSpec for any other text."""
    given = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), pc.ascii_trim(texts, " \t"))
    try:
        if pc.all(pc.match_substring_regex(given, r"\A[-+]?[0-9]+\z")).as_py() is not False:
            return pc.replace_substring_regex(given, r"\A\+", "").cast(pa.int64())
    except pa.ArrowInvalid:  # beyond 2^63
        pass
    raise InvalidSpec(
        f"{called} cannot be read: a value is no whole number (column {name!r}); correct it; what it holds is not shown"
    )


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

"""The rows of a published release, and their way into the tables that its spec names."""

from __future__ import annotations

import datetime
import hashlib
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from dpdist.errors import DpdistError
from dpdist.machine.objects import Place
from dpdist.page import report
from dpdist.spec.targets import TARGETS
from dpdist.spec.targets.base import PublishedRows, TargetKind

BATCH_ROWS = 100_000
"""Rows that are held at once while a release is written; a warehouse may keep some batches more (benchmarks/deliver.py)."""


def deliver(place: Place, targets: Iterable[TargetKind]) -> list[str]:
    """Put a published release into every target; the names of those that did not have it. Raises: StoreError."""
    with rows_of(place) as rows:
        return [target.called for target in targets if target.write(rows)]


def differences(rows: PublishedRows, tables: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Of each table, by its kind and name, how it differs from the published rows of a release; empty if it does not."""
    for kind, name in tables:
        try:
            yield f"{kind} {name}", _difference(rows, TARGETS.of({kind: name}).read(rows.release))
        except (DpdistError, ValueError) as error:
            yield f"{kind} {name}", str(error)


def _difference(rows: PublishedRows, found: Iterator[pa.RecordBatch]) -> str:
    there, sum_there = _sum_of_digests(found, rows.names)
    if there != rows.number:
        return f"it has {there:,} rows of the release, {rows.number:,} were published"
    return "" if sum_there == _sum_of_digests(rows.batches(), rows.names)[1] else "rows of it are not the published ones"


def _sum_of_digests(batches: Iterator[pa.RecordBatch], names: list[str]) -> tuple[int, int]:
    """How many rows there are, and the sum of their digests, in whatever order they come."""
    number = total = 0
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in names if name in batch.schema.names]
        for row in zip(*columns, strict=True):
            plain = [
                None if isinstance(value, float) and math.isnan(value) else value for value in row
            ]  # some keep NaN as NULL
            total += int.from_bytes(hashlib.sha256(repr(plain).encode()).digest())
        number += batch.num_rows
    return number, total % 2**256


@contextmanager
def rows_of(place: Place) -> Iterator[PublishedRows]:
    """The rows of a published release, for the block. Raises: StoreError when a file of it was altered, or when it has no table."""
    with place.copied() as local:
        certificate = report.certificate_of(local)
        schema, number = report.shape(local)
        period = None if certificate["period"] is None else datetime.date.fromisoformat(certificate["period"])
        digest = hashlib.sha256((local / report.CERTIFICATE).read_bytes()).hexdigest()
        known = (
            ("release", certificate["release"], pa.string()),
            ("dataset", certificate["dataset"], pa.string()),
            ("period", period, pa.date32()),
            ("certificate", digest, pa.string()),
        )
        plain = [pa.field(field.name, _plain(field.type), field.nullable) for field in schema]
        whole = pa.schema([*(pa.field(name, kind) for name, _, kind in known), *plain])

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in report.batches(local, BATCH_ROWS):
                columns = [pa.repeat(pa.scalar(value, kind), batch.num_rows) for _, value, kind in known]
                columns += [column.cast(_plain(column.type)) for column in batch.columns]
                yield pa.RecordBatch.from_arrays(columns, schema=whole)

        yield PublishedRows(certificate["release"], period, digest, number, whole, batches)


def _plain(kind: pa.DataType) -> pa.DataType:
    """A type without a dictionary: not every warehouse takes them."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind

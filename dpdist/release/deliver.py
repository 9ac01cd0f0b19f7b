"""The rows of a published release, and their way into the tables that its spec names."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from dpdist.machine.objects import Place
from dpdist.page import report
from dpdist.spec.targets.base import Rows, TargetKind

BATCH_ROWS = 100_000
"""Rows that are held at once while a release is written; a warehouse may keep some batches more (benchmarks/deliver.py)."""


def deliver(place: Place, targets: Iterable[TargetKind]) -> list[str]:
    """Put a published release into every target; the names of those that did not have it. Raises: StoreError."""
    with rows_of(place) as rows:
        return [target.called for target in targets if target.write(rows)]


@contextmanager
def rows_of(place: Place) -> Iterator[Rows]:
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

        yield Rows(certificate["release"], period, digest, number, whole, batches)


def _plain(kind: pa.DataType) -> pa.DataType:
    """A type without a dictionary: not every warehouse takes them."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind

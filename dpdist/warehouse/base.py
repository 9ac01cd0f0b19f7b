"""What every warehouse does, and the rows that it gets."""

from __future__ import annotations

import datetime
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from dpdist.errors import StoreError
from dpdist.page import report


@dataclass(frozen=True)
class Rows:
    """The answers of one published release, with what tells them from those of other releases.

    Attributes:
        release: its id.
        period: the first day of the period it is for, if it is for one.
        certificate: SHA-256 of the published certificate; the same release always has the same.
        table: columns ``release, dataset, period, certificate`` and those of answers.parquet.
    """

    release: str
    period: datetime.date | None
    certificate: str
    table: pa.Table

    @classmethod
    def of(cls, folder: Path | str) -> Rows:
        """Those of a published release. Raises: StoreError when a file of it was altered, or when it has no table."""
        with report.local_copy(folder) as local:
            answers, certificate = report.load(local)
            digest = hashlib.sha256((local / report.CERTIFICATE).read_bytes()).hexdigest()
        period = None if certificate["period"] is None else datetime.date.fromisoformat(certificate["period"])
        number = answers.num_rows
        known = {
            "release": pa.array([certificate["release"]] * number, pa.string()),
            "dataset": pa.array([certificate["dataset"]] * number, pa.string()),
            "period": pa.array([period] * number, pa.date32()),
            "certificate": pa.array([digest] * number, pa.string()),
        }
        columns = {name: _plain(answers.column(name)) for name in answers.column_names}
        return cls(certificate["release"], period, digest, pa.table({**known, **columns}))


class Warehouse(Protocol):
    """A table of a warehouse."""

    def check(self) -> None:
        """Reach the table, or the place where it is to be made. Raises: StoreError with the cure; nothing is changed."""

    def write(self, rows: Rows) -> bool:
        """Put the rows of a release in place of what the table holds of it, in one step; whether anything was written.

        A table that holds them already is left as it is. Raises: StoreError when they cannot be written.
        """


def needs(package: str, extra: str) -> StoreError:
    """The error of a package that is not installed."""
    return StoreError(
        f"output.to needs the package {package}, which is not installed; install it: pip install 'dpdist[{extra}]'"
    )


def other_columns(table: str, there: list[str], given: list[str]) -> StoreError:
    """The error of a table that has other columns."""
    return StoreError(
        f"the table {table} has the columns {', '.join(there)}, the release has {', '.join(given)}; name another table in output.to"
    )


def could_not(what: str, table: str, error: Exception) -> StoreError:
    """The error of a warehouse, without its text, which may hold credentials."""
    return StoreError(
        f"the table {table} cannot be {what} ({type(error).__name__}); check that the warehouse is there and lets this user in, and run "
        "again: nothing is charged twice"
    )


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column without a dictionary: not every warehouse takes them."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column

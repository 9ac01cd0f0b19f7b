"""Tables of PostgreSQL through ADBC. DPDIST_WAREHOUSE gives the URL with its password, or DPDIST_WAREHOUSE_FILE a file that holds it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field

from dpdist.errors import InvalidInput, StoreError
from dpdist.spec.targets.base import PublishedRows, TargetKind, could_not, needs, other_columns

if TYPE_CHECKING:
    import pyarrow as pa

URL, URL_FILE = "DPDIST_WAREHOUSE", "DPDIST_WAREHOUSE_FILE"
NAME = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]*\.)?[A-Za-z_][A-Za-z0-9_]*")


def _plain(name: str) -> str:
    if NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} is no table of PostgreSQL; give schema.table, of letters, digits and _")
    return name


class ToPostgres(TargetKind):
    """A table of PostgreSQL. It is made when the first release comes."""

    postgres: Annotated[str, AfterValidator(_plain)] = Field(
        description="a table of PostgreSQL, schema.table, in the database whose URL DPDIST_WAREHOUSE gives",
        examples=["public.answers"],
    )

    @property
    def place(self) -> tuple[str, str]:
        """Its schema, and its name there."""
        schema, _, table = self.postgres.rpartition(".")
        return schema or "public", table

    def check(self) -> None:
        """Connect, and look whether the table can be written or made."""
        with self._connected("reached") as connection, connection.cursor() as cursor:
            cursor.execute("SELECT has_schema_privilege($1, 'USAGE')", self.place[:1])
            if not cursor.fetchone()[0]:
                raise StoreError(
                    f"output.to: this login may not use the schema {self.place[0]!r}; GRANT USAGE ON SCHEMA to it"
                )

    def write(self, rows: PublishedRows) -> bool:
        """Delete the release's rows and insert them anew in one transaction, one run at a time."""
        with self._connected("written") as connection, connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(hashtext($1))", (".".join(self.place),))
            cursor.fetchall()
            written = self._write(cursor, rows)
            connection.commit()
            return written

    def read(self, release: str) -> Iterator[pa.RecordBatch]:
        """The rows of a release."""
        schema, table = self.place
        with self._connected("read") as connection, connection.cursor() as cursor:
            cursor.execute(f'SELECT * FROM "{schema}"."{table}" WHERE release = $1', (release,))
            yield from cursor.fetch_record_batch()

    def _write(self, cursor: Any, rows: PublishedRows) -> bool:
        schema, table = self.place
        cursor.execute(
            "SELECT column_name::text FROM information_schema.columns WHERE table_schema = $1 AND table_name = $2 "
            "ORDER BY ordinal_position",
            (schema, table),
        )
        there = [row[0] for row in cursor.fetchall()]
        if there:
            if there != rows.names:
                raise other_columns(self.postgres, there, rows.names)
            quoted = f'"{schema}"."{table}"'
            cursor.execute(
                f"SELECT count(*) FROM {quoted} WHERE release = $1 AND certificate = $2", (rows.release, rows.certificate)
            )
            if cursor.fetchone()[0] == rows.number:
                return False
            cursor.execute(f"DELETE FROM {quoted} WHERE release = $1", (rows.release,))
        cursor.adbc_ingest(table, rows.reader(), mode="append" if there else "create", db_schema_name=schema)
        return True

    def _connected(self, what: str) -> Any:
        return _Connected(self, what)


class _Connected:
    """A connection whose errors become StoreErrors without their text, which may hold the URL."""

    def __init__(self, table: ToPostgres, what: str) -> None:
        self.table, self.what = table, what

    def __enter__(self) -> Any:
        try:
            from adbc_driver_postgresql import dbapi
        except ImportError:
            raise needs("adbc-driver-postgresql", "adbc") from None
        url = _url()
        try:
            self.connection = dbapi.connect(url)
        except Exception as error:  # noqa: BLE001 - whatever the driver raises
            raise could_not(self.what, self.table.postgres, error) from None
        return self.connection

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.connection.close()  # what was not committed is rolled back
        if isinstance(error, Exception) and not isinstance(error, StoreError):
            raise could_not(self.what, self.table.postgres, error) from None


def _url() -> str:
    """The warehouse's URL. Raises: InvalidInput when nobody named it."""
    if os.environ.get(URL):
        return os.environ[URL]
    if os.environ.get(URL_FILE):
        try:
            return Path(os.environ[URL_FILE]).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise InvalidInput(
                f"{URL_FILE} names a file that cannot be read ({type(error).__name__}); give one that can"
            ) from None
    raise InvalidInput(f"output.to names a table of PostgreSQL; set {URL} to postgresql://user:password@host:5432/database")

"""Tables of PostgreSQL through ADBC. DPDIST_WAREHOUSE gives the URL with its password, or DPDIST_WAREHOUSE_FILE a file that holds it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field

from dpdist.api import InvalidInput, StoreError
from dpdist.api.warehouses import PublishedRows, TargetKind, package
from dpdist.plugins.warehouses.target_errors import PACKAGE_PURPOSE, translate_target_errors

if TYPE_CHECKING:
    import pyarrow as pa

URL, URL_FILE = "DPDIST_WAREHOUSE", "DPDIST_WAREHOUSE_FILE"
NAME = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]*\.)?[A-Za-z_][A-Za-z0-9_]*")


def _check_table_name(name: str) -> str:
    if NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} is no table of PostgreSQL; give schema.table, of letters, digits and _")
    return name


class PostgresTarget(TargetKind):
    """A table of PostgreSQL. It is made when the first release comes."""

    postgres: Annotated[str, AfterValidator(_check_table_name)] = Field(
        description="a table of PostgreSQL, schema.table, in the database whose URL DPDIST_WAREHOUSE gives",
        examples=["public.answers"],
    )

    @property
    def schema_and_table(self) -> tuple[str, str]:
        """Its schema, and its name there."""
        schema, _, table = self.postgres.rpartition(".")
        return schema or "public", table

    def columns(self) -> list[str] | None:
        """Connect, and look whether the schema can be used and which columns the table has."""
        with self._connect("reached") as connection, connection.cursor() as cursor:
            cursor.execute("SELECT has_schema_privilege($1, 'USAGE')", self.schema_and_table[:1])
            if not cursor.fetchone()[0]:
                raise StoreError(
                    f"output.to: this login may not use the schema {self.schema_and_table[0]!r}; GRANT USAGE ON SCHEMA to it"
                )
            return self._columns(cursor)

    def write(self, rows: PublishedRows) -> bool:
        """Delete the release's rows and insert them anew in one transaction, one run at a time."""
        with self._connect("written") as connection, connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(hashtext($1))", (".".join(self.schema_and_table),))
            cursor.fetchall()
            written = self._write(cursor, rows)
            connection.commit()
            return written

    def read_rows(self, release: str) -> Iterator[pa.RecordBatch]:
        """The rows of a release."""
        schema, table = self.schema_and_table
        with self._connect("read") as connection, connection.cursor() as cursor:
            cursor.execute(f'SELECT * FROM "{schema}"."{table}" WHERE release = $1', (release,))
            yield from cursor.fetch_record_batch()

    def _columns(self, cursor: Any) -> list[str] | None:
        cursor.execute(
            "SELECT column_name::text FROM information_schema.columns WHERE table_schema = $1 AND table_name = $2 "
            "ORDER BY ordinal_position",
            self.schema_and_table,
        )
        return [row[0] for row in cursor.fetchall()] or None

    def _write(self, cursor: Any, rows: PublishedRows) -> bool:
        schema, table = self.schema_and_table
        table_columns = self._columns(cursor)
        if table_columns:
            self.require_columns(table_columns, rows.names)
            quoted = f'"{schema}"."{table}"'
            cursor.execute(
                f"SELECT count(*) FROM {quoted} WHERE release = $1 AND certificate = $2", (rows.release, rows.certificate)
            )
            if cursor.fetchone()[0] == rows.number:
                return False
            cursor.execute(f"DELETE FROM {quoted} WHERE release = $1", (rows.release,))
        cursor.adbc_ingest(table, rows.reader(), mode="append" if table_columns else "create", db_schema_name=schema)
        return True

    @contextmanager
    def _connect(self, action: str) -> Iterator[Any]:
        """A connection; what was not committed is rolled back."""
        dbapi, url = package("adbc_driver_postgresql.dbapi", "adbc", PACKAGE_PURPOSE), _url()
        with translate_target_errors(action, self.postgres), closing(dbapi.connect(url)) as connection:
            yield connection


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

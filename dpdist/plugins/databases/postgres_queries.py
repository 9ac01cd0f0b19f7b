"""Queries of PostgreSQL, through ADBC, in sessions that change nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from dpdist.api import InvalidSpec
from dpdist.api.sources import Use, column_positions, numbers_as_texts, package
from dpdist.plugins.databases import query_limits
from dpdist.plugins.databases.duckdb_queries import selected_columns

if TYPE_CHECKING:
    import pyarrow as pa

_READ_ONLY = "-c default_transaction_read_only=on"
_SYNTAX, _CANCELLED = "42601", "57014"
_CHANGES = re.compile(r"read-only transaction|read-write mode|data-modifying")
"""What PostgreSQL says of statements that change something; drivers tell their SQLSTATE only before the first row."""
_TIMED_OUT = "due to statement timeout"


@contextmanager
def run_postgres_select(url: str, sql: str, uses: Mapping[str, Use]) -> Iterator[pa.RecordBatchReader]:
    """The used columns of one SELECT, in a session that can change nothing: every transaction is read-only, and rolled back."""
    import pyarrow as pa

    dbapi = package("adbc_driver_postgresql.dbapi", "adbc")
    with dbapi.connect(_with_option(url)) as connection, connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION READ ONLY")
        try:
            bare = sql.strip().rstrip(";")
            every = f"SELECT * FROM (\n{bare}\n) AS records"
            cursor.adbc_statement.set_sql_query(every)
            cursor.adbc_statement.prepare()  # refuses more than one statement
            cursor.execute(f"{every} LIMIT 0")
            names = cursor.fetch_record_batch().schema.names
            cursor.execute(selected_columns(bare, len(names), column_positions(names, uses)))
            rows = cursor.fetch_record_batch()
            plain_schema = pa.schema(
                [
                    pa.field(name, getattr(schema_field.type, "storage_type", schema_field.type))
                    for name, schema_field in zip(uses, rows.schema, strict=True)
                ]
            )
            yield pa.RecordBatchReader.from_batches(plain_schema, (_with_plain_types(batch, plain_schema) for batch in rows))
        except Exception as error:
            state = getattr(error, "sqlstate", None)
            if state == _CANCELLED or _TIMED_OUT in str(error):
                raise query_limits.time_limit_error() from None
            changes, none = _CHANGES.search(str(error)), state == _SYNTAX
            if not (changes or none):
                raise
            fault = "would change the database" if changes else "is none, or has an error of syntax"
            raise InvalidSpec(
                f"'records.sql' is one SELECT that changes nothing, and this one {fault}; correct it"
            ) from None
        finally:
            connection.rollback()


def _with_option(url: str) -> str:
    """The URL of a session whose transactions are read-only, and whose statements end in time if it does not say otherwise."""
    url_parts = urlsplit(url)
    options = [(name, value) for name, value in parse_qsl(url_parts.query, keep_blank_values=True)]
    session_options = " ".join(value for name, value in options if name == "options")
    other_options = [(name, value) for name, value in options if name != "options"]
    limited = f"-c statement_timeout={int(query_limits.most_seconds() * 1000)} {session_options} {_READ_ONLY}"
    return urlunsplit(
        url_parts._replace(query=urlencode([*other_options, ("options", " ".join(limited.split()))], quote_via=quote))
    )


def _with_plain_types(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Types that only the driver knows as the texts that they are stored as; exact numbers in the one way to write them."""
    import pyarrow as pa

    columns = [getattr(column, "storage", column) for column in batch.columns]
    for column_index, schema_field in enumerate(batch.schema):
        if getattr(schema_field.type, "type_name", None) == "numeric":
            columns[column_index] = numbers_as_texts(columns[column_index])
    return pa.RecordBatch.from_arrays(columns, schema=schema)

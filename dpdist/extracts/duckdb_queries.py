"""DuckDB as dpdist uses it: it runs queries and sorts, and reads no file but the database that it is given."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpdist.errors import InvalidSpec
from dpdist.extracts import file_tables, query_limits
from dpdist.extracts.column_projection import column_positions, renamed, selected_columns
from dpdist.sources.optional_packages import package

if TYPE_CHECKING:
    import pyarrow as pa

    from dpdist.extracts.file_tables import Files
    from dpdist.sources.record_sources import ArrowStream

LEAST_BYTES = 64 * 2**20
_OUT_OF_MEMORY_TEXT = "Out of Memory Error"
"""What DuckDB says where Arrow passes its error on as one of the system."""
_CURE = (
    "'records.sql' may name files as tables alone, FROM 'visits.csv' or 'visits/*.parquet': "
    "read_csv(...) and whatever else reads files, the network or extensions is not allowed, in views, too"
)


@contextmanager
def open_connection(database_path: Path | None, spill: Path, memory_bytes: int, extra: str = "sql") -> Iterator[Any]:
    """A connection to a database, or to none, that changes nothing and reaches nothing outside but a private folder to spill into.

    Raises: InvalidSpec for what needs more memory and disk than it may take.
    """
    duckdb = package("duckdb", extra)
    spill.mkdir(mode=0o700, exist_ok=True)
    config = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "python_enable_replacements": "false",
        "temp_directory": str(spill),
        "memory_limit": f"{max(memory_bytes, LEAST_BYTES)}B",
    }
    target = ":memory:" if database_path is None else str(database_path)
    with duckdb.connect(target, read_only=database_path is not None, config=config) as connection:
        connection.execute(
            f"SET max_temp_directory_size = '{query_limits.disk_bytes()}B'; "  # as a part of 'config' it would bound nothing (2.0.0)
            "SET TimeZone = 'UTC'; SET enable_external_access = false; SET lock_configuration = true"
        ).fetchall()
        try:
            yield connection
        except (duckdb.OutOfMemoryException, OSError) as error:
            if isinstance(error, OSError) and _OUT_OF_MEMORY_TEXT not in str(error):
                raise
            raise query_limits.disk_limit_error() from None


@contextmanager
def sort_records(
    records: ArrowStream, columns: int, spill: Path, memory_bytes: int, extra: str
) -> Iterator[pa.RecordBatchReader]:
    """Records in an order of their own, by a digest of each: which ones of a person count depends on these alone."""
    with open_connection(None, spill, memory_bytes, extra) as connection:
        connection.register("records", records)
        column_numbers = ", ".join(map(str, range(1, columns + 1)))
        yield connection.sql(f"SELECT * FROM records ORDER BY md5(records::VARCHAR), {column_numbers}").to_arrow_reader()


def run_select(connection: Any, sql: str, files: Files, failed: list[Exception]) -> pa.RecordBatchReader:
    """The used columns of one SELECT, over the database's tables and over files of records.

    Args:
        files: how those are read that it names, and which columns are used.
        failed: is given what stopped the reading of a file.
    Raises: InvalidSpec for anything else than a SELECT, and for one that cannot be bound.
    """
    duckdb = package("duckdb", "sql")
    try:
        statements = duckdb.extract_statements(sql)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise InvalidSpec("'records.sql' is one SELECT, found something else; queries of records change nothing")
        bare_sql = sql.strip().rstrip(";")
        for name in file_tables.file_names_in(connection, bare_sql):
            connection.register(name, file_tables.table_of(name, files, failed))
        names = connection.sql(bare_sql).columns
        asked = selected_columns(bare_sql, len(names), column_positions(names, files.uses))
        return renamed(connection.sql(asked).to_arrow_reader(), list(files.uses))
    except (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException) as error:
        declare = (
            "; files have the columns that are counted, and those that 'records.types' declares"
            if "column" in str(error).lower()
            else ""
        )
        raise InvalidSpec(f"'records.sql' cannot be run: {_fault(sql, error)}; correct it{declare}") from None
    except duckdb.PermissionException:
        raise InvalidSpec(_CURE) from None


_FAULTS = {
    "ParserException": "its grammar is wrong",
    "BinderException": "a column that it names does not exist, or a function or an operator does not take what it is given",
    "CatalogException": "a table, view or function that it names does not exist",
}
_LINE_NUMBER = re.compile(r"^LINE (\d+): ", re.MULTILINE)
_NAMED = re.compile(r'"([^"]+)"|with name (\S+)')
"""What a message of DuckDB is about, before it says what there is instead."""


def _fault(sql: str, error: Exception) -> str:
    """What is wrong with a query and where. Of DuckDB's message, which names columns and types of data, only words of the query."""
    fault = _FAULTS.get(type(error).__name__, "DuckDB refuses it")
    text = str(error)
    line_match = _LINE_NUMBER.search(text)
    quoted_word = next(
        (word for word_match in _NAMED.finditer(text.partition("\n")[0]) if (word := word_match[1] or word_match[2]) in sql),
        None,
    )
    location_text = ", ".join(
        [*([f"line {line_match[1]}"] if line_match else []), *([f"at {quoted_word!r}"] if quoted_word else [])]
    )
    return f"{fault} ({location_text})" if location_text else fault

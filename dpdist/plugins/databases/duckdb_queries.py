"""Queries that DuckDB runs: it reads no file but the database that it is given, and dpdist reads the files that a query names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpdist.api import InvalidSpec
from dpdist.api.sources import column_positions, package
from dpdist.plugins.databases import file_tables

if TYPE_CHECKING:
    import pyarrow as pa

    from dpdist.plugins.databases.file_tables import Files

_CURE = (
    "'records.sql' may name files as tables alone, FROM 'visits.csv' or 'visits/*.parquet': "
    "read_csv(...) and whatever else reads files, the network or extensions is not allowed, in views, too"
)


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
        return rename_columns(connection.sql(asked).to_arrow_reader(), list(files.uses))
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


def selected_columns(select: str, columns: int, places: Sequence[int]) -> str:
    """A SELECT of some columns of another one's rows, by their places: what a database takes for one name decides nothing.

    Args:
        columns: how many the other one has.
    """
    names = [f"dpdist_{place}" for place in range(columns)]
    return f"SELECT {', '.join(names[place] for place in places)} FROM (\n{select}\n) AS records({', '.join(names)})"


def rename_columns(reader: pa.RecordBatchReader, names: Sequence[str]) -> pa.RecordBatchReader:
    """The same columns under other names."""
    import pyarrow as pa

    schema = pa.schema([field.with_name(name) for name, field in zip(names, reader.schema, strict=True)])
    return pa.RecordBatchReader.from_batches(
        schema, (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in reader)
    )

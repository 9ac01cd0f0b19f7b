"""The result of a query as the records of a release: of files and DuckDB's databases by DuckDB, of PostgreSQL through ADBC."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from pydantic import Field, model_validator

from dpdist.api import InvalidSpec
from dpdist.api.sources import (
    DEFAULT_GRAMMAR,
    ArrowStream,
    ColumnType,
    CsvLocation,
    Grammar,
    RecordTable,
    UnreadRecords,
    Use,
    open_connection,
    reraise_first_failure,
)
from dpdist.plugins.databases import duckdb_queries
from dpdist.plugins.databases.file_tables import Files
from dpdist.plugins.databases.postgres_queries import run_postgres_select
from dpdist.plugins.databases.query_limits import interrupt_in_time

_SCHEME = re.compile(r"[a-z][a-z0-9+]*://", re.IGNORECASE)


@dataclass(frozen=True)
class RecordQuery(RecordTable):
    """One query: of files and DuckDB's databases by DuckDB, of PostgreSQL through ADBC.

    Attributes:
        connection: name of the environment variable that holds the database's URL or file; None: files only.
        folder: from which the query names files.
        types: of the columns of these files, as declared.
        grammar: how those of them are written that are CSV.
    """

    sql: str
    connection: str | None
    folder: Path
    types: Mapping[str, ColumnType] = field(default_factory=dict)
    grammar: Grammar = DEFAULT_GRAMMAR
    file_tallies: list[UnreadRecords] = field(default_factory=list, repr=False, compare=False)

    @property
    def tallies(self) -> list[UnreadRecords]:
        return self.file_tallies

    @property
    def kind(self) -> str:
        return "query"

    @property
    def extra(self) -> str:
        return "sql"

    @property
    def identity(self) -> str:
        return "\0".join([str(self.connection), self.sql, *map(str, self.grammar.facts)])

    @contextmanager
    def open_records(self, uses: Mapping[str, Use], spill: Path, memory_bytes: int) -> Iterator[tuple[str, ArrowStream]]:
        database = _secret(self.connection)
        if database is not None and re.match(r"postgres(ql)?://", database):
            with run_postgres_select(database, self.sql, uses) as rows:
                yield "", rows
            return
        if database is not None and _SCHEME.match(database):
            raise InvalidSpec(
                f"${self.connection} holds a URL that cannot be read: allowed are postgresql://... and the path of a DuckDB database"
            )
        file = None if database is None else self.folder / database
        if file is not None and not file.is_file():
            raise InvalidSpec("the DuckDB database that 'records.connection' names is not there; give its file")
        failed: list[Exception] = []
        with (
            reraise_first_failure(failed),
            open_connection(file, spill, memory_bytes) as connection,
            interrupt_in_time(connection.interrupt),
        ):
            files = Files(self.folder, self.types, uses, self.grammar, self.file_tallies)
            yield "", duckdb_queries.run_select(connection, self.sql, files, failed)


def _secret(name: str | None) -> str | None:
    """What an environment variable holds, or the file that NAME_FILE names. Raises: InvalidSpec."""
    if name is None:
        return None
    file = os.environ.get(f"{name}_FILE")
    try:
        secret = Path(file).read_text(encoding="utf-8").strip() if file else os.environ.get(name)
    except (OSError, ValueError):
        raise InvalidSpec(f"the file that {name}_FILE names cannot be read; correct it") from None
    if not secret:
        raise InvalidSpec(
            f"'records.connection' is ${name}, which is not set: put the database's URL or file there, or its file in {name}_FILE"
        )
    return secret


class QuerySource(CsvLocation):
    """The result of a query."""

    reads_types: ClassVar[bool] = True

    sql: str = Field(
        description="in place of 'path', one SELECT whose rows are the records. DuckDB runs it in the database of 'connection', or without "
        "one over files that it names, relative to the spec's folder. dpdist orders the rows by a digest of each row",
        examples=["SELECT age, branch FROM 'visits/*.parquet' JOIN 'branches.csv' USING (id)"],
    )
    connection: str | None = Field(
        None,
        description="the environment variable that holds the address of the database, as $NAME. The address is postgresql://..., or the "
        "path of a DuckDB database. The variable NAME_FILE may name a file that holds the address instead. Specs are public, so the "
        "address, with its password, must not stand in one",
        examples=["$SHOP_DATABASE"],
    )

    @model_validator(mode="after")
    def _no_address(self) -> QuerySource:
        if self.connection is not None and not re.fullmatch(r"\$[A-Za-z_][A-Za-z0-9_]*", self.connection):
            raise ValueError(  # of all keys, so that what was found is not quoted: it may be a password
                "specs are public: 'connection' is $NAME of an environment variable that holds the database's address"
            )
        return self

    @property
    def source_label(self) -> str:
        return "the query's result"

    def table(self, folder: Path, types: Mapping[str, ColumnType]) -> RecordTable:
        connection = self.connection and self.connection.removeprefix("$")
        return RecordQuery(self.sql, connection, folder, types, grammar=self.grammar)

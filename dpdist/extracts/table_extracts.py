"""Tables that are no files: queries of databases, Delta and Iceberg tables. What is read of them is read once, and charged as it was read.

A query may give other rows, or the same in another order, each time it is asked. So its result is written into a private file, in an
order that depends on the rows alone, and everything that follows reads that file: its bytes are what a charge is bound to. The file
is kept while its release may go on (``dpdist.pipeline.extract_files``). A run that was killed goes on with it; a run on a machine that
lacks it
asks again, and the ledger refuses the charge if the records have changed.

Passwords come from the environment, are handed to the database's driver and to nobody else; what drivers say is never passed on,
for it may quote them, or records.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from dpdist.errors import DpdistError, InvalidSpec
from dpdist.extracts import query_limits, table_formats
from dpdist.extracts.column_projection import Use, column_positions, project_columns, selected_columns
from dpdist.privacy import keys
from dpdist.privacy.keys import Secret
from dpdist.process.durable_files import private_folder, rename
from dpdist.sources.formats.csv_grammar import DEFAULT_GRAMMAR, Grammar
from dpdist.sources.optional_packages import package
from dpdist.sources.record_sources import ArrowStream, write_stream
from dpdist.storage.leases import Lease

if TYPE_CHECKING:
    import pyarrow as pa

    from dpdist.sources.column_types import ColumnType

SPILL_SHARE = 8
"""A database, and what sorts its rows, may each take one part in so many of a worker's memory before it goes to disk."""
_SCHEME = re.compile(r"[a-z][a-z0-9+]*://", re.IGNORECASE)


@dataclass(frozen=True)
class RecordTable(ABC):
    """Where records are that stand in no file."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """'query', 'delta' or 'iceberg'."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """What tells it from others, without the snapshot."""

    @abstractmethod
    def open_records(
        self, uses: Mapping[str, Use], spill: Path, memory_bytes: int
    ) -> AbstractContextManager[tuple[str, ArrowStream]]:
        """The snapshot ("" where there is none) and its records, for a block: no other columns than the used ones are asked for.

        Args:
            uses: what each column is counted as.
            spill: a private folder, to be made, for what does not fit into ``memory_bytes``.
        """


@dataclass(frozen=True)
class Extract:
    """What was read of a table.

    Attributes:
        path: the file that holds it.
        snapshot: which state of the table it is; "" where tables have none.
    """

    path: Path
    snapshot: str


def extract_table(
    table: RecordTable,
    release: str,
    folder: Path,
    home: Path,
    root: Secret,
    memory_bytes: int,
    uses: Mapping[str, Use],
    types: Mapping[str, ColumnType] | None = None,
) -> Extract:
    """The records of a table as they were first read for a release: the columns that are counted, in an order of their own.

    Args:
        folder: the folder for them (``dpdist.pipeline.extract_files``).
        uses: what each column is counted as.
        types: of columns, as declared.
    Raises: InvalidSpec.
    """
    private_folder(folder)
    name = f"{table.kind}-{keys.commitment(root, 'extract', release, table.kind, table.identity, _facts(uses, types))[:32]}"
    earlier_file = next(iter(sorted(folder.glob(f"{name}@*.parquet"))), None)
    if earlier_file is not None:
        return Extract(earlier_file, earlier_file.stem.partition("@")[2])
    lease = Lease(str(home / "scratch"))
    work = home / "scratch" / "scratch" / lease.id
    work.mkdir(mode=0o700, parents=True)
    try:
        memory_budget = memory_bytes // SPILL_SHARE
        with _hide_driver_text(table.kind), table.open_records(uses, work / "query", memory_budget) as (snapshot, records):
            _write_in_order(records, uses, types or {}, work, memory_budget, table.kind)
        path = folder / f"{name}@{snapshot}.parquet"
        return Extract(rename(work / "records.parquet", path), snapshot)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        lease.end()


def _facts(uses: Mapping[str, Use], types: Mapping[str, ColumnType] | None) -> str:
    return json.dumps([sorted(uses.items()), sorted((types or {}).items())])


def _write_in_order(
    records: ArrowStream, uses: Mapping[str, Use], types: Mapping[str, ColumnType], work: Path, memory_bytes: int, kind: str
) -> None:
    """Write what is counted of records, whose order and whose types follow from these alone."""
    import pyarrow as pa

    from dpdist.extracts import duckdb_queries

    failed: list[Exception] = []
    projected_records = project_columns(pa.RecordBatchReader.from_stream(records), uses, types)
    extra = "sql" if kind == "query" else kind
    with (
        _reraise_first_failure(failed),
        duckdb_queries.sort_records(
            _record_failures(projected_records, failed), len(uses), work / "order", memory_bytes, extra
        ) as rows,
    ):
        write_stream(rows, work / "records.parquet")


def _record_failures(reader: pa.RecordBatchReader, failed: list[Exception]) -> pa.RecordBatchReader:
    """The same batches, for a driver that would pass on an error as a text: it is kept in ``failed``."""
    import pyarrow as pa

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            yield from reader
        except Exception as error:
            failed.append(error)
            raise

    return pa.RecordBatchReader.from_batches(reader.schema, batches())


@contextmanager
def _reraise_first_failure(failed: list[Exception]) -> Iterator[None]:
    """Whatever is raised in the block, what made it is raised in its place."""
    try:
        yield
    except Exception:
        if failed:
            raise failed[0] from None
        raise


@contextmanager
def _hide_driver_text(kind: str) -> Iterator[None]:
    """Whatever a driver raises in the block becomes InvalidSpec without its text."""
    try:
        yield
    except (DpdistError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - whatever a driver raises
        state = getattr(error, "sqlstate", None)
        error_text = f"{type(error).__name__}, SQLSTATE {state}" if state else type(error).__name__
        raise InvalidSpec(
            f"the {kind} of the records cannot be read ({error_text}); try it in the database's own shell: what it says is not shown here, "
            "for it may quote records or passwords"
        ) from None


@dataclass(frozen=True)
class Query(RecordTable):
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

    @property
    def kind(self) -> str:
        return "query"

    @property
    def identity(self) -> str:
        return "\0".join([str(self.connection), self.sql, *map(str, self.grammar.facts)])

    @contextmanager
    def open_records(self, uses: Mapping[str, Use], spill: Path, memory_bytes: int) -> Iterator[tuple[str, ArrowStream]]:
        from dpdist.extracts import duckdb_queries
        from dpdist.extracts.file_tables import Files

        database = _secret(self.connection)
        if database is not None and re.match(r"postgres(ql)?://", database):
            with _postgres(database, self.sql, uses) as rows:
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
            _reraise_first_failure(failed),
            duckdb_queries.open_connection(file, spill, memory_bytes) as connection,
            query_limits.interrupt_in_time(connection.interrupt),
        ):
            files = Files(self.folder, self.types, uses, self.grammar)
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


_READ_ONLY = "-c default_transaction_read_only=on"
_SYNTAX, _CANCELLED = "42601", "57014"
_CHANGES = re.compile(r"read-only transaction|read-write mode|data-modifying")
"""What PostgreSQL says of statements that change something; drivers tell their SQLSTATE only before the first row."""
_TIMED_OUT = "due to statement timeout"


@contextmanager
def _postgres(url: str, sql: str, uses: Mapping[str, Use]) -> Iterator[pa.RecordBatchReader]:
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
    limited = f"-c statement_timeout={int(query_limits.limit(query_limits.SECONDS) * 1000)} {session_options} {_READ_ONLY}"
    return urlunsplit(
        url_parts._replace(query=urlencode([*other_options, ("options", " ".join(limited.split()))], quote_via=quote))
    )


def _with_plain_types(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Types that only the driver knows as the texts that they are stored as; exact numbers in the one way to write them."""
    import pyarrow as pa

    from dpdist.sources.formats.column_conversion import numbers_as_texts

    columns = [getattr(column, "storage", column) for column in batch.columns]
    for column_index, schema_field in enumerate(batch.schema):
        if getattr(schema_field.type, "type_name", None) == "numeric":
            columns[column_index] = numbers_as_texts(columns[column_index])
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@dataclass(frozen=True)
class DeltaTable(RecordTable):
    """A Delta table at one of its versions; the newest when it is first read, unless one is named."""

    location: str
    version: int | None

    @property
    def kind(self) -> str:
        return "delta"

    @property
    def identity(self) -> str:
        return self.location if self.version is None else f"{self.location}\0{self.version}"

    @contextmanager
    def open_records(self, uses: Mapping[str, Use], spill: Path, memory_bytes: int) -> Iterator[tuple[str, ArrowStream]]:
        deltalake = package("deltalake", "delta")
        table = deltalake.DeltaTable(self.location, version=self.version)
        table_formats.check_delta(table, uses)
        files = table.to_pyarrow_dataset()
        table_formats.check_delta_files(files.get_fragments(), uses)
        yield str(table.version()), files.scanner(columns=list(uses)).to_reader()


@dataclass(frozen=True)
class IcebergTable(RecordTable):
    """An Iceberg table, catalog.namespace.table, at one of its snapshots; the current one when it is first read, unless one is named."""

    table: str
    snapshot: int | None

    @property
    def kind(self) -> str:
        return "iceberg"

    @property
    def identity(self) -> str:
        return self.table if self.snapshot is None else f"{self.table}\0{self.snapshot}"

    @contextmanager
    def open_records(self, uses: Mapping[str, Use], spill: Path, memory_bytes: int) -> Iterator[tuple[str, ArrowStream]]:
        catalogs = package("pyiceberg.catalog", "iceberg")
        catalog, _, name = self.table.partition(".")
        table = catalogs.load_catalog(catalog).load_table(name)
        current = table.current_snapshot()
        snapshot = self.snapshot or (None if current is None else current.snapshot_id)
        if snapshot is None:
            raise InvalidSpec(f"the Iceberg table {self.table} has no snapshot yet; write records into it first")
        described = table.snapshot_by_id(snapshot)
        if described is None:
            raise InvalidSpec(f"the Iceberg table {self.table} has no snapshot {snapshot}; name one that it keeps")
        table_formats.check_iceberg(table, described, uses)
        yield str(snapshot), table.scan(selected_fields=tuple(uses), snapshot_id=snapshot).to_arrow_batch_reader()

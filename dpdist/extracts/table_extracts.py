"""Tables that are no files: queries of databases, Delta and Iceberg tables. What is read of them is read once, and charged as it was read.

A query may give other rows, or the same in another order, each time it is asked. So its result is written into a private file, in an
order that depends on the rows alone, and everything that follows reads that file: its bytes are what a charge is bound to. The file
is kept while its release may go on (``dpdist.pipeline.extract_files``). A run that was killed goes on with it; a run on a machine that lacks it
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
from dpdist.extracts.column_projection import Use, as_used, selected_columns, used_places
from dpdist.privacy import keys
from dpdist.privacy.keys import Secret
from dpdist.process.durable_files import private_folder, rename
from dpdist.sources.formats.csv_grammar import PLAIN, Grammar
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
    def named(self) -> str:
        """What tells it from others, without the snapshot."""

    @abstractmethod
    def opened(
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


def extracted(
    table: RecordTable,
    release: str,
    kept: Path,
    home: Path,
    root: Secret,
    memory_bytes: int,
    uses: Mapping[str, Use],
    types: Mapping[str, ColumnType] | None = None,
) -> Extract:
    """The records of a table as they were first read for a release: the columns that are counted, in an order of their own.

    Args:
        kept: the folder for them (``dpdist.pipeline.extract_files``).
        uses: what each column is counted as.
        types: of columns, as declared.
    Raises: InvalidSpec.
    """
    private_folder(kept)
    name = f"{table.kind}-{keys.commitment(root, 'extract', release, table.kind, table.named, _facts(uses, types))[:32]}"
    found = next(iter(sorted(kept.glob(f"{name}@*.parquet"))), None)
    if found is not None:
        return Extract(found, found.stem.partition("@")[2])
    lease = Lease(str(home / "scratch"))
    work = home / "scratch" / "scratch" / lease.id
    work.mkdir(mode=0o700, parents=True)
    try:
        share = memory_bytes // SPILL_SHARE
        with _plainly(table.kind), table.opened(uses, work / "query", share) as (snapshot, records):
            _write_in_order(records, uses, types or {}, work, share, table.kind)
        path = kept / f"{name}@{snapshot}.parquet"
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
    used = as_used(pa.RecordBatchReader.from_stream(records), uses, types)
    extra = "sql" if kind == "query" else kind
    with (
        _first_told(failed),
        duckdb_queries.in_order(_noted(used, failed), len(uses), work / "order", memory_bytes, extra) as rows,
    ):
        write_stream(rows, work / "records.parquet")


def _noted(reader: pa.RecordBatchReader, failed: list[Exception]) -> pa.RecordBatchReader:
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
def _first_told(failed: list[Exception]) -> Iterator[None]:
    """Whatever is raised in the block, what made it is raised in its place."""
    try:
        yield
    except Exception:
        if failed:
            raise failed[0] from None
        raise


@contextmanager
def _plainly(kind: str) -> Iterator[None]:
    """Whatever a driver raises in the block becomes InvalidSpec without its text."""
    try:
        yield
    except (DpdistError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - whatever a driver raises
        state = getattr(error, "sqlstate", None)
        said = f"{type(error).__name__}, SQLSTATE {state}" if state else type(error).__name__
        raise InvalidSpec(
            f"the {kind} of the records cannot be read ({said}); try it in the database's own shell: what it says is not shown here, "
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
    grammar: Grammar = PLAIN

    @property
    def kind(self) -> str:
        return "query"

    @property
    def named(self) -> str:
        return "\0".join([str(self.connection), self.sql, *map(str, self.grammar.facts)])

    @contextmanager
    def opened(self, uses: Mapping[str, Use], spill: Path, memory_bytes: int) -> Iterator[tuple[str, ArrowStream]]:
        from dpdist.extracts import duckdb_queries
        from dpdist.extracts.file_tables import Files

        place = _secret(self.connection)
        if place is not None and re.match(r"postgres(ql)?://", place):
            with _postgres(place, self.sql, uses) as rows:
                yield "", rows
            return
        if place is not None and _SCHEME.match(place):
            raise InvalidSpec(
                f"${self.connection} holds a URL that cannot be read: allowed are postgresql://... and the path of a DuckDB database"
            )
        file = None if place is None else self.folder / place
        if file is not None and not file.is_file():
            raise InvalidSpec("the DuckDB database that 'records.connection' names is not there; give its file")
        failed: list[Exception] = []
        with (
            _first_told(failed),
            duckdb_queries.connected(file, spill, memory_bytes) as connection,
            query_limits.ended_in_time(connection.interrupt),
        ):
            files = Files(self.folder, self.types, uses, self.grammar)
            yield "", duckdb_queries.selected(connection, self.sql, files, failed)


def _secret(name: str | None) -> str | None:
    """What an environment variable holds, or the file that NAME_FILE names. Raises: InvalidSpec."""
    if name is None:
        return None
    file = os.environ.get(f"{name}_FILE")
    try:
        found = Path(file).read_text(encoding="utf-8").strip() if file else os.environ.get(name)
    except (OSError, ValueError):
        raise InvalidSpec(f"the file that {name}_FILE names cannot be read; correct it") from None
    if not found:
        raise InvalidSpec(
            f"'records.connection' is ${name}, which is not set: put the database's URL or file there, or its file in {name}_FILE"
        )
    return found


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
            cursor.execute(selected_columns(bare, len(names), used_places(names, uses)))
            rows = cursor.fetch_record_batch()
            plain = pa.schema(
                [
                    pa.field(name, getattr(each.type, "storage_type", each.type))
                    for name, each in zip(uses, rows.schema, strict=True)
                ]
            )
            yield pa.RecordBatchReader.from_batches(plain, (_plain(batch, plain) for batch in rows))
        except Exception as error:
            state = getattr(error, "sqlstate", None)
            if state == _CANCELLED or _TIMED_OUT in str(error):
                raise query_limits.took_too_long() from None
            changes, none = _CHANGES.search(str(error)), state == _SYNTAX
            if not (changes or none):
                raise
            found = "would change the database" if changes else "is none, or has an error of syntax"
            raise InvalidSpec(
                f"'records.sql' is one SELECT that changes nothing, and this one {found}; correct it"
            ) from None
        finally:
            connection.rollback()


def _with_option(url: str) -> str:
    """The URL of a session whose transactions are read-only, and whose statements end in time if it does not say otherwise."""
    parts = urlsplit(url)
    options = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True)]
    own = " ".join(value for name, value in options if name == "options")
    given = [(name, value) for name, value in options if name != "options"]
    limited = f"-c statement_timeout={int(query_limits.limit(query_limits.SECONDS) * 1000)} {own} {_READ_ONLY}"
    return urlunsplit(parts._replace(query=urlencode([*given, ("options", " ".join(limited.split()))], quote_via=quote)))


def _plain(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Types that only the driver knows as the texts that they are stored as; exact numbers in the one way to write them."""
    import pyarrow as pa

    from dpdist.sources.formats.column_conversion import numbers_as_texts

    columns = [getattr(column, "storage", column) for column in batch.columns]
    for place, each in enumerate(batch.schema):
        if getattr(each.type, "type_name", None) == "numeric":
            columns[place] = numbers_as_texts(columns[place])
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@dataclass(frozen=True)
class DeltaTable(RecordTable):
    """A Delta table at one of its versions; the newest when it is first read, unless one is named."""

    place: str
    version: int | None

    @property
    def kind(self) -> str:
        return "delta"

    @property
    def named(self) -> str:
        return self.place if self.version is None else f"{self.place}\0{self.version}"

    @contextmanager
    def opened(self, uses: Mapping[str, Use], spill: Path, memory_bytes: int) -> Iterator[tuple[str, ArrowStream]]:
        deltalake = package("deltalake", "delta")
        table = deltalake.DeltaTable(self.place, version=self.version)
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
    def named(self) -> str:
        return self.table if self.snapshot is None else f"{self.table}\0{self.snapshot}"

    @contextmanager
    def opened(self, uses: Mapping[str, Use], spill: Path, memory_bytes: int) -> Iterator[tuple[str, ArrowStream]]:
        catalogs = package("pyiceberg.catalog", "iceberg")
        catalog, _, name = self.table.partition(".")
        table = catalogs.load_catalog(catalog).load_table(name)
        current = table.current_snapshot()
        snapshot = self.snapshot or (None if current is None else current.snapshot_id)
        if snapshot is None:
            raise InvalidSpec(f"the Iceberg table {self.table} has no snapshot yet; write records into it first")
        if table.snapshot_by_id(snapshot) is None:
            raise InvalidSpec(f"the Iceberg table {self.table} has no snapshot {snapshot}; name one that it keeps")
        table_formats.check_iceberg(table, table.scan(snapshot_id=snapshot).projection(), uses)
        yield str(snapshot), table.scan(selected_fields=tuple(uses), snapshot_id=snapshot).to_arrow_batch_reader()

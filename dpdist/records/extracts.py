"""Tables that are no files: queries of databases, Delta and Iceberg tables. What is read of them is read once, and charged as it was read.

A query may give other rows, or the same in another order, each time it is asked. So its result is written into a private file, in an
order that depends on the rows alone, and everything that follows reads that file: its bytes are what a charge is bound to. The file
is kept while its release may go on (``dpdist.release.held``). A run that was killed goes on with it; a run on a machine that lacks it
asks again, and the ledger refuses the charge if the records have changed.

Passwords come from the environment, are handed to the database's driver and to nobody else; what drivers say is never passed on,
for it may quote them, or records.
"""

from __future__ import annotations

import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpdist.durable import rename
from dpdist.errors import DpdistError, InvalidSpec
from dpdist.leases import Lease
from dpdist.privacy import keys
from dpdist.privacy.keys import Secret
from dpdist.private import private_folder
from dpdist.records.sources import ArrowStream, write_stream

if TYPE_CHECKING:
    import pyarrow as pa

SPILL_SHARE = 4
"""A database may take one part in so many of a worker's memory before it sorts on disk."""
_GUESSED = re.compile(r"\.(csv|tsv|txt|json|jsonl|ndjson)\b|read_(csv|json|ndjson)", re.IGNORECASE)
_AS_TEXT = re.compile(r"all_varchar\s*=\s*true", re.IGNORECASE)
GUESSED = (
    "'records.sql' reads CSV or JSON, whose types and forms of dates DuckDB guesses from all records together: one record can change how "
    "all others are read, and no noise hides that; where these are the records, write read_csv(..., all_varchar = true) and cast each "
    "column yourself"
)
"""A warning: what such files hold may be public, as names of branches are."""
_SCHEME = re.compile(r"[a-z][a-z0-9+]*://", re.IGNORECASE)


@dataclass(frozen=True)
class Table(ABC):
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
    def opened(self, spill: Path, memory_bytes: int) -> AbstractContextManager[tuple[str, ArrowStream]]:
        """The snapshot ("" where there is none) and its records, for a block.

        Args:
            spill: a private folder for what does not fit into ``memory_bytes``.
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


def guesses_types(sql: str | None) -> bool:
    """Whether a query seems to read files whose columns have no types, and leaves these to DuckDB."""
    return sql is not None and bool(_GUESSED.search(sql)) and not _AS_TEXT.search(sql)


def extracted(table: Table, release: str, kept: Path, home: Path, root: Secret, memory_bytes: int) -> Extract:
    """The records of a table as they were first read for a release. Raises: InvalidSpec.

    Args:
        kept: the folder for them (``dpdist.release.held``).
    """
    private_folder(kept)
    name = f"{table.kind}-{keys.commitment(root, 'extract', release, table.kind, table.named)[:32]}"
    found = next(iter(sorted(kept.glob(f"{name}@*.parquet"))), None)
    if found is not None:
        return Extract(found, found.stem.partition("@")[2])
    lease = Lease(str(home / "scratch"))
    work = home / "scratch" / "scratch" / lease.id
    work.mkdir(mode=0o700, parents=True)
    try:
        with _plainly(table.kind), table.opened(work, memory_bytes // SPILL_SHARE) as (snapshot, records):
            write_stream(records, work / "records.parquet")
        path = kept / f"{name}@{snapshot}.parquet"
        return Extract(rename(work / "records.parquet", path), snapshot)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        lease.end()


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
class Query(Table):
    """One query: of files and DuckDB's databases by DuckDB, of PostgreSQL through ADBC.

    Attributes:
        connection: name of the environment variable that holds the database's URL or file; None: files only.
        folder: from which the query names files.
        person: the column that tells persons apart.
    """

    sql: str
    connection: str | None
    folder: Path
    person: str | None = None

    @property
    def kind(self) -> str:
        return "query"

    @property
    def named(self) -> str:
        return f"{self.connection}\0{self.sql}"

    @contextmanager
    def opened(self, spill: Path, memory_bytes: int) -> Iterator[tuple[str, ArrowStream]]:
        """The rows in an order of their own: by a digest of each, so that which records of a person count depends on these alone."""
        duckdb = _package("duckdb", "sql")
        place = _secret(self.connection)
        if place is not None and re.match(r"postgres(ql)?://", place):
            with (
                _duckdb(duckdb, None, self.folder, spill, memory_bytes) as connection,
                _postgres(place, self.sql, self.person) as rows,
            ):
                connection.register("records", rows)
                yield "", _ordered(connection, "SELECT * FROM records", len(rows.schema))
            return
        if place is not None and _SCHEME.match(place):
            raise InvalidSpec(
                f"${self.connection} holds a URL that cannot be read: allowed are postgresql://... and the path of a DuckDB database"
            )
        with _duckdb(duckdb, place, self.folder, spill, memory_bytes) as connection:
            yield "", _ordered(connection, self.sql, _columns(duckdb, connection, self.sql))


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


@contextmanager
def _duckdb(duckdb: Any, place: str | None, folder: Path, spill: Path, memory_bytes: int) -> Iterator[Any]:
    """A connection that changes nothing, fetches nothing from the network and spills into a private folder."""
    config = {
        "autoinstall_known_extensions": "false",
        "temp_directory": str(spill),
        "memory_limit": f"{max(memory_bytes, 64 * 2**20)}B",
        "file_search_path": str(folder),
    }
    target = ":memory:" if place is None else str(folder / place)
    if place is not None and not Path(target).is_file():
        raise InvalidSpec("the DuckDB database that 'records.connection' names is not there; give its file")
    with duckdb.connect(target, read_only=place is not None, config=config) as connection:
        connection.execute("SET TimeZone = 'UTC'; SET lock_configuration = true")
        yield connection


def _columns(duckdb: Any, connection: Any, sql: str) -> int:
    """How many columns one SELECT has. Raises: InvalidSpec for anything else."""
    try:
        found = duckdb.extract_statements(sql)
        if len(found) != 1 or found[0].type != duckdb.StatementType.SELECT:
            raise InvalidSpec("'records.sql' is one SELECT, found something else; queries of records change nothing")
        return len(connection.sql(_bare(sql)).columns)
    except (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException) as error:
        raise InvalidSpec(f"'records.sql' cannot be run: {_fault(sql, error)}; correct it") from None


def _fault(sql: str, error: Exception) -> str:
    """What is wrong with a query and where. Of DuckDB's message, which names columns and types of data, only words of the query."""
    what = _FAULTS.get(type(error).__name__, "DuckDB refuses it")
    text = str(error)
    line = _LINE.search(text)
    named = next((word for found in _NAMED.finditer(text.partition("\n")[0]) if (word := found[1] or found[2]) in sql), None)
    where = ", ".join([*([f"line {line[1]}"] if line else []), *([f"at {named!r}"] if named else [])])
    return f"{what} ({where})" if where else what


_FAULTS = {
    "ParserException": "its grammar is wrong",
    "BinderException": "a column that it names does not exist, or a function or an operator does not take what it is given",
    "CatalogException": "a table, view or function that it names does not exist",
}
_LINE = re.compile(r"^LINE (\d+): ", re.MULTILINE)
_NAMED = re.compile(r'"([^"]+)"|with name (\S+)')
"""What a message of DuckDB is about, before it says what there is instead."""


def _bare(sql: str) -> str:
    return sql.strip().rstrip(";")


def _ordered(connection: Any, sql: str, columns: int) -> ArrowStream:
    places = ", ".join(map(str, range(1, columns + 1)))
    found: ArrowStream = connection.sql(
        f"SELECT * FROM ({_bare(sql)}\n) AS q ORDER BY md5(q::VARCHAR), {places}"
    ).to_arrow_reader()
    return found


@contextmanager
def _postgres(url: str, sql: str, person: str | None) -> Iterator[pa.RecordBatchReader]:
    """The rows of a query, in a transaction that can change nothing."""
    import pyarrow as pa

    dbapi = _package("adbc_driver_postgresql.dbapi", "adbc")
    with dbapi.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION READ ONLY")
        cursor.execute(_bare(sql))
        rows = cursor.fetch_record_batch()
        plain = pa.schema([pa.field(each.name, getattr(each.type, "storage_type", each.type)) for each in rows.schema])
        yield pa.RecordBatchReader.from_batches(plain, (_plain(batch, plain, person) for batch in rows))


def _plain(batch: pa.RecordBatch, schema: pa.Schema, person: str | None) -> pa.RecordBatch:
    """Types that only the driver knows, such as exact numbers, as the texts that they are stored as; a person's as the shortest one."""
    import pyarrow as pa

    columns = [getattr(column, "storage", column) for column in batch.columns]
    for place, each in enumerate(batch.schema):
        if each.name == person and getattr(each.type, "type_name", None) == "numeric":
            columns[place] = _shortest(columns[place])
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _shortest(numbers: pa.Array) -> pa.Array:
    """Exact numbers without zeros at the end of their fraction: 7.00 is 7."""
    import pyarrow.compute as pc

    return pc.replace_substring_regex(numbers, r"\.0*$|(\.\d*[1-9])0+$", r"\1")


@dataclass(frozen=True)
class DeltaTable(Table):
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
    def opened(self, spill: Path, memory_bytes: int) -> Iterator[tuple[str, ArrowStream]]:
        del spill, memory_bytes
        deltalake = _package("deltalake", "delta")
        table = deltalake.DeltaTable(self.place, version=self.version)
        yield str(table.version()), table.to_pyarrow_dataset().scanner().to_reader()


@dataclass(frozen=True)
class IcebergTable(Table):
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
    def opened(self, spill: Path, memory_bytes: int) -> Iterator[tuple[str, ArrowStream]]:
        del spill, memory_bytes
        catalogs = _package("pyiceberg.catalog", "iceberg")
        catalog, _, name = self.table.partition(".")
        table = catalogs.load_catalog(catalog).load_table(name)
        current = table.current_snapshot()
        snapshot = self.snapshot or (None if current is None else current.snapshot_id)
        if snapshot is None:
            raise InvalidSpec(f"the Iceberg table {self.table} has no snapshot yet; write records into it first")
        if table.snapshot_by_id(snapshot) is None:
            raise InvalidSpec(f"the Iceberg table {self.table} has no snapshot {snapshot}; name one that it keeps")
        yield str(snapshot), table.scan(snapshot_id=snapshot).to_arrow_batch_reader()


def _package(module: str, extra: str) -> Any:
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError:
        raise InvalidSpec(
            f"these records need the package {module.partition('.')[0]}, which is not installed; install it: pip install 'dpdist[{extra}]'"
        ) from None

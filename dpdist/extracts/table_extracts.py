"""Tables that are no files: plugins add their kinds. What is read of them is read once, and charged as it was read.

A query may give other rows, or the same in another order, each time it is asked. So its result is written into a private file, in an
order that depends on the rows alone, and everything that follows reads that file: its bytes are what a charge is bound to. The file
is kept while its release may go on (``dpdist.runtime.extract_files``). A run that was killed goes on with it; a run on a machine that
lacks it asks again, and the ledger refuses the charge if the records have changed.

What drivers say is never passed on, for it may quote passwords, or records.
"""

from __future__ import annotations

import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dpdist.errors import DpdistError, InvalidSpec
from dpdist.extracts.column_projection import Use, project_columns
from dpdist.extracts.record_sorting import sort_records
from dpdist.privacy import keys
from dpdist.privacy.keys import Secret
from dpdist.process.durable_files import private_folder, rename
from dpdist.sources.record_sources import ArrowStream, write_stream
from dpdist.storage.leases import Lease

if TYPE_CHECKING:
    import pyarrow as pa

    from dpdist.sources.column_types import ColumnType

SPILL_SHARE = 8
"""A database, and what sorts its rows, may each take one part in so many of a worker's memory before it goes to disk."""


@dataclass
class UnreadRecords:
    """Records that were read of one file, and those of them whose text for a number or a time is none."""

    read: int = 0
    unread: int = 0


@dataclass(frozen=True)
class TableFiles:
    """What the metadata of a table say of its files.

    Attributes:
        files: their number.
        written_at: when the last of them was added, Unix time.
    """

    files: int
    written_at: float


@dataclass(frozen=True)
class RecordTable(ABC):
    """Where records are that stand in no file."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """What the name of its extract begins with, such as 'query'."""

    @property
    def extra(self) -> str:
        """The extra of dpdist that brings what reads it."""
        return self.kind

    @property
    @abstractmethod
    def identity(self) -> str:
        """What tells it from others, without the snapshot."""

    @property
    def tallies(self) -> Sequence[UnreadRecords]:
        """Of the files that dpdist itself has read for it."""
        return ()

    def read_files(self) -> TableFiles | None:
        """What its metadata say of its files; None where it has none, as a query."""
        return None

    @abstractmethod
    def open_records(
        self, uses: Mapping[str, Use], spill: Path, memory_bytes: int
    ) -> AbstractContextManager[tuple[str, ArrowStream]]:
        """The snapshot ("" where there is none) and its records, for a block: no other columns than the used ones are asked for.

        Args:
            uses: what each column is counted as.
            spill: a private folder, to be made, for what does not fit into ``memory_bytes``.
        """


def read_table_files(table: RecordTable) -> TableFiles | None:
    """What the metadata of a table say of its files; None where it has none. Raises: InvalidSpec, without the driver's text."""
    with _hide_driver_text(table.kind):
        return table.read_files()


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
    check: Callable[[UnreadRecords], None] = lambda _: None,
) -> Extract:
    """The records of a table as they were first read for a release: the columns that are counted, in an order of their own.

    Args:
        folder: the folder for them (``dpdist.runtime.extract_files``).
        uses: what each column is counted as.
        types: of columns, as declared.
        check: refuses files of which too much could not be read.
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
            _write_in_order(records, uses, types or {}, work, memory_budget, table.extra)
        for tally in table.tallies:
            check(tally)
        path = folder / f"{name}@{snapshot}.parquet"
        return Extract(rename(work / "records.parquet", path), snapshot)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        lease.end()


def _facts(uses: Mapping[str, Use], types: Mapping[str, ColumnType] | None) -> str:
    return json.dumps([sorted(uses.items()), sorted((types or {}).items())])


def _write_in_order(
    records: ArrowStream, uses: Mapping[str, Use], types: Mapping[str, ColumnType], work: Path, memory_bytes: int, extra: str
) -> None:
    """Write what is counted of records, whose order and whose types follow from these alone."""
    import pyarrow as pa

    failed: list[Exception] = []
    projected_records = project_columns(pa.RecordBatchReader.from_stream(records), uses, types)
    with (
        reraise_first_failure(failed),
        sort_records(_record_failures(projected_records, failed), len(uses), work / "order", memory_bytes, extra) as rows,
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
def reraise_first_failure(failed: list[Exception]) -> Iterator[None]:
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

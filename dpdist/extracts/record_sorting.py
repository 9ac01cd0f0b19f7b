"""DuckDB as dpdist uses it: it spills into a private folder of bounded size, and reads no file but the database that it is given."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpdist.errors import InvalidInput, InvalidSpec
from dpdist.sources.optional_packages import package

if TYPE_CHECKING:
    import pyarrow as pa

    from dpdist.sources.record_sources import ArrowStream

LEAST_BYTES = 64 * 2**20
_OUT_OF_MEMORY_TEXT = "Out of Memory Error"
"""What DuckDB says where Arrow passes its error on as one of the system."""
DISK_GIB, DEFAULT_GIB = "DPDIST_QUERY_DISK_GIB", 16.0
"""An environment variable of the process that reads the records: neither a spec nor a client of the measuring service sets it."""


def environment_limit(name: str, default: float) -> float:
    """The limit that an environment variable sets, or its default. Raises: InvalidInput."""
    text = os.environ.get(name)
    try:
        value = default if not text else float(text)
    except ValueError:
        value = math.nan
    if not (0 < value < math.inf):
        raise InvalidInput(f"{name} is {text!r}; give a number above 0, or leave it out for {default:g}")
    return value


def disk_gib() -> float:
    """What a query, or the sorting of records, may write into its folder of temporary files."""
    return environment_limit(DISK_GIB, DEFAULT_GIB)


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
            f"SET max_temp_directory_size = '{int(disk_gib() * 2**30)}B'; "  # as a part of 'config' it would bound nothing (2.0.0)
            "SET TimeZone = 'UTC'; SET enable_external_access = false; SET lock_configuration = true"
        ).fetchall()
        try:
            yield connection
        except (duckdb.OutOfMemoryException, OSError) as error:
            if isinstance(error, OSError) and _OUT_OF_MEMORY_TEXT not in str(error):
                raise
            raise InvalidSpec(
                f"reading the records needs more than its part of the memory and {disk_gib():g} GiB of disk; make the query do less, or "
                f"raise {DISK_GIB}"
            ) from None


@contextmanager
def sort_records(
    records: ArrowStream, columns: int, spill: Path, memory_bytes: int, extra: str
) -> Iterator[pa.RecordBatchReader]:
    """Records in an order of their own, by a digest of each: which ones of a person count depends on these alone."""
    with open_connection(None, spill, memory_bytes, extra) as connection:
        connection.register("records", records)
        column_numbers = ", ".join(map(str, range(1, columns + 1)))
        yield connection.sql(f"SELECT * FROM records ORDER BY md5(records::VARCHAR), {column_numbers}").to_arrow_reader()

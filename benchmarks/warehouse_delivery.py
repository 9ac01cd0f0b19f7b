"""Memory that delivering into a warehouse takes beyond the program, by the number of rows.

    python benchmarks/warehouse_delivery.py [--rows 1000000 4000000] [--to delta iceberg postgres]

Each number is measured in a process of its own. For PostgreSQL DPDIST_WAREHOUSE names a database, whose table ``delivered`` is replaced.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from dpdist.pipeline.warehouse_delivery import BATCH_ROWS
from dpdist.spec.warehouse_target import TARGETS, PublishedRows

SCHEMA = pa.schema(
    [
        ("release", pa.string()),
        ("dataset", pa.string()),
        ("period", pa.date32()),
        ("certificate", pa.string()),
        ("group", pa.string()),
        ("query", pa.string()),
        ("answer", pa.float64()),
        ("standard_error", pa.float64()),
    ]
)


def rows_of_a_release(number: int) -> PublishedRows:
    """Synthetic answers, as a release of so many queries has them."""

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, number, BATCH_ROWS):
            count = min(BATCH_ROWS, number - start)
            constant = [pa.repeat(pa.scalar(value), count) for value in ("weekly", "visits")]
            queries = pa.array(
                [f"age {query} to {query + 17}, region {query % 97}" for query in range(start, start + count)]
            )
            numbers = pa.array([float(query) for query in range(start, start + count)])
            columns = [*constant, pa.nulls(count, pa.date32()), pa.repeat(pa.scalar("5c" * 32), count)]
            columns += [pa.repeat(pa.scalar("ranges"), count), queries, numbers, numbers]
            yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)

    return PublishedRows("weekly", None, "5c" * 32, number, SCHEMA, batches)


def measure(kind: str, number: int, folder: Path) -> None:
    """Deliver in this process and print the growth of its largest resident set, MiB."""
    os.environ["PYICEBERG_CATALOG__LAKE__URI"] = f"sqlite:///{folder}/catalog.db"
    os.environ["PYICEBERG_CATALOG__LAKE__WAREHOUSE"] = f"file://{folder}/lake"
    name = {"delta": str(folder / "answers"), "iceberg": "lake.privacy.answers", "postgres": "delivered"}[kind]
    target = TARGETS.parse({kind: name})
    target.write(rows_of_a_release(1000))  # imports, connections and the table's first version
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    target.write(rows_of_a_release(number))
    print(f"{(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024:.0f}")


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 4_000_000])
    parser.add_argument("--to", nargs="+", default=["delta", "iceberg"])
    parser.add_argument("--inside", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        kind, number, folder = options.inside
        measure(kind, int(number), Path(folder))
        return
    print("| to | rows | MiB |\n|---|---|---|")
    for kind in options.to:
        for number in options.rows:
            with tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, __file__, "--inside", kind, str(number), folder]
                grown = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
            print(f"| {kind} | {number:,} | {grown} |", flush=True)


if __name__ == "__main__":
    main()

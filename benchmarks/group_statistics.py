"""Counts, sums, means and variances of 10,000 groups of generated records, beside DuckDB's plain GROUP BY of the same file.

    python -m benchmarks.group_statistics --records 1000000 [--groups 10000] [--mechanism identity] [--workers 2] [--json]

The form of GovTech's benchmark of libraries for differential privacy: one column of groups, one of amounts. Groups are of equal expected
size, amounts are whole numbers from 0 to 100, each record is protected by itself, with rho 0.05. CPU times are of all
processes from the spec to the published folder. DuckDB publishes nothing and protects nobody: its time is what the statistics take at
least. ``*_error`` is the median over the groups of the relative error of what was published.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import yaml

from benchmarks.page_views import BATCH, measure_release
from dpdist.errors import DpdistError

MOST = 100
TRUTH = "count(*) AS n, sum(amount) AS total, avg(amount) AS mean, var_pop(amount) AS variance"


def write_records(path: Path, records: int, groups: int) -> None:
    """Records of groups with amounts, batch by batch, from a fixed seed."""
    state = np.random.default_rng(11)
    schema = pa.schema([("team", pa.int64()), ("amount", pa.int64())])
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for first in range(0, records, BATCH):
            size = min(BATCH, records - first)
            team = state.integers(0, groups, size)
            amounts = state.binomial(MOST, 0.2 + 0.6 * team / groups)
            writer.write_table(pa.table({"team": team, "amount": amounts}, schema=schema))


def write_spec(folder: Path, groups: int, mechanism: str) -> Path:
    """The spec of a release of these statistics."""
    by_team = {"marginals": {"of": [["team"]]}}
    budget = {"rho": 0.05}
    spec = {
        "release": "teams",
        "records": {"path": "records.parquet"},
        "domain": {"team": {"from": 0, "to": groups - 1}},
        "sums": {"amount": {"from": 0, "to": MOST, "missing": "drop"}},
        "mechanism": mechanism,
        "workload": [by_team, *({**by_team, statistic: "amount"} for statistic in ("sum", "mean", "variance"))],
        "budget": budget,
        "ledger": {"dataset": "teams", "cap": budget},
        "output": {"folder": str(folder / "published")},
    }
    path = folder / "teams.yaml"
    path.write_text(yaml.safe_dump(spec, sort_keys=False))
    return path


def aggregate_with_duckdb(path: Path) -> float:
    """CPU seconds of a plain GROUP BY with all four statistics."""
    import duckdb

    start = time.process_time()
    duckdb.execute(f"SELECT team, {TRUTH} FROM '{path}' GROUP BY team").fetchall()
    return time.process_time() - start


def median_errors(folder: Path, published: Path) -> dict[str, float]:
    """The median relative error of each statistic over the groups with records."""
    import duckdb

    tables = {
        "count": (f"SELECT team, answer AS value FROM '{published}/answers.csv' WHERE \"group\" = 'team'", "n"),
        "sum": (
            f"SELECT team, answer AS value FROM '{published}/answers.csv' WHERE \"group\" = 'sum of amount by team'",
            "total",
        ),
        "mean": (f"SELECT team, mean AS value FROM '{published}/means.csv'", "mean"),
        "variance": (f"SELECT team, value FROM '{published}/variances.csv' WHERE statistic = 'variance'", "variance"),
    }
    truth = f"(SELECT team, {TRUTH} FROM '{folder}/records.parquet' GROUP BY team)"
    errors = {}
    for name, (rows, column) in tables.items():
        ((count, error),) = duckdb.execute(
            f"SELECT count(*), median(abs(value / {column} - 1)) FROM ({rows}) AS rows JOIN {truth} AS truth "
            "ON CAST(rows.team AS BIGINT) = truth.team"
        ).fetchall()
        assert count > 0, name
        errors[f"{name}_error"] = round(error, 5)
    return errors


def measure(records: int, groups: int, mechanism: str, workers: int) -> dict[str, float | int | str]:
    """CPU time, memory, bytes and errors of a release, and DuckDB's CPU time; or why there is none."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_records(folder / "records.parquet", records, groups)
        duckdb_seconds = aggregate_with_duckdb(folder / "records.parquet")
        start = time.process_time()
        try:
            done, cost = measure_release(folder, write_spec(folder, groups, mechanism), workers, "folder")
        except DpdistError as error:
            return {
                "groups": groups,
                "mechanism": mechanism,
                "cpu_s": round(time.process_time() - start, 2),
                "refused": str(error),
            }
        errors = median_errors(folder, Path(done.folder))
        used = done.certificate["mechanism"]["name"]
        return {
            "records": records,
            "groups": groups,
            "mechanism": used,
            **cost,
            "duckdb_cpu_s": round(duckdb_seconds, 2),
            **errors,
        }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--mechanism", default="identity")
    parser.add_argument("--workers", type=int, default=0, help="processes of 4 GiB; none: in this process")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = measure(options.records, options.groups, options.mechanism, options.workers)
    print(json.dumps(result) if options.json else "\n".join(f"{name}: {value}" for name, value in result.items()))

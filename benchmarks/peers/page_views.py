"""Counts of page views by country and page from PipelineDP and Tumult Analytics, each in an environment of its own.

    python benchmarks/peers/page_views.py pipelinedp|tumult views.parquet

Ten rows a device, one view in each, rows selected by the system itself, Gaussian noise where it has the choice, epsilon 1 and delta 1e-6.
CPU seconds are of the process, and of the Java machine that Tumult starts, from reading the file to the last row.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

EPSILON, DELTA, ROWS = 1.0, 1e-6, 10


def count_with_pipelinedp(path: str) -> int:
    """How many rows it publishes."""
    import pipeline_dp
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path)
    views = list(zip(*(table[name].to_pylist() for name in ("device", "country", "page")), strict=True))
    accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=EPSILON, total_delta=DELTA)
    engine = pipeline_dp.DPEngine(accountant, pipeline_dp.LocalBackend())
    parameters = pipeline_dp.AggregateParams(
        metrics=[pipeline_dp.Metrics.COUNT],
        noise_kind=pipeline_dp.NoiseKind.GAUSSIAN,
        max_partitions_contributed=ROWS,
        max_contributions_per_partition=1,
    )
    extractors = pipeline_dp.DataExtractors(
        privacy_id_extractor=lambda view: view[0],
        partition_extractor=lambda view: (view[1], view[2]),
        value_extractor=lambda view: 0,
    )
    counts = engine.aggregate(views, parameters, extractors)
    accountant.compute_budgets()
    return len(list(counts))


def count_with_tumult(path: str) -> int:
    """How many rows it publishes."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession
    from tmlt.analytics import (
        AddRowsWithID,
        ApproxDPBudget,
        KeySet,
        MaxGroupsPerID,
        MaxRowsPerGroupPerID,
        QueryBuilder,
        Session,
    )

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.memory", "6g")
    views = builder.config("spark.sql.shuffle.partitions", "8").getOrCreate().read.parquet(path)
    budget = ApproxDPBudget(EPSILON, DELTA)
    session = Session.from_dataframe(budget, "views", views, protected_change=AddRowsWithID("device"))
    bounded = QueryBuilder("views").enforce(MaxGroupsPerID("page", ROWS)).enforce(MaxRowsPerGroupPerID("page", 1))
    half = ApproxDPBudget(EPSILON / 2, DELTA / 2)
    keys = session.evaluate(bounded.get_groups(["country", "page"]), half)
    counts = session.evaluate(bounded.groupby(KeySet.from_dataframe(keys)).count(), half)
    return int(counts.count())


def cpu_seconds() -> float:
    """Of this process and its children, which may still run."""
    total = time.process_time()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        fields = stat.read_text().rpartition(")")[2].split()
        if int(fields[1]) == os.getpid():
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


if __name__ == "__main__":
    count_rows = {"pipelinedp": count_with_pipelinedp, "tumult": count_with_tumult}[sys.argv[1]]
    rows = count_rows(sys.argv[2])
    print(json.dumps({"cpu_s": round(cpu_seconds(), 2), "rows": rows}))

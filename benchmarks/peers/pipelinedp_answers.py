"""PipelineDP (Apache-2.0), its local backend, with the noise that it takes of itself."""

from __future__ import annotations

import csv
from pathlib import Path

import pipeline_dp
from protocol import (
    AGES,
    DAYS,
    FLIGHTS,
    LEVELS,
    MOST_PAID,
    MOST_SPENT,
    PURCHASES,
    REGIONS,
    SPARSE,
    TABLES,
    TOWNS,
    WORLD,
    Answers,
    cells,
    in_table,
    key,
    main,
    running,
)

Rows = list[dict[str, str]]


def load(folder: str) -> dict[str, Rows]:
    found = {}
    for path in Path(folder).glob("*.csv"):
        with path.open(encoding="utf-8") as file:
            found[path.stem] = [{"customer": number, **row} for number, row in enumerate(csv.DictReader(file))]
    return found


def aggregate_rows(rows, by, public, metric, value=None, queries=1, lowest=0, highest=0, records=1):
    accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=1.0 / queries, total_delta=1e-6 / queries)
    engine = pipeline_dp.DPEngine(accountant, pipeline_dp.LocalBackend())
    extractors = pipeline_dp.DataExtractors(
        privacy_id_extractor=lambda row: row["customer"],
        partition_extractor=lambda row: key(*(row[name] for name in by)),
        value_extractor=lambda row: float(row[value]) if value else 0.0,
    )
    parameters = pipeline_dp.AggregateParams(
        metrics=[metric],
        max_partitions_contributed=records,
        max_contributions_per_partition=records,
        min_value=lowest,
        max_value=highest,
    )
    result = engine.aggregate(rows, parameters, extractors, public_partitions=public)
    accountant.compute_budgets()
    return {name: float(values[0]) for name, values in result}


def counted(rows, of):
    out = {}
    for by in of:
        out |= in_table(by, aggregate_rows(rows, by, cells(by), pipeline_dp.Metrics.COUNT, queries=len(of)))
    return out


def tables(data) -> Answers:
    return counted(data["people"], TABLES)


def prefix(data) -> Answers:
    return running(aggregate_rows(data["people"], ["age"], cells(("age",)), pipeline_dp.Metrics.COUNT), AGES)


def sums(data) -> Answers:
    return aggregate_rows(data["people"], ["region"], list(REGIONS), pipeline_dp.Metrics.SUM, "paid", highest=MOST_PAID)


def means(data) -> Answers:
    return aggregate_rows(data["people"], ["region"], list(REGIONS), pipeline_dp.Metrics.MEAN, "paid", highest=MOST_PAID)


def medians(data) -> Answers:
    return aggregate_rows(data["people"], ["region"], list(REGIONS), pipeline_dp.Metrics.PERCENTILE(50), "age", highest=99)


def flights(data) -> Answers:
    return counted(data["flights"], FLIGHTS)


def spent(data) -> Answers:
    sum_ = pipeline_dp.Metrics.SUM
    return aggregate_rows(data["purchases"], ["town"], list(TOWNS), sum_, "spent", highest=MOST_SPENT, records=PURCHASES)


def days(data) -> Answers:
    public = [key(day) for day in range(DAYS)]
    return running(
        aggregate_rows(data["purchases"], ["bought"], public, pipeline_dp.Metrics.COUNT, records=PURCHASES), range(DAYS)
    )


def levels(data) -> Answers:
    out = {}
    for name in LEVELS:
        found = aggregate_rows(data["births"], [name], WORLD[name], pipeline_dp.Metrics.COUNT, queries=len(LEVELS))
        out |= in_table((name,), found)
    return out


def sparse(data) -> Answers:
    return counted(data["adults"], SPARSE)


main(
    load,
    tables=tables,
    prefix=prefix,
    sums=sums,
    means=means,
    medians=medians,
    flights=flights,
    spent=spent,
    days=days,
    levels=levels,
    sparse=sparse,
)

"""PipelineDP (Apache-2.0), its local backend."""

from __future__ import annotations

import csv

import pipeline_dp
from protocol import AGES, MOST_PAID, REGIONS, TABLES, VALUES, Answers, key, main

Rows = list[dict[str, str]]
LAPLACE, GAUSSIAN = pipeline_dp.NoiseKind.LAPLACE, pipeline_dp.NoiseKind.GAUSSIAN


def load(path: str) -> Rows:
    with open(path, encoding="utf-8") as file:
        return [{**row, "person": number} for number, row in enumerate(csv.DictReader(file))]


def asked(data, by, public, metric, value=None, queries=1, lowest=0, highest=0):
    accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=1.0 / queries, total_delta=1e-6 / queries)
    engine = pipeline_dp.DPEngine(accountant, pipeline_dp.LocalBackend())
    extractors = pipeline_dp.DataExtractors(
        privacy_id_extractor=lambda row: row["person"],
        partition_extractor=lambda row: key(*(row[name] for name in by)),
        value_extractor=lambda row: float(row[value]) if value else 0.0,
    )
    parameters = pipeline_dp.AggregateParams(
        metrics=[metric],
        noise_kind=GAUSSIAN,
        max_partitions_contributed=1,
        max_contributions_per_partition=1,
        min_value=lowest,
        max_value=highest,
    )
    result = engine.aggregate(data, parameters, extractors, public_partitions=public)
    accountant.compute_budgets()
    return {name: float(values[0]) for name, values in result}


def tables(data: Rows) -> Answers:
    out = {}
    for of in TABLES:
        public = [""]
        for name in of:
            public = [f"{head}|{value}".strip("|") for head in public for value in VALUES[name]]
        out |= asked(data, of, public, pipeline_dp.Metrics.COUNT, queries=len(TABLES))
    return out


def prefix(data: Rows) -> Answers:
    counts = asked(data, ["age"], [key(age) for age in AGES], pipeline_dp.Metrics.COUNT)
    return {key(age): sum(counts[key(k)] for k in range(age + 1)) for age in AGES}


def sums(data: Rows) -> Answers:
    return asked(data, ["region"], list(REGIONS), pipeline_dp.Metrics.SUM, "paid", highest=MOST_PAID)


def means(data: Rows) -> Answers:
    return asked(data, ["region"], list(REGIONS), pipeline_dp.Metrics.MEAN, "paid", highest=MOST_PAID)


def medians(data: Rows) -> Answers:
    return asked(data, ["region"], list(REGIONS), pipeline_dp.Metrics.PERCENTILE(50), "age", highest=99)


main(load, tables=tables, prefix=prefix, sums=sums, means=means, medians=medians)

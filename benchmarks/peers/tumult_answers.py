"""Tumult Analytics (Apache-2.0), on Spark."""

from __future__ import annotations

import os
import sys

from protocol import AGES, MOST_PAID, TABLES, VALUES, Answers, key, main
from pyspark.sql import DataFrame, SparkSession
from tmlt.analytics import AddOneRow, ApproxDPBudget, KeySet, QueryBuilder, Session

os.environ["PYSPARK_PYTHON"] = sys.executable
BUDGET = ApproxDPBudget(1.0, 1e-6)


def load(path: str) -> DataFrame:
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
    return spark.read.csv(path, header=True, inferSchema=True)


def session(data: DataFrame) -> Session:
    return Session.from_dataframe(BUDGET, "people", data, protected_change=AddOneRow())


def values_of(frame: DataFrame, by: tuple[str, ...]) -> Answers:
    return {key(*(row[name] for name in by)): float(row[-1]) for row in frame.collect()}


def keys(*names: str) -> KeySet:
    return KeySet.from_dict({name: list(VALUES[name]) for name in names})


def tables(data: DataFrame) -> Answers:
    asked, out = session(data), {}
    for of in TABLES:
        query = QueryBuilder("people").groupby(keys(*of)).count()
        out |= values_of(asked.evaluate(query, ApproxDPBudget(1.0 / len(TABLES), 1e-6 / len(TABLES))), of)
    return out


def prefix(data: DataFrame) -> Answers:
    found = values_of(session(data).evaluate(QueryBuilder("people").groupby(keys("age")).count(), BUDGET), ("age",))
    return {key(age): sum(found[key(k)] for k in range(age + 1)) for age in AGES}


def sums(data: DataFrame) -> Answers:
    query = QueryBuilder("people").groupby(keys("region")).sum("paid", 0, MOST_PAID)
    return values_of(session(data).evaluate(query, BUDGET), ("region",))


def means(data: DataFrame) -> Answers:
    query = QueryBuilder("people").groupby(keys("region")).average("paid", 0, MOST_PAID)
    return values_of(session(data).evaluate(query, BUDGET), ("region",))


def medians(data: DataFrame) -> Answers:
    query = QueryBuilder("people").groupby(keys("region")).median("age", 0, 99)
    return values_of(session(data).evaluate(query, BUDGET), ("region",))


main(load, tables=tables, prefix=prefix, sums=sums, means=means, medians=medians)

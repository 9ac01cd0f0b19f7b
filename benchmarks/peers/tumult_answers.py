"""Tumult Analytics (Apache-2.0), on Spark."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from protocol import (
    AGES,
    DAYS,
    FLIGHTS,
    LEVELS,
    MOST_PAID,
    MOST_SPENT,
    PURCHASES,
    SPARSE,
    TABLES,
    VALUES,
    WORLD,
    Answers,
    in_table,
    key,
    main,
    running,
)
from pyspark.sql import DataFrame, SparkSession
from tmlt.analytics import AddMaxRows, AddOneRow, ApproxDPBudget, KeySet, QueryBuilder, Session

os.environ["PYSPARK_PYTHON"] = sys.executable
BUDGET = ApproxDPBudget(1.0, 1e-6)


def load(folder: str) -> dict[str, DataFrame]:
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
    paths = Path(folder).glob("*.csv")
    return {path.stem: spark.read.csv(str(path), header=True, inferSchema=True).cache() for path in paths}


def session(rows: DataFrame, records: int = 1) -> Session:
    change = AddOneRow() if records == 1 else AddMaxRows(records)
    return Session.from_dataframe(BUDGET, "records", rows, protected_change=change)


def values_of(frame: DataFrame, by: tuple[str, ...]) -> Answers:
    return {key(*(row[name] for name in by)): float(row[-1]) for row in frame.collect()}


def keys(of, values) -> KeySet:
    return KeySet.from_dict({name: list(values[name]) for name in of})


def counted(rows: DataFrame, tables, values) -> Answers:
    asked, out = session(rows), {}
    for of in tables:
        query = QueryBuilder("records").groupby(keys(of, values)).count()
        part = ApproxDPBudget(1.0 / len(tables), 1e-6 / len(tables))
        out |= in_table(of, values_of(asked.evaluate(query, part), of))
    return out


def tables(data) -> Answers:
    return counted(data["people"], TABLES, VALUES)


def prefix(data) -> Answers:
    query = QueryBuilder("records").groupby(keys(["age"], VALUES)).count()
    return running(values_of(session(data["people"]).evaluate(query, BUDGET), ("age",)), AGES)


def sums(data) -> Answers:
    query = QueryBuilder("records").groupby(keys(["region"], VALUES)).sum("paid", 0, MOST_PAID)
    return values_of(session(data["people"]).evaluate(query, BUDGET), ("region",))


def means(data) -> Answers:
    query = QueryBuilder("records").groupby(keys(["region"], VALUES)).average("paid", 0, MOST_PAID)
    return values_of(session(data["people"]).evaluate(query, BUDGET), ("region",))


def medians(data) -> Answers:
    query = QueryBuilder("records").groupby(keys(["region"], VALUES)).median("age", 0, 99)
    return values_of(session(data["people"]).evaluate(query, BUDGET), ("region",))


def flights(data) -> Answers:
    return counted(data["flights"], FLIGHTS, VALUES)


def spent(data) -> Answers:
    query = QueryBuilder("records").groupby(keys(["town"], VALUES)).sum("spent", 0, MOST_SPENT)
    return values_of(session(data["purchases"], PURCHASES).evaluate(query, BUDGET), ("town",))


def days(data) -> Answers:
    query = QueryBuilder("records").groupby(keys(["bought"], VALUES)).count()
    return running(values_of(session(data["purchases"], PURCHASES).evaluate(query, BUDGET), ("bought",)), range(DAYS))


def levels(data) -> Answers:
    return counted(data["births"], [(name,) for name in LEVELS], WORLD)


def sparse(data) -> Answers:
    return counted(data["adults"], SPARSE, VALUES)


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

"""OpenDP (MIT), its Context over Polars."""

from __future__ import annotations

import opendp.prelude as dp
import polars as pl
from protocol import AGES, MOST_PAID, TABLES, VALUES, Answers, key, main

dp.enable_features("contrib")
LOSS = dp.loss_of(epsilon=1.0, delta=1e-6)


def load(path: str) -> pl.LazyFrame:
    return pl.LazyFrame(pl.read_csv(path), schema={"region": pl.String, "sex": pl.String, "age": pl.Int64, "paid": pl.Int64})


def context(data: pl.LazyFrame, queries: int) -> dp.Context:
    return dp.Context.compositor(
        data=data,
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=LOSS,
        split_evenly_over=queries,
        margins=[dp.polars.Margin(by=list(of), invariant="keys") for of in TABLES]
        + [dp.polars.Margin(by=[], max_length=100_000)],
    )


def tables(data: pl.LazyFrame) -> Answers:
    asked = context(data, len(TABLES))
    out = {}
    for of in TABLES:
        keys = pl.LazyFrame(VALUES[of[0]], schema=[of[0]])
        for name in of[1:]:
            keys = keys.join(pl.LazyFrame(VALUES[name], schema=[name]), how="cross")
        query = asked.query().group_by(*of).agg(dp.len()).with_keys(keys)
        for row in query.release().collect().iter_rows():
            out[key(*row[:-1])] = row[-1]
    return out


def prefix(data: pl.LazyFrame) -> Answers:
    asked = context(data, 1)
    counts = asked.query().group_by("age").agg(dp.len()).release().collect()
    found = dict(counts.iter_rows())
    return {key(age): sum(found.get(k, 0) for k in range(age + 1)) for age in AGES}


def sums(data: pl.LazyFrame) -> Answers:
    query = context(data, 1).query().group_by("region").agg(pl.col.paid.cast(int).fill_null(0).dp.sum((0, MOST_PAID)))
    return {key(region): total for region, total in query.release().collect().iter_rows()}


def means(data: pl.LazyFrame) -> Answers:
    query = context(data, 1).query().group_by("region").agg(pl.col.paid.cast(int).fill_null(0).dp.mean((0, MOST_PAID)))
    return {key(region): value for region, value in query.release().collect().iter_rows()}


def medians(data: pl.LazyFrame) -> Answers:
    age = pl.col.age.cast(int).fill_null(0).dp.median(list(AGES))
    query = context(data, 1).query().group_by("region").agg(age)
    return {key(region): value for region, value in query.release().collect().iter_rows()}


main(load, tables=tables, prefix=prefix, sums=sums, means=means, medians=medians)

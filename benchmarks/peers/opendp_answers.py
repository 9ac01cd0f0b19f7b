"""OpenDP (MIT), its Context over Polars."""

from __future__ import annotations

from pathlib import Path

import opendp.prelude as dp
import polars as pl
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
    TOWNS,
    VALUES,
    WORLD,
    Answers,
    in_table,
    key,
    main,
    running,
)

dp.enable_features("contrib")
LOSS = dp.loss_of(epsilon=1.0, delta=1e-6)


def load(folder: str) -> dict[str, pl.LazyFrame]:
    return {path.stem: pl.read_csv(path).lazy() for path in Path(folder).glob("*.csv")}


def context(rows: pl.LazyFrame, groups, queries: int = 1, records: int = 1) -> dp.Context:
    return dp.Context.compositor(
        data=rows,
        privacy_unit=dp.unit_of(contributions=records),
        privacy_loss=LOSS,
        split_evenly_over=queries,
        margins=[dp.polars.Margin(by=list(of), invariant="keys") for of in groups]
        + [dp.polars.Margin(by=[], max_length=100_000)],
    )


def counted(rows: pl.LazyFrame, tables, values) -> Answers:
    asked = context(rows, tables, len(tables))
    out = {}
    for of in tables:
        keys = pl.LazyFrame({of[0]: list(values[of[0]])})
        for name in of[1:]:
            keys = keys.join(pl.LazyFrame({name: list(values[name])}), how="cross")
        query = asked.query().group_by(*of).agg(dp.len()).with_keys(keys)
        out |= in_table(of, {key(*row[:-1]): row[-1] for row in query.release().collect().iter_rows()})
    return out


def by_group(query) -> Answers:
    return {key(group): float(value) for group, value in query.release().collect().iter_rows()}


def tables(data) -> Answers:
    return counted(data["people"], TABLES, VALUES)


def prefix(data) -> Answers:
    keys = pl.LazyFrame({"age": list(AGES)})
    query = context(data["people"], [["age"]]).query().group_by("age").agg(dp.len()).with_keys(keys)
    return running(by_group(query), AGES)


def sums(data) -> Answers:
    total = pl.col.paid.cast(int).fill_null(0).dp.sum((0, MOST_PAID))
    return by_group(context(data["people"], [["region"]]).query().group_by("region").agg(total))


def means(data) -> Answers:
    mean = pl.col.paid.cast(int).fill_null(0).dp.mean((0, MOST_PAID))
    return by_group(context(data["people"], [["region"]]).query().group_by("region").agg(mean))


def medians(data) -> Answers:
    age = pl.col.age.cast(int).fill_null(0).dp.median(list(AGES))
    return by_group(context(data["people"], [["region"]]).query().group_by("region").agg(age))


def flights(data) -> Answers:
    return counted(data["flights"], FLIGHTS, VALUES)


def spent(data) -> Answers:
    total = pl.col.spent.cast(float).fill_nan(0.0).fill_null(0.0).dp.sum((0.0, float(MOST_SPENT)))
    asked = context(data["purchases"], [["town"]], records=PURCHASES)
    return by_group(asked.query().group_by("town").agg(total).with_keys(pl.LazyFrame({"town": list(TOWNS)})))


def days(data) -> Answers:
    keys = pl.LazyFrame({"bought": list(range(DAYS))})
    asked = context(data["purchases"], [["bought"]], records=PURCHASES)
    return running(by_group(asked.query().group_by("bought").agg(dp.len()).with_keys(keys)), range(DAYS))


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

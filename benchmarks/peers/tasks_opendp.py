"""OpenDP (MIT), its Context over Polars: five tasks. Run by tasks.py."""

import sys

import opendp.prelude as dp
import polars as pl

dp.enable_features("contrib")
BRANCHES = ["Centre", "North", "Harbour"]
AGES = [0, 12, 18, 25, 35, 50, 65, 80, 100]


def context(path, queries=1, epsilon=1.0):
    return dp.Context.compositor(
        data=pl.scan_csv(path, schema_overrides={"age": pl.Float64, "minutes": pl.Float64}),
        privacy_unit=dp.unit_of(contributions=1, identifier="card"),
        privacy_loss=dp.loss_of(epsilon=epsilon, delta=1e-6),
        split_evenly_over=queries,
        margins=[dp.polars.Margin(max_length=100_000)],
    )


def tables(path):
    asked = context(path, 3)
    keys = pl.LazyFrame({"branch": BRANCHES})
    band = pl.col("age").fill_null(0.0).fill_nan(0.0).cut(AGES[1:-1], left_closed=True).cast(pl.String).alias("band")
    bands = pl.Series("age", [float(age) for age in AGES[:-1]]).cut(AGES[1:-1], left_closed=True).cast(pl.String)
    bins = pl.LazyFrame({"band": bands})
    query = asked.query().truncate_per_group(5).with_columns(band)
    for by, wanted in ((["branch"], keys), (["band"], bins), (["branch", "band"], keys.join(bins, how="cross"))):
        counts = query.group_by(*by).agg(dp.len()).with_keys(wanted)
        print(counts.summarize(alpha=0.05))  # scale and 95 % half width, before it is released
        print(counts.release().collect())


def means(path):
    minutes = pl.col("minutes").fill_null(0.0).fill_nan(0.0).dp.sum((0.0, 240.0))
    keys = pl.LazyFrame({"branch": BRANCHES})
    query = context(path).query().truncate_per_group(5).group_by("branch").agg(minutes, dp.len()).with_keys(keys)
    print(query.summarize(alpha=0.05))
    print(query.release().collect().with_columns(mean=pl.col("minutes") / pl.col("len")))


def medians(path):
    age = pl.col("age").fill_null(0.0).fill_nan(0.0).dp.median([float(age) for age in range(100)])
    keys = pl.LazyFrame({"branch": BRANCHES})
    query = context(path).query().truncate_per_group(5).group_by("branch").agg(age).with_keys(keys)
    print(query.summarize(alpha=0.05))
    print(query.release().collect())


def visitors(path):
    keys = pl.LazyFrame({"branch": BRANCHES})
    query = context(path).query().truncate_per_group(5).group_by("branch").agg(pl.col("card").dp.n_unique()).with_keys(keys)
    print(query.summarize(alpha=0.05))
    print(query.release().collect())


def year(path):
    asked, keys = context(path, 2, epsilon=2.0), pl.LazyFrame({"branch": BRANCHES})
    for _ in range(2):
        query = asked.query().truncate_per_group(5).group_by("branch").agg(dp.len()).with_keys(keys)
        print(query.release().collect())
    try:
        asked.query().truncate_per_group(5).group_by("branch").agg(dp.len()).with_keys(keys).release()
    except ValueError as refused:
        print("REFUSED", refused)


globals()[sys.argv[1]](sys.argv[2])

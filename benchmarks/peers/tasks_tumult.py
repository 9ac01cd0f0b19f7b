"""Tumult Analytics (Apache-2.0), on Spark: five tasks. Run by tasks.py."""

import os
import sys

os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
from tmlt.analytics import AddRowsWithID, ApproxDPBudget, BinningSpec, KeySet, MaxRowsPerID, QueryBuilder, Session

BRANCHES = KeySet.from_dict({"branch": ["Centre", "North", "Harbour"]})
AGES = BinningSpec([0.0, 12.0, 18.0, 25.0, 35.0, 50.0, 65.0, 80.0, 100.0], right=False)
BANDS = KeySet.from_dict({"band": AGES.bins()})


def session(path, epsilon=1.0):
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
    rows = spark.read.csv(path, header=True, inferSchema=True)
    return Session.from_dataframe(ApproxDPBudget(epsilon, 1e-6), "visits", rows, protected_change=AddRowsWithID("card"))


def bounded():
    return QueryBuilder("visits").enforce(MaxRowsPerID(5))


def tables(path):
    asked, part = session(path), ApproxDPBudget(1.0 / 3, 1e-6 / 3)
    binned = bounded().bin_column("age", AGES, name="band")
    for keys in (BRANCHES, BANDS, BRANCHES * BANDS):
        asked.evaluate(binned.groupby(keys).count(), part).show()


def means(path):
    session(path).evaluate(bounded().groupby(BRANCHES).average("minutes", 0, 240), ApproxDPBudget(1.0, 1e-6)).show()


def medians(path):
    session(path).evaluate(bounded().groupby(BRANCHES).median("age", 0, 100), ApproxDPBudget(1.0, 1e-6)).show()


def visitors(path):
    query = bounded().groupby(BRANCHES).count_distinct(["card"])
    session(path).evaluate(query, ApproxDPBudget(1.0, 1e-6)).show()


def year(path):
    asked, part, query = session(path, 2.0), ApproxDPBudget(1.0, 5e-7), bounded().groupby(BRANCHES).count()
    for _ in range(2):
        asked.evaluate(query, part).show()
    try:
        asked.evaluate(query, part).show()
    except RuntimeError as refused:
        print("REFUSED", refused)


globals()[sys.argv[1]](sys.argv[2])

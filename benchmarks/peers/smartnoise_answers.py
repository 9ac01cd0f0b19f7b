"""SmartNoise SQL (MIT), over pandas."""

from __future__ import annotations

import pandas
import snsql
from protocol import AGES, MOST_PAID, TABLES, Answers, key, main

COLUMNS = {
    "person": {"type": "int", "private_id": True},
    "region": {"type": "string"},
    "sex": {"type": "string"},
    "age": {"type": "int", "lower": 0, "upper": 99},
    "paid": {"type": "int", "lower": 0, "upper": MOST_PAID},
}
METADATA = {"": {"": {"people": {"max_ids": 1, "censor_dims": False, "row_privacy": False, **COLUMNS}}}}


def load(path: str) -> pandas.DataFrame:
    return pandas.read_csv(path).reset_index(names="person")


def asked(data: pandas.DataFrame, sql: str, queries: int = 1) -> list[list]:
    privacy = snsql.Privacy(epsilon=1.0 / queries, delta=1e-6 / queries)
    return snsql.from_df(data, privacy=privacy, metadata=METADATA).execute(sql)[1:]


def tables(data: pandas.DataFrame) -> Answers:
    out = {}
    for of in TABLES:
        names = ", ".join(of)
        rows = asked(data, f"SELECT {names}, COUNT(*) AS n FROM people GROUP BY {names}", len(TABLES))
        out |= {key(*row[:-1]): float(row[-1]) for row in rows}
    return out


def prefix(data: pandas.DataFrame) -> Answers:
    found = dict(asked(data, "SELECT age, COUNT(*) AS n FROM people GROUP BY age"))
    return {key(age): float(sum(found.get(k, 0) for k in range(age + 1))) for age in AGES}


def sums(data: pandas.DataFrame) -> Answers:
    return {key(r): float(n) for r, n in asked(data, "SELECT region, SUM(paid) AS n FROM people GROUP BY region")}


def means(data: pandas.DataFrame) -> Answers:
    return {key(r): float(n) for r, n in asked(data, "SELECT region, AVG(paid) AS n FROM people GROUP BY region")}


main(load, tables=tables, prefix=prefix, sums=sums, means=means)

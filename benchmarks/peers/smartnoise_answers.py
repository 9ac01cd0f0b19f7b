"""SmartNoise SQL (MIT), over pandas."""

from __future__ import annotations

from pathlib import Path

import pandas
import snsql
from protocol import (
    AGES,
    CODES,
    DAYS,
    FLIGHTS,
    LEVELS,
    MOST_PAID,
    MOST_SPENT,
    PURCHASES,
    SPARSE,
    TABLES,
    Answers,
    in_table,
    key,
    main,
    running,
)

TEXT = {name: {"type": "string"} for name in ("region", "sex", "subregion", "born", "town")}
WHOLE = {name: {"type": "int"} for name in ("departure", "delay", "bought", *CODES)}
NUMBERS = {
    "age": {"type": "int", "lower": 0, "upper": 99},
    "paid": {"type": "int", "lower": 0, "upper": MOST_PAID},
    "spent": {"type": "float", "lower": 0.0, "upper": float(MOST_SPENT)},
}
COLUMNS = {**TEXT, **WHOLE, **NUMBERS}


def load(folder: str) -> dict[str, pandas.DataFrame]:
    found = {path.stem: pandas.read_csv(path) for path in Path(folder).glob("*.csv")}
    return {name: rows if "customer" in rows else rows.reset_index(names="customer") for name, rows in found.items()}


def query_rows(rows: pandas.DataFrame, sql: str, queries: int = 1, records: int = 1) -> list[list]:
    columns = {name: COLUMNS[name] for name in rows.columns if name != "customer"}
    person = {"type": "string" if records > 1 else "int", "private_id": True}
    options = {"max_ids": records, "censor_dims": False, "row_privacy": False}
    metadata = {"": {"": {"records": {**options, "customer": person, **columns}}}}
    privacy = snsql.Privacy(epsilon=1.0 / queries, delta=1e-6 / queries)
    return snsql.from_df(rows, privacy=privacy, metadata=metadata).execute(sql)[1:]


def counted(rows: pandas.DataFrame, tables) -> Answers:
    out = {}
    for of in tables:
        names = ", ".join(of)
        found = query_rows(rows, f"SELECT {names}, COUNT(*) AS n FROM records GROUP BY {names}", len(tables))
        out |= in_table(of, {key(*row[:-1]): row[-1] for row in found})
    return out


def by_group(rows: pandas.DataFrame, name: str, what: str, records: int = 1) -> Answers:
    found = query_rows(rows, f"SELECT {name}, {what} AS n FROM records GROUP BY {name}", records=records)
    return {key(group): float(value) for group, value in found}


def tables(data) -> Answers:
    return counted(data["people"], TABLES)


def prefix(data) -> Answers:
    return running(by_group(data["people"], "age", "COUNT(*)"), AGES)


def sums(data) -> Answers:
    return by_group(data["people"], "region", "SUM(paid)")


def means(data) -> Answers:
    return by_group(data["people"], "region", "AVG(paid)")


def flights(data) -> Answers:
    return counted(data["flights"], FLIGHTS)


def spent(data) -> Answers:
    return by_group(data["purchases"], "town", "SUM(spent)", PURCHASES)


def days(data) -> Answers:
    return running(by_group(data["purchases"], "bought", "COUNT(*)", PURCHASES), range(DAYS))


def levels(data) -> Answers:
    return counted(data["births"], [(name,) for name in LEVELS])


def sparse(data) -> Answers:
    return counted(data["adults"], SPARSE)


main(
    load,
    tables=tables,
    prefix=prefix,
    sums=sums,
    means=means,
    flights=flights,
    spent=spent,
    days=days,
    levels=levels,
    sparse=sparse,
)

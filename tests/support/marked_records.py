"""Records with a marker in every place that a record may make, written to every source that the code reads."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

from dpdist.plugin_registry import missing_plugin

MARK = "SECRETJANE"
ROWS = 60
DOMAIN = {"age": {"from": 0, "to": 11}, "sex": {"categories": ["f", "m"], "outside": "error"}}
GOOD = pa.table(
    {
        "age": np.arange(ROWS) % 12,
        "sex": ["f", "m"] * (ROWS // 2),
        "person": [f"{MARK}{number}" for number in range(ROWS)],
        MARK: [MARK] * ROWS,
    }
)
Given = dict[str, Any]


def replaced(name: str, values: Any) -> pa.Table:
    return GOOD.set_column(GOOD.column_names.index(name), name, values if isinstance(values, pa.Array) else pa.array(values))


FAULTS: dict[str, pa.Table] = {
    "column missing": GOOD.drop_columns(["sex"]),
    "value outside": replaced("sex", [MARK, *["f"] * (ROWS - 1)]),
    "struct": replaced("sex", [{MARK: 1}] * ROWS),
    "list": replaced("age", [[MARK]] * ROWS),
    "text for a number": replaced("age", [MARK] * ROWS),
    "dictionary for a number": replaced("age", pa.array([MARK] * ROWS).dictionary_encode()),
    "dictionary outside": replaced("sex", pa.array([MARK, *["f"] * (ROWS - 1)]).dictionary_encode()),
    "person is a struct": replaced("person", [{MARK: 1}] * ROWS),
    "person missing": replaced("person", [None, *[MARK] * (ROWS - 1)]),
}


def csv_table(table: pa.Table) -> pa.Table:
    """The table with texts in place of what CSV cannot hold."""
    return pa.table(
        {
            name: pa.array([None if each is None else str(each) for each in column.to_pylist()])
            if pa.types.is_nested(column.type)
            else column.cast(column.type.value_type)
            if pa.types.is_dictionary(column.type)
            else column
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
    )


def as_csv(table: pa.Table, folder: Path) -> Given:
    pyarrow.csv.write_csv(csv_table(table), folder / "x.csv")
    return {"path": "x.csv"}


def as_bare_csv(table: pa.Table, folder: Path) -> Given:
    pyarrow.csv.write_csv(csv_table(table), folder / "x.csv", pyarrow.csv.WriteOptions(include_header=False))
    return {"path": "x.csv", "header": [name if name != MARK else "rest" for name in table.column_names]}


def as_gz(table: pa.Table, folder: Path) -> Given:
    with gzip.open(folder / "x.csv.gz", "wb") as file:
        pyarrow.csv.write_csv(csv_table(table), file)
    return {"path": "x.csv.gz"}


def as_json_lines(table: pa.Table, folder: Path) -> Given:
    lines = (json.dumps(row, default=str) + "\n" for row in csv_table(table).to_pylist())
    (folder / "x.jsonl").write_text("".join(lines), encoding="utf-8")
    return {"path": "x.jsonl"}


def as_parquet(table: pa.Table, folder: Path) -> Given:
    pyarrow.parquet.write_table(table, folder / "x.parquet")
    return {"path": "x.parquet"}


def as_arrow(table: pa.Table, folder: Path) -> Given:
    pyarrow.feather.write_feather(table, str(folder / "x.arrow"), compression="uncompressed")
    return {"path": "x.arrow"}


def as_folder(table: pa.Table, folder: Path) -> Given:
    (folder / "all" / MARK).mkdir(parents=True)
    pyarrow.parquet.write_table(table[:20], folder / "all" / f"{MARK}.parquet")
    pyarrow.csv.write_csv(csv_table(table[20:]), folder / "all" / MARK / f"{MARK}.csv")
    return {"path": "all", "person": {"column": "person", "type": "text"}}


def as_hive(table: pa.Table, folder: Path) -> Given:
    """Folders name 'sex', where the table has it, and something that nobody asks for."""
    for number, name in enumerate(("f", "m")):
        place = folder / "all" / f"{MARK}={MARK}" / f"{'sex' if 'sex' in table.column_names else MARK}={name}"
        place.mkdir(parents=True)
        rest = table.drop_columns([each for each in ("sex", MARK) if each in table.column_names])
        pyarrow.parquet.write_table(rest[number::2], place / f"{MARK}.parquet")
    if "sex" in table.column_names and not table["sex"].equals(GOOD["sex"]):
        (folder / "all" / f"{MARK}={MARK}" / "sex=m").rename(folder / "all" / f"{MARK}={MARK}" / f"sex={MARK}")
    return {"path": "all"}


def as_sql(table: pa.Table, folder: Path) -> Given:
    pyarrow.parquet.write_table(table, folder / f"{MARK}.parquet")
    return {"sql": "SELECT * FROM '*.parquet'", "types": {"age": "whole", "sex": "text", "person": "text"}}


def as_database(table: pa.Table, folder: Path) -> Given:
    with duckdb.connect(str(folder / "x.duckdb")) as db:
        db.register("given", table)
        db.execute("CREATE TABLE visit AS SELECT * FROM given")
    os.environ["DPDIST_TEST_SHOP"] = str(folder / "x.duckdb")
    return {"sql": "SELECT * FROM visit", "connection": "$DPDIST_TEST_SHOP"}


def as_delta(table: pa.Table, folder: Path) -> Given:
    import deltalake

    deltalake.write_deltalake(str(folder / "lake"), csv_table(table))
    return {"delta": "lake"}


def as_iceberg(table: pa.Table, folder: Path) -> Given:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.utils.config import Config

    os.environ["PYICEBERG_CATALOG__LAKE__URI"] = f"sqlite:///{folder}/catalog.db"
    os.environ["PYICEBERG_CATALOG__LAKE__WAREHOUSE"] = f"file://{folder}/lake"
    pytest.MonkeyPatch().setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    catalog = load_catalog("lake")
    catalog.create_namespace("shop")
    catalog.create_table("shop.visits", csv_table(table).schema).append(csv_table(table))
    return {"iceberg": "lake.shop.visits"}


Writer = Callable[[pa.Table, Path], Given]
OF_PLUGINS: dict[str, tuple[str, Writer]] = {
    "query": ("records.sql", as_sql),
    "query of a database": ("records.sql", as_database),
    "delta": ("records.delta", as_delta),
    "iceberg": ("records.iceberg", as_iceberg),
}
SOURCES: dict[str, Writer] = {
    "csv": as_csv,
    "json lines": as_json_lines,
    "csv without names": as_bare_csv,
    "csv.gz": as_gz,
    "parquet": as_parquet,
    "arrow": as_arrow,
    "folder": as_folder,
    "hive": as_hive,
    **{name: writer for name, (key, writer) in OF_PLUGINS.items() if not missing_plugin(key)},
}

"""What the extras bring, as installed: a query in DuckDB, tables of Delta and Iceberg, answers for notebooks, losses composed exactly."""

from __future__ import annotations

import json
import os
from fractions import Fraction
from pathlib import Path

os.environ["PYICEBERG_CATALOG__LAKE__URI"] = f"sqlite:///{Path.cwd()}/catalog.db"
os.environ["PYICEBERG_CATALOG__LAKE__WAREHOUSE"] = f"file://{Path.cwd()}/lake"
os.environ["SHOP"] = str(Path.cwd() / "shop.duckdb")

import adbc_driver_postgresql
import deltalake
import duckdb
import openlineage.client
import opentelemetry.exporter.otlp.proto.http.trace_exporter
import psycopg
import sqlalchemy
from pyiceberg.catalog import load_catalog

import dpdist as dp
from dpdist.privacy import accounting, keys

with duckdb.connect(os.environ["SHOP"]) as db:
    db.sql(
        "CREATE TABLE visit AS SELECT i % 12 AS age, CASE WHEN i % 3 = 0 THEN 'f' ELSE 'm' END AS sex FROM range(600) AS r(i)"
    )
keys.initialise(Path("home").resolve())
spec = {
    "release": "shop",
    "records": {"sql": "SELECT age, sex FROM visit", "connection": "$SHOP"},
    "domain": {"age": {"from": 0, "to": 11}, "sex": {"categories": ["f", "m"]}},
    "workload": [{"marginals": {"ways": [1, 2]}}],
    "budget": {"epsilon": 1, "delta": 1e-6},
    "ledger": {"dataset": "shop", "cap": {"epsilon": 2, "delta": 1e-6}},
    "output": {"to": [{"delta": str(Path.cwd() / "delta")}, {"iceberg": "lake.privacy.answers"}]},
}
answers = dp.run(spec, engine="inline").answers
found = {
    "arrow": answers.arrow.num_rows,
    "pandas": len(answers.pandas()),
    "polars": len(answers.polars()),
    "xarray": sum(int(each["answer"].size) for each in answers.xarray().values()),
    "delta": deltalake.DeltaTable("delta").to_pyarrow_table().num_rows,
    "iceberg": load_catalog("lake").load_table("privacy.answers").scan().to_arrow().num_rows,
}
assert 0.5 < accounting.pld_epsilon([accounting.Loss(rho=Fraction(1, 20))], 1e-6) < 2
assert sqlalchemy.create_engine("postgresql+psycopg://user@host/ledger").dialect.dbapi.__name__ == psycopg.__name__
assert adbc_driver_postgresql.__version__
for used in (openlineage.client.OpenLineageClient, opentelemetry.exporter.otlp.proto.http.trace_exporter.OTLPSpanExporter):
    assert isinstance(used, type)
print(json.dumps(found))

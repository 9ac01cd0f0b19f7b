"""Tables in memory: the columns that are counted are taken or refused with a cure, and no other column matters."""

from __future__ import annotations

import datetime
import decimal
import importlib
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

import dpdist as dp
from dpdist.errors import InvalidInput, InvalidSpec
from dpdist.privacy.keys import Secret
from dpdist.sources.formats.column_conversion import texts_of
from dpdist.sources.frames import write_records

ROOT = Secret(bytes(range(32)))
B = ["a", "b"]
UUIDS = [uuid.UUID(int=1), uuid.UUID(int=2**127)]
UUID_TEXTS = [str(each) for each in UUIDS]
TODAY = datetime.date(2026, 9, 1)


def polars() -> Any:
    return importlib.import_module("polars")  # starts threads, after which nobody can fork


def series(values: Any, kind: str, *arguments: Any) -> Any:
    return polars().Series("b", values, dtype=getattr(polars(), kind)(*arguments) if arguments else getattr(polars(), kind))


def frame_with_column(values: Any) -> pd.DataFrame:
    return pd.DataFrame({"b": B, "x": values})


def beside_polars(values: Any) -> Any:
    return polars().DataFrame({"b": B, "x": values})


def stream(table: pa.Table) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=1))


TAKEN: dict[str, tuple[Callable[[], Any], Sequence[str | None]]] = {
    "pandas, mixed objects beside": (lambda: frame_with_column([1, "x"]), B),
    "pandas, cut beside": (lambda: frame_with_column(pd.cut([1, 2], [0, 1, 2])), B),
    "pandas, sparse beside": (lambda: frame_with_column(pd.arrays.SparseArray([0, 1])), B),
    "pandas, complex beside": (lambda: frame_with_column([1j, 2]), B),
    "pandas, large whole numbers beside": (lambda: frame_with_column([2**70, 1]), B),
    "pandas, categories of mixed objects beside": (lambda: frame_with_column(pd.Categorical([1, "b"])), B),
    "pandas, long doubles beside": (lambda: frame_with_column(np.array([1, 2], dtype=np.longdouble)), B),
    "pandas, sets beside": (lambda: frame_with_column([{1}, {"x"}]), B),
    "pandas, a name twice beside": (lambda: pd.DataFrame([["a", 1, 2], ["b", 3, 4]], columns=["b", "x", "x"]), B),
    "pandas, names that are no texts": (lambda: pd.DataFrame({"b": B, 7: [1, "x"], (1, 2): [1, 2]}), B),
    "pandas, an index of mixed objects": (lambda: pd.DataFrame({"b": B}, index=pd.Index([1, "x"], name="mixed")), B),
    "pandas, the index": (lambda: pd.DataFrame({"x": [1, "y"]}, index=pd.Index(B, name="b")), B),
    "pandas, categories": (lambda: pd.DataFrame({"b": pd.Categorical(["a", None], ["b", "a"])}), ["a", None]),
    "pandas, categories of whole numbers": (lambda: pd.DataFrame({"b": pd.Categorical([2, 1])}), ["2", "1"]),
    "pandas, nullable whole numbers": (lambda: pd.DataFrame({"b": pd.array([1, None], "Int64")}), ["1", None]),
    "pandas, objects with a missing one": (lambda: pd.DataFrame({"b": pd.Series([None, "a"], dtype=object)}), [None, "a"]),
    "pandas, decimals": (lambda: pd.DataFrame({"b": [decimal.Decimal("1.50"), decimal.Decimal(1)]}), ["1.5", "1"]),
    "pandas, UUIDs": (lambda: pd.DataFrame({"b": UUIDS}), UUID_TEXTS),
    "pandas, a part of the rows": (lambda: pd.DataFrame({"b": ["z", *B]})[1:], B),
    "Polars, Enum": (lambda: polars().DataFrame({"b": series(["a", None], "Enum", B)}), ["a", None]),
    "Polars, Enum beside": (lambda: beside_polars(series(B, "Enum", B)), B),
    "Polars, Categorical": (lambda: polars().DataFrame({"b": series(B, "Categorical")}), B),
    "Polars, Categorical beside": (lambda: beside_polars(series(B, "Categorical")), B),
    "Polars, objects beside": (lambda: beside_polars(series([object(), 1], "Object")), B),
    "Polars, 128 bits beside": (lambda: beside_polars(series([1, 2], "Int128")), B),
    "Polars, structures beside": (lambda: beside_polars([{"a": 1}, {"a": 2}]), B),
    "Arrow, UUIDs": (lambda: pa.table({"b": pa.array([each.bytes for each in UUIDS], pa.uuid())}), UUID_TEXTS),
    "Arrow, categories in chunks": (
        lambda: pa.table({"b": pa.chunked_array([pa.array([each]).dictionary_encode() for each in B])}),
        B,
    ),
    "Arrow, a name twice beside": (lambda: pa.Table.from_arrays([pa.array(B)] * 3, ["b", "x", "x"]), B),
    "Arrow, categories of views beside": (lambda: stream(pa.table({"b": B, "x": pa.array(B, pa.string_view())})), B),
    "a column named as a spreadsheet's line": (lambda: {"sep=;": [1, 2], "b": B}, B),
    "a stream": (lambda: stream(pa.table({"x": [1, 2], "b": B})), B),
    "DuckDB": (lambda: importlib.import_module("duckdb").sql("SELECT unnest(['a', 'b']) AS b, {'s': 1} AS x"), B),
    "a dict of lists": (lambda: {"b": B, "x": [1, "x"]}, B),
    "a dict of arrays and series": (lambda: {"b": pd.Series(B), "x": np.zeros((2, 2)), "y": polars().Series([1, 2])}, B),
    "a dict of a series of Polars": (lambda: {"b": series(B, "Enum", B)}, B),
    "a dict of arrays of Arrow": (lambda: {"b": pa.chunked_array([B])}, B),
}

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "mixed objects": (lambda: pd.DataFrame({"b": [1, "KNOWN"]}), r"'b' .* type object,.* give frame\['b'\]\.astype\(str\)"),
    "cut": (lambda: pd.DataFrame({"b": pd.cut([1, 2], [0, 1, 2])}), r"'b' .* type category,.* frame\['b'\]\.astype\(str\)"),
    "intervals": (lambda: pd.DataFrame({"b": pd.interval_range(0, 2)}), r"type interval,.*astype\(str\)"),
    "periods": (
        lambda: pd.DataFrame({"b": pd.period_range("2026", periods=2, freq="M")}),
        r"type period,.*to_timestamp\(\)",
    ),
    "sparse": (lambda: pd.DataFrame({"b": pd.arrays.SparseArray([0, 1])}), r"type Sparse,.*sparse\.to_dense\(\)"),
    "complex": (lambda: pd.DataFrame({"b": [1j, 2]}), r"type complex128,.*\['b'\]\.real"),
    "durations": (lambda: pd.DataFrame({"b": pd.to_timedelta([1, 2])}), "type timedelta64,.*seconds as numbers"),
    "times of day": (lambda: pd.DataFrame({"b": [datetime.time(1), datetime.time(2)]}), "'b' .* type object,"),
    "lists": (lambda: pd.DataFrame({"b": [[1], [2]]}), "'b' .* type object,"),
    "a name twice": (lambda: pd.DataFrame([B, B], columns=["b", "b"]), "more than one column 'b'"),
    "no such column": (
        lambda: pd.DataFrame({"KNOWN": B}),
        r"the table of records has no column 'b'; [^,]* is meant \(the names",
    ),
    "objects of Polars": (lambda: polars().DataFrame({"b": series([object(), 1], "Object")}), "type Object,.*map_elements"),
    "128 bits": (lambda: polars().DataFrame({"b": series([1, 2], "Int128")}), r"type Int128,.*cast\(polars\.Int64\)"),
    "structures": (lambda: polars().DataFrame({"b": [{"KNOWN": 1}] * 2}), "type Struct, .* one value a row"),
    "UUIDs as bytes": (lambda: pa.table({"b": pa.array([b"x" * 16], pa.binary(16))}), "fixed_size_binary, .*UUIDs as text"),
    "lazy": (lambda: polars().LazyFrame({"b": B}), r"LazyFrame, which .*; give records\.collect\(\)"),
    "columns of two lengths": (lambda: {"b": B, "c": [1]}, "differ in their numbers of values"),
    "rows": (lambda: [{"b": "KNOWN"}], "or a dict of columns; found list"),
    "an array": (lambda: np.array(B), "or a dict of columns; found ndarray"),
    "keys of a spec": (lambda: {"path": "KNOWN"}, "or a dict of columns; found dict"),
}


@pytest.mark.parametrize("name", TAKEN)
def test_a_frame_is_taken_whatever_else_it_holds(name: str, tmp_path: Path) -> None:
    make_frame, expected = TAKEN[name]
    path = write_records(make_frame(), ["b"], tmp_path, ROOT)
    table = pyarrow.parquet.read_table(path)
    assert table.column_names == ["b"]
    assert texts_of(table["b"]).to_pylist() == expected
    assert write_records(make_frame(), ["b"], tmp_path, ROOT) == path


@pytest.mark.parametrize("name", REFUSED)
def test_a_counted_column_is_refused_with_its_type_and_a_cure(name: str, tmp_path: Path) -> None:
    make_frame, message = REFUSED[name]
    columns = ["b", "c"] if "lengths" in name else ["b"]
    with pytest.raises((InvalidSpec, InvalidInput), match=message) as refused:
        write_records(make_frame(), columns, tmp_path, ROOT)
    assert "KNOWN" not in f"{refused.value}{refused.value.args}"
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_frames_with_other_columns_are_other_tables(tmp_path: Path) -> None:
    """As files with other columns are other files: small tables often agree in one column."""
    frames = [
        pd.DataFrame({"b": B}),
        frame_with_column([1, "x"]),
        frame_with_column([1j, 2]),
        beside_polars([1, 2]),
        {"b": B},
        {"b": B, "x": B},
    ]
    assert len({write_records(frame, ["b"], tmp_path, ROOT) for frame in frames}) == len(frames)


def test_releases_of_awkward_frames(home: Path) -> None:
    for number, name in enumerate(
        ("pandas, mixed objects beside", "pandas, UUIDs", "Polars, Categorical", "a dict of lists")
    ):
        make_frame, values = TAKEN[name]
        session = dp.Session(f"frame-{number}", cap=dp.Budget(rho=10**5), protect=dp.Records())
        session.domain(b=values)
        planned = session.plan(dp.marginals(1), budget=dp.Budget(rho=10**4))
        assert planned.publish(make_frame())["b"].pandas()["answer"].round().tolist()[:1] == [1]
    release = dp.run({**planned.content, "release": "again"}, records={"b": B}, engine="inline")
    assert release.answers.arrow.num_rows == 2
    with pytest.raises(InvalidInput, match=r"LazyFrame, .*records\.collect\(\)"):
        dp.run({**planned.content}, records=polars().LazyFrame({"b": B}))
    with pytest.raises(InvalidInput, match="a path, a SELECT or keys of a spec's 'records'; found int"):
        planned.publish(7)

"""Delta and Iceberg tables as records: read once, charged as they were read, and never again unless they are the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from dpdist.domain import Attribute, Domain
from dpdist.errors import InvalidSpec
from dpdist.extracts import table_extracts
from dpdist.plugins.lakes.delta_source import DeltaTable
from dpdist.plugins.lakes.iceberg_source import IcebergTable
from dpdist.spec import load
from tests.counting.test_histogram_counting import counted, truth
from tests.sources.test_column_conversion import category_attribute, counts_of
from tests.support import small_release
from tests.support.record_tables import TABLE, extract, extract_records


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_is_read_at_one_snapshot_which_joins_the_binding(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, table, add = lake(kind, tmp_path, monkeypatch)
    newest = extract_records(table(None), tmp_path / "home")
    assert newest.snapshot == first
    np.testing.assert_array_equal(counted(tmp_path, newest.path)[0], truth(TABLE))
    second = add(TABLE[:10])
    assert second != first
    assert extract_records(table(None), tmp_path / "home") == newest
    assert pyarrow.parquet.read_metadata(extract_records(table(None), tmp_path / "other").path).num_rows == 3010
    older = extract_records(table(int(first)), tmp_path / "other")
    assert (older.snapshot, older.path.read_bytes()) == (first, newest.path.read_bytes())
    with pytest.raises(InvalidSpec):
        extract_records(table(99), tmp_path / "other")
    one, two = (
        load(small_release.write(tmp_path / "spec")).with_records(newest.path, snapshot).source.files.digest
        for snapshot in (first, second)
    )
    assert one != two


def lake(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Any, Any]:
    """A table that holds TABLE: its snapshot, how it is named at one, and how records are added."""
    if kind == "delta":
        import deltalake

        place = str(folder / "lake")
        deltalake.write_deltalake(place, TABLE)

        def add(more: pa.Table) -> str:
            deltalake.write_deltalake(place, more, mode="append")
            return str(deltalake.DeltaTable(place).version())

        return "0", lambda version: DeltaTable(place, version), add
    from pyiceberg.catalog import load_catalog
    from pyiceberg.utils.config import Config

    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{folder}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{folder}/lake")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    catalog = load_catalog("lake")
    catalog.create_namespace("shop")
    made = catalog.create_table("shop.visits", TABLE.schema)
    made.append(TABLE)

    def append(more: pa.Table) -> str:
        made.append(more)
        return str(made.current_snapshot().snapshot_id)

    return str(made.current_snapshot().snapshot_id), lambda snapshot: IcebergTable("lake.shop.visits", snapshot), append


@pytest.mark.parametrize(
    ("module", "table", "extra"),
    [
        ("deltalake", DeltaTable("lake", None), "delta"),
        ("pyiceberg.catalog", IcebergTable("a.b.c", None), "iceberg"),
    ],
)
def test_a_package_that_is_missing_is_named_in_one_line(
    module: str, table: table_extracts.RecordTable, extra: str, tmp_path: Path
) -> None:
    with (
        mock.patch.dict("sys.modules", {module: None}),
        pytest.raises(InvalidSpec, match=rf"pip install 'dpdist\[{extra}\]'"),
    ):
        extract_records(table, tmp_path / "home")


def test_the_order_in_which_a_table_was_written_changes_no_count(tmp_path: Path) -> None:
    """Which records of a person count: the first in an order that follows from the records alone."""
    import deltalake

    table = small_release.records(400)
    domain = Domain((Attribute("age", edges=tuple(map(float, range(13)))), category_attribute("sex", "f", "m")))
    found = []
    for number in range(3):
        given = table.take(np.random.default_rng(number).permutation(table.num_rows))
        place = str(tmp_path / str(number))
        deltalake.write_deltalake(place, given[:150])
        deltalake.write_deltalake(place, given[150:], mode="append")
        path = extract(DeltaTable(place, None), tmp_path / f"w{number}", domain, {}, "person")
        found.append((path.read_bytes(), counts_of(path, domain, tmp_path / f"w{number}", person="person").tolist()))
    assert found[0] == found[1] == found[2]

"""What every format of files of records promises: each record once, whichever columns are read, and which files have none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from dpdist.counting.record_cells import cells_of_partitions
from dpdist.domain import Attribute, Domain
from dpdist.sources.formats import arrow_files, json_lines
from dpdist.sources.formats.format_registry import FORMATS
from dpdist.sources.formats.record_format import RowFormat, TypedFormat, WantedRows
from dpdist.sources.record_sources import _is_empty, partitions_of, source_of

AGE = Attribute("age", edges=(0.0, 4.0, 8.0), outside="clip")
NAME = Attribute("name", categories=("a", "b", "c"))
YEAR = Attribute("year", categories=("2025", "2026"))
"""The folders name it."""
DOMAINS = {"columns": Domain((AGE, NAME)), "a folder beside": Domain((YEAR, AGE)), "folders alone": Domain((YEAR,))}


def records(rows: int) -> pa.Table:
    ages = np.arange(rows) % 8
    return pa.table({"age": ages, "other": pa.array(["x"] * rows, pa.string()), "name": np.array([*"abc"])[ages % 3]})


def write_arrow(table: pa.Table, path: Path) -> None:
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=4)


def write_csv(table: pa.Table, path: Path) -> None:
    with pa.output_stream(path, compression="detect") as file:
        pyarrow.csv.write_csv(table, file)


def write_json_lines(table: pa.Table, path: Path) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))


WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    "parquet": lambda table, path: pyarrow.parquet.write_table(table, path, row_group_size=4),
    "arrow": write_arrow,
    "csv": write_csv,
    "jsonl": write_json_lines,
}
ROW_FORMATS = [each for each in FORMATS if isinstance(each, RowFormat)]


@pytest.mark.parametrize("rows", [0, 1, 10])
@pytest.mark.parametrize("file_format", ROW_FORMATS, ids=lambda each: each.name)
def test_every_record_is_read_once(
    file_format: RowFormat, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (arrow_files, json_lines):
        monkeypatch.setattr(module, "BATCH_ROWS", 3)
    table = records(rows)
    expected = {"columns": table["age"].to_numpy() // 4 * 3 + table["age"].to_numpy() % 3}
    expected |= {"a folder beside": 2 + table["age"].to_numpy() // 4, "folders alone": np.ones(rows, dtype=np.int64)}
    for ending in file_format.endings:
        path = tmp_path / ending[1:] / "year=2026" / f"part{ending}"
        path.parent.mkdir(parents=True)
        WRITERS[file_format.name](table, path)
        for name, domain in DOMAINS.items():
            source = source_of(path.parent.parent, columns={}, attributes=domain.names)
            parts = [cells for cells, _ in cells_of_partitions(source, domain, partitions_of(source))]
            np.testing.assert_array_equal(np.concatenate([np.zeros(0, dtype=np.int64), *parts]), expected[name])
            assert _is_empty(str(path), source.tags[0], WantedRows(())) == (rows == 0)
        if isinstance(file_format, TypedFormat):
            with path.open("rb") as file:
                assert pa.Table.from_batches(file_format.every_batch(file), file_format.schema(file)).equals(table)


def test_every_format_is_tried() -> None:
    assert {*WRITERS} == {each.name for each in ROW_FORMATS}

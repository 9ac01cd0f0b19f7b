"""Some rows of a published table are read without the others."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from dpdist.publish import table_rows
from dpdist.publish.table_rows import PublishedTable, open_parquet_file


def test_rows_are_read_from_their_groups_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"group": [f"g{row // 4}" for row in range(10)], "answer": list(range(10)), "query": ["q"] * 10})
    (tmp_path / "answers.parquet").mkdir()
    pyarrow.parquet.write_table(table.slice(0, 6), tmp_path / "answers.parquet" / "0.parquet", row_group_size=2)
    pyarrow.parquet.write_table(table.slice(6), tmp_path / "answers.parquet" / "1.parquet", row_group_size=2)
    read, groups = pyarrow.parquet.ParquetFile.read_row_group, []

    def read_noted(file: pyarrow.parquet.ParquetFile, number: int, columns: list[str]) -> pa.Table:
        groups.append((number, columns))
        return read(file, number, columns)

    monkeypatch.setattr(pyarrow.parquet.ParquetFile, "read_row_group", read_noted)
    published = PublishedTable.of_release(tmp_path)
    assert (published.columns, published.row_count) == (["group", "answer", "query"], 10)
    opened = []
    monkeypatch.setattr(table_rows, "open_parquet_file", lambda *given: opened.append(given) or open_parquet_file(*given))
    rows = published.load_rows([4, 5, 7], ["answer", "group"])
    assert rows["answer"].to_pylist() == [4, 5, 7]
    assert rows["group"].to_pylist() == ["g1", "g1", "g1"]
    assert [number for number, _ in groups] == [2, 0]
    assert published.load_rows([], ["answer"]).num_rows == 0
    assert published.load_rows(range(6, 10), ["answer"])["answer"].to_pylist() == [6, 7, 8, 9]
    assert [path.name for path, metadata in opened] == ["0.parquet", "1.parquet", "0.parquet", "1.parquet"]
    assert all(metadata is not None for _, metadata in opened)

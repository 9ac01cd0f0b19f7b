"""Some rows of a published table are read without the others."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from dpdist.publish.table_rows import load_rows


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
    rows = load_rows(tmp_path, [4, 5, 7], ["answer", "group"])
    assert rows["answer"].to_pylist() == [4, 5, 7]
    assert rows["group"].to_pylist() == ["g1", "g1", "g1"]
    assert [number for number, _ in groups] == [0, 2, 0]
    assert load_rows(tmp_path, [], ["answer"]).num_rows == 0

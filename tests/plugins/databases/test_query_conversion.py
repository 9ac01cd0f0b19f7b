"""Columns of files that a query names: one record more never changes how another is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from dpdist.domain import Attribute, Domain
from dpdist.errors import InvalidSpec
from dpdist.plugins.databases.query_source import RecordQuery
from dpdist.sources.column_types import ColumnType
from tests.sources.test_column_conversion import AGES, DAYS, category_attribute, counts_of
from tests.support import small_release
from tests.support.record_tables import extract

TYPES: dict[str, ColumnType] = {"age": "whole", "day": "date", "name": "text", "person": "text"}


def query_counts(folder: Path, sql: str, domain: Domain, work: Path) -> np.ndarray:
    return counts_of(extract(RecordQuery(sql, None, folder, TYPES), work, domain, {}), domain, work)


def test_the_first_of_several_files_decides_no_type(tmp_path: Path) -> None:
    """One missing value there turned its ages into double, and 17.6 in all other files into 18."""
    found = []
    for number, first in enumerate(([17, 18], [17.0, 18.0, None])):  # as pandas writes them
        folder = tmp_path / str(number) / "visits"
        folder.mkdir(parents=True)
        for name, ages in (("a", pa.array(first)), ("b", pa.array([17.6] * 40))):
            pyarrow.parquet.write_table(pa.table({"age": ages}), folder / f"{name}.parquet")
        found.append(
            query_counts(folder.parent, "SELECT age FROM 'visits/*.parquet'", Domain((AGES,)), tmp_path / f"w{number}")
        )
    assert int(np.abs(found[0] - found[1]).sum()) == 1


def test_a_folder_of_an_unknown_day_leaves_the_other_days_what_they_are(tmp_path: Path) -> None:
    domain, found = Domain((DAYS,)), []
    for number, days in enumerate((["2026-09-01"], ["2026-09-01", "unknown"])):
        for day in days:
            path = tmp_path / str(number) / f"day={day}" / "x.parquet"
            path.parent.mkdir(parents=True)
            pyarrow.parquet.write_table(pa.table({"age": [1] * (40 if day != "unknown" else 1)}), path)
        sql = f"SELECT day FROM '{number}/' WHERE day >= DATE '2026-09-01' OR day IS NULL"
        found.append(query_counts(tmp_path, sql, domain, tmp_path / f"w{number}").tolist())
    assert found == [[40, 0, 0], [40, 0, 1]]


def test_a_quote_in_one_record_changes_no_other_record_of_csv(tmp_path: Path) -> None:
    """A dialect that was guessed from all records made [0, 0] of [30, 30]."""
    domain, found = Domain((category_attribute("name", "'x'", "'y'"),)), []
    for number, more in enumerate(("", "O'x,'x\n")):
        rows = "".join(f"p{n},'{'xy'[n % 2]}'\n" for n in range(60))
        (tmp_path / "visits.csv").write_text(f"person,name\n{rows}{more}")
        found.append(query_counts(tmp_path, "SELECT name FROM 'visits.csv'", domain, tmp_path / f"w{number}").tolist())
    assert found[0][:2] == found[1][:2] == [30, 30]


def test_a_file_has_the_declared_columns_alone(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pa.table({"age": [1], "SECRETJANE": [2]}), tmp_path / "x.parquet")
    with pytest.raises(InvalidSpec, match="'records.types' declares") as refused:
        query_counts(tmp_path, "SELECT age, secret FROM 'x.parquet'", Domain((AGES,)), tmp_path / "w")
    assert "SECRETJANE" not in str(refused.value)
    assert (
        query_counts(
            tmp_path, "SELECT * FROM 'x.parquet' a JOIN 'x.parquet' b USING (age)", Domain((AGES,)), tmp_path / "w"
        ).sum()
        == 1
    )
    with pytest.raises(InvalidSpec, match="differ in capitals"):
        query_counts(tmp_path, "SELECT age FROM 'x.parquet' JOIN 'X.parquet' USING (age)", Domain((AGES,)), tmp_path / "v")


def test_a_file_that_cannot_be_read_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"PAR1KNOWNPAR1")
    with pytest.raises(InvalidSpec, match="it is no whole Parquet file"):
        query_counts(tmp_path, "SELECT age FROM 'x.parquet'", Domain((AGES,)), tmp_path / "w")


def test_lines_of_json_are_records_of_a_query(tmp_path: Path) -> None:
    lines = ('{"age": 17}', '{"age": "17.0"}', '{"age": [17]}', "KNOWN, no object", "   ", '{"age": 1e999999999}')
    (tmp_path / "x.jsonl").write_text("\n".join(lines))
    assert query_counts(tmp_path, "SELECT age FROM 'x.jsonl'", Domain((AGES,)), tmp_path / "w").tolist() == [2, 0, 3]


def test_the_order_in_which_a_table_was_written_changes_no_count(tmp_path: Path) -> None:
    """Which records of a person count: the first in an order that follows from the records alone."""
    table = small_release.records(400)
    domain = Domain((Attribute("age", edges=tuple(map(float, range(13)))), category_attribute("sex", "f", "m")))
    types: dict[str, ColumnType] = {"age": "whole", "sex": "text", "person": "text"}
    found = []
    for number in range(3):
        place = tmp_path / str(number)
        place.mkdir()
        given = table.take(np.random.default_rng(number).permutation(table.num_rows))
        pyarrow.parquet.write_table(given, place / "x.parquet")
        query = RecordQuery("SELECT * FROM 'x.parquet'", None, place, types)
        path = extract(query, tmp_path / f"w{number}", domain, {}, "person")
        found.append((path.read_bytes(), counts_of(path, domain, tmp_path / f"w{number}", person="person").tolist()))
    assert found[0] == found[1] == found[2]

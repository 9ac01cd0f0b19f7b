"""Records that were counted before: the same histogram as of the records, one unit a guarantee, and what cannot be true refused."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from dpdist.counting.record_cells import CountSummary
from dpdist.errors import InvalidInput, InvalidSpec, LedgerError
from dpdist.measurement.integer_measurement import MOST_RECORDS
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.size_limits import SIZES
from dpdist.spec import load
from tests.counting.test_histogram_counting import DOMAIN, counted, truth
from tests.support import small_release

TABLE = small_release.records()


def tabulated(table: pa.Table = TABLE, **columns: Any) -> pa.Table:
    """How many records each combination of values has, with a row of none."""
    found = table.group_by(["age", "sex", "work"]).aggregate([([], "count_all")]).rename_columns(["age", "sex", "work", "n"])
    none = pa.table({"age": [77], "sex": ["?"], "work": ["?"], "n": [0]}, schema=found.schema)
    return pa.concat_tables([found, none])


def write(table: pa.Table, path: Path) -> Path:
    if path.suffix == ".csv":
        pyarrow.csv.write_csv(table, path)
    else:
        pyarrow.parquet.write_table(table, path, row_group_size=20)
    return path


@pytest.mark.parametrize("form", ["parquet", "csv"])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_table_of_counts_is_the_records(form: str, sparse: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells and tables, dense and as pairs; a row that stands for no record is no row, whatever it says."""
    if sparse:
        monkeypatch.setattr("dpdist.counting.histogram_counting.is_sparse", lambda *_: True)
    counts, tally = counted(tmp_path, write(tabulated(), tmp_path / f"x.{form}"), counts="n")
    np.testing.assert_array_equal(counts, truth(TABLE))
    assert tally == CountSummary(read=3000)


def test_tables_of_attributes_are_counted_with_the_numbers(tmp_path: Path) -> None:
    from dpdist import engine
    from dpdist.counting.histogram_counting import count
    from dpdist.sources.record_sources import source_of
    from dpdist.storage.array_store import Store
    from tests.counting.test_histogram_counting import ROOT

    store, asked = Store(tmp_path / "store", SIZES), ((0, 2), (1,))
    source = source_of(write(tabulated(), tmp_path / "x.parquet"), columns={}, counts="n")
    stored, _ = count(source, DOMAIN, store, engine.inline(), root=ROOT, tables=asked)
    cells = truth(TABLE).reshape(DOMAIN.shape)
    expected = np.concatenate([cells.sum(axis=1).ravel(), cells.sum(axis=(0, 2))])
    np.testing.assert_array_equal(store.read_array(stored), expected)


REFUSED = {
    "negative": ([3, -1], "negative number"),
    "missing": ([3, None], "no whole numbers"),
    "fraction": ([3.0, 1.5], "no whole numbers"),
    "text": (["3", "x"], "no whole numbers"),
    "dates": ([datetime.date(2026, 1, 1)] * 2, "holds dates"),
    "large": ([0, MOST_RECORDS + 1], "too large"),
    "unsigned": (pa.array([3, 2**64 - 1], pa.uint64()), "no whole numbers"),
    "together": ([MOST_RECORDS, 1], "up to 4294967296 records"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_numbers_that_count_no_records_are_refused(kind: str, tmp_path: Path) -> None:
    numbers, said = REFUSED[kind]
    table = pa.table({"age": [1, 2], "sex": ["f", "m"], "work": ["a", "b"], "n": numbers})
    with pytest.raises((InvalidSpec, InvalidInput), match=said) as refused:
        counted(tmp_path, write(table, tmp_path / "x.parquet"), counts="n")
    assert "1.5" not in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not list((tmp_path / "store").glob("histograms/*"))


@pytest.mark.parametrize(
    ("records", "said"),
    [
        (
            {"counts": {"column": "n", "of": "visits"}, "person": {"column": "person"}},
            "contributions cannot be bounded any more",
        ),
        ({"counts": {"of": "visits"}}, "name the column that says how many"),
        ({"counts": {"column": "age", "of": "visits"}}, "is also the attribute 'age'"),
        ({"counts": {"column": "n"}}, "of"),
    ],
)
def test_specs_that_claim_what_nobody_can_keep(records: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match=said):
        load(small_release.write(tmp_path, records={"path": "records.parquet", **records}))


def test_a_release_of_counts_names_its_unit_and_shares_no_cap_with_another(home: Path) -> None:
    data = home.parent / "data"
    given = {"path": "records.parquet", "counts": {"column": "n", "of": "visits"}}
    release = small_release.run(small_release.write(data, table=tabulated(), records=given), home)
    privacy = release.certificate["privacy"]
    assert privacy["unit"] == "visits"
    assert privacy["one_change"] == "One of the visits is added or removed."
    assert "Nobody checked that each person was counted at most" in privacy["bound"]
    assert privacy["bound_enforced_while_counting"] is False
    assert release.certificate["method"]["counted"] == "visits"
    other = small_release.write(home.parent / "rows", release="rows", table=small_release.records(seed=1))
    with pytest.raises(LedgerError, match=r"release 'rows' protects records .* protects visits"):
        small_release.run(other, home)
    again = small_release.write(data, table=tabulated(small_release.records(seed=2)), release="small-2", records=given)
    assert small_release.run(again, home).charged
    with open_ledger(home) as book:
        assert book.verify().rows > 0

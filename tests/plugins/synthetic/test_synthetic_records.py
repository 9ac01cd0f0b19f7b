"""Synthetic records: tables that the release measured, nothing of the records, and no charge."""

from __future__ import annotations

import csv
import datetime
import itertools
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import dpdist as dp
from dpdist.content import table_rows
from dpdist.domain import Attribute
from dpdist.domain.calendar import Times
from dpdist.errors import InvalidInput
from dpdist.plugins.synthetic import synthetic_records
from dpdist.plugins.synthetic.synthetic_records import SYNTHETIC_METADATA, SyntheticModel
from dpdist.privacy.ledger.budget_ledger import open_ledger
from tests.case_selection import slow_after_first
from tests.page.strange_names import strange
from tests.support import small_release
from tests.support.command_line import CommandLine

NAMES = ("age", "sex", "work")


def table_of(codes: np.ndarray, axes: tuple[int, ...], sizes: tuple[int, ...]) -> np.ndarray:
    places = np.ravel_multi_index(tuple(codes[:, axis] for axis in axes), tuple(sizes[axis] for axis in axes))
    return np.bincount(places, minlength=int(np.prod([sizes[axis] for axis in axes])))


def published(home: Path, **changes: Any) -> Any:
    path = small_release.write(home.parent / "data", **{"workload": [{"marginals": {"ways": [1, 2]}}], **changes})
    return dp.run(path, engine="inline")


@pytest.mark.parametrize("seed", range(4))
def test_consistent_tables_are_met_by_whole_records(seed: int) -> None:
    """All 2-way tables of random records of four attributes: within a few records of each cell, however they hang together."""
    state, sizes, number = np.random.default_rng(seed), (4, 3, 5, 2), 2000
    first = state.integers(0, 4, number)
    true = np.column_stack([first, (first + state.integers(0, 2, number)) % 3, state.integers(0, 5, number), first % 2])
    axes = tuple(itertools.combinations(range(4), 2))
    tables = tuple(table_of(true, a, sizes).reshape([sizes[i] for i in a]).astype(float) for a in axes)
    attributes = tuple(Attribute(f"x{i}", categories=tuple(map(str, range(size)))) for i, size in enumerate(sizes))
    made = SyntheticModel(attributes, axes, tables, seed).draw_records()
    assert made.records.num_rows == number
    for a, table in zip(axes, tables, strict=True):
        assert np.abs(table_of(made.codes, a, sizes) - table.ravel()).sum() <= 0.02 * number


def test_cells_next_to_nothing_say_nothing() -> None:
    """Expected counts may be so small that the product of two of them is no number any more."""
    table = np.array([[1e-170, 0.0], [0.0, 5.0]])
    assert synthetic_records._information(table, (0, 1), 1, (0,)) == (1, pytest.approx(0.0, abs=1e-12))


def test_one_table_of_all_attributes_is_met_exactly() -> None:
    table = np.random.default_rng(0).integers(0, 9, (3, 4, 2)).astype(float)
    attributes = tuple(
        Attribute(name, categories=tuple("abcd"[:size])) for name, size in zip("xyz", table.shape, strict=True)
    )
    made = SyntheticModel(attributes, ((0, 1, 2),), (table,), 1).draw_records()
    assert table_of(made.codes, (0, 1, 2), table.shape).tolist() == table.ravel().tolist()


def test_records_keep_what_the_release_measured(home: Path) -> None:
    """At least 90 of 100 answers lie within the release's own intervals; the budget and the release's files stay as they are."""
    release = published(home)
    before = {file: file.read_bytes() for file in Path(release.folder).rglob("*") if file.is_file()}
    made = synthetic_records.synthesize_records(release.published)
    found = made.interval_coverage(release.answers.arrow)
    assert sum(each.answers_inside for each in found) >= 0.9 * sum(each.answers for each in found) > 0
    assert made.records.schema.metadata == SYNTHETIC_METADATA
    assert made.records.column_names == list(NAMES)
    assert synthetic_records.synthesize_records(release.published).records.equals(made.records)
    assert not synthetic_records.synthesize_records(release.published, copy=1).records.equals(made.records)
    assert synthetic_records.synthesize_records(release.published, records=500).records.num_rows == 500
    assert synthetic_records.synthesize_records(release.published, records=0).records.num_rows == 0
    with open_ledger(home) as ledger:
        assert [each.releases for each in ledger.budgets()] == [1]
    assert {file: file.read_bytes() for file in Path(release.folder).rglob("*") if file.is_file()} == before


def test_records_depend_on_nothing_but_the_published_measurement(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = published(home)
    wanted = synthetic_records.synthesize_records(release.published).records
    shutil.copytree(release.folder, tmp_path / "elsewhere")
    shutil.rmtree(home)
    monkeypatch.setenv("DPDIST_HOME", str(tmp_path / "nowhere"))
    assert (
        synthetic_records.load_tables(dp.published(tmp_path / "elsewhere")).fit_model().draw_records().records.equals(wanted)
    )
    assert not (tmp_path / "nowhere").exists()


def test_values_are_of_the_declared_types(home: Path) -> None:
    table = small_release.records().append_column("day", pa.array([datetime.date(2026, 1, 1 + i % 28) for i in range(3000)]))
    table = table.append_column("paid", pa.array(np.linspace(0, 9.9, 3000)))
    days = {"dates": {"from": "2026-01-01", "to": "2026-01-31", "every": "week"}}
    domain = {
        "day": days,
        "paid": {"edges": [0, 2.5, 10]},
        "age": {"from": 0, "to": 11, "width": 4},
        "sex": {"categories": ["f"], "other": "another"},
    }
    release = published(home, table=table, domain=domain)
    rows = synthetic_records.synthesize_records(release.published).records
    assert {name: str(rows.schema.field(name).type) for name in rows.column_names} == {
        "day": "string", "paid": "double", "age": "int64", "sex": "string"
    }  # fmt: skip
    assert set(rows["day"].to_pylist()) <= {f"2026-W{week:02d}" for week in range(1, 6)}
    assert set(rows["age"].to_pylist()) == set(range(12))
    assert set(rows["sex"].to_pylist()) == {"f", None}
    assert 0 <= min(rows["paid"].to_pylist()) < max(rows["paid"].to_pylist()) < 10


KINDS = {
    "names": Attribute("x", categories=("a", "b", "c"), missing="none"),
    "names with others": Attribute("x", categories=("a", "b", "c"), missing="none", other="another"),
    "whole numbers": Attribute("x", edges=(0, 1, 2, 3), missing="none"),
    "numbers": Attribute("x", edges=(0.0, 0.5, 1.0, 7.5), missing="none"),
    "steps": Attribute("x", edges=(0, 1, 2, 3), times=Times(datetime.datetime(2026, 9, 1), 3, "day"), missing="none"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_records_of_the_bins_for_missing_and_other_values_have_none(kind: str) -> None:
    attribute = KINDS[kind]
    codes = np.arange(attribute.size)
    found = synthetic_records._draw_values(attribute, codes, np.random.default_rng(0)).to_pylist()
    assert [each is None for each in found] == [code >= attribute.values for code in codes]
    assert attribute.size > attribute.values == 3


def test_rounds_give_records_that_say_what_was_never_measured(home: Path) -> None:
    """Records of tables that were chosen in rounds: attributes depend on each other as in the tables that were measured."""
    state = np.random.default_rng(0)
    shared, names = state.integers(0, 4, 8000), [f"x{i}" for i in range(5)]
    like = {name: np.where(state.random(8000) < 0.6, shared, state.integers(0, 4, 8000)) for name in names}
    domain = {name: {"from": 0, "to": 3} for name in names}
    asked = {"domain": domain, "workload": [{"marginals": {"ways": [1, 2]}}], "budget": {"rho": 0.004}}
    release = published(home, table=pa.table(like), mechanism="adaptive", **asked)
    made = synthetic_records.synthesize_records(release.published)
    chosen = {frozenset(each["table"]) for each in json.loads((Path(release.folder) / "release.json").read_text())["rounds"]}
    lacking = {frozenset(pair) for pair in itertools.combinations(names, 2)} - chosen
    assert lacking
    assert {frozenset(each.split(" x ")) for each in made.never_measured} == lacking
    made.write(home.parent / "made.parquet")
    told = pyarrow.parquet.read_schema(home.parent / "made.parquet").metadata
    assert told[b"dpdist.never_measured"].decode().split("; ") == made.never_measured
    for each in made.interval_coverage(release.answers.arrow):
        axes = frozenset(each.group.split(" x "))
        assert each.measured == (len(axes) == 1 or axes in chosen)
        assert (each.row[2].endswith("never measured")) != each.measured
        if each.measured:
            assert each.answers_inside >= 0.8 * each.answers
    rows = made.records.to_pydict()
    assert len(rows["x0"]) == pytest.approx(8000, abs=200)
    for one, other in (each for each in itertools.combinations(names, 2) if frozenset(each) in chosen):
        together = sum(a == b for a, b in zip(rows[one], rows[other], strict=True))
        assert together == pytest.approx(0.52 * 8000, rel=0.12)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no table of an attribute": ({"workload": [{"marginals": {"of": [["sex"], ["work"]]}}]}, "measured no table of 'age'"),
    "merged values": ({"workload": [{"predicates": ["age >= 6", "sex == 'f'", "work == 'a'"]}]}, "merged values"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_releases_that_give_no_records(home: Path, name: str) -> None:
    changes, said = REFUSED[name]
    release = published(home, **changes)
    with pytest.raises(InvalidInput, match=said):
        synthetic_records.synthesize_records(release.published)


def test_too_many_are_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="synthetic records are made up to 100,000,000, found 100,000,001"):
        synthetic_records.synthesize_records(published(home).published, records=10**8 + 1)
    monkeypatch.setattr("dpdist.plugins.synthetic.synthetic_records.MOST_CELLS", 65)
    with pytest.raises(InvalidInput, match="of up to 65 measured cells, found 66"):
        synthetic_records.synthesize_records(published(home).published)


def test_tables_that_are_read_in_pieces_are_the_same(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = published(home)
    whole = synthetic_records.load_tables(release.published).fit_model()
    monkeypatch.setattr("dpdist.plugins.synthetic.synthetic_records.MOST_PRODUCTS", 7)
    parts = synthetic_records.load_tables(release.published).fit_model()
    for one, other in zip(whole.tables, parts.tables, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize("form", slow_after_first(1, ["parquet", "csv"]))
def test_the_command_says_what_the_records_keep(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    published(home)
    command = CommandLine(monkeypatch, capsys)
    to = Path(f"made.{form}")
    ended = command("synthesize", "small-1", "--to", str(to), "--records", "700")
    assert ended.code == 0, ended.err
    assert "wrote 700 synthetic records to made" in ended.out
    assert "age x sex" in ended.out
    table = pyarrow.parquet.read_table(to) if form == "parquet" else pyarrow.csv.read_csv(to)
    assert table.num_rows == 700
    marked = (
        table.schema.metadata == SYNTHETIC_METADATA if form == "parquet" else set(table["synthetic"].to_pylist()) == {True}
    )
    assert marked
    assert "exists; remove it" in command("synthesize", "small-1", "--to", str(to)).err
    assert "is a .parquet or .csv file" in command("synthesize", "small-1", "--to", "made.txt").err


def test_a_label_is_no_formula_in_a_csv_file(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done, command = small_release.run(strange(home, ways=[1]), home), CommandLine(monkeypatch, capsys)
    assert command("synthesize", str(done.folder), "--to", "made.csv").code == 0
    cells = {cell for row in csv.reader(Path("made.csv").read_text().splitlines()) for cell in row}
    assert {"'=1+1", "'@sum"} < cells
    assert not [cell for cell in cells if re.match(table_rows.FORMULA, cell) and not cell.startswith("'")]

"""Counting pushed down to databases: the counts of files, bounds of persons that depend on these alone, and nothing else comes back."""

from __future__ import annotations

import datetime
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import sqlglot

from dpdist.domain import Attribute, Domain
from dpdist.domain.times import Times
from dpdist.errors import InvalidInput, InvalidSpec
from dpdist.records import pushed
from dpdist.records.extracts import Query
from dpdist.records.pushed import COUNT, DIALECTS, PushedDown
from dpdist.records.sources import PersonColumn
from dpdist.records.used import uses_of
from dpdist.spec import load
from tests import small
from tests.command_line import CommandLine
from tests.often import first_of
from tests.postgres import Server
from tests.records.test_counting import DOMAIN, counted, truth
from tests.records.test_extracts import SELECT, read, shop

TABLE = small.records()
ROWS = "SELECT age, sex, work, person FROM visit"
GOLDENS = Path(__file__).parent / "goldens"


def asked(sql: str, table: pa.Table) -> dict[tuple[str | None, ...], int]:
    """What DuckDB answers of a table called 'visit'."""
    with duckdb.connect() as db:
        db.register("visit", table)
        return {row[:-1]: row[-1] for row in db.sql(sql).fetchall()}


def cells(pushed_down: PushedDown, table: pa.Table, dialect: str = "duckdb") -> dict[tuple[str | None, ...], int]:
    """The counts of the SELECT for a dialect, read by a parser of that dialect and run by DuckDB."""
    sql = pushed_down.select("SELECT * FROM visit", DIALECTS[dialect])
    if dialect != "duckdb":
        (sql,) = sqlglot.transpile(sql, read="postgres" if dialect == "postgresql" else dialect, write="duckdb")
    return asked(sql, table)


def values(name: str = "") -> pa.Table:
    """Values at every place that an attribute tells apart, each several times."""
    nan, day = float("nan"), datetime.datetime(2026, 1, 31, 23, 59, 59)
    ages = [-3.5, 0.0, 17.999, 18.0, 64.0, 65.0, 1e300, nan, None]
    days = [
        day,
        day + datetime.timedelta(seconds=1),
        day - datetime.timedelta(days=40),
        day + datetime.timedelta(days=400),
        None,
    ]
    words = ["f", "it's", "back\\slash", 'quoted "x"', "", "F", "True", "true", "FALSE", None]
    state = np.random.default_rng(0)
    columns = {"age": ages, "day": days, "word": words, "person": ["a", "A", "b", "", None]}
    return pa.table({key: [found[place] for place in state.integers(0, len(found), 400)] for key, found in columns.items()})


MONTHS = Times(datetime.datetime(2026, 1, 1), 3, "month")
DOMAINS = [
    Domain(
        (
            Attribute("age", edges=(0, 18, 65), outside=outside, missing=missing, other=other),
            Attribute("day", edges=(0, 1, 2, 3), times=MONTHS, outside=outside, missing=missing, other=other),
            Attribute(
                "word",
                categories=("f", "it's", "back\\slash", 'quoted "x"'),
                outside="error" if outside == "clip" else outside,
                missing=missing,
                other=other or ("else" if outside != "drop" else None),
            ),
        )
    )
    for outside, missing, other in (
        ("clip", "none", None),
        ("drop", None, None),
        ("drop", "none", None),
        ("error", "drop", ""),
    )
] + [
    Domain(
        (
            Attribute("word", categories=("f", ""), missing="", other="else"),
            Attribute("age", edges=(0.5, 17.999), other="drop", missing="n"),
        )
    ),
    Domain((Attribute("word", categories=("false", "TRUE"), missing="none", other="else"),)),
]


@pytest.mark.parametrize("domain", DOMAINS, ids=["clip", "drop", "missing", "other", "empty", "boolean"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_value_counts_where_the_reader_counts_it(domain: Domain, dialect: str, tmp_path: Path) -> None:
    table = values()
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet")
    expected, tally = counted(tmp_path, tmp_path / "rows.parquet", domain)
    found = cells(PushedDown(domain), table, dialect)
    names = [each.name for each in domain.attributes]
    columns = {name: [cell[place] for cell in found] for place, name in enumerate(names)}
    pyarrow.parquet.write_table(
        pa.table({**{k: pa.array(v, pa.string()) for k, v in columns.items()}, COUNT: list(found.values())}),
        tmp_path / "cells.parquet",
    )
    again, _ = counted(tmp_path, tmp_path / "cells.parquet", domain, counts=COUNT)
    np.testing.assert_array_equal(again, expected)
    assert tally.read == 400
    assert sum(found.values()) == expected.sum() > 0  # what is left out takes no place of a person's, and does not come back


def bounded(
    table: pa.Table, most_records: int, most_groups: int | None, dialect: str = "duckdb"
) -> dict[tuple[str | None, ...], int]:
    return cells(PushedDown(DOMAIN, {}, PersonColumn("person", "text", "drop", most_groups), most_records), table, dialect)


@pytest.mark.parametrize(
    ("most_records", "most_groups"), first_of(2, [pytest.param(2, None, marks=pytest.mark.slow), (1, 2), (2, 1)])
)
def test_a_person_counts_up_to_the_bounds_and_changes_nothing_of_others(most_records: int, most_groups: int | None) -> None:
    table = small.records(600, seed=3)
    table = pa.concat_tables([table, table])  # each record twice: several of a person in one cell
    whole = bounded(table, most_records, most_groups)
    for person in range(40):
        alone = table.filter(pa.compute.equal(table["person"], person))
        rows = [tuple(row.values()) for row in alone.select(["age", "sex", "work"]).to_pylist()]
        kept = bounded(alone, most_records, most_groups)
        if most_groups is None:
            assert sum(kept.values()) == min(most_records, len(rows))
        else:
            assert len(kept) == min(most_groups, len(set(rows)))
            assert all(count == min(most_records, rows.count((float(a), b, c))) for (a, b, c), count in kept.items())
        less = bounded(table.filter(pa.compute.not_equal(table["person"], person)), most_records, most_groups)
        assert {cell: count - less.get(cell, 0) for cell, count in whole.items() if count != less.get(cell, 0)} == kept


def test_true_however_it_is_written_is_one_group_of_a_person() -> None:
    table = pa.table({"word": ["True", "true", "TRUE", "false"], "person": ["a"] * 4})
    domain = Domain((Attribute("word", categories=("True", "False")),))
    found = cells(PushedDown(domain, {}, PersonColumn("person", "text", "drop", 2)), table)
    assert found == {("true",): 1, ("false",): 1}


@pytest.mark.parametrize("dialect", ["bigquery", "snowflake"])  # PostgreSQL runs below
def test_every_dialect_keeps_the_same_records_of_persons(dialect: str) -> None:
    for bounds in ((2, None), (1, 2)):
        assert bounded(TABLE, bounds[0], bounds[1], dialect) == bounded(TABLE, *bounds)


def test_persons_are_told_apart_by_every_letter_and_missing_ones_as_the_spec_says() -> None:
    """Also where the database's own order takes 'a' and 'A' for one text."""
    domain = Domain((Attribute("word", categories=("f",), other="else", missing="none"),))
    table = values()
    persons = [person or "" for person in table["person"].to_pylist()]
    for missing, expected in (("drop", 3), ("each", 3 + persons.count(""))):
        sql = PushedDown(domain, {}, PersonColumn("person", missing=missing)).select(
            "SELECT word, person COLLATE NOCASE AS person FROM visit", DIALECTS["duckdb"]
        )
        assert sum(asked(sql, table).values()) == expected
    whole = pa.table({"word": ["f"] * 3, "person": ["01", "1", " 1"]})
    integer = PushedDown(domain, {}, PersonColumn("person", "integer", "drop"))
    assert sum(cells(integer, whole).values()) == 1


@pytest.mark.parametrize("dialect", ["bigquery", "snowflake"])
def test_the_select_for_databases_that_are_not_here_is_as_it_was_read(dialect: str) -> None:
    sql = PushedDown(DOMAINS[0], {"word": 'w`or"d'}, PersonColumn("card", "text", "each", 2), 3).select(
        "SELECT * FROM visits", DIALECTS[dialect]
    )
    assert f"{sql}\n" == (GOLDENS / f"{dialect}.sql").read_text()
    assert len(sqlglot.parse(sql, read=dialect)) == 1


def test_postgresql_counts_the_same_cells(postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = postgres.database()
    name = url.rpartition("/")[2]
    rows = ", ".join(f"({r['age']}, '{r['sex']}', '{r['work']}', '{r['person']}')" for r in TABLE.to_pylist())
    postgres.execute(
        f"CREATE TABLE visit (age int, sex text, work text, person text); INSERT INTO visit VALUES {rows}", name
    )
    monkeypatch.setenv("SHOP", url.replace("+psycopg", ""))
    uses = uses_of(DOMAIN, {}, counts=COUNT)
    for number, most_groups in enumerate((None, 2)):
        pushed_down = PushedDown(DOMAIN, {}, PersonColumn("person", "text", "drop", most_groups), 2)
        found = read(Query(ROWS, "SHOP", tmp_path, pushed=pushed_down), tmp_path / "home", str(number), uses)
        rows_back = pyarrow.parquet.read_table(found.path).to_pylist()
        expected = bounded(TABLE, 2, most_groups)
        assert {(f"{r['age']:.1f}", r["sex"], r["work"]): r[COUNT] for r in rows_back} == expected


def test_a_release_whose_records_stay_in_the_database(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only counts of cells are ever written down, they are those of the rows, and the release protects persons."""
    monkeypatch.setenv("SHOP", str(shop(home.parent / "shop.duckdb")))
    given = {"sql": SELECT, "connection": "$SHOP", "push_down": True}
    path = small.write(home.parent / "data", records=given)
    small.reserved(path, home)
    (extract,) = (home / "records").rglob("*.parquet")
    back = pyarrow.parquet.read_table(extract)
    assert back.column_names == ["age", "sex", "work", COUNT]
    np.testing.assert_array_equal(counted(home.parent, extract, counts=COUNT)[0], truth(TABLE))
    assert small.run(path, home).tally.read == 3000
    person = {"column": "person", "most_records": 2, "missing": "drop"}
    path = small.write(
        home.parent / "other",
        release="persons",
        records={**given, "person": person},
        ledger={"dataset": "b", "cap": {"rho": 1}},
    )
    done = small.run(path, home)
    assert done.tally.read < 3000
    assert not list((home / "records").rglob("*.parquet"))
    assert done.certificate["privacy"]["most_records_of_one_person"] == 2
    assert done.certificate["privacy"]["bound_enforced_while_counting"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"records": {"person": {"column": "person"}}}, "set 'missing' of 'person' to 'drop' or 'each'"),
        ({"quantiles": {"of": {"age": {"from": 0, "to": 11}}, "at": [0.5]}}, "only counts of cells come back"),
        ({"records": {"counts": {"column": "n", "of": "visits"}}}, "only counts of cells come back"),
        (  # the total was published as zero and noise
            {
                "records": {"count": "persons", "person": {"column": "person", "most_groups": 2, "missing": "drop"}},
                "domain": {"sex": {"categories": ["f", "m"], "total": "all"}},
                "workload": [{"marginals": {"of": [["sex"]]}}],
            },
            "a total or a level of them counts persons again",
        ),
        (
            {"sums": {"paid": {"from": 0, "to": 10}}, "workload": [{"marginals": {"of": [["sex"]]}, "sum": "paid"}]},
            "'paid' is none of these",
        ),
    ],
)
def test_what_a_database_does_not_count_is_refused(changes: dict[str, dict[str, object]], said: str, tmp_path: Path) -> None:
    records = {"sql": ROWS, "push_down": True, **changes.pop("records", {})}
    with pytest.raises(InvalidSpec, match=said):
        load(small.write(tmp_path, records=records, **changes))


def test_attributes_of_many_values_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpdist.records.pushed.MOST_VALUES", 11)
    with pytest.raises(InvalidInput, match="up to 11 of an attribute, and 'age' is none"):
        PushedDown(DOMAIN)
    assert pushed.MOST_VALUES == 11


def test_the_command_line_prints_the_select(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert home
    path = small.write(tmp_path, records={"sql": ROWS, "push_down": True})
    command = CommandLine(monkeypatch, capsys)
    done = command("sql", str(path), "--dialect", "duckdb")
    assert asked(done.out, TABLE) == cells(PushedDown(DOMAIN), TABLE)
    assert (
        "give its records 'sql' and 'push_down: true'"
        in command("sql", str(small.write(tmp_path)), "--dialect", "duckdb").err
    )

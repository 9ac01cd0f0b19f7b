"""Neighbours made as bytes: one more line, row, file or batch changes the decoded records by that record alone, or is refused.

The other tests of stability write their files through Arrow, which quotes and types correctly. Here the bytes themselves are odd: open
quotes, delimiters, NULs, line ends, marks of byte order, numbers and dates that are none, types that a writer infers from the values.
"""

from __future__ import annotations

import datetime
import gzip
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml
from pyiceberg.utils.config import Config

from dpdist.counting.contribution_bounding import PersonKey, person_hashes
from dpdist.counting.record_cells import cells_of, tables_of
from dpdist.engine import inline
from dpdist.errors import DpdistError
from dpdist.pipeline.histogram import materialize_table
from dpdist.privacy import keys
from dpdist.runtime.context import Context, ignore_progress
from dpdist.sources.frames import write_records
from dpdist.sources.record_sources import partitions_of
from dpdist.spec import load
from dpdist.storage.array_store import Store
from tests.case_selection import always
from tests.support import small_release
from tests.support.postgres_server import Server

SEEDS = 6
DOMAIN: dict[str, Any] = {
    "n": {"from": 0, "to": 9, "missing": "none", "other": "beyond"},
    "price": {"categories": ["1.5", "1.50", "2", "2.0", "7.25", "x"], "missing": "none", "other": "other"},
    "day": {"dates": {"from": "2026-01-01", "to": "2026-01-31"}, "missing": "none", "other": "other"},
    "who": {"categories": ["foo", "bar", "O'x", "x,y", 'a"b', "x;y", "oops", '"oops'], "missing": "none", "other": "other"},
}
NAMES = tuple(DOMAIN)
TYPES = {"n": "number", "price": "text", "day": "date", "who": "text", "p": "text"}
Decoded = tuple[bytes, int]
"""A record as it is counted: the hash of its person (b"" where there is none) and its cell."""


def decoded(folder: Path, records: dict[str, Any], declared: dict[str, Any] = DOMAIN) -> list[Decoded] | None:
    """The records of a spec in their order; None where they are refused before a charge."""
    spec = small_release.spec(
        domain=declared, workload=[{"marginals": {"ways": [1]}}], records={**records, "most_missing": "100%"}
    )
    path = folder / "release.yaml"
    path.write_text(yaml.safe_dump(spec, sort_keys=False))
    key, out = PersonKey(bytes(32)), []
    context = Context(folder / "home", Store(folder / "home" / "store"), inline(), ignore_progress)
    try:
        read = materialize_table(context, load(path), folder / "home" / "records")
        source, domain = read.source.files, read.measured.domain
        for partition in partitions_of(source):
            for table in tables_of(source, domain, partition):
                cells, _ = cells_of(table, source, domain, partition.source_label)
                persons = [b""] * len(cells)
                if source.person is not None:
                    persons = [each.tobytes() for each in person_hashes(table, source, partition, 0, key)[0]]
                out += list(zip(persons, cells.tolist(), strict=True))
    except DpdistError:
        return None
    return out


def moved(before: list[Decoded], after: list[Decoded]) -> int:
    """How many records went or came: 1 for a neighbour. Of every other person the records are the same in the same order."""
    gone, come = Counter(before) - Counter(after), Counter(after) - Counter(before)
    touched = {person for person, _ in (*gone, *come)}
    for person in {person for person, _ in before} - touched - {b""}:
        assert [each for each in before if each[0] == person] == [each for each in after if each[0] == person]
    return gone.total() + come.total()


# Texts: every record is one line.

LINES = (
    b"1,1.5,2026-01-02,foo",
    b"2,1.50,2026-01-03,bar",
    b'3,2.0,2026-01-04,"x,y"',
    b'4,7.25,2026-01-05,"a""b"',
    b"5,x,2026-01-06,O'x",
    b"6,2,2026-01-07,x;y",
    b"2026-01-08,2026-01-08,1,1",
)
ODD = (
    b'x,"oops',
    b'1,1.5,2026-01-02,"oops',
    b'"',
    b'""',
    b'"""',
    b'"1","1.5","2026-01-02","foo"',
    b'"1",1.5,2026-01-02,fo"o',
    b'1,1.5,2026-01-02,"foo"bar',
    b'y",1.5,2026-01-02,foo',
    b"O'x,'x",
    b"1,'1.5,2026-01-02,foo'",
    b"1,1.5,2026-01-02,foo\r",
    b"1,1.5\r2,1.5,2026-01-02,foo",
    b"\r",
    b"1,1.5,2026-01-02,fo\x00o",
    b"\x00",
    b"\xef\xbb\xbf1,1.5,2026-01-02,foo",
    b"1,1.5,2026-01-02,fo\xff",
    b"1,1.5,2026-01-02,fo\xc2\x85o",
    b"1,1.5,2026-01-02,fo\xe2\x80\xa8o",
    b"1,1.5,2026-01-02,fo\x0bo\x0c\x1c\x1a",
    b"1,1.5",
    b"1,1.5,2026-01-02,foo,more",
    b",,,",
    b",",
    b" ",
    b"1;1.5;2026-01-02;foo",
    b"1\t1.5\t2026-01-02\tfoo",
    b"1e400,NaN,2026-02-30,NULL",
    b"17.6,007.25,05/13/2026,NA",
    b"0x10,1_0,13.05.2026,N/A",
    b"-inf,-0,2026-01-02T10:00:00+14:00,null",
    "１,１.５,２０２６-01-02,foo".encode(),
    b"n,price,day,who",
    b"#comment",
    b"\\",
    b'1,1.5,2026-01-02,foo\\"',
    b"1,1.5,2026-01-02," + b"l" * 70_000,
    b"1" * 400 + b",1.5,2026-01-02,foo",
)


def text_of(lines: Sequence[bytes], end: bytes = b"\n", header: bytes = b"n,price,day,who") -> bytes:
    return b"".join(line + end for line in (header, *lines))


def csv(folder: Path, lines: Sequence[bytes]) -> dict[str, Any]:
    (folder / "r.csv").write_bytes(text_of(lines))
    return {"path": "r.csv"}


def csv_windows(folder: Path, lines: Sequence[bytes]) -> dict[str, Any]:
    (folder / "r.csv").write_bytes(b"\xef\xbb\xbf" + text_of(lines, b"\r\n"))
    return {"path": "r.csv"}


def csv_unquoted(folder: Path, lines: Sequence[bytes]) -> dict[str, Any]:
    return csv(folder, lines) | {"csv": {"quoting": "none"}}


def csv_semicolons(folder: Path, lines: Sequence[bytes]) -> dict[str, Any]:
    (folder / "r.csv").write_bytes(text_of([line.replace(b",", b";") for line in lines], header=b"n;price;day;who"))
    return {
        "path": "r.csv",
        "csv": {"delimiter": ";", "decimal": ",", "encoding": "latin-1", "dates": {"format": "%Y-%m-%d"}},
    }


def csv_headless(folder: Path, lines: Sequence[bytes]) -> dict[str, Any]:
    (folder / "r.csv").write_bytes(text_of(lines)[len(b"n,price,day,who\n") :])
    return {"path": "r.csv", "header": list(NAMES)}


def csv_packed(folder: Path, lines: Sequence[bytes]) -> dict[str, Any]:
    """gz whose every line is a member of its own, as writers make that append."""
    (folder / "r.csv.gz").write_bytes(b"".join(gzip.compress(line + b"\n") for line in (b"n,price,day,who", *lines)))
    return {"path": "r.csv.gz"}


def csv_files(folder: Path, lines: Sequence[bytes]) -> dict[str, Any]:
    """A folder in which every file holds three lines, and empty ones: two files of the same bytes would be refused."""
    (folder / "r").mkdir()
    for number in range(0, len(lines), 3):
        (folder / "r" / f"{number:03}.csv").write_bytes(text_of([*lines[number : number + 3], *[b""] * number]))
    return {"path": "r"}


def csv_query(folder: Path, lines: Sequence[bytes]) -> dict[str, Any]:
    (folder / "r.csv").write_bytes(text_of(lines))
    return {"sql": "SELECT n, price, day, who FROM 'r.csv'", "types": TYPES}


def csv_query_as_counted(folder: Path, lines: Sequence[bytes]) -> dict[str, Any]:
    """Without declared types: the spec's domain decides them."""
    csv(folder, lines)
    return {"sql": "SELECT * FROM 'r.csv'"}


TEXTS: dict[str, Callable[[Path, Sequence[bytes]], dict[str, Any]]] = {
    each.__name__: each
    for each in (
        csv,
        csv_windows,
        csv_unquoted,
        csv_semicolons,
        csv_headless,
        csv_packed,
        csv_files,
        csv_query,
        csv_query_as_counted,
    )
}


def random_lines(chance: random.Random, most: int) -> list[bytes]:
    """Mostly good lines: with many odd ones nearly every file would be refused, and nothing compared."""
    safe = [line for line in ODD if line.count(b'"') % 2 == 0 and b"\xff" not in line]
    return [chance.choice(safe if chance.random() < 0.3 else LINES) for _ in range(chance.randint(1, most))]


# Values: every record is a row; a writer infers the types of the columns from them.

Row = dict[str, Any]


def rows_of(chance: random.Random, most: int, odd: bool) -> list[Row]:
    """Rows as a program holds them before it writes them."""
    day = datetime.date(2026, 1, 1)

    def value(name: str) -> Any:
        if odd and chance.random() < 0.4:
            return None
        return {
            "n": lambda: chance.choice([1, 2, 3] if not odd else [4, 17.6, 2.5, 2**53, -1, float("nan")]),
            "price": lambda: chance.choice([Decimal("1.5"), Decimal("2.0")] if not odd else [Decimal("7.25"), Decimal(2)]),
            "day": lambda: (
                day + datetime.timedelta(chance.randint(0, 30))
                if not odd
                else datetime.datetime(2026, 1, chance.randint(1, 31), chance.choice([0, 13]))
            ),
            "who": lambda: chance.choice(["foo", "bar", "O'x", "x,y"] if not odd else ['"oops', "new\nline", "\0", ""]),
            "p": lambda: chance.choice(["p1", "p2", "p3"]),
        }[name]()

    out = [
        {name: value(name) for name in NAMES} | {"p": chance.choice(["p1", "p2", "p3"])}
        for _ in range(chance.randint(1, most))
    ]
    return out


def inferred(rows: Sequence[Row]) -> pa.Table:
    """A table whose types follow from its values, as pandas and Arrow infer them."""
    columns = {}
    for name in (*NAMES, "p"):
        values = [row[name] for row in rows]
        if name == "n" and any(isinstance(v, float) or v is None for v in values):
            columns[name] = pa.array([None if v is None else float(v) for v in values], pa.float64())
        elif name == "day" and any(isinstance(v, datetime.datetime) for v in values):
            columns[name] = pa.array(
                [None if v is None else datetime.datetime(*v.timetuple()[:6]) for v in values], pa.timestamp("us")
            )
        elif name == "who" and len(set(values)) < 3:
            columns[name] = pa.array(values, pa.string()).dictionary_encode()
        else:
            columns[name] = pa.array(values)
    return pa.table(columns)


def typed(rows: Sequence[Row]) -> pa.Table:
    """A table whose types a database declares."""
    types = {
        "n": pa.float64(),
        "price": pa.decimal128(18, 2),
        "day": pa.timestamp("us"),
        "who": pa.string(),
        "p": pa.string(),
    }
    days = [row["day"] and datetime.datetime.combine(row["day"], datetime.time()) for row in rows]
    columns = {name: pa.array(days if name == "day" else [row[name] for row in rows]) for name in types}
    return pa.table({name: column.cast(types[name]) for name, column in columns.items()})


def parquet(folder: Path, rows: Sequence[Row]) -> dict[str, Any]:
    pyarrow.parquet.write_table(inferred(rows), folder / "r.parquet", row_group_size=2)
    return {"path": "r.parquet"}


def arrow(folder: Path, rows: Sequence[Row]) -> dict[str, Any]:
    table = inferred(rows)
    with pa.ipc.new_file(folder / "r.arrow", table.schema) as file:
        for batch in table.to_batches(max_chunksize=2):
            file.write_batch(batch)
    return {"path": "r.arrow"}


def parquet_files(folder: Path, rows: Sequence[Row]) -> dict[str, Any]:
    """A folder in which each file infers its own types."""
    (folder / "r").mkdir()
    for number in range(0, len(rows), 2):
        table = inferred(rows[number : number + 2])
        pyarrow.parquet.write_table(
            table.append_column("file", pa.array([number] * len(table))), folder / "r" / f"{number:03}.parquet"
        )
    return {"path": "r"}


def parquet_query(folder: Path, rows: Sequence[Row]) -> dict[str, Any]:
    parquet_files(folder, rows)
    return {"sql": "SELECT n, price, day, who, p FROM 'r/*.parquet'", "types": TYPES}


def parquet_query_as_counted(folder: Path, rows: Sequence[Row]) -> dict[str, Any]:
    """Without declared types; what the query computes would follow the types of the files, which one row decides."""
    parquet(folder, rows)
    return {"sql": "SELECT * REPLACE (CAST(n AS TEXT) AS price) FROM 'r.parquet'"}


def hive(folder: Path, rows: Sequence[Row]) -> dict[str, Any]:
    """Folders that name the day."""
    for number, row in enumerate(rows):
        day = "unknown" if row["day"] is None else str(row["day"])
        place = folder / "r" / f"day={day.replace(':', '%3A')}"
        place.mkdir(parents=True, exist_ok=True)
        table = inferred([row]).drop_columns(["day"])
        pyarrow.parquet.write_table(table.append_column("file", pa.array([number])), place / f"{number:03}.parquet")
    return {"path": "r"}


def hive_query(folder: Path, rows: Sequence[Row]) -> dict[str, Any]:
    hive(folder, rows)
    return {"sql": "SELECT n, price, day, who, p FROM 'r/*/*.parquet'", "types": TYPES}


def json_lines(folder: Path, rows: Sequence[Row]) -> dict[str, Any]:
    def json_line(row: Row) -> str:
        return json.dumps({k: v if v is None or isinstance(v, int | float) else str(v) for k, v in row.items()})

    (folder / "r.jsonl").write_text("".join(json_line(row) + "\n" for row in rows))
    return {"sql": "SELECT n, price, day, who, p FROM 'r.jsonl'", "types": TYPES}


def database(folder: Path, rows: Sequence[Row]) -> dict[str, Any]:
    with duckdb.connect(str(folder / "shop.duckdb")) as db:
        db.execute("CREATE TABLE r (n DOUBLE, price DECIMAL(18, 2), day TIMESTAMP, who TEXT, p TEXT)")
        db.executemany("INSERT INTO r VALUES (?, ?, ?, ?, ?)", [[row[name] for name in (*NAMES, "p")] for row in rows])
    (folder / "url").write_text("shop.duckdb")
    return {"sql": "SELECT * FROM r", "connection": "$BYTES"}


def delta(folder: Path, rows: Sequence[Row]) -> dict[str, Any]:
    import deltalake

    order = list(rows)
    random.Random(len(rows)).shuffle(order)  # a table gives its rows in an order of its own
    for start in range(0, len(order), 3):
        deltalake.write_deltalake(str(folder / "lake"), typed(order[start : start + 3]), mode="append")
    return {"delta": "lake"}


def iceberg(folder: Path, rows: Sequence[Row]) -> dict[str, Any]:
    from pyiceberg.catalog import load_catalog

    table, name = typed(rows), f"shop.{folder.name}{folder.parent.name}"
    catalog = load_catalog("lake")
    catalog.create_namespace_if_not_exists("shop")
    made = catalog.create_table(name, table.schema)
    for start in range(0, table.num_rows, 3):
        made.append(table.slice(start, 3))
    return {"iceberg": f"lake.{name}"}


def frame(folder: Path, rows: Sequence[Row]) -> dict[str, Any]:
    """A table that a Python program passes in place of a file."""
    table = inferred(rows)
    path = write_records(table, table.column_names, folder / "home" / "records", keys.load(folder / "home"))
    return {"path": str(path)}


VALUES: dict[str, Callable[[Path, Sequence[Row]], dict[str, Any]]] = {
    each.__name__: each
    for each in (
        parquet,
        arrow,
        parquet_files,
        parquet_query,
        parquet_query_as_counted,
        hive,
        hive_query,
        json_lines,
        database,
        delta,
        iceberg,
        frame,
    )
}


def compare(
    folder: Path,
    build: Callable[[Path, Sequence[Any]], dict[str, Any]],
    base: Sequence[Any],
    more: Any,
    at: int,
    **person: Any,
) -> bool | None:
    """Whether one record more, at some place, moves one record; None where either is refused."""
    out = []
    for name, records in (("before", base), ("after", [*base[:at], more, *base[at:]])):
        place = folder / name
        place.mkdir(parents=True)
        out.append(decoded(place, build(place, records) | person))
    before, after = out
    return None if before is None or after is None else moved(before, after) <= 1


@pytest.fixture(autouse=True)
def key_and_databases(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A root key, and where the databases of the forms are."""
    monkeypatch.setenv(keys.ENVIRONMENT, (home / "root.key").read_text().strip())
    monkeypatch.setenv("BYTES", "shop.duckdb")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{tmp_path}/lake")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())


@pytest.mark.parametrize(
    ("form", "every"),
    [
        *((form, 1 if form == "csv" else 8) for form in TEXTS),
        *(pytest.param(form, 1, marks=pytest.mark.slow) for form in TEXTS if form != "csv"),
    ],
)
def test_one_more_line_is_one_more_record(form: str, every: int, tmp_path: Path) -> None:
    """Odd lines after some lines: each is refused, or one record and nobody else's matter."""
    chance = random.Random(form)
    compared = 0
    odd = ODD[chance.randrange(every) :: every]
    for number, more in enumerate(odd):
        base = random_lines(chance, 8)
        found = compare(tmp_path / str(number), TEXTS[form], base, more, chance.randint(0, len(base)))
        assert found in (True, None), (base, more)
        compared += found is True
    assert compared >= len(odd) * 0.5


@pytest.mark.parametrize("seeds", [SEEDS, pytest.param(4 * SEEDS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("form", always(["arrow", "json_lines", "database", "frame"], VALUES))
def test_one_more_row_is_one_more_record(form: str, seeds: int, tmp_path: Path) -> None:
    """Types that are inferred from all values, with and without persons."""
    chance = random.Random(form)
    compared = 0
    for number in range(seeds):
        base, (more,) = rows_of(chance, 7, odd=False), rows_of(chance, 1, odd=True)
        person = {"person": {"column": "p", "most_records": 2}} if number % 2 else {}
        found = compare(tmp_path / str(number), VALUES[form], base, more, chance.randint(0, len(base)), **person)
        assert found in (True, None), (base, more)
        compared += found is True
    assert compared >= seeds * 0.5


YES = {"yes": {"categories": ["false", "true"], "missing": "none", "other": "other"}}
YES_CELLS = {"False": 0, "false": 0, "FALSE": 0, "True": 1, "true": 1, "TRUE": 1}
ODD_YES = (*YES_CELLS, "", " ", "1", "yes", "True ", "t", "TRÜE", "ＴＲＵＥ", "Tr\0ue", "nan", "fal\u017fe", "2026-01-01")


def yes_csv(folder: Path, values: Sequence[str]) -> dict[str, Any]:
    """As pandas writes booleans, each alone on its line: an empty one is quoted."""
    (folder / "r.csv").write_bytes("".join((each or '""') + "\n" for each in ("yes", *values)).encode())
    return {"path": "r.csv"}


def yes_parquet(folder: Path, values: Sequence[str]) -> dict[str, Any]:
    """Booleans where all of them are, as a writer decides; else texts."""
    words = [each.lower() for each in values]
    plain = all(each in ("true", "false") for each in words)
    column = pa.array([each == "true" for each in words] if plain else values)
    pyarrow.parquet.write_table(pa.table({"yes": column}), folder / "r.parquet")
    return {"path": "r.parquet"}


def yes_query(folder: Path, values: Sequence[str]) -> dict[str, Any]:
    yes_parquet(folder, values)
    return {"sql": "SELECT * FROM 'r.parquet'"}


@pytest.mark.parametrize("form", [yes_csv, yes_parquet, yes_query])
def test_how_one_record_writes_true_decides_no_other(form: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    """True, true and TRUE are one value in every record by itself, whatever other records hold."""
    base = list(YES_CELLS)
    for number, more in enumerate([None, *ODD_YES]):
        folder = tmp_path / str(number)
        folder.mkdir()
        found = decoded(folder, form(folder, base if more is None else [*base, more]), YES)
        assert found is not None
        counts = Counter(cell for _, cell in found)
        if more is not None:
            counts.subtract([YES_CELLS.get(more, 3 if more == "" else 2)])
        assert +counts == {0: 3, 1: 3}, more


def test_one_more_row_of_postgresql_is_one_more_record(
    postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same for a table of a PostgreSQL server, whose exact numbers arrive as texts."""
    url = postgres.database()
    name = url.rpartition("/")[2]
    monkeypatch.setenv("SHOP", url.replace("+psycopg", ""))

    def table(folder: Path, rows: Sequence[Row]) -> dict[str, Any]:
        made = f"r{folder.name}{folder.parent.name}"
        postgres.execute(f"CREATE TABLE {made} (n float8, price numeric, day timestamp, who text, p text)", name)
        for row in rows:
            values = ", ".join("NULL" if v is None else f"'{v}'".replace("O'x", "O''x") for v in row.values())
            postgres.execute(f"INSERT INTO {made} VALUES ({values})", name)
        return {"sql": f"SELECT * FROM {made}", "connection": "$SHOP"}

    chance = random.Random(7)
    for number in range(SEEDS // 2):
        base, (more,) = rows_of(chance, 7, odd=False), rows_of(chance, 1, odd=True)
        more["who"] = more["who"] and more["who"].replace("\0", "")  # PostgreSQL holds no NUL
        person = {"person": {"column": "p", "most_records": 2}} if number % 2 else {}
        assert compare(tmp_path / str(number), table, base, more, chance.randint(0, len(base)), **person)

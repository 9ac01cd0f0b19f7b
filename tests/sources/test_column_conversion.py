"""Types of columns: one record more never changes how another is read, whatever it makes of the types that a writer chose."""

from __future__ import annotations

import datetime
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from dpdist import engine
from dpdist.counting.histogram_counting import count
from dpdist.counting.record_cells import tables_of
from dpdist.domain import Attribute, Domain
from dpdist.domain.calendar import Times
from dpdist.errors import InvalidSpec
from dpdist.sources import verified_files
from dpdist.sources.column_types import ColumnType
from dpdist.sources.formats import arrow_files, json_lines
from dpdist.sources.formats.column_conversion import Unconvertible, convert_column, moments_of, texts_of
from dpdist.sources.formats.csv_files import dates_of_texts
from dpdist.sources.record_sources import Source, partitions_of, source_of
from dpdist.spec import load
from dpdist.storage.array_store import Store
from tests.counting.test_histogram_counting import ROOT
from tests.support import small_release

DAY = datetime.date(2026, 9, 1)
NOON = datetime.datetime(2026, 9, 1, 12)
AGES = Attribute("age", edges=(0.0, 18.0, 60.0), missing="none", outside="drop")
DAYS = Attribute(
    "day", edges=(0.0, 1.0, 2.0), times=Times(datetime.datetime(2026, 9, 1), 2, "day"), missing="none", outside="drop"
)


def category_attribute(name: str, *categories: str) -> Attribute:
    return Attribute(name, categories=categories, missing="none", other="another")


def counts_of(place: Path, domain: Domain, work: Path, **given: Any) -> np.ndarray:
    """All counts of files, the last two cells of an attribute of categories being missing and other values."""
    source: Source = source_of(place, columns={}, attributes=domain.names, **small_release.whose(**given))
    store = Store(work / "store")
    return store.read_array(count(source, domain, store, engine.inline(), root=ROOT)[0])


SAME = [
    pa.array([1, 2, None]),
    pa.array([1, 2, None], pa.uint8()),
    pa.array([1.0, 2.0, None]),
    pa.array([1.0, 2.0, None], pa.float32()),
    pa.array([Decimal("1.00"), Decimal("2.00"), None]),
    pa.array(["1", "2", None]),
    pa.array(["1", "2", None], pa.large_string()),
    pa.array(["1", "2", None], pa.string_view()),
    pa.array(["1", "2", None]).dictionary_encode(),
    pa.array([1.0, 2.0, None]).dictionary_encode(),
]


@pytest.mark.parametrize("column", SAME, ids=lambda each: str(each.type))
def test_a_value_is_the_same_however_its_column_is_stored(column: pa.Array) -> None:
    assert texts_of(column).to_pylist() == ["1", "2", None]
    assert convert_column(column, "number").to_pylist() == [1.0, 2.0, None]
    assert convert_column(column, "whole").to_pylist() == [1, 2, None]
    assert convert_column(column, "text").type == pa.string()


DATES = [datetime.date(1, 1, 1), datetime.date(1969, 12, 31), DAY, datetime.date(9999, 12, 31), None]
TIMES = [datetime.datetime(1969, 12, 31, 23, 59, 59), NOON, datetime.datetime(2026, 9, 1, 23, 30), None]
STORED = [
    *(pa.array(DATES, kind) for kind in (pa.date32(), pa.date64())),
    *(
        pa.array(TIMES, pa.timestamp(unit, zone))
        for unit in ("s", "ms", "us", "ns")
        for zone in (None, "UTC", "Europe/Berlin", "+05:30")
    ),
    pa.array([1_788_224_523_456_789_123, -1, None], pa.timestamp("ns")),
    pa.array([True, False, None]),
    *(pa.array([0, 1, 100, None], kind) for kind in (pa.int8(), pa.int64(), pa.uint8(), pa.uint64())),
    pa.array([2**63, 2**64 - 1], pa.uint64()),
    pa.array([-(2**63), 2**53 + 1]),
    pa.array([0.5, -0.0, 1e20, 1e300, float("inf"), None]),
    *(pa.array([0.5, 3.0, None], kind) for kind in (pa.float16(), pa.float32())),
    pa.array([Decimal("1.50"), Decimal("-0.00"), Decimal("12345678901234567890.00"), None]),
]
STORED += [column.dictionary_encode() for column in STORED]


@pytest.mark.parametrize("kind", get_args(ColumnType))
def test_a_value_converts_as_its_text_does(kind: ColumnType) -> None:
    """Whatever a file stores it as: every type of column that converts to another one."""
    converted = 0
    for column in STORED:
        try:
            found = convert_column(column, kind)
        except Unconvertible:
            continue
        converted += 1
        assert found.equals(convert_column(texts_of(column), kind)), column.type
    assert converted


def test_texts_of_numbers_and_times() -> None:
    numbers = [1.5, 1e20, 1e50, -0.0, float("nan"), float("-inf"), 1.25e-60]
    written = ["1.5", "1" + 20 * "0", "1e+50", "0", "nan", "-inf", "1.25e-60"]
    assert texts_of(pa.array(numbers)).to_pylist() == written
    assert texts_of(pa.array([1.1], pa.float32())).to_pylist() == ["1.1"]
    assert texts_of(pa.array([Decimal("1.50"), Decimal("7.25"), Decimal("-0.00")])).to_pylist() == ["1.5", "7.25", "0"]
    assert texts_of(pa.array([True, False])).to_pylist() == ["true", "false"]
    for unit in ("s", "ms", "us", "ns"):
        times = pa.array([datetime.datetime(2026, 9, 1), NOON], pa.timestamp(unit))
        assert texts_of(times).to_pylist() == ["2026-09-01", "2026-09-01 12:00:00"]
        assert moments_of(times, finer=True).to_pylist() == ["2026-09-01 00:00:00", "2026-09-01 12:00:00"]
    assert texts_of(pa.array([NOON], pa.timestamp("ms", "Europe/Berlin"))).to_pylist() == ["2026-09-01 12:00:00Z"]
    assert texts_of(pa.array([DAY])).to_pylist() == texts_of(pa.array([DAY], pa.date64())).to_pylist() == ["2026-09-01"]


def test_what_does_not_convert_is_missing_and_its_neighbours_are_not() -> None:
    texts = ["1", "+5", " 7 ", "1.0", "1.5", "x", "", None, "9223372036854775807", "9223372036854775808", "9007199254740993"]
    whole = [1, 5, 7, 1, None, None, None, None, 2**63 - 1, None, 2**53 + 1]
    assert convert_column(pa.array(texts), "whole").to_pylist() == whole
    assert convert_column(pa.array([2**64 - 1, 3], pa.uint64()), "whole").to_pylist() == [None, 3]
    assert convert_column(pa.array([1.5, 2.0, 1e300, None]), "whole").to_pylist() == [None, 2, None, None]
    days = ["2026-09-01", "2026-09-01T12:00", "2026-09-01 01:00:00+02:00", "01.09.2026", "2026-02-30", "", None]
    before = datetime.date(2026, 8, 31)
    assert convert_column(pa.array(days), "date").to_pylist() == [DAY, DAY, before, None, None, None, None]
    midnight, evening = datetime.datetime(2026, 9, 1), datetime.datetime(2026, 8, 31, 23)
    assert convert_column(pa.array(days), "time").to_pylist() == [midnight, NOON, evening, None, None, None, None]
    words = ["true", "false", "True", "FALSE", "1", "true ", None]
    assert convert_column(pa.array(words), "boolean").to_pylist() == [True, False, True, False, None, None, None]
    assert convert_column(pa.array([None, None]), "date").to_pylist() == [None, None]


@pytest.mark.parametrize("zero", ["\u0660", "\u06f0", "\u0966", "\uff10", "\U0001d7ce"])
def test_digits_are_those_of_ascii_alone(zero: str) -> None:
    """Arabic, Persian, Devanagari, wide and bold ones: Python takes them for digits, other readers do not."""
    to_script = str.maketrans({str(digit): chr(ord(zero) + digit) for digit in range(10)})

    def written(text: str) -> list[str]:
        """The text, and the same with one digit or all of them in the script."""
        one_by_one = [text[:place] + text[place].translate(to_script) + text[place + 1 :] for place in range(len(text))]
        return [text, *({text.translate(to_script), *one_by_one} - {text})]

    texts = {"whole": "12", "number": "1.5", "date": "2026-09-21", "time": "2026-09-21 12:00"}
    assert {*texts} == {*get_args(ColumnType)} - {"text", "boolean"}
    for kind, text in texts.items():
        good, *others = convert_column(pa.array(written(text)), kind).to_pylist()
        assert good is not None
        assert {*others} == {None}, kind
    forms = {"%d.%m.%Y": "21.09.2026", "%Y/%j %H%z": "2026/244 14+0200", "%Y-%m-%d %H:%M:%S.%f": "2026-09-21 12:00:00.5"}
    for form, text in forms.items():
        good, *others = dates_of_texts(pa.array(written(text)), form).to_pylist()
        assert good is not None
        assert {*others} == {None}, form


def test_whole_numbers_have_63_bits_whatever_they_come_from() -> None:
    ends = [-(2**63) - 1, -(2**63), -(2**63) + 1, 2**63 - 1, 2**63]
    inside = [None, *ends[1:4], None]
    assert convert_column(pa.array([*map(str, ends)]), "whole").to_pylist() == inside
    for zeros in ("", ".0", ".00"):
        assert convert_column(pa.array([Decimal(f"{end}{zeros}") for end in ends]), "whole").to_pylist() == inside
    assert convert_column(pa.array(ends[1:4], pa.int64()), "whole").to_pylist() == ends[1:4]
    assert convert_column(pa.array(ends[3:], pa.uint64()), "whole").to_pylist() == [2**63 - 1, None]


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64()])
def test_dates_have_no_place_among_steps_finer_than_a_day(kind: pa.DataType) -> None:
    """All of them would be counted at midnight; however the column stores them."""
    dates = pa.array([DAY, None], kind)
    assert moments_of(dates, finer=False).to_pylist() == ["2026-09-01", None]
    for column in (dates, dates.dictionary_encode(), pa.chunked_array([dates, dates])):
        with pytest.raises(Unconvertible, match="holds dates; allowed are times and ISO texts"):
            moments_of(column, finer=True)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ([True], "number"),
        ([DAY], "number"),
        ([DAY], "whole"),
        ([1], "date"),
        ([1.5], "time"),
        ([1], "boolean"),
        ([[1]], "text"),
        ([{"KNOWN": 1}], "number"),
    ],
)
def test_columns_that_cannot_convert_are_refused_without_their_type(column: list[Any], kind: ColumnType) -> None:
    with pytest.raises(Unconvertible, match="^holds .*; allowed are") as refused:
        convert_column(pa.array(column), kind)
    assert "KNOWN" not in str(refused.value)


@pytest.mark.parametrize("kind", get_args(ColumnType))
def test_texts_that_are_not_utf_8_convert_to_nothing(kind: ColumnType) -> None:
    """Files may hold them under the name of texts; what they would become differs between readers."""
    column = pa.Array.from_buffers(pa.string(), 2, pa.array([b"2\xff", b"3"], pa.binary()).buffers())
    with pytest.raises(pa.ArrowException):
        convert_column(column, kind)


@pytest.mark.parametrize(
    ("without", "more", "value"),
    [
        (pa.array([Decimal("1.5")] * 9), pa.array([Decimal("1.50")] * 9 + [Decimal("7.25")]), "1.5"),
        (pa.array([DAY] * 9), pa.array([datetime.datetime(2026, 9, 1)] * 9 + [NOON]), "2026-09-01"),
        (pa.array([17] * 9), pa.array([17.0] * 9 + [None]), "17"),
        (pa.array([17] * 9), pa.array(["17"] * 9 + ["unknown"]), "17"),
    ],
    ids=["decimals", "dates", "missing", "text"],
)
def test_one_record_changes_no_other_record_of_parquet(
    without: pa.Array, more: pa.Array, value: str, tmp_path: Path
) -> None:
    """A writer takes the type of a column from its values: 7.25 made 1.50 of 1.5."""
    found = []
    for number, column in enumerate((without, more)):
        path = tmp_path / f"{number}.parquet"
        pyarrow.parquet.write_table(pa.table({"x": column}), path)
        found.append(counts_of(path, Domain((category_attribute("x", value),)), tmp_path / str(number)))
    assert found[0].tolist()[0] == found[1].tolist()[0] == 9
    assert int(np.abs(found[0] - found[1]).sum()) == 1


def test_a_missing_value_beside_whole_numbers_moves_none_of_them(tmp_path: Path) -> None:
    """Of 2^53 and beyond: they were compared exactly where no value was missing, and rounded where one was."""
    edges = tuple(float(2**53 + step) for step in (-4, -2, 0))
    domain = Domain((Attribute("n", edges=edges, missing="none", outside="drop"),))
    found = []
    for number, values in enumerate(([2**53 - 1, 2**53 + 1], [2**53 - 1, 2**53 + 1, None])):
        path = tmp_path / f"{number}.parquet"
        pyarrow.parquet.write_table(pa.table({"n": pa.array(values)}), path)
        found.append(counts_of(path, domain, tmp_path / str(number)))
    assert int(np.abs(found[0] - found[1]).sum()) == 1


@pytest.mark.parametrize(("name", "attribute", "good"), [("age", AGES, "17"), ("day", DAYS, "2026-09-01")])
def test_a_folder_whose_value_does_not_convert_has_none(name: str, attribute: Attribute, good: str, tmp_path: Path) -> None:
    for value, rows in ((good, [1, 2]), ("unknown", [3])):
        path = tmp_path / "hive" / f"{name}={value}" / "x.parquet"
        path.parent.mkdir(parents=True)
        pyarrow.parquet.write_table(pa.table({"other": rows}), path)
    given: dict[str, Any] = {"types": {name: "date"}} if name == "day" else {}
    assert counts_of(tmp_path / "hive", Domain((attribute,)), tmp_path, **given).tolist() == [2, 0, 1]


def test_lines_of_json_are_records_one_by_one(tmp_path: Path) -> None:
    lines = [
        b'\xef\xbb\xbf{"age": 17, "name": "a"}',
        b'{"age": "17.0", "name": 1.50, "SECRETJANE": 1}',
        b'{"age": [17], "name": {"a": 1}}',
        b"KNOWN, no object",
        b'{"age": 17, "name": "\xff"}',
        b'{"age": 17, "name": "\\ud800"}',
        b"[" * 100_000,
        b"   ",
        b'{"name": true, "age": 1e999999999}\r',
        b"{}",
    ]
    (batch,) = json_lines.batches(io.BytesIO(b"\n".join(lines)), ["age", "name"], 100)
    assert batch["age"].to_pylist() == ["17", "17.0", None, None, None, "17", None, "1e+999999999", None]
    assert batch["name"].to_pylist() == ["a", "1.5", None, None, None, None, None, "true", None]
    for more in range(len(lines)):
        (tmp_path / "x.jsonl").write_bytes(b"\n".join(lines[: more + 1]))
        expected = counts_of(
            tmp_path / "x.jsonl", Domain((AGES, category_attribute("name", "a", "1.5"))), tmp_path / f"w{more}"
        )
        assert expected.sum() <= more + 1
    with pytest.raises(InvalidSpec, match="longer than 16 MiB"):
        list(json_lines.batches(io.BytesIO(b"x" * (18 * 2**20)), ["age"], 10))


def test_a_release_of_json_lines_and_of_declared_types(home: Path) -> None:
    table = small_release.records()
    path = small_release.write(
        home.parent / "data", records={"path": "records.jsonl", "types": {"age": "whole", "sex": "text"}}
    )
    (path.parent / "records.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    assert small_release.run(path, home).tally.read == 3000


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ({"path": "x.csv", "types": {"nothing": "text"}}, "which is no column that is counted"),
        ({"path": "x.csv", "types": {"age": "date"}}, "'age' is declared 'date'"),
        ({"path": "x.csv", "types": {"age": "int"}}, "types"),
        ({"path": "x.csv", "person": {"column": "person"}, "types": {"person": "number"}}, "'person' is declared 'number'"),
    ],
)
def test_specs_of_types_that_are_refused(records: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match=said):
        load(small_release.write(tmp_path, records=records))


@pytest.mark.parametrize("limit", [-1, 2**16])
def test_texts_are_counted_alike_where_a_file_has_them_in_a_dictionary(
    limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missing, empty and other texts, texts of numbers, and what is none; one row group has more texts than records of a batch."""
    towns = [["a", "b", "elsewhere", "", None][number % 5] for number in range(3000)]
    ages = [["17", "30.0", "x", " ", None, "99", "41"][number % 7] for number in range(3000)]
    many = [f"name {number // 2}" for number in range(3000)]
    table = pa.table({"town": towns, "age": ages, "name": many})
    pyarrow.parquet.write_table(table, tmp_path / "r.parquet", row_group_size=1000)
    monkeypatch.setattr(arrow_files, "DICTIONARY_BYTES", limit)
    monkeypatch.setattr(arrow_files, "BATCH_ROWS", 300)
    monkeypatch.setattr(verified_files, "BLOCK_BYTES", 2**10)  # the file is read by row group
    domain = Domain((category_attribute("town", "a", "b"), AGES, category_attribute("name", "name 0", "name 1499")))
    source = source_of(tmp_path / "r.parquet", columns={}, attributes=domain.names)
    partitions = partitions_of(source)
    assert len(partitions) == 3
    read = pa.concat_tables(part for partition in partitions for part in tables_of(source, domain, partition))
    assert pa.types.is_dictionary(read["town"].type) == (limit > 0)
    store = Store(tmp_path / "store")
    stored, summary = count(source, domain, store, engine.inline(), root=ROOT)
    expected = np.zeros(domain.shape, dtype=np.int64)
    for town, age, name in zip(towns, ages, many, strict=True):
        years = {"17": 0, "30.0": 1, "41": 1, "99": None}.get(str(age), 2)
        if years is not None:
            place = ({"a": 0, "b": 1, "": 3, None: 3}.get(town, 2), years, {"name 0": 0, "name 1499": 1}.get(name, 2))
            expected[place] += 1
    np.testing.assert_array_equal(store.read_array(stored).reshape(domain.shape), expected)
    assert summary.unread == sum(age == "x" for age in ages)

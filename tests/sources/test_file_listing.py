"""Files of records that cannot be read, or are none: one clear line before the charge, which quotes no record."""

from __future__ import annotations

import datetime
import gzip
import os
import socket
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

from dpdist import engine
from dpdist.counting.histogram_counting import count
from dpdist.counting.record_cells import CountSummary
from dpdist.domain import Attribute, Domain
from dpdist.errors import DpdistError, InvalidSpec, NoRecords, UnknownValue
from dpdist.privacy.keys import Secret
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.sources import file_listing
from dpdist.sources.formats.format_registry import FORMATS
from dpdist.sources.formats.record_format import TypedFormat
from dpdist.sources.record_sources import check_columns, source_of
from dpdist.spec import check_many_periods, load
from dpdist.storage.array_store import Store
from tests.support import small_release

DOMAIN = Domain((Attribute("age", edges=tuple(range(13))), Attribute("sex", categories=("f", "m"))))
HEAD = b"age,sex,person\n"
ROW = b"3,f,KNOWN\n"
TABLE = pa.table({"age": np.arange(400) % 12, "sex": ["f", "m"] * 200, "person": [f"KNOWN{i}" for i in range(400)]})


def parquet(table: pa.Table = TABLE, **options: object) -> bytes:
    sink = pa.BufferOutputStream()
    pyarrow.parquet.write_table(table, sink, **options)
    return bytes(sink.getvalue().to_pybytes())


def with_sex(values: pa.Array) -> bytes:
    return parquet(TABLE.set_column(1, "sex", values))


def damaged(content: bytes, start: int) -> bytes:
    return content[:start] + b"\xff" * 40 + content[start + 40 :]


def counted(tmp_path: Path, location: Path, **options: object) -> CountSummary:
    source = source_of(location, columns={}, **small_release.whose(**options))
    return count(
        source,
        DOMAIN,
        Store(tmp_path / "store"),
        engine.inline(),
        root=Secret(bytes(range(32))),
    )[1]


NOT_UTF8 = pa.array([b"\xff\xfe"] * 400, pa.binary())
BAD = {
    "open quote": ("x.csv", HEAD + ROW * 3 + b'3,"KNOWN\n' + ROW, "a quotation mark is still open at the end of the line"),
    "line of an open quote": ("x.csv", HEAD + b"\n" + ROW * 3 + b'3,f,"KNOWN\n' + ROW, "(line 6)"),
    "open quote in the header": ("x.csv", b'age,"sex,KNOWN\n' + ROW, "(line 1)"),
    "text after a quote in the header": ("x.csv", b'age,"sex"KNOWN,person\n' + ROW, "in the header row"),
    "latin-1": (
        "x.csv",
        HEAD + ROW + "3,KNOWNß,x\n".encode("latin-1"),
        "not UTF-8; save the file as UTF-8, or say its encoding in 'records.csv.encoding' (line 3)",
    ),
    "utf-16": ("x.csv", (HEAD + ROW).decode().encode("utf-16"), "its text is not UTF-8"),
    "utf-16 without its mark": ("x.csv", (HEAD + ROW).decode().encode("utf-16-le"), "its text is UTF-16"),
    "empty csv": ("x.csv", b"", "the file is empty; write at least its header row"),
    "blank csv": ("x.csv", b"\n\n", "the file is empty"),
    "row over 16 MiB": ("x.csv", HEAD + ROW + b'3,"' + b"a" * (34 * 2**20) + b'",x\n' + ROW, "a line is longer than 16 MiB"),
    "columns twice": ("x.csv", b"age,sex,sex\n3,f,f\n", "more than one column 'sex'"),
    "no header row": (
        "x.csv",
        ROW * 9,
        "no column 'age'; say in 'records.columns' which of its columns is meant, or all columns in 'records.header'",
    ),
    "semicolons": (
        "x.csv",
        (HEAD + ROW).replace(b",", b";"),
        "seems to have ';' between its columns; name them in 'records.csv.delimiter'",
    ),
    "tabs": ("x.csv", (HEAD + ROW).replace(b",", b"\t"), "seems to have tabs between its columns"),
    "gz truncated": ("x.csv.gz", gzip.compress(HEAD + ROW * 1000)[:-20], "ends early or is damaged"),
    "gz that is none": ("x.csv.gz", HEAD + ROW, "its name says gzip, its content is something else"),
    "gz of nothing": ("x.csv.gz", b"", "the file is empty"),
    "parquet truncated": ("x.parquet", parquet()[:-100], "it is no whole Parquet file"),
    "parquet of nothing": ("x.parquet", b"", "it is no whole Parquet file"),
    "parquet of garbage": ("x.parquet", b"PAR1" + b"x" * 1000 + b"PAR1", "it is no whole Parquet file"),
    "page damaged": ("x.parquet", damaged(parquet(), 60), "a page of it is damaged"),
    "page with another checksum": (
        "x.parquet",
        damaged(parquet(compression="none", write_page_checksum=True), 60),
        "a page of it is damaged",
    ),
    "column missing": (
        "x.parquet",
        parquet(TABLE.drop_columns(["sex"])),
        "no column 'sex'; say in 'records.columns' which of its columns is meant (the names that",
    ),
    "parquet columns twice": (
        "x.parquet",
        parquet(pa.Table.from_arrays([TABLE["age"], TABLE["sex"], TABLE["sex"]], names=["age", "sex", "sex"])),
        "more than one column 'sex'",
    ),
    "struct": ("x.parquet", with_sex(pa.array([{"a": "KNOWN"}] * 400)), "its column holds lists, structures"),
    "list": ("x.parquet", with_sex(pa.array([["KNOWN"]] * 400)), "its column holds lists, structures"),
    "bytes": ("x.parquet", with_sex(NOT_UTF8), "its text is not UTF-8"),
    "text that is not UTF-8": (
        "x.parquet",
        with_sex(pa.Array.from_buffers(pa.string(), 400, NOT_UTF8.buffers())),
        "its text is not UTF-8",
    ),
    "dates for bins": (
        "x.parquet",
        parquet(TABLE.set_column(0, "age", pa.array([datetime.date(2026, 9, 1)] * 400))),
        "has bins, its column holds dates",
    ),
}


@pytest.mark.parametrize("name", list(BAD))
def test_a_file_that_cannot_be_read_is_one_line_that_quotes_nothing(tmp_path: Path, name: str) -> None:
    file, content, message = BAD[name]
    path = tmp_path / file
    path.write_bytes(content)
    for options in ({}, {"person": "person"}):
        if options and b"person" not in content:
            continue
        with pytest.raises(InvalidSpec) as refused:
            counted(tmp_path, path, **options)
        text = str(refused.value)
        assert message in text
        assert path.name in text
        assert "\n" not in text
        assert "KNOWN" not in f"{text}{refused.value.args}"
        assert refused.value.__cause__ is None
        assert refused.value.__suppress_context__ or refused.value.__context__ is None
        assert not list((tmp_path / "scratch").rglob("*.parquet"))


@pytest.mark.parametrize(
    "typed", [each for each in FORMATS if isinstance(each, TypedFormat)], ids=lambda each: each.endings[0]
)
def test_files_whose_columns_have_names_are_not_told_to_have_a_header(tmp_path: Path, typed: TypedFormat) -> None:
    """Neither where the plan looks at the first file nor where records are read; nor is a name taken for a spreadsheet's first line."""
    write = pyarrow.parquet.write_table if typed.endings[0] == ".parquet" else pyarrow.feather.write_feather
    named = [tmp_path / f"{name}{typed.endings[0]}" for name in ("first", "later")]
    for path, names in zip(named, (["age", "sex"], ["sep=;", "sex"]), strict=True):
        write(TABLE.select([0, 1]).rename_columns(names), path)
    with pytest.raises(InvalidSpec, match=r"has no column 'age'; [^,]* is meant \(the names"):
        check_columns(source_of(named[1], columns={}), DOMAIN)
    with pytest.raises(InvalidSpec, match=r"file 2 of .* has no column 'age'; [^,]* is meant \(the names"):
        counted(tmp_path, tmp_path)


@pytest.mark.parametrize("before", [15 * 2**20, 16 * 2**20])
def test_a_row_of_16_mib_is_read(before: int, tmp_path: Path) -> None:
    """As long as the message says that one may be, after so many bytes: texts that nobody asks for are part of it."""
    path, row = tmp_path / "x.csv", b"3,f,%s\n"
    first = row % (b"a" * (before - len(HEAD) - len(row)))
    path.write_bytes(HEAD + first + row % (b"a" * (16 * 2**20 - len(row))) + ROW)
    assert counted(tmp_path, path).read == 3


def test_numbers_keep_their_kind_whatever_the_first_rows_hold(tmp_path: Path) -> None:
    """A column of whole numbers in the first 16 MiB may hold others later; a mark of byte order is no part of a name."""
    path = tmp_path / "x.csv"
    path.write_bytes(b"\xef\xbb\xbf" + HEAD + ROW * (17 * 2**20 // 10) + b"3.5,m,x\n")
    assert counted(tmp_path, path).read == 17 * 2**20 // 10 + 1


def test_a_later_part_without_a_column_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.parquet").write_bytes(parquet())
    (folder / "b.parquet").write_bytes(parquet(TABLE.drop_columns(["sex"])))
    with pytest.raises(InvalidSpec, match=r"file 2 of data/ has no column 'sex'"):
        counted(tmp_path, folder)


def test_files_whose_names_are_not_utf_8_are_refused(tmp_path: Path) -> None:
    """Before anything is charged: nothing that stands for a file could be written down."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.parquet").write_bytes(parquet())
    (folder / os.fsdecode(b"caf\xe9.parquet")).write_bytes(parquet())
    with pytest.raises(InvalidSpec, match=r"the path of 'file 2 of data/' is not UTF-8; rename the file"):
        file_listing.list_files(folder)


def test_hidden_and_temporary_files_are_no_records(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "_temporary").mkdir(parents=True)
    (folder / ".cache").mkdir()
    (folder / "part.parquet").mkdir()  # Spark names folders so
    (folder / "part.parquet" / "a.parquet").write_bytes(parquet())
    for name in (
        ".a.csv",
        "~a.csv",
        "a.csv~",
        "a.csv.tmp",
        "_SUCCESS",
        "_a.parquet",
        ".a.parquet.crc",
        "a.csv.swp",
        "notes.txt",
    ):
        (folder / name).write_bytes(ROW)
    (folder / "_temporary" / "a.csv").write_bytes(ROW)
    (folder / ".cache" / "a.csv").write_bytes(ROW)
    assert [(Path(file.path).name, file.source_label) for file in file_listing.list_files(folder)] == [
        ("a.parquet", "file 1 of data/")
    ]
    assert counted(tmp_path, folder).read == 400
    (folder / "part.parquet" / "a.parquet").unlink()
    with pytest.raises(InvalidSpec, match="no records in data"):
        file_listing.list_files(folder)


@pytest.mark.parametrize(
    "mark", ["_temporary/0/b.parquet", ".b.parquet.inprogress.7", "b.parquet._COPYING_", "b.csv.crdownload"]
)
def test_a_folder_that_is_still_written_is_refused(tmp_path: Path, mark: str) -> None:
    folder = tmp_path / "data"
    (folder / mark).parent.mkdir(parents=True)
    (folder / "a.parquet").write_bytes(parquet())
    (folder / mark).write_bytes(parquet())
    with pytest.raises(NoRecords, match="data/? is still being written: it holds") as refused:
        file_listing.list_files(folder)
    assert "b." not in str(refused.value).replace("being", "")  # no name of a file
    assert "\n" not in str(refused.value)


def test_a_folder_with_the_mark_of_success_alone_says_so(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "_SUCCESS").write_bytes(b"")
    with pytest.raises(
        NoRecords, match="no records in data/?, whose '_SUCCESS' says that a program finished without writing any"
    ):
        file_listing.list_files(tmp_path / "data")


@pytest.mark.parametrize("empty", [("csv", HEAD), ("parquet", parquet(TABLE[:0]))])
def test_empty_parts_are_not_the_same_records(tmp_path: Path, empty: tuple[str, bytes]) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for name in "abc":
        (folder / f"{name}.{empty[0]}").write_bytes(empty[1])
    (folder / "d.parquet").write_bytes(parquet())
    assert counted(tmp_path, folder).read == 400
    (folder / "e.parquet").write_bytes(parquet())
    with pytest.raises(InvalidSpec, match=r"file 4 of data/ and file 5 of data/ hold the same records"):
        counted(tmp_path, folder)


@pytest.mark.parametrize("inside", [False, True])
def test_what_is_no_file_is_named_and_not_waited_for(tmp_path: Path, inside: bool) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    path = folder / "x.csv"
    where = folder if inside else path
    called = "file 1 of data/" if inside else r"x\.csv"
    os.mkfifo(path)
    with pytest.raises(InvalidSpec, match=rf"{called} is a named pipe"):
        source_of(where, columns={})
    path.unlink()
    path.symlink_to("gone.csv")
    with pytest.raises(InvalidSpec, match=rf"{called} is a link to what cannot be reached"):
        source_of(where, columns={})
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(InvalidSpec, match=rf"{called} is a device"):
        source_of(where, columns={})
    path.unlink()
    there = os.getcwd()
    os.chdir(folder)  # names of sockets are short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("x.csv")
            with pytest.raises(InvalidSpec, match=rf"{called} is a socket"):
                source_of(where, columns={})
    finally:
        os.chdir(there)


def test_no_record_is_refused_before_the_charge_unless_it_is_meant(home: Path) -> None:
    path = small_release.write(home.parent / "data", table=small_release.records()[:0])
    with pytest.raises(InvalidSpec, match="nothing was charged; give the right file, or set 'records.empty: allow'"):
        small_release.run(path, home)
    with open_ledger(home) as ledger:
        assert not ledger.entries()
    path = small_release.write(
        home.parent / "data", table=small_release.records()[:0], records={"path": "records.parquet", "empty": "allow"}
    )
    assert small_release.run(path, home).charged


def test_the_advice_fits_the_attribute(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    for row, advice in (
        (b"99,f,x\n", "set 'outside: clip' or 'outside: drop' for 'age'"),
        (b"3,x,x\n", "set 'outside: drop' for 'sex'"),
    ):
        path.write_bytes(HEAD + row)
        with pytest.raises(UnknownValue) as refused:
            counted(tmp_path, path)
        assert str(refused.value).endswith(advice)


def test_a_person_column_is_not_counted() -> None:
    for columns in ({}, {"age": "person"}):
        domain = {**small_release.spec()["domain"], **({} if columns else {"person": {"from": 0, "to": 9}})}
        records = {"path": "x.csv", "columns": columns, "person": {"column": "person"}}
        with pytest.raises(DpdistError, match="'person' identifies persons and is also the attribute"):
            load(small_release.spec(domain=domain, records=records))


def test_backfill_needs_records_of_each_period(tmp_path: Path) -> None:
    fixed = small_release.write(tmp_path / "fixed", title="{period}")
    with pytest.raises(InvalidSpec, match=r"line \d+: every period would read and charge the same records"):
        check_many_periods(fixed)
    check_many_periods(small_release.write(tmp_path / "dated", records={"path": "records-{period}.parquet"}))


def test_a_folder_that_cannot_be_read_is_no_folder_without_records(tmp_path: Path) -> None:
    """Its path is longer than the system's limit; whatever it holds would be left out of every count."""
    (tmp_path / "a.csv").write_bytes(HEAD + ROW)
    held = [os.open(tmp_path, os.O_RDONLY)]
    for _ in range(20):
        os.mkdir("d" * 250, dir_fd=held[-1])
        held.append(os.open("d" * 250, os.O_RDONLY, dir_fd=held[-1]))
    for each in held:
        os.close(each)
    with pytest.raises(InvalidSpec, match="has a folder that cannot be read"):
        file_listing.list_files(tmp_path)

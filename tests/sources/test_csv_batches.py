"""The grammar of CSV records: by examples, against the grammar's own words for whatever bytes, and whatever the blocks."""

from __future__ import annotations

import datetime
import gzip
import io
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpdist.errors import InvalidSpec
from dpdist.sources.formats import csv_batches
from dpdist.sources.formats.csv_files import dates_of_texts, decompressed_stream
from dpdist.sources.formats.csv_grammar import DEFAULT_GRAMMAR, Grammar, MalformedLine, check_dates, is_encoding, records_in
from dpdist.sources.formats.number_parsing import numbers_of_texts
from dpdist.sources.formats.record_format import WantedRows
from dpdist.sources.record_sources import _is_empty, hash_file, source_of
from dpdist.sources.source_labels import File, SourceLabel

RFC = Grammar(multiline=True)
BARE = Grammar(quoting="none")
SEMICOLONS = Grammar(delimiter=";", decimal=",")
Rows = list[list[str | None]]


def rows(content: bytes, grammar: Grammar = DEFAULT_GRAMMAR, size: int = 2**20, header: Sequence[str] = ("x", "y")) -> Rows:
    """What the reader makes of a file of two columns."""
    found = csv_batches.batches(io.BytesIO(content), grammar, list(header), "x.csv", header=header, block_bytes=size)
    return [list(row.values()) for batch in found for row in batch.to_pylist()]


def rows_by_grammar(content: bytes, grammar: Grammar = DEFAULT_GRAMMAR) -> Rows:
    """The same by the grammar's words."""
    text = content.removeprefix(b"\xef\xbb\xbf").decode()
    return [[None, None] if each.values is None else list(each.values) for each in records_in(text, grammar, columns=2)]


@pytest.mark.parametrize(
    ("content", "grammar", "expected"),
    [
        (b"a,1\nb,2\r\nc,3", DEFAULT_GRAMMAR, [["a", "1"], ["b", "2"], ["c", "3"]]),
        (b"\xef\xbb\xbfa,1\n\xef\xbb\xbfb,2\n", DEFAULT_GRAMMAR, [["a", "1"], ["\ufeffb", "2"]]),
        (b"\n\r\na,1\n\n", DEFAULT_GRAMMAR, [["a", "1"]]),
        (b"a\r,1\n\r\r\nb,2\r", DEFAULT_GRAMMAR, [["a\r", "1"], [None, None], ["b", "2\r"]]),
        (b"a\0,\x0b\n\xe2\x80\xa8,\xc2\x85\n", DEFAULT_GRAMMAR, [["a\0", "\x0b"], ["\u2028", "\x85"]]),
        (b'"a,b","say ""x"""\n"",""""\n', DEFAULT_GRAMMAR, [["a,b", 'say "x"'], ["", '"']]),
        (b'5" pipe,a"b"\n', DEFAULT_GRAMMAR, [['5" pipe', 'a"b"']]),
        (b'a,1\n"b"x,2\nc,3\n', DEFAULT_GRAMMAR, [["a", "1"], [None, None], ["c", "3"]]),
        (b"a,1\nb\nc,3,4\n,\n", DEFAULT_GRAMMAR, [["a", "1"], [None, None], [None, None], ["", ""]]),
        (b'x,"oops\ny"\n,"\n', BARE, [["x", '"oops'], [None, None], ["", '"']]),
        (b'"a\r\nb",1\nc,"\n"\n', RFC, [["a\r\nb", "1"], ["c", "\n"]]),
        (b'"a;b";1,5\n', SEMICOLONS, [["a;b", "1,5"]]),
        ("é,ß\n".encode(), DEFAULT_GRAMMAR, [["é", "ß"]]),
        ("€,\u2019\n".encode("cp1252"), Grammar(encoding="windows-1252"), [["€", "\u2019"]]),
        ('é,"ß\na'.encode("latin-1") + b'",b\n', Grammar(encoding="latin-1", quoting="none"), [["é", '"ß'], ['a"', "b"]]),
    ],
)
def test_records_by_example(content: bytes, grammar: Grammar, expected: Rows) -> None:
    for size in (1, 2, 3, 7, 2**20):
        assert rows(content, grammar, size) == expected


@pytest.mark.parametrize(
    ("content", "grammar", "line", "message"),
    [
        (
            b'a,1\nx,"oops\ny"\n',
            DEFAULT_GRAMMAR,
            2,
            "still open at the end of the line.*'records.csv.quoting: none'.*multiline: true",
        ),
        (b'x,"oops\r\n', DEFAULT_GRAMMAR, 1, "still open"),
        (b'a,1\n\n"x"y,"\n', DEFAULT_GRAMMAR, 3, "still open"),
        (b'x,"oops""', DEFAULT_GRAMMAR, 1, "still open"),
        (
            b"a,1\nb,2\nc,\xff\n",
            DEFAULT_GRAMMAR,
            3,
            "not UTF-8; save the file as UTF-8, or say its encoding in 'records.csv.encoding'",
        ),
        (b"a,1\nb,\x81\n", Grammar(encoding="cp1252"), 2, "its text is not cp1252"),
        (b'a,1\n"x\ny",2\nb"c,3\n', RFC, 4, "stands inside a value that does not begin with one"),
        (b'a,1\n"x\ny"z,2\n', RFC, 3, "text follows a closing quotation mark"),
        (b'a,1\n"x\ny",2\nb\n', RFC, 4, "the record has 1 values instead of 2"),
        (b'a,1\nb,"x\ny,2\n', RFC, 2, "is never closed"),
        (b"a,1\nb\r,2\n", RFC, 2, "a carriage return stands outside"),
    ],
)
def test_what_stops_a_run_is_told_by_its_line_alone(content: bytes, grammar: Grammar, line: int, message: str) -> None:
    for size in (1, 5, 2**20):
        with pytest.raises(InvalidSpec, match=rf"x\.csv cannot be read: .*{message}.*\(line {line}\)") as refused:
            rows(content, grammar, size)
        assert "oops" not in str(refused.value)
        assert "\n" not in str(refused.value)


PARTS = [
    *("a", "b,", ",", ",", '"', '"', '""', "\n", "\n", "\r\n", "\r", "\0", "\ufeff", "1", "é", "\u2028", "\x0b", "\n\n"),
    *('x,"y z"\n', "a,1\n"),
]
TEXTS = st.lists(st.sampled_from(PARTS), max_size=40).map("".join)


def outcome(read: object) -> object:
    """Rows, or the line that stopped the run."""
    assert callable(read)
    try:
        return read()
    except MalformedLine as broken:
        return f"line {broken.line_number:,}", broken.problem
    except InvalidSpec as refused:
        text = str(refused)
        return f"line {text.rpartition('(line ')[2].partition(')')[0]}", text.partition("read: ")[2].rpartition(" (line ")[0]


@pytest.mark.parametrize("grammar", [DEFAULT_GRAMMAR, BARE, RFC], ids=["plain", "bare", "rfc"])
@given(TEXTS, st.sampled_from([1, 3, 8, 16, 2**20]))
def test_whatever_the_bytes_and_blocks_the_reader_reads_what_the_grammar_says(
    grammar: Grammar, text: str, size: int
) -> None:
    content = text.encode()
    assert outcome(lambda: rows(content, grammar, size)) == outcome(lambda: rows_by_grammar(content, grammar))


@given(TEXTS, TEXTS, st.sampled_from(['x,"y"', 'x"y,', ",,", '"a"b', "\r", "\ufeffa,b", "é,1", "1"]))
def test_a_line_changes_nothing_of_its_neighbours(before: str, after: str, line: str) -> None:
    """A line more is a record more, with the same records around it, unless a quotation mark is left open."""
    before = before if before.endswith("\n") or not before else before + "\n"
    first, second = (
        outcome(lambda text=text: rows(text.encode())) for text in (before + after, before + line + "\n" + after)
    )
    if isinstance(first, list) and not (not before and after.startswith("\ufeff")):
        own = rows(b"\n" + line.encode() + b"\n")
        assert isinstance(second, list)
        place = len(rows(before.encode()))
        if before or not line.startswith("\ufeff"):
            assert second == first[:place] + own + first[place:]


NUMBERS = st.text('0123456789.,-+eEinfaNA \t"', max_size=8)


@given(st.lists(NUMBERS, max_size=8), st.sampled_from([DEFAULT_GRAMMAR, SEMICOLONS]), st.sampled_from([4, 2**20]))
def test_numbers_are_what_their_own_text_says(texts: list[str], grammar: Grammar, size: int) -> None:
    """A value that is no number is missing, whatever the other lines of its block hold."""
    quoted = ["" if not text else '"' + text.replace('"', '""') + '"' for text in texts]
    content = "".join(f"a{grammar.delimiter}{text}\n" for text in quoted).encode()
    read = csv_batches.batches(
        io.BytesIO(content), grammar, ["y"], "x.csv", header=("x", "y"), numbers=["y"], block_bytes=size
    )
    found = [value for batch in read for value in batch["y"].to_pylist()]
    expected = numbers_of_texts(pa.array(texts, pa.string()), decimal=grammar.decimal).to_pylist()
    assert [None if x is None or x != x else x for x in found] == [None if x is None or x != x else x for x in expected]


def test_records_of_16_mib_are_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_batches, "LONGEST", 10)
    for size in (1, 7, 10):
        assert rows(b"a,1\n" + b"b" * 8 + b",2\n", size=size)[1] == ["b" * 8, "2"]
        with pytest.raises(InvalidSpec, match=r"a line is longer than 16 MiB; .* \(line 2\)"):
            rows(b"a,1\n" + b"b" * 9 + b",2\nc,3\n", size=size)
        with pytest.raises(InvalidSpec, match=r"a record that begins here is longer than 16 MiB; .* \(line 2\)"):
            rows(b'a,1\n"b\n' + b"c\n" * 9 + b'",2\nc,3\n', RFC, size=size)


def test_header_rows_are_read_by_the_same_grammar() -> None:
    for grammar, content, names, records in (
        (DEFAULT_GRAMMAR, b'\xef\xbb\xbf\n"a,b",c\r\n1,2\n', ["a,b", "c"], 4),
        (SEMICOLONS, b"a;b\n", ["a", "b"], 1),
        (RFC, b'"a\nb",c\n', ["a\nb", "c"], 1),
        (BARE, b'"a,b"\n', ['"a', 'b"'], 1),
        (Grammar(encoding="latin-1"), "é,b\n".encode("latin-1"), ["é", "b"], 1),
    ):
        assert csv_batches.header_of(io.BytesIO(content), grammar, "x.csv") == names
        read = csv_batches.batches(io.BytesIO(content + content), grammar, names[:1], "x.csv", block_bytes=3)
        assert sum(batch.num_rows for batch in read) == records
    for content, message in ((b"", "the file is empty"), (b"\n\r\n", "is empty"), (b'a,"b\n', r"still open .*\(line 1\)")):
        with pytest.raises(InvalidSpec, match=message):
            csv_batches.header_of(io.BytesIO(content), DEFAULT_GRAMMAR, "x.csv")


def test_dates_in_a_declared_form() -> None:
    texts = pa.array(["01.09.2026", "1.9.2026", "31.02.2026", "2026-09-01", "", None, "01.09.26"])
    day = datetime.date(2026, 9, 1)
    assert dates_of_texts(texts, "%d.%m.%Y").to_pylist() == [day, day, None, None, None, None, None]
    times = dates_of_texts(pa.array(["01.09.2026 14:30 Uhr"]), "%d.%m.%Y %H:%M Uhr")
    assert times.to_pylist() == [datetime.datetime(2026, 9, 1, 14, 30)]
    zoned = dates_of_texts(pa.array(["2026/244 14+0200"]), "%Y/%j %H%z")
    assert zoned.to_pylist() == [datetime.datetime(2026, 9, 1, 12, tzinfo=datetime.UTC)]
    assert dates_of_texts(pa.array([None], pa.string()), "%Y").to_pylist() == [None]


@pytest.mark.parametrize(
    "form",
    [
        "%d.%m.",
        "%d.%Y",
        "%Y-%m-%d %M",
        "%H %Y",
        "%b %Y",
        "%Y%y",
        "%Y %",
        "%Y %Y",
        "%j.%m.%Y",
        "%Y-%m-%d %H:%S",
        "%Y\n",
        "é%Y",
        "",
    ],
)
def test_forms_of_dates_that_leave_the_day_open(form: str) -> None:
    with pytest.raises(ValueError, match="form of (dates|times)"):
        check_dates(form)


def test_encodings_in_which_ascii_is_ascii() -> None:
    allowed = ("utf-8", "UTF8", "latin-1", "iso-8859-15", "windows-1252", "cp437", "koi8-r", "ascii", "mac_roman")
    assert [name for name in allowed if not is_encoding(name)] in ([], ["ascii"])
    refused = "utf-16 utf-7 utf-32 shift_jis gb18030 big5 cp037 iso2022_jp hz rot13 base64 x idna punycode"
    assert not any(map(is_encoding, refused.split()))


@pytest.mark.parametrize("members", [1, 3])
def test_gz_files_of_several_members(members: int, tmp_path: Path) -> None:
    path = tmp_path / "x.csv.gz"
    path.write_bytes(b"".join(gzip.compress(part) for part in [b"x,y\na,", b"1\nb,2", b"\nc,3\n"][:members]))
    with path.open("rb") as file:
        found = [
            row
            for batch in csv_batches.batches(decompressed_stream(file, str(path)), DEFAULT_GRAMMAR, ["x"], "x.csv")
            for row in batch["x"].to_pylist()
        ]
    assert found == [["a"], None, ["a", "b", "c"]][members - 1]


def test_the_charge_is_bound_to_the_grammar(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("x,y\n1,2\n")
    grammars = [
        DEFAULT_GRAMMAR,
        SEMICOLONS,
        BARE,
        RFC,
        Grammar(encoding="latin-1"),
        Grammar(dates="%d.%m.%Y"),
        Grammar(dates="%m.%d.%Y"),
    ]
    assert len({source_of(path, columns={}, grammar=each).digest for each in grammars}) == len(grammars)
    assert source_of(path, columns={}).digest == source_of(path, columns={}, grammar=Grammar()).digest


@pytest.mark.parametrize(
    ("content", "grammar", "header", "empty"),
    [
        (b"x,y\n", DEFAULT_GRAMMAR, True, True),
        (b"x,y\n\r\n\n", DEFAULT_GRAMMAR, True, True),
        (b"x,y\n" + b"\n" * 2**17 + b"a,1", DEFAULT_GRAMMAR, True, False),
        (b"\nx,y\n", DEFAULT_GRAMMAR, False, False),
        (b"\xef\xbb\xbf\n\n", DEFAULT_GRAMMAR, False, True),
        (b'"x\ny",z\n', RFC, True, True),
        (b"x,y\n \n", DEFAULT_GRAMMAR, True, False),
    ],
)
def test_files_without_a_record(content: bytes, grammar: Grammar, header: bool, empty: bool, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    file = File(str(path), SourceLabel("x.csv"))
    assert (
        _is_empty(file.path, hash_file(file)[1], WantedRows((), header=() if header else ("x",), grammar=grammar)) == empty
    )

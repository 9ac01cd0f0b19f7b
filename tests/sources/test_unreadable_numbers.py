"""Files that another country's programs write: what is no number or no date here is seen before a charge, and cured in a line."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpdist.errors import InvalidSpec, MissingRecords
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.spec import load
from tests.support import small_release

GERMAN = "betrag;tag;ort\n" + "".join(
    f"{number % 90},{number % 10}0;{1 + number % 28:02}.09.2026;K\n" for number in range(400)
)
NUMBERS: dict[str, Any] = {"betrag": {"edges": [0, 30, 60, 100], "missing": "unknown"}}
DATES: dict[str, Any] = {
    "tag": {"dates": {"from": "2026-09-01", "to": "2026-09-30"}, "missing": "unknown", "outside": "drop"}
}


def write(folder: Path, content: bytes, domain: dict[str, Any], csv: dict[str, Any], name: str = "g.csv") -> Path:
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data" / name).write_bytes(content)
    workload = [{"marginals": {"ways": [1]}}]
    records = {"path": name, "csv": {"delimiter": ";", **csv}}
    return small_release.write(folder / "data", gated=True, domain=domain, workload=workload, records=records)


WRONG: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "numbers without decimal": (NUMBERS, {}),
    "dates without a form": (DATES, {"decimal": ","}),
    "dates in another form": (DATES, {"decimal": ",", "dates": {"format": "%Y/%m/%d"}}),
    "both, with one of them declared": ({**NUMBERS, **DATES}, {"decimal": ","}),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_file_that_is_not_understood_is_not_charged(name: str, pack: Callable[[bytes], bytes], home: Path) -> None:
    domain, csv = WRONG[name]
    domain = {**domain, "ort": {"categories": ["K"]}}  # which can be read
    ending = ".csv.gz" if pack is gzip.compress else ".csv"
    path = write(home.parent, pack(GERMAN.encode()), domain, csv, f"g{ending}")
    with pytest.raises(MissingRecords, match="nothing was charged"):
        small_release.run(path, home)
    with open_ledger(home) as ledger:
        assert ledger.receipt("small-1") is None


def test_a_file_that_is_understood_is_published(home: Path) -> None:
    path = write(home.parent, GERMAN.encode(), {**NUMBERS, **DATES}, {"decimal": ",", "dates": {"format": "%d.%m.%Y"}})
    assert small_release.run(path, home).answers.arrow.num_rows == 35


def test_words_for_nothing_and_empty_fields_are_missing(home: Path) -> None:
    """They may be most of the records: the spec says what becomes of them."""
    rows = "".join(f"{value};t\n" for value in ["", "NA", "n/a", "NULL", " nan "] * 60 + ["5", "x"] * 5)
    release = small_release.run(
        write(home.parent, f"betrag;tag\n{rows}".encode(), {**NUMBERS, "tag": {"categories": ["t"]}}, {}), home
    )
    assert release.tally.unread == 5


FIRST_LINES: dict[str, tuple[bytes, str]] = {
    "sep, comma": (b"sep=,\nbetrag,tag\n1,2\n", "begins with a line 'sep=' .*delete that line"),
    "sep, semicolon": (b"sep=;\nbetrag;tag\n1;2\n", "begins with a line 'sep=' .*delete that line"),
    "sep, after a mark": (b"\xef\xbb\xbfSEP=;\r\nbetrag;tag\r\n1;2\r\n", "begins with a line 'sep=' .*delete that line"),
    "carriage returns": (b"betrag;tag\r1;2\r3;4\r", "end with carriage returns alone, .*save it with line feeds"),
}


@pytest.mark.parametrize("name", FIRST_LINES)
@pytest.mark.parametrize("delimiter", [",", ";"])
def test_a_first_line_that_names_no_columns_gets_its_cure(name: str, delimiter: str, home: Path) -> None:
    content, message = FIRST_LINES[name]
    path = write(home.parent, content, NUMBERS, {"delimiter": delimiter})
    with pytest.raises(InvalidSpec, match=message) as refused:
        small_release.run(path, home)
    assert "betrag" not in str(refused.value).replace("g.csv", "")


def test_equal_files_are_counted_in_folders_that_name_a_column_and_refused_elsewhere(home: Path) -> None:
    """Whether that column is counted or not."""
    for folder in ("flat/a.csv", "flat/b.csv", "hive/year=2025/a.csv", "hive/year=2026/a.csv"):
        path = home.parent / "data" / folder
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("sex\nf\n")
    domain, workload = {"sex": {"categories": ["f", "m"]}}, [{"marginals": {"ways": [1]}}]
    flat = small_release.write(home.parent / "data", domain=domain, workload=workload, records={"path": "flat"})
    with pytest.raises(InvalidSpec, match=r"remove one of them, or, where both are meant, put their records into one file"):
        small_release.run(flat, home)
    hive = small_release.write(home.parent / "data", domain=domain, workload=workload, records={"path": "hive"})
    assert len(load(hive).source.files.files) == 2
    assert small_release.run(hive, home).tally.read == 2

"""What users wrote is shown as it is: on a terminal, in tables for spreadsheets, in errors."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest

from dpdist.content import answer_tables, table_rows
from dpdist.errors import EngineError, InvalidInput
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.publish import release_folder
from flows.commands import cli, reading_commands, release_commands
from tests.page.strange_names import STRANGE, strange
from tests.support import small_release


def test_markup_and_formulas_in_categories_are_printed_as_they_are(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = small_release.run(strange(home), home)
    reading_commands.show(str(done.folder), None, 40, False)
    shown = capsys.readouterr().out
    for name in STRANGE:
        assert name.strip() in shown
    labels = release_folder.load_release(Path(done.folder))[0].column("query").to_pylist()
    written = pyarrow.csv.read_csv(Path(done.folder) / "answers.csv").column("query").to_pylist()
    assert not [text for text in written if re.match(r"[=+\-@\t\r]", text)]
    assert [text[1:] if re.match(r"'" + table_rows.FORMULA[1:], text) else text for text in written] == labels


def test_nothing_that_a_command_writes_as_csv_is_a_formula(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Answers, and answers to further questions."""
    done = small_release.run(strange(home, ways=[1]), home)
    cells = list[str]()
    for words in (("show", str(done.folder)), ("ask", str(done.folder), "count by sex")):
        monkeypatch.setattr("sys.argv", ["dpdist", *words, "--csv"])
        capsys.readouterr()
        with pytest.raises(SystemExit):
            cli.main()
        cells += [cell for row in csv.reader(capsys.readouterr().out.splitlines()) for cell in row]
    assert {"'=1+1", "'@sum"} < set(cells)
    texts = [cell for cell in cells if re.match(table_rows.FORMULA, cell) and not re.fullmatch(r"-?[\d.]+(e-?\d+)?", cell)]
    assert [text for text in texts if not text.startswith("'")] == []


def test_texts_for_spreadsheets_lose_nothing() -> None:
    texts = ["=1", "'=1", "''-1", "'a", "a=1", "", "@", "\tx", "\rx", "+", "é"]
    found = (
        answer_tables.without_formulas(pa.table({"query": texts, "answer": [1.0] * len(texts)})).column("query").to_pylist()
    )
    assert found == ["'=1", "''=1", "'''-1", "'a", "a=1", "", "'@", "'\tx", "'\rx", "'+", "é"]
    assert [table_rows.without_formula(text) for text in texts] == found


def test_short_tables_are_read_from_csv_as_they_are_in_parquet(tmp_path: Path) -> None:
    """Texts with apostrophes, quotes and line ends, numbers to the last digit, intervals that are not known."""
    texts = [*STRANGE, "", 'say "a, b"', "two\nlines", "\r\n", "é"]
    table = pa.table(
        {
            "group": ["x"] * len(texts),
            "query": texts,
            "answer": [0.1 + 0.2 + 1e9 * i for i in range(len(texts))],
            "standard_error": [float("inf"), 1e-12, *[5e-324] * (len(texts) - 2)],
            "low_95": [None, *[-1 / 3] * (len(texts) - 1)],
            "high_95": [None, *[1e16] * (len(texts) - 1)],
        }
    )
    pyarrow.csv.write_csv(
        answer_tables.without_formulas(table), tmp_path / "answers.csv", pyarrow.csv.WriteOptions(quoting_style="needed")
    )
    found = table_rows.short_rows(tmp_path)
    assert found is not None
    assert list(found) == table.to_pylist()


def ended(error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command line tells about an error of the run of small-1."""

    def fails(**_: Any) -> Any:
        with release_commands._state_noted("small-1"):
            raise error

    monkeypatch.setattr(cli, "app", fails)
    monkeypatch.delenv("DPDIST_DEBUG", raising=False)
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 1
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    return text


def test_any_error_is_one_line_with_the_state_of_the_release(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = small_release.write(home.parent / "data")
    text = ended(ZeroDivisionError("KNOWN"), monkeypatch, capsys)
    assert "ZeroDivisionError at test_markup.py:" in text
    assert "KNOWN" not in text
    assert text.endswith("Nothing was charged\n")
    small_release.reserved(path, home)
    assert "The release is charged: run the same command again" in ended(KeyError("KNOWN"), monkeypatch, capsys)
    assert "The release is charged" in ended(EngineError("the cluster went\naway"), monkeypatch, capsys)
    assert ended(InvalidInput("[/x] of [file].csv"), monkeypatch, capsys) == "error: [/x] of [file].csv\n"
    with open_ledger(home) as ledger:
        assert len(ledger.entries()) > 0
    monkeypatch.setenv("DPDIST_LEDGER", "nonsense")
    assert ended(KeyError("KNOWN"), monkeypatch, capsys).endswith("to see it\n")


def test_debug_keeps_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(**_: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(cli, "app", fails)
    monkeypatch.setenv("DPDIST_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        cli.main()

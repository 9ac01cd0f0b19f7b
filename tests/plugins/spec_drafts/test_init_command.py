"""``dpdist init``: what it writes tells nothing of the records, runs once it is completed, and is refused in one line before."""

from __future__ import annotations

import datetime
import gzip
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
import yaml

from dpdist.errors import InvalidSpec
from dpdist.plugins.spec_drafts import file_columns, init_command
from dpdist.plugins.spec_drafts.declared_values import BINS, Column, value_lines
from dpdist.spec import load
from tests.case_selection import slow_after_first
from tests.support import small_release
from tests.support.command_line import CommandLine

STATE = np.random.default_rng(5)
ROWS = 300
TABLE = pa.table(
    {
        "person_id": pa.array([f"p{k:05d}" for k in range(ROWS)]),
        "Größe (cm)": pa.array(STATE.integers(31100, 31190, ROWS)),
        "branch": pa.array([("Köln", "Zürich", None)[k % 3] for k in range(ROWS)]),
        "paid": pa.array(STATE.uniform(70700, 70800, ROWS).round(2)),
        "day": pa.array([datetime.date(1987, 3, 1 + k % 28) for k in range(ROWS)]),
        "member": pa.array(STATE.integers(0, 2, ROWS) == 1),
    }
)
VALUES = re.compile(r"p000|311\d\d|Köln|Zürich|707\d\d|1987")
ANSWERS = {
    "SMALLEST": "31100",
    "LARGEST": "31102",
    "CATEGORIES": "[Köln, Zürich]",
    "EDGES": "[70700, 70750, 70800]",
    "MOST": "100",
    "FORM": "'%Y-%m-%d'",
    "from: DAY, to: DAY": "from: 1987-03-01, to: 1987-03-28",
}


def zipped(table: pa.Table, path: Path) -> None:
    with gzip.open(path, "wb", compresslevel=1) as file:
        pyarrow.csv.write_csv(table, file)


WRITE: dict[str, Callable[[pa.Table, Path], None]] = {
    "csv": pyarrow.csv.write_csv,
    "csv.gz": zipped,
    "parquet": pyarrow.parquet.write_table,
    "arrow": lambda table, path: pyarrow.feather.write_feather(table, str(path), compression="uncompressed"),
}
FORMS = ("records.parquet", "records.csv")


@pytest.fixture
def records_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the records in both forms."""
    folder = home.parent / "work"
    pyarrow.parquet.write_table(TABLE, folder / "records.parquet")
    pyarrow.csv.write_csv(TABLE, folder / "records.csv")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def command(records_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    del records_folder
    return CommandLine(monkeypatch, capsys)


def completed(text: str) -> str:
    """The spec with its words in capitals replaced, as its first lines ask."""
    for word, answer in ANSWERS.items():
        text = text.replace(f" {word}", f" {answer}").replace(f"{{{word}", f"{{{answer}")
    return text


MONEY = (
    "paid",
    "Amount (EUR)",
    "unitPrice",
    "Rechnungsbetrag brutto",
    "prix",
    "Coût",
    "income_2024",
    "Umsatz",
    "Preis in €",
)
OTHERS = ("paid_at", "payment_type", "price_group", "age", "costume", "branch", "rental", "count", "2024", "visits")


def test_money_is_known_by_the_end_of_a_name() -> None:
    assert [name for name in (*MONEY, *OTHERS) if file_columns.is_money(name)] == list(MONEY)


DATES = ("day", "visit_date", "Geburtsdatum", "fecha", "dateOfBirth date")
TIMES = ("createdAt", "paid_at", "event timestamp", "Zeitpunkt")
NO_DATES = ("at", "date_of", "days", "Monday", "update", "weekday", "age", "time", "day_type", "mandate", "")


def test_dates_and_times_are_known_by_the_end_of_a_name() -> None:
    """Values of a CSV file are not read, so that its columns have no type."""
    told = {name: file_columns.kind_named(name) for name in (*DATES, *TIMES, *NO_DATES, "paid")}
    assert told == {
        **dict.fromkeys(DATES, "date"),
        **dict.fromkeys(TIMES, "time"),
        **dict.fromkeys(NO_DATES, "unknown"),
        "paid": "money",
    }


PERSONS = ("card", "customer_id", "CustomerID", "Kundennr", "Mitgliedsnummer", "patient no", "userUuid", "Usuario")
NO_PERSONS = ("card_type", "id", "customer_age", "record_id", "order_no", "persona_grata", "username", "accounts", "branch")


def test_a_column_of_persons_is_known_by_its_name() -> None:
    assert [name for name in (*PERSONS, *NO_PERSONS) if file_columns.is_person(name)] == list(PERSONS)


def test_texts_are_no_money_and_whoever_says_what_a_column_holds_is_believed(
    records_folder: Path, command: CommandLine
) -> None:
    pyarrow.parquet.write_table(
        pa.table({"paid": ["yes", "no"], "price": [1.5, 2.5], "cost": [1, 2]}), records_folder / "mixed.parquet"
    )
    assert command("init", "mixed.parquet", "--as", "price=number").code == 0
    drafted = yaml.safe_load((records_folder / "mixed.yaml").read_text(encoding="utf-8"))
    assert {name: next(iter(of)) for name, of in drafted["domain"].items()} == {"paid": "categories", "price": "edges"}
    assert list(drafted["sums"]) == ["cost"]
    assert drafted["workload"][1] == {"marginals": {"ways": [1]}, "mean": "cost"}


def test_a_file_of_amounts_alone_counts_them(records_folder: Path, command: CommandLine) -> None:
    """A release needs an attribute; the sums of a column are told by others."""
    pyarrow.parquet.write_table(pa.table({"paid": [1.5, 2.5]}), records_folder / "paid.parquet")
    assert command("init", "paid.parquet").code == 0
    drafted = yaml.safe_load((records_folder / "paid.yaml").read_text(encoding="utf-8"))
    assert ("sums" in drafted, list(drafted["domain"])) == (False, ["paid"])


@pytest.mark.parametrize(
    ("values", "range_and_step"),
    [([3.25, 99.5], (3, 100, 0.01)), ([-12, 713_000], (-12, 713_001, 1)), ([0, 5_000_000], (0, 5_000_010, 10))],
)
def test_ranges_of_public_amounts_have_as_many_steps_as_a_range_may_have(
    values: list[float], range_and_step: tuple[float, ...], records_folder: Path, command: CommandLine
) -> None:
    pyarrow.parquet.write_table(pa.table({"paid": values, "branch": ["a", "b"]}), records_folder / "paid.parquet")
    assert command("init", "paid.parquet", "--public").code == 0
    found = load(records_folder / "paid.yaml").measured.sums["paid"]
    assert (found.first, found.last, float(found.step)) == (range_and_step[0], range_and_step[1], range_and_step[2])


KINDS = ("Größe (cm)=whole", "branch=text", "day=date", "member=boolean")


@pytest.mark.parametrize("form", slow_after_first(1, FORMS))
def test_a_completed_spec_runs_and_no_value_was_in_it(form: str, records_folder: Path, command: CommandLine) -> None:
    told = ["--names-in-first-row", *(word for kind in KINDS for word in ("--as", kind))] if form.endswith("csv") else []
    made = command("init", form, "--person", "person_id", *told)
    assert made.code == 0, made.err
    text = (records_folder / "records.yaml").read_text(encoding="utf-8")
    assert text.startswith("# yaml-language-server: $schema=release.schema.json\n")
    assert (records_folder / "release.schema.json").exists()
    assert "texts in another form than 2026-09-01" in text  # 01.09.2026 counts as another day
    assert not VALUES.search(text)
    with pytest.raises(InvalidSpec, match="SMALLEST") as refused:
        load(records_folder / "records.yaml")
    assert "\n" not in str(refused.value)
    (records_folder / "records.yaml").write_text(completed(text), encoding="utf-8")
    release = small_release.run(records_folder / "records.yaml", records_folder.parent / "home")
    assert release.certificate["method"]["attributes"].keys() == {"Größe_cm", "branch", "day", "member"}
    total, *means = release.ask("total of paid", "mean of paid by branch")
    assert total.value <= 100 * ROWS + 6 * total.standard_error  # by chance beyond in fewer than one run of 10^8
    assert [each.group["branch"] for each in means] == ["Köln", "Zürich", "other", "unknown"]
    assert release.certificate["privacy"]["bound_enforced_while_counting"]


def test_a_column_that_is_called_after_persons_is_taken_for_theirs(records_folder: Path, command: CommandLine) -> None:
    (records_folder / "sales.csv").write_text("sold,customer,town\n2026-09-01,7,Bonn\n")
    wanted = {("--person", "none"): None, ("--columns", "customer"): None, (): "customer", ("--columns", "town"): "customer"}
    for place_of, (options, person) in enumerate(wanted.items()):
        made = command("init", "sales.csv", "--names-in-first-row", "--spec", f"{place_of}.yaml", *options)
        assert made.code == 0
        assert ("taken to tell persons apart, by its name: 'customer'" in made.out) == (person is not None)
        spec = yaml.safe_load((records_folder / f"{place_of}.yaml").read_text())
        assert spec["records"].get("person", {}).get("column") == person
        assert ("customer" in spec["domain"]) == (person is None)


def test_a_spec_from_a_csv_file_alone_says_which_lines_to_keep(records_folder: Path, command: CommandLine) -> None:
    assert command("init", "records.csv", "--names-in-first-row", "--columns", "branch,paid").code == 0
    text = (records_folder / "records.yaml").read_text(encoding="utf-8")
    assert not VALUES.search(text)
    assert (list(yaml.safe_load(text)["domain"]), list(yaml.safe_load(text)["sums"])) == (["branch"], ["paid"])
    with pytest.raises(InvalidSpec, match="give exactly one of 'categories'"):
        load(records_folder / "records.yaml")


def test_a_file_with_semicolons_is_begun_with_its_delimiter(records_folder: Path, command: CommandLine) -> None:
    (records_folder / "de.csv").write_text("alter;ort\n34;Köln\n", encoding="utf-8")
    for options, said in (
        ((), "seems to have ';' between its columns; say so with --delimiter"),
        (("--delimiter", "ab"), "--delimiter: 'delimiter' is one ASCII character"),
    ):
        refused = command("init", "de.csv", "--names-in-first-row", *options)
        assert refused.code == 1
        assert said in refused.err.replace("\n", " ")
    assert command("init", "de.csv", "--names-in-first-row", "--delimiter", ";").code == 0
    found = yaml.safe_load((records_folder / "de.yaml").read_text(encoding="utf-8"))
    assert found["records"]["csv"] == {"delimiter": ";", "decimal": "MARK", "dates": {"format": "FORM"}}
    assert list(found["domain"]) == ["alter", "ort"]


def test_a_hundred_texts_of_a_public_column_are_listed_and_not_one_more(tmp_path: Path) -> None:
    """Counted over all groups of rows, each of which alone holds few."""
    texts = [f"{number:03}" for number in range(101)]
    pyarrow.parquet.write_table(
        pa.table({"few": texts[:100] + texts[:1], "many": texts}), tmp_path / "names.parquet", row_group_size=40
    )
    few, many = file_columns.columns_of(tmp_path / "names.parquet", public=True)
    assert few.values == tuple(texts[:100])
    assert many.values is None


@pytest.mark.parametrize("form", FORMS)
def test_a_spec_of_a_public_file_needs_no_completion(form: str, records_folder: Path, command: CommandLine) -> None:
    made = command("init", form, "--public", "--columns", "Größe (cm),branch,paid,day,member", "--spec", "public.yaml")
    assert made.code == 0, made.err
    spec = load(records_folder / "public.yaml")
    assert spec.measured.domain.attribute("branch").labels == ("Köln", "Zürich", "other", "unknown")
    assert spec.measured.domain.attribute("day").values == 28
    assert (spec.measured.sums["paid"].first, spec.measured.sums["paid"].last) == (70700, 70800)
    assert spec.measured.domain.attribute("member").categories == ("false", "true")


REFUSED = {
    "exists; remove it": ("records.parquet", "--spec", "taken.yaml"),
    "no column is called 'brnch' (did you mean 'branch'?)": ("records.parquet", "--columns", "brnch"),
    "no column is called 'nobody'": ("records.parquet", "--person", "nobody"),
    "--as needs a column": ("records.csv", "--names-in-first-row", "--as", "paid=coins"),
    "no records in nothing.csv": ("nothing.csv",),
    "seems to be a record": ("bare.csv", "--names-in-first-row"),
    "say --names-in-first-row if it holds names, or name all columns to dpdist init: --header name,name,...": ("bare.csv",),
    "the first row of words.csv may hold the columns' names or a record": ("words.csv",),
}


@pytest.mark.parametrize("said", REFUSED)
def test_refusals_are_one_line(said: str, records_folder: Path, command: CommandLine) -> None:
    (records_folder / "taken.yaml").write_text("")
    (records_folder / "bare.csv").write_text("Ada,1987-03-01,70711.5\nBob,1987-03-02,70722.5\n")
    (records_folder / "words.csv").write_text("Ada,lung cancer\nBob,none\n")  # as good as names
    refused = command("init", *REFUSED[said])
    assert refused.code == 1
    assert said in refused.err
    assert "Traceback" not in refused.printed
    assert not VALUES.search(refused.err)
    assert "Ada" not in refused.err
    assert {each.name for each in records_folder.glob("*.yaml")} == {"taken.yaml"}


ENDS = [sign * digits * 10.0**power for sign in (-1, 1) for digits in (1, 3, 4.75, 9.99) for power in (-3, 0, 2, 7)]


@pytest.mark.parametrize("low", [0.0, *ENDS])
def test_bins_of_public_numbers_are_round_even_and_hold_them_all(low: float) -> None:
    """Wherever the smallest and the largest of them lie: about ten, of a width of 1, 2 or 5 times a power of ten."""
    for high in sorted({low, *(end for end in (0.0, *ENDS) if end > low)}):
        first, _ = value_lines(Column("of", "number", (low, high)))
        edges = np.array(json.loads(first.removeprefix("edges: ")))
        width = edges[1] - edges[0]
        assert np.diff(edges) == pytest.approx(width, rel=1e-4)
        assert edges[0] - 1e-6 * width <= low <= high <= edges[-1] + 1e-6 * width
        assert len(edges) == 2 or (edges[1] > low and edges[-2] <= high + 1e-6 * width)
        assert len(edges) - 1 <= BINS + 2
        assert len(edges) - 1 >= (BINS / 2 - 1 if high - low > 1e-6 * abs(high) else 1)
        assert f"{width:.0e}"[0] in "125"
        assert width == pytest.approx(float(f"{width:.0e}"), rel=1e-4)


def test_a_data_set_is_named_after_its_file_in_plain_letters() -> None:
    names = {"Ausgaben Straßenfest.csv": "Ausgaben-Strassenfest", "Œuvre.csv.gz": "Oeuvre", "łódź 2026.parquet": "lodz-2026"}
    assert {name: init_command.dataset_of(Path(name)) for name in names} == names
    assert init_command.dataset_of(Path("記録.csv")) == "records"


def test_columns_without_a_header_row_are_named(records_folder: Path, command: CommandLine) -> None:
    (records_folder / "bare.csv").write_text("Ada,1987-03-01,70711.5\nBob,1987-03-02,70722.5\n")
    assert command("init", "bare.csv", "--header", "name,day,paid", "--columns", "day").code == 0
    assert "header:" in (records_folder / "bare.yaml").read_text()
    assert not VALUES.search((records_folder / "bare.yaml").read_text())


@pytest.mark.parametrize("form", slow_after_first(2, ["csv", "csv.gz", "parquet", "arrow"]))
def test_of_a_large_file_only_names_and_types_are_read(form: str, records_folder: Path, command: CommandLine) -> None:
    """By the kernel's count of the bytes that this process read."""

    def read_bytes() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    table = pa.table({"age": STATE.integers(0, 2**62, 2**17), "day": STATE.integers(0, 9, 2**17)})
    WRITE[form](TABLE, records_folder / f"small.{form}")
    WRITE[form](table, records_folder / f"large.{form}")
    assert (records_folder / f"large.{form}").stat().st_size > 2**20
    assert command("init", f"small.{form}", "--names-in-first-row").code == 0  # imports read files, too
    before = read_bytes()
    assert command("init", f"large.{form}", "--names-in-first-row").code == 0
    assert read_bytes() - before < 2**18


ASK = [sys.executable, "-m", "flows.main", "init", "records.csv"]


def at_a_terminal(answers: bytes, records_folder: Path) -> tuple[int, str]:
    """Exit code and text of 'dpdist init' at a terminal where somebody types."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "dumb", "COLUMNS": "200"}
    with subprocess.Popen(
        ASK, cwd=records_folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as process:
        os.close(theirs)
        os.write(ours, answers)
        text = b""
        with suppress(OSError):  # what Linux says of a terminal that nobody has open any more
            while part := os.read(ours, 4096):
                text += part
    os.close(ours)
    return process.returncode, text.decode().replace("\r\n", "\n")


def test_a_terminal_is_asked_for_what_the_options_do_not_say(records_folder: Path) -> None:
    """For the person, the columns, and what each of a CSV file holds, again where the answer is none."""
    code, text = at_a_terminal(b"y\nperson_id\nbranch,paid,day\n\ncoins\n\ndate\n", records_folder)
    assert code == 0, text
    asked = ("Column that tells persons apart", "Columns to count", "What does 'branch' hold", "What does 'paid' hold")
    found = [text.index(question) for question in asked]
    assert found == sorted(found)
    assert text.count("What does 'paid' hold") == 2
    assert "wrote records.yaml: complete the words in capitals" in text
    spec = yaml.safe_load((records_folder / "records.yaml").read_text(encoding="utf-8"))
    assert spec["records"]["person"]["column"] == "person_id"
    assert {name: next(iter(of)) for name, of in spec["domain"].items()} == {"branch": "categories", "day": "dates"}
    assert list(spec["sums"]) == ["paid"]
    assert not VALUES.search(text.split("wrote")[1])


@pytest.mark.parametrize(
    ("answers", "code", "said"),
    slow_after_first(
        2,
        [
            (b"y\nnobody\n\n", 1, "error: no column is called 'nobody'; there are person_id"),
            (b"y\n\n\x04", 130, "Column that tells persons apart ('none': every record by itself) [person_id]"),
            (b"y\nperson_id\n\x04", 130, "interrupted"),
            (b"n\n", 1, "name all columns to dpdist init: --header name,name,..."),
            (b"\n", 1, "Does the first row of records.csv hold the columns' names? [y/N]"),
        ],
    ),
)
def test_a_terminal_without_a_good_answer_leaves_nothing(answers: bytes, code: int, said: str, records_folder: Path) -> None:
    before = set(records_folder.iterdir())
    ended, text = at_a_terminal(answers, records_folder)
    assert ended == code
    assert said in text
    assert "Traceback" not in text
    assert set(records_folder.iterdir()) == before


def test_columns_that_folders_name_have_no_kind(tmp_path: Path) -> None:
    folder = tmp_path / "hive" / "work=day"
    folder.mkdir(parents=True)
    (folder / "part.csv").write_text("sex,age\nf,3\n")
    kinds = {column.name: column.kind for column in file_columns.columns_of(tmp_path / "hive", names_in_first_row=True)}
    assert kinds == {"sex": "unknown", "age": "unknown", "work": "unknown"}

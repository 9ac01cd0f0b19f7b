"""The command line as a user meets it: a real process with the embedded Prefect flow; what needs no flow in this process."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from dpdist.privacy import keys
from dpdist.privacy.ledger.budget_ledger import open_ledger
from flows.commands import cli, console_output, reading_commands
from tests import HANGS
from tests.support import forked_programs, small_release
from tests.support.command_line import CommandLine
from tests.support.prefect_server import flow_server


def dpdist(*arguments: str, home: Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {"DPDIST_HOME": str(home), "COLUMNS": "200", "DPDIST_ENGINE": "inline", **environment}
    return forked_programs.finished("flows.commands.cli", *arguments, folder=cwd, **variables)


@pytest.fixture(scope="module")
def work_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    small_release.write(folder / "data")
    return folder


@dataclass(frozen=True)
class CommandLineRelease:
    """A release that commands in processes of their own made: where, how the last of them ended, and its files."""

    place: Path
    ran: subprocess.CompletedProcess[str]
    files: dict[str, bytes]


@pytest.fixture(scope="module")
def command_release(work_folder: Path) -> CommandLineRelease:
    """The root key made, and the small release as a flow, wherever its size puts it."""
    for arguments, engine in ((("keys", "init"), "inline"), (("run", "data/release.yaml"), "")):
        ran = dpdist(*arguments, home=work_folder / "home", cwd=work_folder, DPDIST_ENGINE=engine)
        assert ran.returncode == 0, ran.stderr
    return CommandLineRelease(work_folder, ran, small_release.tree(work_folder / "releases"))


@pytest.fixture
def command(work_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line in this process, where the story is."""
    for name, value in {"DPDIST_HOME": str(work_folder / "home"), "DPDIST_ENGINE": "inline"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(work_folder)
    return CommandLine(monkeypatch, capsys)


def test_a_run_without_a_root_key_is_refused(work_folder: Path) -> None:
    refused = dpdist("run", "data/release.yaml", home=work_folder / "empty", cwd=work_folder)
    assert refused.returncode == 1
    assert "keys init" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_key_is_made_and_a_release_is_planned(
    command: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DPDIST_HOME", str(tmp_path))
    monkeypatch.setenv("DPDIST_OUTPUT", str(tmp_path / "releases"))  # others publish it beside this one
    made = command("keys", "init")
    assert made.code == 0
    assert "mode 0600" in made.out
    assert command("keys", "check").code == 0
    planned = command("plan", "data/release.yaml", "--why")
    assert planned.code == 0
    for text in ("coa", "identity", "gaussian", "rho=0.1 zCDP", "epsilon=", "GiB", "nothing yet"):
        assert text in planned.out
    assert planned.out.count("epsilon=") == 1  # in what would be charged, which is the guarantee
    assert planned.out.count("uses Laplace noise") == 1  # with the names of all mechanisms that do
    assert not (tmp_path / "store" / "histograms").exists()


def test_a_release_is_published_once(command_release: CommandLineRelease, command: CommandLine) -> None:
    ran = command_release.ran
    assert "published releases/small-1" in ran.stdout
    assert "charged rho=0.1" in ran.stdout
    assert "records read" in ran.stderr
    assert "records read" not in ran.stdout
    assert not list((command_release.place / "home").rglob("prefect.db*"))  # the flow server of a run leaves nothing
    again = command("run", "data/release.yaml")
    assert again.code == 0
    assert "nothing charged" in again.out
    assert small_release.tree(command_release.place / "releases") == command_release.files


@pytest.mark.parametrize(("day", "warned"), [("31.12.2026", True), ("2026-12-31", False)])
def test_the_operator_alone_is_told_that_every_record_was_dropped(
    day: str, warned: bool, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dates = {"day": {"dates": {"from": "2026-12-01", "to": "2026-12-31"}, "outside": "drop"}}
    table = pa.table({"day": [day, "1.1.27"]})
    path = small_release.write(
        home.parent / "data", table=table, gated=True, domain=dates, workload=[{"marginals": {"ways": [1]}}]
    )
    command = CommandLine(monkeypatch, capsys)
    refused = command("run", str(path))
    assert (refused.code, "the operator has to look at" in refused.err) == (1, True)
    with open_ledger(home) as ledger:
        assert not ledger.budgets()
    assert command("run", str(path), "--accept-missing").code in (0, None)
    told = command("run", str(path))  # was charged: nothing refuses it now
    (folder,) = Path("releases").glob("*")
    assert told.code in (0, None)
    assert ("every record was dropped" in told.err) is warned
    assert "[bold" not in told.err
    assert "every record" not in told.out
    assert not any(b"every record was dropped" in content for content in small_release.tree(Path(folder)).values())


def test_a_release_without_a_table_is_published_and_named(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """'formats: [zarr]' leaves no table whose first answers could be printed: the run has succeeded all the same."""
    path = small_release.write(home.parent / "data", output={"folder": str(home.parent / "arrays"), "formats": ["zarr"]})
    small_release.run(path, home)
    told = CommandLine(monkeypatch, capsys)("run", str(path))
    assert told.code in (0, None), told.err
    assert "page: " in told.out


def test_a_release_is_shown(command_release: CommandLineRelease, command: CommandLine) -> None:
    del command_release
    shown = command("show", "small-1", "--group", "sex")
    assert shown.code == 0
    assert "sex f" in shown.out
    facts = json.loads(command("show", "small-1", "--json").out)
    assert facts["certificate"]["privacy"]["rho"] == "1/10"
    assert len(facts["answers"]) == facts["certificate"]["queries"]


def test_answers_go_into_a_pipe_as_one_line_each_and_as_csv(
    command_release: CommandLineRelease, command: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line before the table, whatever the width of the terminal that the other end of a pipe may have."""
    del command_release
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(console_output, "console", console_output.ConsoleOutput())
    monkeypatch.setattr(reading_commands, "console", console_output.console)
    facts = json.loads(command("show", "small-1", "--json").out)

    def printed(*words: str) -> str:
        return CliRunner().invoke(cli.app, words).stdout

    shown = printed("show", "small-1", "--limit", "0").splitlines()
    assert shown[0].startswith("small-1 (")
    assert shown[0].endswith("answers with epsilon=2.583 at delta=1.0e-09 for records")
    assert [line.split()[0] for line in shown[1:3]] == ["group", facts["answers"][0]["group"].split()[0]]
    assert len(shown) == 2 + len(facts["answers"])
    long = " plus ".join(["sex=f"] * 20)
    assert printed("ask", "small-1", long).splitlines()[1].startswith(long)
    every = list(csv.DictReader(io.StringIO(printed("show", "small-1", "--csv"))))
    assert [float(row["answer"]) for row in every] == [row["answer"] for row in facts["answers"]]
    asked = list(csv.DictReader(io.StringIO(printed("ask", "small-1", "count by sex", "count", "--csv"))))
    assert [(row["question"], row["sex"]) for row in asked] == [("count by sex", "f"), ("count by sex", "m"), ("count", "")]
    assert float(asked[0]["low_95"]) < float(asked[0]["answer"]) < float(asked[0]["high_95"])
    clear = list(csv.DictReader(io.StringIO(printed("show", "small-1", "--below", "1000", "--csv"))))
    assert 0 < len(clear) < len(every)
    for words in (("show", "small-1", "--csv", "--json"), ("ask", "small-1", "count", "--csv", "--covariance")):
        assert "leave" in command(*words).err


def test_the_ledger_is_listed_verified_and_exported(command_release: CommandLineRelease, command: CommandLine) -> None:
    del command_release
    assert "rho=0.15" in command("ledger").out
    verified = command("ledger", "verify")
    assert "verified: 6 rows, 1 releases, 0 of them not finished" in verified.out
    head = verified.out.split()[-1]
    assert command("ledger", "verify", "--head", head).code == 0
    removed = command("ledger", "verify", "--head", "0" * 64)
    assert removed.code == 1
    assert "rows were removed" in removed.err
    book = json.loads(command("ledger", "export").out)
    assert book["budgets"][0]["left"] == pytest.approx(0.15)
    assert book["entries"][-1]["digest"] == head
    assert json.loads(command("ledger", "--json").out) == book["budgets"]


def test_the_ledger_explains_what_was_spent(command_release: CommandLineRelease, command: CommandLine) -> None:
    del command_release
    explained = command("ledger", "explain").out
    for text in ("small-1: rho=0.1 zCDP", "together, rho=0.1 zCDP: epsilon=2.7", "privacy loss distributions: epsilon=2."):
        assert text in explained
    assert "basic composition" not in explained  # a sum of epsilons, which releases with Gaussian noise have none of
    told = command("ledger", "explain", "small-1").out
    assert "row 4: committed at" in told
    assert "the key of its noise is erased" in told
    refused = command("ledger", "abort", "small-1")
    assert refused.code == 1
    assert "is committed: only a reserved release" in refused.err


def test_a_release_beyond_the_cap_is_refused(command_release: CommandLineRelease, command: CommandLine) -> None:
    text = (command_release.place / "data" / "release.yaml").read_text()
    (command_release.place / "data" / "greedy.yaml").write_text(
        text.replace("small-1", "small-2").replace("rho: 0.1", "rho: 0.2", 1)
    )
    greedy = command("run", "data/greedy.yaml")
    assert greedy.code == 1
    assert "rho=0.15 is left" in greedy.err
    assert "Traceback" not in greedy.printed


def test_the_root_key_stands_in_its_own_file_only(command_release: CommandLineRelease) -> None:
    home = command_release.place / "home"
    secret = (home / "root.key").read_text().strip()
    for path in [*home.rglob("*"), *(command_release.place / "releases").rglob("*")]:
        if path.is_file() and path.name != "root.key":
            content = path.read_bytes()
            assert secret.encode() not in content, path
            assert bytes.fromhex(secret) not in content, path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "missing.yaml"), "No such file"),
        (("plan", "bad.yaml"), "bad.yaml, line"),
        (("show", "nothing"), "no published release"),
        (("keys", "check"), "keys init"),
    ],
)
def test_errors_are_one_line_without_traceback(
    work_folder: Path, command: CommandLine, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    (work_folder / "bad.yaml").write_text(
        (work_folder / "data" / "release.yaml").read_text().replace("rho: 0.1", "rhoo: 0.1")
    )
    monkeypatch.setenv("DPDIST_HOME", str(work_folder / "empty"))
    failed = command(*arguments)
    assert failed.code == 1
    assert message in failed.err
    assert "Traceback" not in failed.err
    with pytest.raises(Exception, match=message):  # as it was raised, for Python to print
        command("--debug", *arguments)


def test_what_nobody_foresaw_is_told_by_its_kind_and_its_place() -> None:
    """The innermost one, and no word of the error, which may quote a record."""

    def inner() -> int:
        return int("KNOWN")

    def outer() -> int:
        return inner()

    with pytest.raises(ValueError, match="KNOWN") as raised:
        outer()
    line = inner.__code__.co_firstlineno + 1
    assert cli._error_line(raised.value) == f"ValueError at test_cli.py:{line}; run again with 'dpdist --debug' to see it"


@pytest.mark.parametrize("arguments", [("run",), ("ledger", "explain"), ("plan", "data/release.yaml", "--engine")])
def test_an_argument_that_is_not_utf_8_is_named(command: CommandLine, arguments: tuple[str, ...]) -> None:
    failed = command(*arguments, "caf\udce9")
    assert (failed.code, failed.out) == (1, "")
    assert failed.err.startswith(r"error: the argument caf\udce9 is not UTF-8")


def test_a_state_folder_whose_name_is_not_utf_8_is_named(
    work_folder: Path, command: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where its ledger's and Prefect's addresses could not be written down."""
    monkeypatch.setenv("DPDIST_HOME", str(work_folder / "caf\udce9"))
    failed = command("run", "data/release.yaml")
    assert failed.code == 1
    assert r"caf\udce9 is not UTF-8; name another one in DPDIST_HOME" in failed.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run",), "error: Missing argument 'spec'; see 'dpdist run --help'"),
        (("nonsense",), "error: No such command 'nonsense'; see 'dpdist --help'"),
        (
            ("run", "data/release.yaml", "--sped"),
            "error: No such option: --sped (Possible options: --period); see 'dpdist run --help'",
        ),
        (("plan", "a", "b"), "error: Got unexpected extra argument(s) (b); see 'dpdist plan --help'"),
        (("show", "small-1", "--limit", "many"), "error: Invalid value for '--limit'"),
        (("ledger", "nonsense"), "error: No such command 'nonsense'; see 'dpdist ledger --help'"),
    ],
)
def test_wrong_usage_is_one_line_and_exits_with_2(command: CommandLine, arguments: tuple[str, ...], message: str) -> None:
    wrong = command(*arguments)
    assert wrong.code == 2
    assert wrong.out == ""
    assert wrong.err.startswith(message)
    assert wrong.err_lines == 1


def test_a_command_without_words_prints_its_help(command: CommandLine) -> None:
    for words in ((), ("keys",)):
        assert command(*words).printed.startswith("Usage: dpdist")


@pytest.mark.parametrize(
    ("arguments", "variable"),
    [
        (("ledger",), "DPDIST_HOME"),
        (("keys", "init"), "DPDIST_HOME"),
        (("run", "data/release.yaml"), "DPDIST_OUTPUT"),
        (("init", "data/records.parquet", "--spec", "/sys/dpdist.yaml"), None),
        (("init", "data/records.parquet", "--spec", "nowhere/dpdist.yaml"), None),
    ],
)
def test_a_place_that_cannot_be_written_is_named_in_one_line(
    work_folder: Path,
    command: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: tuple[str, ...],
    variable: str | None,
) -> None:
    """/sys refuses new files to everybody, root too. Nothing is charged and nothing is left behind."""
    keys.initialise(tmp_path)
    monkeypatch.setenv("DPDIST_HOME", str(tmp_path))
    if variable is not None:
        monkeypatch.setenv(variable, "/sys/dpdist")
    before = set(work_folder.rglob("*"))
    refused = command(*arguments)
    assert refused.code == 1
    assert re.search(
        r"(/sys|nowhere)/dpdist\S* cannot be (used|written): (Permission|Operation|Read-only|No such)", refused.err
    )
    assert refused.err_lines == 1 or arguments[0] == "run"  # which tells how it plans
    assert set(work_folder.rglob("*")) == before
    with open_ledger(tmp_path) as ledger:
        assert ledger.budgets() == []


def test_no_telemetry() -> None:
    script = (
        "\nfrom pathlib import Path; import tempfile; from flows.prefect import prefect_settings; "
        "prefect_settings.configure(Path(tempfile.mkdtemp()));"
        "from prefect.settings import get_current_settings as s;"
        "print(s().server.analytics_enabled, s().cloud.enable_orchestration_telemetry, s().telemetry.enable_resource_metrics)"
    )
    assert forked_programs.finished(script).stdout.split() == ["False", "False", "False"]


def test_a_prefect_server_keeps_the_run_and_its_progress(tmp_path: Path) -> None:
    small_release.write(tmp_path / "data")
    home = tmp_path / "served"
    with flow_server(tmp_path / "server") as (api, _):
        assert dpdist("keys", "init", home=home, cwd=tmp_path).returncode == 0
        ran = dpdist("run", "data/release.yaml", home=home, cwd=tmp_path, PREFECT_API_URL=api)
        assert ran.returncode == 0, ran.stderr

        def ask(what: str) -> list[dict[str, Any]]:
            body = urllib.request.Request(f"{api}/{what}/filter", b"{}", {"content-type": "application/json"})
            with urllib.request.urlopen(body) as answer:
                return list(json.load(answer))

        assert [run["state_name"] for run in ask("flow_runs")] == ["Completed"]
        told = {run["name"] for run in ask("task_runs")}
        assert told == {f"{stage} small-1" for stage in ("plan", "answer", "publish")}  # the others read records
        for _ in range(HANGS):
            lines = [line["message"] for line in ask("logs")]
            if any("certified gap" in line for line in lines):
                break
            time.sleep(1)
        assert any("certified gap" in line for line in lines)
        secret = (home / "root.key").read_text().strip()
        assert secret not in json.dumps([ask("flow_runs"), ask("task_runs"), lines])


def test_a_prefect_server_that_does_not_answer_is_named(tmp_path: Path) -> None:
    small_release.write(tmp_path / "data")
    home, api = tmp_path / "home", "http://name:secret@127.0.0.1:1/api"
    keys.initialise(home)
    ran = dpdist("run", "data/release.yaml", home=home, cwd=tmp_path, PREFECT_API_URL=api)
    assert ran.returncode == 1
    assert [line for line in ran.stderr.splitlines() if not line.startswith(("plan: ", "start: "))] == [
        "error: the Prefect server http://127.0.0.1:1/api does not answer (ConnectError); start it, or unset PREFECT_API_URL, and run the "
        "same command again: it goes on where it stopped, with the same noise. Nothing was charged"
    ]


def test_a_plan_says_half_widths_of_sums_and_means_in_their_unit(command: CommandLine, tmp_path: Path) -> None:
    """Of means where a number of records is assumed; else it says what is missing."""
    spec = small_release.write(
        tmp_path,
        sums={"amount": {"from": 0, "to": 80, "step": 0.01, "unit": "EUR", "missing": "drop"}},
        workload=[
            {"marginals": {"of": [["sex"]]}},
            {"marginals": {"of": [["sex"]]}, "sum": "amount"},
            {"marginals": {"of": [["sex"]]}, "mean": "amount"},
        ],
    )
    printed = command("plan", str(spec)).out
    assert "times that of coa" not in printed.partition("identity")[0]
    assert re.search(r"sum of amount by sex 2 ± [0-9.,]+ EUR", printed)
    assert "mean of amount by sex: the half width depends on how many records there are; --records NUMBER" in printed
    printed = command("plan", str(spec), "--records", "1000").out
    assert re.search(r"mean of amount by sex 2 ± [0-9.,]+ EUR", printed)
    assert "depends on how many" not in printed

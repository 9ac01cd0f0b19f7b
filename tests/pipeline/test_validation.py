"""Whatever can refuse refuses before anything is counted or charged; 'dpdist plan' says so."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import typer

from dpdist import engine
from dpdist.engine.runner import Engine
from dpdist.errors import (
    BudgetExceeded,
    DpdistError,
    EngineError,
    InvalidInput,
    InvalidSpec,
    KeyUnavailable,
    LedgerError,
    ReleaseConflict,
    StoreError,
)
from dpdist.pipeline import preflight, release_run, validation
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.publish import release_folder
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.storage.array_store import Store
from flows.commands import release_commands
from tests.case_selection import slow_after_first
from tests.support import small_release
from tests.support.small_release import run


def untouched(home: Path) -> tuple[int, bool]:
    """How many rows the ledger has, and whether records were counted."""
    with open_ledger(home) as ledger:
        return len(ledger.entries()), (home / "store" / "histograms").exists()


def reserved(home: Path) -> None:
    small_release.reserved(small_release.write(home.parent / "first"), home)
    shutil.rmtree(home / "store" / "histograms")


def holds_other(_: Path) -> None:
    Path("there").mkdir()
    Path("there/notes.txt").write_text("mine")


def file_above(_: Path) -> None:
    Path("there").write_text("a file where a folder must be")


def without_key(home: Path) -> None:
    (home / "root.key").unlink()


REFUSED: list[tuple[Any, dict[str, Any], type[DpdistError], str]] = [
    (reserved, {"release": "small-2", "budget": {"rho": 0.2}}, BudgetExceeded, "charge of rho=0.2 was refused"),
    (
        holds_other,
        {"output": {"folder": "there"}},
        StoreError,
        "there exists and does not hold a complete copy of this release",
    ),
    (file_above, {"output": {"folder": "there/release"}}, StoreError, "Not a directory.*a file is where a folder must be"),
    (None, {"output": {"folder": "x" * 240}}, StoreError, "File name too long"),
    (without_key, {}, KeyUnavailable, "keys init"),
]


@pytest.mark.parametrize(("prepare", "changes", "error", "text"), REFUSED)
def test_refused_before_anything_is_counted(
    home: Path,
    prepare: Any,
    changes: dict[str, Any],
    error: type[DpdistError],
    text: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if prepare is not None:
        prepare(home)
    path = small_release.write(home.parent / "data", **changes)
    before, rows = sorted(Path.cwd().rglob("*")), untouched(home)
    with pytest.raises(error, match=text):
        run(path, home)
    with pytest.raises(typer.Exit) as ended:
        release_commands.plan(path, None, "inline", True)
    assert ended.value.exit_code == 1
    (reason,) = json.loads(capsys.readouterr().out)["refusals"]
    assert reason
    assert untouched(home) == rows
    assert not rows[1]
    assert sorted(Path.cwd().rglob("*")) == before


def test_what_follows_a_release_is_refused_or_accepted_before_counting(home: Path) -> None:
    """The same again is accepted; another spec or cap under its id or data set is refused; so is a lost measurement."""
    data = home.parent / "data"
    path = small_release.write(data)
    run(path, home)
    rows = untouched(home)[0]
    shutil.rmtree(home / "store" / "histograms")
    with pytest.raises(ReleaseConflict, match="already bound to another spec"):
        run(small_release.write(data, budget={"rho": 0.05}), home)
    with pytest.raises(LedgerError, match="declared with the budget"):
        run(small_release.write(data, release="other", ledger={"dataset": "small", "cap": {"rho": 1}}), home)
    assert untouched(home) == (rows, False)
    assert run(small_release.write(data), home).charged is False
    shutil.rmtree(home / "store" / "measurements")
    shutil.rmtree(home / "store" / "histograms")
    with pytest.raises(StoreError, match="measurement is not in the store"):
        run(small_release.write(data), home)
    assert untouched(home) == (rows, False)


def test_a_used_place_in_an_object_store(home: Path, s3: str) -> None:
    other = Store(f"{s3}/taken")
    other.write_document("notes.json", {})
    path = small_release.write(home.parent / "data", output={"folder": f"{s3}/taken"})
    with pytest.raises(StoreError, match="taken holds something else .notes.json.; move it away"):
        run(path, home)
    with pytest.raises(StoreError, match=r"could not be listed: http://[\d.:]+ answered 404; check the bucket"):
        run(small_release.write(home.parent / "data", output={"folder": "s3://no-such-bucket/x"}), home)
    assert untouched(home) == (0, False)


class Overwriting(BaseHTTPRequestHandler):
    """A server before an S3 server that ignores If-None-Match, as several products do."""

    behind = ""

    def log_message(self, *_: Any) -> None:
        pass

    def forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {k: v for k, v in self.headers.items() if k.lower() not in ("if-none-match", "host")}
        behind = http.client.HTTPConnection(self.behind)
        behind.request(self.command, self.path, body, headers)
        answer = behind.getresponse()
        content = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                self.send_header(name, value)
        self.send_header("Content-Length", answer.headers.get("Content-Length") or str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_DELETE = do_HEAD = do_POST = forward  # noqa: N815


@pytest.fixture
def overwriting(s3: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(Overwriting, "behind", urlsplit(os.environ["AWS_ENDPOINT"]).netloc)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Overwriting)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("AWS_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield s3
    server.shutdown()
    server.server_close()


def test_a_store_that_writes_once_is_accepted(s3: str, tmp_path: Path) -> None:
    for place in (Store(f"{s3}/once"), Store(tmp_path / "store")):
        validation.check_store(place)
        assert not place.has_document("scratch")
    assert not [path for path in (tmp_path / "store").rglob("*") if path.is_file()]


def test_a_store_that_overwrites_is_refused(overwriting: str, home: Path) -> None:
    """Two runs of one release would both draw its noise."""
    place = Store(f"{overwriting}/twice")
    place.write_document("before.json", {"written": 1})  # the server works, but for the condition
    context = Context(home, place, engine.inline(), ignore_progress)
    with pytest.raises(StoreError, match="overwrites what must be written once .*use a server with conditional writes"):
        release_run.release(context, load(small_release.write(home.parent / "data")))
    with open_ledger(home) as ledger:
        assert ledger.entries() == []


@pytest.mark.parametrize(
    ("budget", "said"),
    slow_after_first(
        2,
        [
            (
                {"epsilon": "1e-4"},
                "this release spends epsilon=0.0001 where releases usually spend 0.1 to 10: the noise is likely",
            ),
            (
                {"epsilon": "1e-12", "delta": "1e-6"},
                "this release spends epsilon=.* where releases usually spend 0.1 to 10, and one record is hidden by noise of .* counts",
            ),
            (
                {"rho": "1e-8"},
                "this release spends rho=1e-08, which is epsilon=0.000566 at delta=1e-09, where releases usually spend 0.1 to 10",
            ),
            ({"epsilon": "1/100"}, None),
            ({"rho": "1/10000"}, None),
        ],
    ),
)
def test_a_budget_that_noise_swamps_is_warned_of_before_the_charge(
    home: Path, budget: dict[str, str], said: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the plan, its JSON and the run; a small usual budget is not."""
    unit = next(iter(budget)) if "delta" not in budget else "epsilon"
    cap = {unit: "1", **({"delta": "1e-6"} if "delta" in budget else {})}
    path = small_release.write(
        home.parent / "data", budget=budget, mechanism="identity", ledger={"dataset": "small", "cap": cap}
    )
    release_commands.plan(path, None, "inline")
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning: ")]
    release_commands.plan(path, None, "inline", True)
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    assert printed == [f"warning: {warning}" for warning in warnings]
    told: list[tuple[str, str, bool]] = []

    def record_progress(stage: str, line: str) -> None:
        with open_ledger(home) as ledger:
            told.append((stage, line, ledger.receipt("small-1") is None))

    run(path, home, record_progress)
    assert [(line, before) for stage, line, before in told if stage == "warning"] == [
        (warning, True) for warning in warnings
    ]
    assert len(warnings) == (said is not None)
    if said is not None:
        assert re.match(said, warnings[0])
        assert warnings[0].endswith("raise 'budget' unless that is meant")


def test_a_cluster_that_cannot_work_is_refused_before_the_charge(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = small_release.write(home.parent / "data")
    before = untouched(home)[0]

    def refuse_cluster(_: object) -> None:
        raise EngineError("no worker")

    with monkeypatch.context() as patched:
        patched.setattr(Engine, "check_started", refuse_cluster)
        with pytest.raises(EngineError, match="no worker"):
            run(path, home)
    assert untouched(home)[0] == before
    run(path, home)
    assert untouched(home)[0] > before


def test_few_records_with_other_columns_are_refused_before_anything_is_started(tmp_path: Path) -> None:
    path = small_release.write(tmp_path, table=small_release.records(20).drop_columns(["age"]))
    with pytest.raises(InvalidSpec, match="no column 'age'"):
        preflight.choose_engine(load(path), None)


def test_groups_that_are_not_listed_are_counted(home: Path) -> None:
    """Whoever asks for a group that is not there sees some that are, and how many there are besides."""
    asked = [{"predicates": [f"age == {age}" for age in range(11)]}, {"marginals": {"ways": [1]}}]
    for release, workload in (("few", asked[1:]), ("many", asked)):
        done = run(small_release.write(home.parent / release, release=release, workload=workload), home)
        with pytest.raises(InvalidInput, match="no group 'none'") as refusal:
            release_folder.first_rows(done.folder, group="none", limit=1)
        listed, _, more = str(refusal.value).partition("there are ")[2].partition(" and ")
        rest = int(more.removesuffix(" more") or 0)
        assert len(listed.split(", ")) + rest == (3 if release == "few" else 14)
        assert bool(rest) is (release == "many")

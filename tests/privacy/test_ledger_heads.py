"""Heads noted elsewhere hold a ledger to what it once said: kills between row and head, copies that race, places that began late."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from dpdist.errors import LedgerError, StoreError
from dpdist.privacy.ledger import checkpoints
from dpdist.privacy.ledger.budget_ledger import Ledger
from dpdist.privacy.ledger.receipts import Checkpoint
from dpdist.storage.documents import Documents
from tests import HANGS
from tests.case_selection import slow_after_first
from tests.privacy.test_budget_ledger import charge, commit, drawing
from tests.support.forked_programs import FORKED

AWS = ("AWS_ENDPOINT", "AWS_ALLOW_HTTP", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION")


@pytest.fixture(params=["folder", "s3"])
def heads_location(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where heads are noted."""
    location = str(tmp_path / "heads") if request.param == "folder" else f"{request.getfixturevalue('s3')}/{tmp_path.name}"
    monkeypatch.setenv(checkpoints.HEADS_ENVIRONMENT, location)
    return location


def environment() -> dict[str, str]:
    """What a process needs to reach the place."""
    return {name: os.environ[name] for name in (checkpoints.HEADS_ENVIRONMENT, *AWS) if name in os.environ}


def ledger_at(folder: Path) -> Ledger:
    return Ledger(f"sqlite:///{folder / 'ledger.db'}")


def finish(ledger: Ledger, release: str) -> None:
    """All steps of a release that are left."""
    ledger.reserve(charge(release))
    drawing(ledger, release)
    commit(ledger, release)


def finish_and_die(folder: Path, environ: dict[str, str], at: int, *, before: bool) -> None:
    """The same, killed at a write to the place: before it or after it."""
    os.environ.update(environ)
    original: Callable[..., bool] = Documents.create_document
    writes = 0

    def killed(self: Documents, name: str, content: dict[str, Any]) -> bool:
        nonlocal writes
        writes += 1
        if writes == at and before:
            os.kill(os.getpid(), signal.SIGKILL)
        done = original(self, name, content)
        if writes == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    with mock.patch.object(Documents, "create_document", killed):
        finish(ledger_at(folder), "r")


@pytest.mark.parametrize("before", slow_after_first(1, [True, False]), ids=["row-without-head", "head-and-no-more"])
def test_a_run_killed_between_row_and_head_goes_on_with_one_charge(
    tmp_path: Path, heads_location: str, before: bool
) -> None:
    """Kills at every write to the place, each in a ledger of its own: what is left is a row without a head, which is noted next."""
    for at in range(1, 8):  # two begin the place, four note rows; there is no seventh
        folder, own = tmp_path / str(at), f"{heads_location}/{at}"
        folder.mkdir()
        process = FORKED.Process(
            target=finish_and_die,
            args=(folder, environment() | {checkpoints.HEADS_ENVIRONMENT: own}, at),
            kwargs={"before": before},
        )
        process.start()
        process.join(HANGS)
        assert process.exitcode == (0 if at == 7 else -signal.SIGKILL)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(checkpoints.HEADS_ENVIRONMENT, own)
            ledger = ledger_at(folder)
            finish(ledger, "r")
            assert [row["event"] for row in ledger.entries()] == ["declared", "reserved", "drawing", "committed"]
            assert checkpoints.compare(ledger.checkpoints) == 4
            ledger.close()


def race(folder: Path, environ: dict[str, str], release: str, both: Any, said: Any) -> None:
    """Write the next row, wait until the other has written its own, and say whether a draw may begin."""
    os.environ.update(environ)
    original: Callable[..., None] = checkpoints.Checkpoints.note
    ledger = ledger_at(folder)

    def noted(self: checkpoints.Checkpoints) -> None:
        both.wait(HANGS)
        with mock.patch.object(checkpoints.Checkpoints, "note", original):
            original(self)

    try:
        with mock.patch.object(checkpoints.Checkpoints, "note", noted):
            ledger.reserve(charge(release))
    except LedgerError as error:
        said.put((release, str(error)))
    else:
        said.put((release, ""))


def test_of_two_copies_of_a_ledger_one_goes_on(tmp_path: Path, heads_location: str) -> None:
    """Both have compared and written the same row when the first head is noted: the other is refused before its draw, and for good."""
    assert heads_location
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    ledger = ledger_at(tmp_path / "one")
    finish(ledger, "first")
    ledger.close()
    shutil.copy(tmp_path / "one" / "ledger.db", tmp_path / "other" / "ledger.db")
    both, said = FORKED.Barrier(2), FORKED.Queue()
    racing = [
        FORKED.Process(target=race, args=(tmp_path / name, environment(), name, both, said)) for name in ("one", "other")
    ]
    for process in racing:
        process.start()
    found = dict(said.get(timeout=HANGS) for _ in racing)
    for process in racing:
        process.join(HANGS)
    assert sorted(text == "" for text in found.values()) == [False, True]
    (lost,) = (name for name, text in found.items() if text)
    assert "another copy of it went on. Nothing is drawn. Restore" in found[lost]
    loser = ledger_at(tmp_path / lost)
    for step in (lambda: loser.reserve(charge(lost)), lambda: drawing(loser, lost), lambda: loser.abort(lost)):
        with pytest.raises(LedgerError, match="has another row 5, whose head is noted at"):
            step()
    (won,) = found.keys() - {lost}
    winner = ledger_at(tmp_path / won)
    finish(winner, won)
    assert checkpoints.compare(winner.checkpoints) == 7


def test_of_two_that_begin_a_place_the_first_says_from_which_row_on(
    tmp_path: Path, heads_location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which had read an older ledger: the other one notes all rows from there on, so that none is missing."""
    monkeypatch.delenv(checkpoints.HEADS_ENVIRONMENT)
    ledger = ledger_at(tmp_path)
    finish(ledger, "before")
    monkeypatch.setenv(checkpoints.HEADS_ENVIRONMENT, heads_location)
    create, older = Documents.create_document, ledger.checkpoints(2)[0]

    def come_second(documents: Documents, name: str, content: dict[str, Any]) -> bool:
        monkeypatch.setattr(Documents, "create_document", create)
        assert create(documents, name, asdict(older))
        return create(documents, name, content)

    monkeypatch.setattr(Documents, "create_document", come_second)
    finish(ledger, "after")
    assert len(ledger.entries()) == 7
    assert checkpoints.compare(ledger.checkpoints) == 6  # rows 2 to 7


def test_a_ledger_that_lost_rows_is_charged_no_more(tmp_path: Path, heads_location: str) -> None:
    """Also an emptied one, and one that was changed and has come as far again; its newest copy goes on."""
    assert heads_location
    ledger = ledger_at(tmp_path)
    finish(ledger, "first")
    ledger.close()
    shutil.copy(tmp_path / "ledger.db", tmp_path / "backup.db")
    ledger = ledger_at(tmp_path)
    ledger.reserve(charge("second"))
    ledger.close()
    shutil.move(tmp_path / "ledger.db", tmp_path / "newest.db")
    emptied = ledger_at(tmp_path)
    with pytest.raises(LedgerError, match="lacks row 1, whose head is noted.*emptied"):
        emptied.reserve(charge("third"))
    emptied.close()
    shutil.move(tmp_path / "backup.db", tmp_path / "ledger.db")
    older = ledger_at(tmp_path)
    with pytest.raises(LedgerError, match="lacks row 5"):
        older.rehearse(charge("third"))
    with pytest.raises(LedgerError, match="lacks row 5"):
        older.reserve(charge("third"))
    with pytest.raises(LedgerError, match="lacks row 5"):
        older.set_cap("people", cap=charge("x").cap, why="more")
    assert len(older.entries()) == 4
    with mock.patch.dict(os.environ):
        del os.environ[checkpoints.HEADS_ENVIRONMENT]
        finish(older, "third")
    with pytest.raises(LedgerError, match="has another row 5"):
        older.reserve(charge("fourth"))
    older.close()
    shutil.move(tmp_path / "newest.db", tmp_path / "ledger.db")
    finish(ledger_at(tmp_path), "second")


def test_a_place_belongs_to_one_ledger(tmp_path: Path, heads_location: str) -> None:
    assert heads_location
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    finish(ledger_at(tmp_path / "one"), "first")
    other = ledger_at(tmp_path / "other")
    with mock.patch.dict(os.environ):
        del os.environ[checkpoints.HEADS_ENVIRONMENT]
        finish(other, "first")
    with pytest.raises(LedgerError, match="are another ledger's: nothing is drawn"):
        other.reserve(charge("second"))


class CountingStorage:
    """A place in memory that counts what it is asked."""

    location = "memory"

    def __init__(self, *, once: bool = True) -> None:
        self.content: dict[str, dict[str, Any]] = {}
        self.asked, self.once = 0, once

    def create_document(self, name: str, content: dict[str, Any]) -> bool:
        self.asked += 1
        new = not (self.once and name in self.content)
        if new:
            self.content[name] = content
        return new

    def has_document(self, name: str) -> bool:
        self.asked += 1
        return name in self.content

    def read_document(self, name: str) -> dict[str, Any]:
        self.asked += 1
        return self.content[name]


class Rows:
    """A ledger's rows, as far as heads see them."""

    def __init__(self, rows: int, fork: int | None = None) -> None:
        self.all = [
            Checkpoint("first", number, f"{number}{'' if fork is None or number < fork else ' of a fork'}")
            for number in range(rows + 1)
        ]

    def newest(self) -> Checkpoint:
        return self.all[-1]

    def checkpoints(self, start: int) -> list[Checkpoint]:
        return self.all[start:]


def test_a_step_asks_as_little_of_a_long_ledger_as_of_a_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is listed. What a run left out that did not know the place is found in few steps, and noted."""
    cost = {}
    for rows in (500, 50_000):
        place = CountingStorage()
        monkeypatch.setattr(checkpoints, "_heads_storage", lambda place=place: place)
        book = Rows(0)
        checkpoints.Checkpoints(book.newest, book.checkpoints).check()
        book.all = Rows(rows).all
        checkpoints.Checkpoints(book.newest, book.checkpoints).check()
        assert len(place.content) == rows + 1
        place.asked = 0
        mine = checkpoints.Checkpoints(book.newest, book.checkpoints)
        mine.check()
        opening, place.asked = place.asked, 0
        book.all += [Checkpoint("first", rows + 1, "new")]
        mine.note()
        mine.check()
        cost[rows] = opening, place.asked
        book.all = book.all[:-1]
        place.asked = 0
        with pytest.raises(LedgerError, match=f"lacks row {rows + 1}"):
            checkpoints.Checkpoints(book.newest, book.checkpoints).check()
        assert place.asked <= 3
    assert cost[500] == cost[50_000]
    assert max(cost[500]) <= 4


def test_a_place_that_began_late_or_was_left_out_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    for rows, noted, fork in [(40, 7, None), (40, 7, 8), (40, 7, 7), (40, 40, 40), (8, 7, None), (6, 7, None), (3, 7, None)]:
        place = CountingStorage()
        monkeypatch.setattr(checkpoints, "_heads_storage", lambda place=place: place)
        first = Rows(5)
        checkpoints.Checkpoints(first.newest, first.checkpoints).check()  # the place begins with row 5
        assert len(place.content) == 2
        first = Rows(noted)
        checkpoints.Checkpoints(first.newest, first.checkpoints).check()
        book = Rows(rows, fork)
        mine = checkpoints.Checkpoints(book.newest, book.checkpoints)
        if rows < noted or (fork is not None and fork <= noted):
            with pytest.raises(LedgerError, match="lacks row" if rows < noted else "has another row"):
                mine.check()
        else:
            mine.check()
            assert sorted(place.content) == [f"heads/{number:012d}.json" for number in [0, *range(5, rows + 1)]]


def test_of_copies_that_find_the_place_empty_one_begins_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of unlike length would not note the same number: which of them began decides."""
    place = CountingStorage()
    monkeypatch.setattr(checkpoints, "_heads_storage", lambda: place)
    short, long = Rows(10, fork=9), Rows(12)
    checkpoints.Checkpoints(short.newest, short.checkpoints).check()
    with pytest.raises(LedgerError, match="has another row 10"):
        checkpoints.Checkpoints(long.newest, long.checkpoints).check()


def test_a_place_that_overwrites_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "_heads_storage", lambda: CountingStorage(once=False))
    book = Rows(3)
    with pytest.raises(StoreError, match="overwrites what must be written once"):
        checkpoints.Checkpoints(book.newest, book.checkpoints).check()


def test_a_ledger_that_goes_on_while_it_is_compared_is_the_same(tmp_path: Path, heads_location: str) -> None:
    """Another process writes and notes rows after the newest one was looked up: they are followed, nothing is refused."""
    one, other = ledger_at(tmp_path), ledger_at(tmp_path)
    one.reserve(charge("first"))
    looked_up, rows = one._checkpoints._newest, list[int]()

    def and_another_goes_on() -> Checkpoint:
        newest = looked_up()
        if not rows:
            rows.append(newest.sequence)
            finish(other, "second")
        return newest

    one._checkpoints._newest = and_another_goes_on
    assert one.reserve(charge("third")).charged
    assert one.checkpoint().sequence > rows[0] + 3
    assert checkpoints.compare(one.checkpoints) == one.checkpoint().sequence == one.verify().rows
    assert [one.receipt(release).state for release in ("first", "second", "third")] == ["reserved", "committed", "reserved"]

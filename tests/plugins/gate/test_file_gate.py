"""Files of records unlike those of earlier periods stop a release before it is charged: fewer, older or later ones."""

from __future__ import annotations

import datetime
import json
import os
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import obstore
import obstore.store
import pyarrow.parquet
import pytest

from dpdist.errors import NoRecords, ReleaseHeld
from dpdist.pipeline.release_run import Release
from dpdist.plugins.gate.file_gate import FOLDER, PeriodFiles, find_gaps
from dpdist.plugins.gate.held_releases import HeldRelease
from dpdist.privacy import keys
from dpdist.privacy.ledger.budget_ledger import open_ledger
from tests.plugins.lakes.test_lakes import lake
from tests.support import small_release
from tests.support.command_line import CommandLine
from tests.support.record_tables import TABLE

FIRST, WEEKS, PARTS = datetime.date(2026, 1, 5), 3, 4
ARRIVAL = datetime.timedelta(days=7, hours=2)
"""After the begin of its week every file comes."""
GIVEN = {"workload": [{"marginals": {"ways": [1]}}], "ledger": {"dataset": "small", "cap": {"rho": 0.25, "per": "week"}}}


def week(folder: Path, number: int, parts: int = PARTS, later: float = 0.0, **changes: Any) -> Path:
    """The spec of a week, whose records are in some files.

    Args:
        later: seconds by which its last file comes later than usual; earlier, where it is negative.
    """
    day, place = FIRST + datetime.timedelta(weeks=number), folder / f"week-{number}"
    given = {"release": f"w{number}", "period": day, "records": {"path": "parts"}, **GIVEN, **changes}
    path = small_release.write(place, **given)
    shutil.rmtree(place / "parts", ignore_errors=True)
    (place / "parts").mkdir()
    written = datetime.datetime.combine(day, datetime.time(), datetime.UTC) + ARRIVAL
    for part in range(parts):
        pyarrow.parquet.write_table(small_release.records(seed=10 * number + part), place / "parts" / f"{part}.parquet")
        seconds = written.timestamp() + part + (later if part == parts - 1 else 0.0)
        os.utime(place / "parts" / f"{part}.parquet", (seconds, seconds))
    return path


@pytest.fixture(scope="module")
def weeks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which three weeks were published, of four files each."""
    folder = tmp_path_factory.mktemp("weeks")
    keys.initialise(folder / "home")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for number in range(WEEKS):
            small_release.run(week(folder, number), folder / "home")
    return folder


@pytest.fixture
def folder(weeks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of its state, and a place for what is published next; the records lie beside those of the earlier weeks."""
    shutil.copytree(weeks / "home", tmp_path / "home")
    monkeypatch.chdir(weeks)
    monkeypatch.setenv("DPDIST_OUTPUT", str(tmp_path / "releases"))
    return tmp_path


def run(folder: Path, weeks: Path, parts: int = PARTS, later: float = 0.0, **changes: Any) -> Release:
    """The fourth week."""
    return small_release.run(week(weeks, WEEKS, parts, later, **changes), folder / "home")


@pytest.mark.parametrize(
    ("parts", "later", "sentence", "given"),
    [
        (
            2,
            0.0,
            "its records are in 2 files, where the last 3 published periods had 4, so that some seem to be missing",
            {},
        ),
        (3, 0.0, "its records are in 3 files, where the last 3 published periods had 4", {"gate": {"action": "hold"}}),
        (4, -3700.0, "a file of its records was written 1 h 1 min earlier after the begin of the period", {}),
        (4, 7300.0, "a file of its records was written 2 h 1 min later after the begin of the period", {}),
    ],
)
def test_a_gap_in_the_files_stops_before_the_charge_and_says_which(
    folder: Path, weeks: Path, parts: int, later: float, sentence: str, given: dict[str, Any]
) -> None:
    with pytest.raises(ReleaseHeld, match=f"w3 is held, and nothing was charged: {sentence}") as held:
        run(folder, weeks, parts, later, **given)
    assert "dpdist gate w3 --publish --why REASON" in str(held.value)
    with open_ledger(folder / "home") as ledger:
        assert ledger.receipt("w3") is None
    assert run(folder, weeks, **given).charged  # the files are complete
    assert (HeldRelease(folder / "home", "w3").facts() or {})["events"][-1]["event"] == "passed"


def test_a_gap_that_somebody_has_looked_at_is_published(
    folder: Path, weeks: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ReleaseHeld):
        run(folder, weeks, 2)
    monkeypatch.setenv("DPDIST_HOME", str(folder / "home"))
    command = CommandLine(monkeypatch, capsys)
    assert "run it again" in command("gate", "w3", "--publish", "--why", "two branches are closed").out
    with pytest.raises(ReleaseHeld):  # the approval is of the files that were seen
        run(folder, weeks, 1)
    command("gate", "w3", "--publish", "--why", "one branch is open")
    assert run(folder, weeks, 1).charged
    (state,) = (folder / "home" / FOLDER).glob("*.json")
    assert {tuple(sorted(known)) for known in json.loads(state.read_text()).values()} == {("files", "newest", "oldest")}
    assert state.stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_a_release_whose_names_were_charged_goes_on(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run was killed after it had paid for names: 'nothing was charged' would be wrong, and the charge is bound to these files."""
    monkeypatch.chdir(tmp_path)
    names = {"categories": "private", "selection": {"share": 0.2, "delta": 1e-9, "most": 5}}
    given: dict[str, Any] = {
        "domain": {**small_release.spec()["domain"], "work": names},
        "budget": {"epsilon": 3, "delta": 1e-6},
        "ledger": {"dataset": "small", "cap": {"epsilon": 9, "delta": 1e-5, "selection": 1e-8, "per": "week"}},
    }
    small_release.run(week(tmp_path, 0, 2, **given), home)
    (state,) = (home / FOLDER).glob("*.json")
    known = json.loads(state.read_text())
    state.unlink()
    path = week(tmp_path, 4, 1, **given)
    with mock.patch("dpdist.pipeline.release_run.count", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        small_release.run(path, home)
    (first,) = known.values()
    state.write_text(json.dumps({(FIRST + datetime.timedelta(weeks=number)).isoformat(): first for number in range(4)}))
    with pytest.raises(
        ReleaseHeld, match="its records are in 1 file"
    ):  # another release of the same files, which nothing was charged for
        small_release.run(week(tmp_path, 4, 1, **given, release="another"), home)
    assert small_release.run(week(tmp_path, 4, 1, **given), home).charged


@pytest.mark.slow
def test_kills_between_gap_approval_and_publication_cost_one_charge_and_change_no_byte(folder: Path, weeks: Path) -> None:
    shutil.copytree(folder / "home", folder / "other")
    holds, files = "dpdist.plugins.gate.held_releases.rename", "dpdist.plugins.gate.file_gate.rename"

    def stop_at(place: str) -> None:
        with mock.patch(place, side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
            run(folder, weeks, 2)

    stop_at(holds)  # before it is known to be held
    held = HeldRelease(folder / "home", "w3")
    assert held.facts() is None
    with pytest.raises(ReleaseHeld):
        run(folder, weeks, 2)
    with mock.patch(holds, side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        held.approve("two branches are closed")
    with pytest.raises(ReleaseHeld):  # the approval was not written down
        run(folder, weeks, 2)
    with open_ledger(folder / "home") as ledger:
        assert ledger.receipt("w3") is None
    held.approve("two branches are closed")
    small_release.reserved(weeks / "week-3" / "release.yaml", folder / "home")  # the bytes are determined from here on
    shutil.rmtree(folder / "other")
    shutil.copytree(folder / "home", folder / "other")
    stop_at(holds)  # charged and measured, before it is known to be let through
    stop_at(files)  # before its files are written down
    stop_at("dpdist.publish.release_folder.move_into_place")
    published = small_release.tree(Path(run(folder, weeks, 2).folder))
    with open_ledger(folder / "home") as ledger:
        assert [entry["event"] for entry in ledger.entries() if entry.get("release") == "w3"].count("reserved") == 1
    shutil.rmtree(folder / "releases")
    shutil.rmtree(folder / "home")
    (folder / "other").rename(folder / "home")
    assert small_release.tree(Path(run(folder, weeks, 2).folder)) == published


def test_a_release_that_is_void_is_not_charged(folder: Path, weeks: Path) -> None:
    with pytest.raises(ReleaseHeld):
        run(folder, weeks, 2)
    HeldRelease(folder / "home", "w3").declare_void("half of the files are lost")
    with pytest.raises(ReleaseHeld, match="is void"):
        run(folder, weeks)
    with open_ledger(folder / "home") as ledger:
        assert ledger.receipt("w3") is None


def test_nothing_is_compared_where_nobody_wants_it_or_nothing_is_comparable(folder: Path, weeks: Path) -> None:
    run(folder, weeks, 2, gate={"action": "none"})
    ledger = {"dataset": "other", "cap": {"rho": 0.25, "per": "week"}, "shared_records": True}
    small_release.run(week(weeks, WEEKS, 1, release="other", ledger=ledger), folder / "home")


def test_what_is_written_down_of_files_is_the_same_for_neighbours(folder: Path, weeks: Path) -> None:
    """Files of which one has a record more, and so other bytes and another size."""
    states = []
    for rows in (2999, 3000):
        path = week(weeks, WEEKS)
        part = path.parent / "parts" / "0.parquet"
        seconds = part.stat().st_mtime
        pyarrow.parquet.write_table(small_release.records(seed=77).slice(0, rows), part)
        os.utime(part, (seconds, seconds))
        shutil.copytree(folder / "home", folder / f"home-{rows}")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DPDIST_OUTPUT", str(folder / f"releases-{rows}"))
            small_release.run(path, folder / f"home-{rows}")
        states.append(small_release.tree(folder / f"home-{rows}" / FOLDER))
    assert states[0] == states[1]


def test_folders_without_records_are_refused_before_the_charge(folder: Path, weeks: Path) -> None:
    for name in (None, "_SUCCESS", "_temporary/0.parquet", "0.parquet.inprogress"):
        path = week(weeks, WEEKS, 0)
        if name is not None:
            (path.parent / "parts" / name).parent.mkdir(exist_ok=True)
            (path.parent / "parts" / name).write_bytes(b"")
        with pytest.raises(NoRecords):
            small_release.run(path, folder / "home")
    path = week(weeks, WEEKS, 0)
    (path.parent / "parts").rmdir()
    with pytest.raises(NoRecords):
        small_release.run(path, folder / "home")
    with open_ledger(folder / "home") as ledger:
        assert ledger.receipt("w3") is None


def test_a_prefix_of_an_object_store_has_a_number_of_files_and_times(
    s3: str, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, parts in enumerate((2, 2, 2, 1)):
        local, prefix = week(tmp_path, number, parts), f"{tmp_path.name}/week-{number}"
        for part in range(parts):
            content = (local.parent / "parts" / f"{part}.parquet").read_bytes()
            obstore.put(obstore.store.from_url(s3), f"{prefix}/{part}.parquet", content)
        path = week(tmp_path, number, 0, records={"path": f"{s3}/{prefix}"})
        if parts == 1:
            with pytest.raises(ReleaseHeld, match="its records are in 1 file, where the last 3 published periods had 2"):
                small_release.run(path, home)
        else:
            small_release.run(path, home)
    (state,) = (home / FOLDER).glob("*.json")
    times = [known["newest"] for known in json.loads(state.read_text()).values()]
    np.testing.assert_allclose(np.diff(times), -7 * 86400, atol=60)  # all were written now


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_tables_of_lakes_have_a_number_of_files_and_a_time(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, table, add = lake(kind, tmp_path, monkeypatch)
    before = table(int(first)).read_files()
    add(TABLE[:10])
    after = table(None).read_files()
    assert (before.files, after.files) == (1, 2)
    assert abs(after.written_at - datetime.datetime.now(datetime.UTC).timestamp()) < 60


def periods(*files: PeriodFiles) -> dict[datetime.date, PeriodFiles]:
    """Files of weeks after each other."""
    return {FIRST + datetime.timedelta(weeks=number): each for number, each in enumerate(files)}


@pytest.mark.parametrize(
    ("numbers", "newest", "unusual"),
    [
        ((4, 4), 2, False),  # two periods say nothing
        ((10, 11, 9), 8, False),  # by less than they differ
        ((10, 11, 9), 5, True),
        ((1, 40, 30), 1, False),  # one period had as few
        ((8, 40, 30), 7, True),  # at most half of their median
        ((24, 24, 24), 23, True),
        ((2, 2, 2), 4, False),
    ],
)
def test_numbers_of_files(numbers: tuple[int, ...], newest: int, unusual: bool) -> None:
    known = periods(*(PeriodFiles(number, None, None) for number in numbers))
    day = FIRST + datetime.timedelta(weeks=len(numbers))
    assert bool(find_gaps(PeriodFiles(newest, None, None), known, day)) == unusual


def test_times_of_files() -> None:
    """Of past periods that are published after each other every file is a week earlier after the begin of its period."""
    day, past = (
        FIRST + datetime.timedelta(weeks=5),
        [PeriodFiles(1, week, week) for week in np.arange(9, 4, -1) * 7 * 86400.0],
    )
    assert find_gaps(PeriodFiles(1, 4 * 7 * 86400.0, 4 * 7 * 86400.0), periods(*past), day) == []
    assert find_gaps(PeriodFiles(1, 0.0, 0.0), periods(*past), day + datetime.timedelta(weeks=4)) == []  # periods left out
    usual = periods(*(PeriodFiles(1, 100.0 * number, 100.0 * number) for number in range(5)))
    assert find_gaps(PeriodFiles(1, -3500.0, -3500.0), usual, day) == []
    assert len(find_gaps(PeriodFiles(1, -3600.0, -3600.0), usual, day)) == 1
    assert find_gaps(PeriodFiles(1, 0.0, 3900.0), usual, day) == []
    assert len(find_gaps(PeriodFiles(1, 0.0, 4000.0), usual, day)) == 1
    assert find_gaps(PeriodFiles(1, 0.0, 4000.0), usual | {day: PeriodFiles(1, 0.0, 0.0)}, day) == []  # a corrected edition

"""Releases whose answers earlier periods make very unlikely: warned of, held, published after somebody has looked; charged once."""

from __future__ import annotations

import datetime
import json
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from dpdist.errors import InvalidInput, InvalidSpec, ReleaseHeld
from dpdist.pipeline.release_run import Release
from dpdist.plugins.gate.held_releases import HeldRelease
from dpdist.privacy import keys
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.spec import load
from tests.support import small_release
from tests.support.command_line import CommandLine

FIRST = datetime.date(2026, 1, 5)
WEEKS = 7
LEDGER = {"dataset": "small", "cap": {"rho": 0.25, "per": "week"}}


def week(folder: Path, number: int, **changes: Any) -> Path:
    """The spec of a week, and its records unless others are given."""
    day = FIRST + datetime.timedelta(weeks=number)
    given = {
        "table": small_release.records(seed=number),
        "release": f"w{number}",
        "period": day,
        "ledger": LEDGER,
        **changes,
    }
    return small_release.write(folder / f"data-{number}", **given)


@pytest.fixture(scope="module")
def weeks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which seven weeks were published."""
    folder = tmp_path_factory.mktemp("weeks")
    keys.initialise(folder / "home")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for number in range(WEEKS):
            small_release.run(week(folder, number, gate={"action": "hold"}), folder / "home")
    return folder


@pytest.fixture
def folder(weeks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, which is the current folder."""
    shutil.copytree(weeks / "home", tmp_path / "home")
    monkeypatch.chdir(weeks)  # the ledger says where the releases are
    monkeypatch.setenv("DPDIST_OUTPUT", str(tmp_path / "releases"))
    return tmp_path


def run(folder: Path, **changes: Any) -> tuple[Release, list[str]]:
    """The eighth week, and what was warned of."""
    lines: list[str] = []
    path = week(folder, WEEKS, **changes)
    return small_release.run(
        path, folder / "home", lambda stage, line: lines.append(line) if stage == "warning" else None
    ), lines


HALF = small_release.records(seed=WEEKS).slice(0, 1500)


def test_a_usual_week_is_published_without_a_word(folder: Path) -> None:
    released, lines = run(folder, gate={"action": "hold"})
    assert (released.folder, lines) == (folder / "releases" / "w7", [])


def test_half_of_the_records_are_held_and_published_once_somebody_has_looked(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(
        ReleaseHeld, match=r"w7 is held, charged and measured, but not published: .* 7 earlier periods make"
    ) as held:
        run(folder, table=HALF, gate={"action": "hold"})
    assert "dpdist gate w7 --publish --why REASON" in str(held.value)
    assert not (folder / "releases" / "w7").exists()
    with open_ledger(folder / "home") as ledger:
        receipt = ledger.receipt("w7")
    assert receipt is not None
    assert receipt.state == "committed"
    with pytest.raises(ReleaseHeld):  # again, and nothing more is charged
        run(folder, table=HALF, gate={"action": "hold"})
    monkeypatch.setenv("DPDIST_HOME", str(folder / "home"))
    command = CommandLine(monkeypatch, capsys)
    assert "w7: held" in command("gate").out
    assert "earlier periods make" in command("gate", "w7").out
    assert "give the reason" in command("gate", "w7", "--publish").err
    assert "run it again" in command("gate", "w7", "--publish", "--why", "half of the branches closed").out
    released, _ = run(folder, table=HALF, gate={"action": "hold"})
    assert not released.charged
    assert (folder / "releases" / "w7" / "release.json").exists()
    assert "w7: published: half of the branches closed" in command("gate").out


@pytest.mark.slow
@pytest.mark.parametrize("charges", [("w7",), ("w7~completeness", "w7")], ids=["answers", "completeness"])
def test_kills_between_hold_approval_and_publication_cost_one_charge_and_change_no_byte(
    folder: Path, charges: tuple[str, ...]
) -> None:
    completeness = {"completeness": {"share": 0.2}} if len(charges) > 1 else {}
    given = {"table": HALF, "gate": {"action": "hold", **completeness}}

    def stop_at(place: str) -> None:
        with mock.patch(place, side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
            run(folder, **given)

    if completeness:
        for place in ("count_completeness", "CompletenessMeasurement.values_to_store", "CompletenessMeasurement.facts"):
            stop_at(f"dpdist.plugins.gate.completeness_step.{place}")
    small_release.reserved(week(folder, WEEKS, **given), folder / "home")  # the bytes are determined from here on
    shutil.copytree(folder / "home", folder / "other")

    rename = "dpdist.plugins.gate.held_releases.rename"
    stop_at(rename)  # before it is known to be held
    held = HeldRelease(folder / "home", "w7")
    assert held.facts() is None
    with pytest.raises(ReleaseHeld):
        run(folder, **given)
    with mock.patch(rename, side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        held.approve("seen")
    with pytest.raises(ReleaseHeld):  # the approval was not written down
        run(folder, **given)
    held.approve("seen")
    stop_at("dpdist.publish.release_folder.move_into_place")
    published = small_release.tree(Path(run(folder, **given)[0].folder))
    with open_ledger(folder / "home") as ledger:
        reserved = [entry["release"] for entry in ledger.entries() if entry["event"] == "reserved"]
    assert [release for release in reserved if release.startswith("w7")] == [*charges]
    shutil.rmtree(folder / "releases")
    shutil.rmtree(folder / "home")
    (folder / "other").rename(folder / "home")
    with pytest.raises(ReleaseHeld):
        run(folder, **given)
    HeldRelease(folder / "home", "w7").approve("seen")
    assert small_release.tree(Path(run(folder, **given)[0].folder)) == published


@pytest.mark.parametrize("given", [{}, {"gate": {"action": "warn"}}])
def test_a_warning_is_the_default(folder: Path, given: dict[str, Any]) -> None:
    released, lines = run(folder, table=HALF, **given)
    assert (Path(released.folder) / "release.json").exists()
    assert any("earlier periods make" in line for line in lines)


def test_a_published_release_is_not_held_when_it_runs_again(folder: Path) -> None:
    """Earlier periods may be published later than it, and then make its answers unlikely."""
    run(folder, table=HALF, gate={"action": "warn"})
    again, lines = run(folder, table=HALF, gate={"action": "hold"})
    assert (again.charged, lines) == (False, [])


def test_no_gate_where_none_is_wanted_or_nothing_is_comparable(folder: Path) -> None:
    assert run(folder, table=HALF, gate={"action": "none"})[1] == []
    other = [{"marginals": {"ways": [1]}}]
    assert run(folder, table=HALF, workload=other, release="w7-other", ledger={**LEDGER, "shared_records": True})[1] == []


def test_an_approval_is_of_the_outliers_that_were_seen(folder: Path) -> None:
    """A release whose answers have others, for example after another fault was mended, is held again."""
    held = HeldRelease(folder / "home", "w7")
    held.write_outliers(["a is 3"])
    held.approve("seen")
    assert held.is_approved(["a is 3"])
    assert not held.is_approved(["a is 3", "b is 4"])
    assert json.loads(held.path.read_text())["why"] == "seen"
    assert held.path.stat().st_mode & 0o777 == 0o600


def test_what_is_void_is_never_published(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ReleaseHeld, match="--void instead of --publish never"):
        run(folder, table=HALF, gate={"action": "hold"})
    monkeypatch.setenv("DPDIST_HOME", str(folder / "home"))
    command = CommandLine(monkeypatch, capsys)
    assert "exclude each other" in command("gate", "w7", "--void", "--publish", "--why", "x").err
    assert "give the reason" in command("gate", "w7", "--void").err
    assert "never published" in command("gate", "w7", "--void", "--why", "half of the files were missing").out
    assert "is void (half of the files were missing)" in command("gate", "w7", "--publish", "--why", "x").err
    assert "w7: void: half of the files were missing" in command("gate").out
    events = json.loads(command("gate", "--json").out)["w7"]
    assert [(event["event"], event["reason"]) for event in events][1:] == [("void", "half of the files were missing")]
    assert "earlier periods make" in events[0]["reason"]
    for action in ("hold", "warn"):
        with pytest.raises(ReleaseHeld, match="w7 is void .* is never published"):
            run(folder, table=HALF, gate={"action": action})
    assert not (folder / "releases" / "w7").exists()


def test_what_is_held_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], home: Path) -> None:
    monkeypatch.setenv("DPDIST_HOME", str(home))
    command = CommandLine(monkeypatch, capsys)
    assert "no release is held" in command("gate").out
    assert "is not held" in command("gate", "w1").err


def test_a_gate_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises((InvalidSpec, InvalidInput), match="gate"):
        load(small_release.write(tmp_path, gate={"action": "stop"}))

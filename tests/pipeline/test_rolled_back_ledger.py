"""Certificates that lie beside a release's place are evidence against a ledger that was rolled back, with no heads noted anywhere."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from dpdist.errors import LedgerError
from dpdist.pipeline import validation
from dpdist.privacy.ledger.budget_ledger import Ledger, open_ledger
from dpdist.storage.objects import parse_location
from tests.support import small_release

CAP = {"dataset": "small", "cap": {"rho": 0.15}}


@pytest.fixture(params=["folder", "s3"])
def output_location(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where releases are published."""
    location = (
        str(tmp_path / "published") if request.param == "folder" else f"{request.getfixturevalue('s3')}/{tmp_path.name}"
    )
    monkeypatch.setenv("DPDIST_OUTPUT", location)
    return location


def run(home: Path, release: str) -> Any:
    """Spend a third of the cap."""
    return small_release.run(
        small_release.write(home.parent / release, release=release, budget={"rho": 0.05}, ledger=CAP), home
    )


def test_a_ledger_and_store_from_before_a_published_release_are_not_charged(
    home: Path, tmp_path: Path, output_location: str
) -> None:
    """The certificate of r2 is all that is left of it."""
    assert output_location
    run(home, "r1")
    shutil.copytree(home, tmp_path / "backup")
    run(home, "r2")
    shutil.move(home, tmp_path / "newest")
    shutil.copytree(tmp_path / "backup", home)
    with pytest.raises(LedgerError, match="r2 holds 'r2' of data set 'small'.*older backup. Restore the newest backup. If"):
        run(home, "r3")
    with open_ledger(home) as ledger:
        assert ledger.receipt("r3") is None
    shutil.rmtree(home)
    shutil.move(tmp_path / "newest", home)
    assert run(home, "r3").charged


def test_what_the_message_says_can_be_done_works(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No newer backup: the release that is lost is moved away, and the cap lowered by it."""
    run(home, "r1")
    shutil.copytree(home, tmp_path / "backup")
    folder = run(home, "r2").folder
    shutil.rmtree(home)
    shutil.move(tmp_path / "backup", home)
    with pytest.raises(LedgerError, match="lower the cap by what that certificate spent"):
        run(home, "r3")
    shutil.move(folder, tmp_path / "elsewhere")
    monkeypatch.setitem(CAP, "cap", {"rho": 0.1})
    with open_ledger(home) as ledger:
        ledger.set_cap("small", cap=small_cap(), why="r2 is lost")
    assert run(home, "r3").charged


def small_cap() -> Any:
    from fractions import Fraction

    from dpdist.privacy.accounting import Cap

    return Cap(rho=Fraction(1, 10))


def test_releases_of_other_ledgers_and_whatever_else_lies_there_are_none_of_its_business(
    home: Path, tmp_path: Path, output_location: str
) -> None:
    """A second ledger publishes into the same place; there is a damaged certificate, and one of another program."""
    run(home, "r1")
    with mock.patch("dpdist.privacy.ledger.budget_ledger._new_salt", return_value=bytes(range(1, 33))):
        other = tmp_path / "other"
        shutil.copytree(home, other, ignore=shutil.ignore_patterns("ledger.db", "store"))
        run(other, "of-another")
    for name, content in {
        "damaged": b"{",
        "foreign": json.dumps({"files": {}, "release": "x", "budget": 3}).encode(),
    }.items():
        parse_location(output_location).write(f"{name}/release.json", content)
    assert run(home, "r2").charged
    with open_ledger(home) as ledger:
        assert ledger.name() == bytes(range(16)).hex()
    with open_ledger(other) as ledger:
        assert ledger.name() == bytes(range(1, 17)).hex()


def test_few_certificates_are_read_and_those_of_known_releases_are_not(tmp_path: Path) -> None:
    """The cost of 500 published releases is one listing; of strange folders the last by name are read."""
    ledger = mock.Mock(spec=Ledger)
    ledger.name.return_value = "mine"
    ledger.committed.return_value = [f"r{number:03d}" for number in range(500)]
    for number in range(700):
        (tmp_path / f"r{number:03d}").mkdir()
    with mock.patch("dpdist.publish.release_folder.published_certificate", return_value=None) as read:
        validation.check_published(ledger, parse_location(tmp_path / "next"))
    assert [call.args[0].name for call in read.call_args_list] == [f"r{number}" for number in range(699, 635, -1)]

"""A home that this format's first version wrote is finished by every later one: with the same noise, and verified."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from dpdist.privacy.ledger.budget_ledger import open_ledger
from tests.earlier_home.__main__ import BEGUN, FINISHED, PLACE, finish, give_key
from tests.support import small_release


@pytest.fixture
def earlier_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the home with its records and specs."""
    monkeypatch.delenv("DPDIST_LEDGER", raising=False)
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "kept"
    shutil.copytree(PLACE, place)
    give_key(place / "home")
    return place


def test_a_kept_home_is_finished_with_the_same_noise(earlier_home: Path) -> None:
    with open_ledger(earlier_home / "home") as ledger:
        assert ledger.verify().running == 1
        before = {release: ledger.receipt(release) for release in (FINISHED, BEGUN)}
        head = ledger.checkpoint().head
    assert {release: receipt and receipt.state for release, receipt in before.items()} == {
        FINISHED: "committed",
        BEGUN: "drawing",
    }
    assert finish(earlier_home) == json.loads((PLACE / "digests.json").read_text())
    with open_ledger(earlier_home / "home") as ledger:
        audit = ledger.verify(head)
        assert (audit.releases, audit.running) == (2, 0)
        assert ledger.budgets()[0].releases == 2  # nothing was charged again
    assert not small_release.run(earlier_home / f"{BEGUN}.yaml", earlier_home / "home").charged

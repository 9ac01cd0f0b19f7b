"""Releases that version 0.1.0 left in every state are finished by this version: the same answers, for one charge.

The homes were made by version 0.1.0 itself (``make.py``), with the answers that it published from copies of them.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import tarfile
from pathlib import Path

import pytest

from dpdist.privacy import keys
from dpdist.privacy.ledger import Ledger
from tests import small

MADE = Path(__file__).parent / "homes-0.1.0.tar.xz"
STATES = ("reserved", "drawing", "drawn", "committed", "published")
KINDS = ("laplace", "week", "persons", "stream")
QUICK = [("gaussian", state) for state in STATES] + [(kind, state) for kind in KINDS for state in ("drawing", "committed")]
SLOW = [(kind, state) for kind in KINDS for state in STATES if (kind, state) not in QUICK]


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All homes, in another place than they were made in."""
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(MADE) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.mark.parametrize(("kind", "state"), [*QUICK, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)])
def test_a_release_of_0_1_0_is_finished(earlier: Path, home: Path, kind: str, state: str) -> None:
    del home  # the current folder is the test's own
    folder = earlier / kind / state
    digests = _plain_digests(folder / "home" / "ledger.db")
    found = _charged(folder / "home")
    for _ in range(2):  # finished, and then published again
        published = Path(small.run(folder / "release.yaml", folder / "home").folder)
        assert (published / "answers.csv").read_bytes() == (folder / "expected" / "answers.csv").read_bytes()
    assert _charged(folder / "home") == found
    ledger = Ledger.at(folder / "home")
    assert ledger.verify(root=keys.load(folder / "home")).running == 0
    ledger.close()
    kept = (folder / "home" / "ledger.db").read_bytes()
    assert digests
    assert not [digest for digest in digests if digest.encode() in kept]


def _plain_digests(ledger: Path) -> list[str]:
    """What 0.1.0 wrote down of exact counts."""
    with contextlib.closing(sqlite3.connect(ledger)) as connection:
        rows = connection.execute("SELECT facts FROM dpdist_entries WHERE event = 'reserved'").fetchall()
    return [json.loads(facts)["histogram_digest"] for (facts,) in rows]


def _charged(home: Path) -> list[tuple[str, str, int]]:
    """Data set, spent and releases of every account."""
    ledger = Ledger.at(home)
    out = [(budget.dataset, str(budget.spent), budget.releases) for budget in ledger.budgets()]
    ledger.close()
    return out

"""Writes the home of this version that upgrades are tested from: ``python -m tests.earlier_home``.

It holds a ledger, a store, a release that has finished and one of which the noise was about to be drawn.
Write it anew for a new format only, and say in the changelog what happens to homes of the old one.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from unittest import mock

import yaml

from dpdist.privacy import keys
from dpdist.privacy.ledger.budget_ledger import Ledger, open_ledger
from dpdist.privacy.ledger.receipts import Receipt
from dpdist.runtime.reconciliation import measurement_name
from dpdist.storage.array_store import Store
from tests.support import small_release

PLACE = Path(__file__).parent / "kept"
FINISHED, BEGUN = "finished", "begun"


def specification(release: str) -> dict[str, object]:
    """A release of four counts."""
    return {
        "release": release,
        "records": {"path": "records.csv"},
        "domain": {"age": {"from": 0, "to": 3}},
        "workload": [{"marginals": {"ways": [1]}}],
        "budget": {"rho": "1/10"},
        "ledger": {"dataset": "people", "cap": {"rho": 1}},
        "output": {"folder": f"published/{release}"},
    }


def give_key(home: Path) -> None:
    """The root key of the home, which everybody may know."""
    (home / "root.key").write_text(bytes(range(32)).hex() + "\n")
    (home / "root.key").chmod(0o600)


def write(place: Path) -> None:
    """The home, its records and its specs. Releases are published into the current folder."""
    home = place / "home"
    keys.initialise(home)
    give_key(home)
    (place / "records.csv").write_text("age\n" + "".join(f"{number % 4}\n" for number in range(30)))
    for release in (FINISHED, BEGUN):
        (place / f"{release}.yaml").write_text(yaml.safe_dump(specification(release), sort_keys=False))
    small_release.run(place / f"{FINISHED}.yaml", home)
    begin = Ledger.begin_drawing

    def killed(self: Ledger, release: str, attempt: int, binding: str) -> Receipt:
        begin(self, release, attempt, binding)
        raise KeyboardInterrupt

    with mock.patch.object(Ledger, "begin_drawing", killed):
        try:
            small_release.run(place / f"{BEGUN}.yaml", home)
        except KeyboardInterrupt:
            return
    raise AssertionError("nothing was about to be drawn")


def finish(place: Path) -> dict[str, str]:
    """The SHA-256 of the measured numbers, once both releases have finished."""
    out = {}
    for release in (FINISHED, BEGUN):
        small_release.run(place / f"{release}.yaml", place / "home")
        with open_ledger(place / "home") as ledger:
            receipt = ledger.receipt(release)
            assert receipt is not None
            store = Store(place / "home" / "store")
            stored = store.open(measurement_name(release))
            assert stored.digest == receipt.measurement_digest
            out[release] = hashlib.sha256(store.read_array(stored)).hexdigest()
    return out


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        made, copy = Path(folder, "made"), Path(folder, "copy")
        made.mkdir()
        os.chdir(folder)
        write(made)
        shutil.copytree(made, copy)
        shutil.rmtree(PLACE, ignore_errors=True)
        shutil.copytree(made, PLACE, ignore=shutil.ignore_patterns("answers", "digests", "root.key", "*-journal"))
        (PLACE / "digests.json").write_text(json.dumps(finish(copy), indent=1) + "\n")


if __name__ == "__main__":
    main()

"""What every case measures, bit for bit. ``python -m tests.contracts.golden`` writes it anew; the difference is the review.

``python -m tests.contracts.golden hierarchical wavelet`` takes the cases with these names, and leaves the others as they are.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from dpdist.engine import Engine
from dpdist.privacy import keys
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.storage.array_store import Store
from tests.contracts.cases import CASES, Case
from tests.properties.draws import Owned, owned_by, record_draws
from tests.support import small_release

FILE = Path(__file__).with_name("golden.json")
SOLVED = Path(__file__).with_name("solved.npz")
SOLVED_FACTS = Path(__file__).with_name("solved.json")


class Stopped(Exception):
    """The release has measured."""


def put_solved(case: str, store: Store) -> None:
    """Put the strategies that were solved when the digests were taken into a store: a solve's last bits depend on the machine."""
    if not SOLVED.exists():
        return
    with np.load(SOLVED) as arrays:
        for name, facts in json.loads(SOLVED_FACTS.read_text()).get(case, {}).items():
            store.put(name, arrays[_key(name)], facts)


def solved(store: Store) -> dict[str, Any]:
    """The solved strategies of a store with their facts. Those that are stored as whole numbers are the same on every machine."""
    names = (f"strategies/{kept}" for kept in store.folders("strategies") if "-long" not in kept)
    return {name: store.open(name).facts for name in names}


def _key(name: str) -> str:
    return name.replace("/", " ")


def measured(case: Case, neighbours: str, home: Path, folder: Path, where: Engine | None = None) -> dict[str, Any]:
    """Digests of the grid, of what the key is bound to and of the noisy integers, and the noise's scale.

    No address of a key is read twice on the way, and none that the measurement does not own.
    """
    found: dict[str, Any] = {}
    owned: dict[str, Owned] = {}

    def step(name: str, work: Callable[[], Any]) -> Any:
        found[name] = work()
        if name == "measure":
            raise Stopped
        return found[name]

    with record_draws() as draws:
        for through in case.through or (None,):
            path = case.write(folder, neighbours, through)
            try:
                small_release.run(path, home, sizes=case.sizes, step=step, where=where)
            except Stopped:
                planned, (stored, _) = found["plan"], found["measure"]
            owned[planned.job.release] = owned_by(planned.measurement)
    draws.check(owned)
    assert planned.strategy.name == case.mechanism
    with open_ledger(home) as ledger:
        receipt = ledger.receipt(planned.job.release)
    assert receipt is not None
    assert receipt.state == "committed"
    z = Store(home / "store", case.sizes).read_array(stored)
    assert z.dtype == np.int64
    return {
        "grid": planned.measurement.digest,
        "spacing": planned.measurement.spacing,
        "sensitivity_squared": str(planned.measurement.sensitivity_squared),
        "scale": int(planned.noise.scale),
        "noise": planned.noise.kind,
        "binding": receipt.spec_digest,
        "size": z.size,
        "z": hashlib.sha256(z.tobytes()).hexdigest(),
    }


def known_key(home: Path) -> None:
    """The root key that the digests were taken with."""
    keys.initialise(home)
    (home / "root.key").write_text("5c" * 32 + "\n")


def rewrite(names: Sequence[str] = ()) -> None:
    """Take the digests of some cases anew, or of all. Solved strategies that are kept already stay."""
    out: dict[str, Any] = json.loads(FILE.read_text()) if names else {}
    facts: dict[str, Any] = json.loads(SOLVED_FACTS.read_text()) if names else {}
    arrays: dict[str, Any] = dict(np.load(SOLVED)) if names else {}
    with (
        tempfile.TemporaryDirectory() as top,
        mock.patch("dpdist.privacy.ledger.budget_ledger._new_salt", return_value=bytes(range(32))),
    ):
        for number, (name, case) in enumerate(CASES.items()):
            for neighbours in case.neighbours if not names or name in names else ():
                home = Path(top) / f"{number}-{neighbours}-home"
                known_key(home)
                store = Store(home / "store", case.sizes)
                put_solved(name, store)
                for kept, known in facts.get(name, {}).items():
                    if not store.exists(kept):
                        store.put(kept, arrays[_key(kept)], known)
                out[f"{name}, {neighbours}"] = measured(case, neighbours, home, Path(top) / f"{number}-{neighbours}-data")
                if found := solved(store):
                    facts[name] = found
                    arrays |= {_key(kept): store.read_array(store.open(kept)) for kept in found}
    FILE.write_text(json.dumps(out, indent=1) + "\n")
    SOLVED_FACTS.write_text(json.dumps(facts, indent=1) + "\n")
    np.savez_compressed(SOLVED, **arrays)


if __name__ == "__main__":
    os.environ.pop(keys.ENVIRONMENT, None)
    if unknown := set(sys.argv[1:]) - set(CASES):
        sys.exit(f"no case is named {', '.join(sorted(unknown))}; tests/contracts/cases.py lists them")
    rewrite(sys.argv[1:])

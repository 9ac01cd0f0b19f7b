"""Releases that are killed at the n-th thing they do to a file, or lose power there, and are run again. Started by ``harness``.

Each trial is two processes, forked after all imports, so that it takes less than a CPU second: one is killed, the other finishes.
Prints a line of JSON for each.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import random
import shutil
import signal
import sys
import tempfile
from itertools import product
from pathlib import Path
from unittest import mock

import numpy as np

from dpdist import engine
from dpdist.errors import DpdistError
from dpdist.pipeline import release_run
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.publish import release_folder
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.storage.array_store import Store
from tests.support import small_release

ROOT_KEY = "5c" * 32 + "\n"


def run(folder: Path, spec: Path) -> str:
    """What the release published below the folder, as one digest-like text; or what it was told."""
    home = folder / "home"
    os.chdir(folder)
    with mock.patch("dpdist.privacy.ledger.budget_ledger._new_salt", return_value=bytes(range(32))):
        try:
            context = Context(home, Store(home / "store"), engine.inline(), ignore_progress)
            published = release_run.release(context, load(spec)).folder
        except DpdistError as error:
            return f"told: {error}"
    with open_ledger(home) as ledger:
        audit, charges = ledger.verify(), [budget.releases for budget in ledger.budgets()]
    release_folder.certificate_of(Path(published))
    files = {name: data.hex() for name, data in small_release.tree(Path(published)).items()}
    del files["release.json.sig"]  # which holds, and is of this ledger's certificate
    certificate = json.loads(bytes.fromhex(files["release.json"]))
    (digest,) = certificate.pop("measurements").values()
    if "measurement.npz" in files:  # DAWA publishes none
        with np.load(io.BytesIO(bytes.fromhex(files.pop("measurement.npz")))) as measurement:
            arrays = {name: array.tolist() for name, array in measurement.items()}
        assert json.loads(arrays["facts"]).get("measurement") == digest
        # the digest covers the ledger's row, which is of this ledger only, and the file the digest; what both are of is compared
        files["measurement.npz"] = json.dumps({**arrays, "facts": arrays["facts"].replace(digest, "")})
        del certificate["files"]["measurement.npz"]
    files["release.json"] = json.dumps(certificate)
    return json.dumps([audit.running, charges, files], sort_keys=True)


def begin(folder: Path) -> None:
    """A state folder with a key."""
    for name in ("home", "kept"):
        (folder / name).mkdir(parents=True)
    key = folder / "home" / "root.key"
    key.write_text(ROOT_KEY)
    key.chmod(0o600)
    (folder / "home").chmod(0o700)


def in_child(work: object, *arguments: object) -> tuple[int, str]:
    """A function in a forked child: its exit status, and the text it returned."""
    with tempfile.TemporaryFile() as answer:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                answer.write(work(*arguments).encode())
                answer.flush()
                status = 0
            finally:
                os._exit(status)
        _, waited = os.waitpid(child, 0)
        answer.seek(0)
        return waited, answer.read().decode()


def armed(folder: Path, spec: Path, at: int) -> str:
    """The release, to be killed at its ``at``-th event; how many there were if it was not."""
    shim = ctypes.CDLL(None)
    paths = [str(folder), str(folder / "kept"), str(folder / "log")]
    shim.fault_arm(*(path.encode() for path in paths), ctypes.c_long(at))
    run(folder, spec)
    return str(shim.fault_count())


def lose_power(folder: Path, chance: random.Random) -> None:
    """What was not synced may be lost: new contents of files, and new entries of folders; each is, with a chance of a half."""
    contents: dict[int, bool] = {}
    entries: dict[str, bool] = {}
    for line in (folder / "log").read_text().splitlines():
        what, number, path = line.split(" ", 2)
        if what == "W":
            contents[int(number)] = False
            entries.setdefault(path, False)
        elif what == "E":
            entries[path] = False
        else:
            contents[int(number)] = True
            if Path(path).is_dir():
                entries.update({each: True for each in entries if str(Path(each).parent) == path})
    for file in sorted(p for top in ("home", "releases") for p in (folder / top).rglob("*") if p.is_file()):
        inode = file.stat().st_ino
        if contents.get(inode, True) is False and chance.random() < 0.5:
            kept = folder / "kept" / str(inode)
            file.write_bytes(kept.read_bytes() if kept.exists() else b"")
    for name in [name for name, synced in entries.items() if not synced and chance.random() < 0.5]:
        entry = Path(name)
        if any(entry.is_relative_to(folder / top) for top in ("home/store", "releases")):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink(missing_ok=True)


def finished(folder: Path, spec: Path) -> str:
    """Whether the killed run had charged the release, which determines its bytes from there on; and what the second run publishes.

    What it tells to delete is deleted once.
    """
    with open_ledger(folder / "home") as ledger:
        charged = ledger.receipt("small-1") is not None
    published = run(folder, spec)
    if "told: " in published and "delete" in published:
        store = folder / "home" / "store"
        for name in ("histograms", "strategies", "answers", *(["measurements"] if "not committed" in published else [])):
            shutil.rmtree(store / name, ignore_errors=True)
        published = run(folder, spec)
    return f"{charged} {published}"


def trial(top: Path, spec: Path, seed: int, events: int, *, power: bool, expected: str) -> dict[str, object]:
    """One kill, or loss of power, at a random event, and the run after it."""
    chance = random.Random(seed)
    at = chance.randrange(1, events + 1)
    folder = top / f"trial-{seed}"
    begin(folder)
    status, _ = in_child(armed, folder, spec, at)
    if power:
        lose_power(folder, chance)
    _, told = in_child(finished, folder, spec)
    charged, _, second = told.partition(" ")
    outcome = "same bytes, one charge" if second == expected else second[:400] or "died"
    if second != expected and charged == "False" and second.startswith("[0, [1], "):
        outcome = "one charge; killed amid the optimisation, which went on from its checkpoint"
    shutil.rmtree(folder)
    return {
        "seed": seed,
        "at": at,
        "killed": os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL,
        "outcome": outcome,
    }


def import_what_releases_import(folder: Path, spec: Path) -> None:
    """Import here what a whole release imported in a child. It has to run there: the store's threads would not survive a fork."""
    begin(folder)
    _, names = in_child(modules_after, folder, spec)
    for name in json.loads(names):
        with contextlib.suppress(ImportError):  # some are made while they run
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # the children's collections copy no page of what is imported


def modules_after(folder: Path, spec: Path) -> str:
    """Names of all modules that are loaded after a release."""
    run(folder, spec)
    return json.dumps(sorted(sys.modules))


def main(spec: str, top: str, kinds: str, first: str, trials: str) -> None:
    folder = Path(top)
    import_what_releases_import(folder / "first", Path(spec))
    begin(folder / "whole")
    _, events = in_child(armed, folder / "whole", Path(spec), -1)
    _, expected = in_child(run, folder / "whole", Path(spec))
    print(json.dumps({"events": int(events)}), flush=True)
    for kind, seed in product(kinds.split(), range(int(first), int(first) + int(trials))):
        done = trial(folder, Path(spec), seed, int(events), power=kind == "power", expected=expected)
        print(json.dumps({"kind": kind, **done}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Files that a run writes of records that stand in none: extracts of queries and tables, and tables that Python passes.

They hold records in clear, so they lie in a private folder of their release, ``records/of/RELEASE`` in the state folder, and are there
no longer than somebody needs them:

- while a run uses them, which holds a lease (``dpdist.storage.leases``);
- while their release has a charge and has not finished: a run that was killed or refused after the charge goes on with the same bytes.
  Up to ``ABANDONED_SECONDS`` after the last run that used them; later runs read the records again.

So a run removes them when it has finished, and when it was refused before the charge. What a killed run leaves goes with the next run
of any release of this state folder, or with ``dpdist ledger abort``.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dpdist.errors import DpdistError
from dpdist.privacy.ledger.charges import PRELIMINARIES
from dpdist.process.durable_files import private_file, private_folder
from dpdist.runtime.context import Context
from dpdist.storage import leases
from dpdist.storage.documents import Documents

ABANDONED_SECONDS = 30 * 86_400.0
"""Nobody comes back for the records of a charged release that no run has used for so long."""
_UNFINISHED_STATES = {"reserved", "drawing", "committed"}
"""States of a charge whose release may still have to be finished: one that is committed may not be published yet."""


def _folder_of(home: Path, release: str) -> Path:
    """Where the records of a release are kept, closed to everybody else."""
    for folder in (home / "records", home / "records" / "of", home / "records" / "of" / release):
        private_folder(folder)
    return folder


@contextmanager
def extract_folder(context: Context, release: str, *, finishes: bool = True) -> Iterator[Path]:
    """The folder for the records of a release, which nobody removes during the block; gone afterwards unless the release may go on.

    Args:
        finishes: whether the release has finished when the block has.
    """
    home = context.home
    private_folder(home / "records")
    lease = leases.Lease(str(home / "records"))
    lease_file = _mark_folder_used(home, release, lease.id)
    try:
        yield lease_file.parent
        if finishes:
            private_folder(home / "records" / "finished")
            private_file(home / "records" / "finished" / release)
    finally:
        lease_file.unlink(missing_ok=True)
        lease.end()
        if not _is_unfinished(context, release):
            _remove(home, lease_file.parent)


def _mark_folder_used(home: Path, release: str, lease: str) -> Path:
    """A new mark in the folder of a release, that a living run uses it."""
    while True:
        lease_file = _folder_of(home, release) / f"{lease}.used"
        with suppress(FileNotFoundError):  # another run's sweep has just removed the folder
            private_file(lease_file)
            return lease_file


def sweep(context: Context) -> None:
    """Remove what nobody needs: of releases that do not go on, and of those that nobody has come back for."""
    home = context.home
    if not (home / "records").is_dir():
        return
    leases.sweep(Documents(home / "records"), None)
    for folder in (home / "records" / "of").glob("*"):
        with suppress(FileNotFoundError):
            if time.time() - folder.stat().st_mtime > ABANDONED_SECONDS or not _is_unfinished(context, folder.name):
                _remove(home, folder)


def remove(home: Path, release: str) -> None:
    """Remove the records of a release that has ended, unless a living run uses them."""
    if (home / "records").is_dir():
        leases.sweep(Documents(home / "records"), None)
        _remove(home, home / "records" / "of" / release)


def _is_unfinished(context: Context, release: str) -> bool:
    """Whether a release was charged, or the selection of its names, and has not finished; also where the ledger cannot be asked."""
    if (context.home / "records" / "finished" / release).exists():
        return False
    try:
        states = context.ledger.states_of([release, *(f"{release}{suffix}" for suffix in PRELIMINARIES)])
    except DpdistError:
        return True
    return not _UNFINISHED_STATES.isdisjoint(states)


def _remove(home: Path, folder: Path) -> None:
    """Remove a folder that no living run uses."""
    documents = Documents(home / "records")
    for lease_file in folder.glob("*.used"):
        if leases.holds_lease(documents, lease_file.stem):
            return
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)

"""Folders that are written whole or not at all: a draft beside the target, moved there in one step.

A draft is readable by its owner only until it is moved. ``.NAME.HEX.draft``, and ``.NAME.HEX.parts`` with what is not whole yet, belong
to the process that holds the lock of ``.NAME.HEX.lock``. Drafts whose lock nobody holds are of runs that were killed: the next run for
the same target removes them.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import shutil
import stat
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dpdist.errors import StoreError
from dpdist.process.durable_files import WRITTEN_BY_OTHERS, published_mode, sync_folders, sync_tree

_EXCHANGE = 2
_AT_FDCWD = -100
_LOCK = re.compile(r"[0-9a-f]{12}\.lock")
"""How the name of a draft's lock ends."""


@contextmanager
def draft_of(target: Path) -> Iterator[Path]:
    """A new empty folder beside ``target``, gone afterwards unless it was moved; drafts of killed runs are removed first."""
    target.parent.mkdir(parents=True, exist_ok=True)
    _sweep(target)
    with _locked(target) as lock:
        draft = lock.with_suffix(".draft")
        draft.mkdir(mode=0o700)
        try:
            yield draft
        finally:
            for path in (draft, unfinished_folder(draft)):
                shutil.rmtree(path, ignore_errors=True)
            lock.unlink(missing_ok=True)


def unfinished_folder(draft: Path) -> Path:
    """The folder beside a draft for files that are not whole yet."""
    return draft.with_suffix(".parts")


def move_into_place(target: Path, draft: Path) -> None:
    """Give a draft its name, which nothing has: whole on the disk before it has it, and to be found there afterwards.

    Raises: OSError when the draft cannot be moved, as when the name is taken; StoreError when the moved folder may be lost.
    """
    _open_to_readers(draft)
    sync_tree(draft)
    draft.replace(target)
    try:
        sync_folders(target.absolute())
    except OSError as error:
        raise could_not_write(target, error, "it is complete, but a power loss may remove it") from None


def _open_to_readers(draft: Path) -> None:
    """Give a draft the mode of a published folder; nobody else may write what is in it, whatever the user's umask."""
    draft.chmod(published_mode())
    for path in draft.rglob("*"):
        mode = path.lstat().st_mode
        if mode & WRITTEN_BY_OTHERS and not path.is_symlink():
            path.chmod(stat.S_IMODE(mode) & ~WRITTEN_BY_OTHERS)


def replace(target: Path, draft: Path) -> None:
    """Put a draft in place of a folder. Readers see the old folder or the new one where the system can exchange two names.

    What is replaced can be made again at any time, so it is not synced to the disk.

    Linux can, on its usual file systems. Elsewhere the old folder is moved aside first: a reader may find none for a
    moment, and after a kill just then the next run writes it again.
    """
    _open_to_readers(draft)
    if not target.exists():
        draft.replace(target)
        return
    if not _exchange_names(target, draft):
        old_folder = draft.with_name(f"{draft.name}.old")
        target.replace(old_folder)
        draft.replace(target)
        old_folder.replace(draft)


def check_writable(target: Path) -> None:
    """Make and remove what ``draft_of`` makes. Raises: StoreError when it is not possible; nothing is left either way."""
    there = next(folder for folder in target.absolute().parents if os.path.lexists(folder))
    try:
        with tempfile.TemporaryDirectory(dir=there, prefix=".dpdist-") as trial:
            trial_parent = Path(trial, *target.absolute().parent.relative_to(there).parts)
            trial_parent.mkdir(parents=True, exist_ok=True)
            (trial_parent / target.name).mkdir()
            with draft_of(trial_parent / target.name) as draft:
                (draft / "written").write_bytes(b"\n" * 4096)
    except OSError as error:
        raise StoreError(f"{target} cannot be written: {error.strerror} ({there}); {_cure(error)}") from None


def _cure(error: OSError) -> str:
    """What helps against a failed write."""
    cures = {
        errno.ENOSPC: "make room",
        errno.EDQUOT: "make room in the quota",
        errno.ENOTDIR: "a file is where a folder must be: move it away, or set another 'output.folder'",
        errno.ENAMETOOLONG: "set a shorter 'output.folder'",
    }
    return cures.get(error.errno or 0, "allow this user to write there, or set another 'output.folder'")


def could_not_write(target: Path, error: OSError, state: str) -> StoreError:
    """The error of a write that failed: what happened, how the release stands, what helps."""
    return StoreError(f"{target} could not be written: {error.strerror}; {state}: {_cure(error)} and run again")


@contextmanager
def _locked(target: Path) -> Iterator[Path]:
    """A new lock file beside the target that this process holds."""
    while True:
        path = target.with_name(f".{target.name}.{uuid.uuid4().hex[:12]}.lock")
        with path.open("wb") as file:
            with suppress(OSError):  # a file system without locks: no other process can take it either, so none sweeps
                fcntl.flock(file, fcntl.LOCK_EX)
            if path.exists():  # a sweep between the two lines above took it away
                yield path
                return


def _sweep(target: Path) -> None:
    """Remove the drafts for a target whose locks nobody holds."""
    prefix = f".{target.name}."
    names = [entry.name for entry in os.scandir(target.parent) if entry.name.startswith(prefix)]
    for name in names:
        if _LOCK.fullmatch(name[len(prefix) :]):
            _sweep_unheld(target.with_name(name))


def _sweep_unheld(lock: Path) -> None:
    """Remove a draft and its lock if nobody holds the lock."""
    with suppress(OSError), lock.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        draft = lock.with_suffix(".draft")
        for path in (draft, unfinished_folder(draft), draft.with_name(f"{draft.name}.old")):
            shutil.rmtree(path, ignore_errors=True)
        lock.unlink()


def _exchange_names(first_path: Path, second_path: Path) -> bool:
    """Whether the system exchanged two names in one step."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    return bool(call(_AT_FDCWD, os.fsencode(first_path), _AT_FDCWD, os.fsencode(second_path), _EXCHANGE) == 0)

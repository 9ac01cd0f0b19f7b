"""Files of this machine: private from the start, and on the disk when they count."""

from __future__ import annotations

import errno
import logging
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dpdist.errors import StoreError
from dpdist.process.threads import map_in_order

OTHERS_MODE = stat.S_IRWXG | stat.S_IRWXO
WRITTEN_BY_OTHERS = stat.S_IWOTH
"""What no published folder allows, whatever the user's umask."""
_CHANGING, _BEFORE = threading.Lock(), list[int]()


def private_folder(path: Path) -> None:
    """Make a folder of mode 0700, or close one that is there to everybody but its owner, with a word.

    What lies in it is out of reach then, whatever its own mode. Raises: StoreError when the folder is not this user's to close.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    _restrict_mode(path, 0o700)


def private_file(path: Path) -> None:
    """Make an empty file of mode 0600, or close one that is there. Raises: StoreError when it is not this user's to close."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    _restrict_mode(path, 0o600)


@contextmanager
def private_files() -> Iterator[None]:
    """What the block writes is of mode 0600 and 0700 (also in processes that it starts): the second lock, behind the folders'."""
    with _CHANGING:  # the mask is the process's: of blocks in several threads the first sets it, and the last sets it back
        _BEFORE.append(_BEFORE[0] if _BEFORE else os.umask(OTHERS_MODE))
    try:
        yield
    finally:
        with _CHANGING:
            before = _BEFORE.pop()
            if not _BEFORE:
                os.umask(before)


def published_mode() -> int:
    """The mode of a published folder, by the user's umask."""
    with _CHANGING:
        umask = os.umask(OTHERS_MODE)
        os.umask(umask)
        return 0o777 & ~((_BEFORE[0] if _BEFORE else umask) | WRITTEN_BY_OTHERS)


def _restrict_mode(path: Path, mode: int) -> None:
    status = path.stat()
    if not status.st_mode & OTHERS_MODE:
        return
    shown = f"{stat.S_IMODE(status.st_mode):04o}"
    if status.st_mode & stat.S_ISVTX or status.st_uid != os.geteuid() != 0:
        raise StoreError(
            f"{path} has mode {shown}, so other users can reach the private files in it, and this user may not change that; choose a "
            f"folder of your own, or have its owner run: chmod {mode:04o} {path}"
        )
    path.chmod(mode)
    logging.getLogger(__name__).warning("%s had mode %s: other users could read it; it is %04o now", path, shown, mode)


def sync_tree(top: Path) -> None:
    """Put everything below a folder, and the folder, on the disk. What another writer removes meanwhile is passed over.

    Raises: OSError when the disk refuses; what was written may then be lost.
    """
    walked = list(os.walk(top, topdown=False))  # folders that vanish are passed over
    for _ in map_in_order(_sync_if_there, [Path(folder, name) for folder, _, names in walked for name in names]):
        pass
    for folder, _, _ in walked:
        _sync_if_there(Path(folder))


def rename(draft: Path, target: Path) -> Path:
    """Give a file its name, which outlives a power loss only with all that the file holds. Raises: OSError when the disk refuses."""
    sync_path(draft)
    draft.replace(target)
    sync_folders(target.absolute())
    return target


def sync_folders(path: Path, *, own_folder: Path | None = None) -> None:
    """Put the names in every folder on the way to a path on the disk. Raises: OSError when the disk refuses.

    Args:
        path: absolute.
        own_folder: folders from here on are this user's, who must be able to sync them; what others own was there before.
    """
    for folder in path.parents:
        try:
            sync_path(folder)
        except PermissionError:
            if own_folder is not None and folder.is_relative_to(own_folder):
                raise


def sync_path(path: Path) -> None:
    """Put a file, or the names in a folder, on the disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno != errno.EINVAL or not path.is_dir():  # some file systems do not sync folders
            raise
    finally:
        os.close(opened)


def _sync_if_there(path: Path) -> None:
    with suppress(FileNotFoundError):
        sync_path(path)

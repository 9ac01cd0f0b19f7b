"""Files and folders that outlive a power loss."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from dpdist.process.threads import in_order


def sync_tree(top: Path) -> None:
    """Put everything below a folder, and the folder, on the disk. What another writer removes meanwhile is passed over.

    Raises: OSError when the disk refuses; what was written may then be lost.
    """
    walked = list(os.walk(top, topdown=False))  # folders that vanish are passed over
    for _ in in_order(_sync_if_there, [Path(folder, name) for folder, _, names in walked for name in names]):
        pass
    for folder, _, _ in walked:
        _sync_if_there(Path(folder))


def rename(draft: Path, target: Path) -> Path:
    """Give a file its name, which outlives a power loss only with all that the file holds. Raises: OSError when the disk refuses."""
    sync_path(draft)
    draft.replace(target)
    sync_folders(target.absolute())
    return target


def sync_folders(path: Path, *, own: Path | None = None) -> None:
    """Put the names in every folder on the way to a path on the disk. Raises: OSError when the disk refuses.

    Args:
        path: absolute.
        own: folders from here on are this user's, who must be able to sync them; what others own was there before.
    """
    for folder in path.parents:
        try:
            sync_path(folder)
        except PermissionError:
            if own is not None and folder.is_relative_to(own):
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

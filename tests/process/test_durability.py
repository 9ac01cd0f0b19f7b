"""What is put on the disk is put there, or an error says that it was not."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from dpdist.process.durable_files import sync_path


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc, which syncs nothing")
def test_folders_of_file_systems_that_do_not_sync_them_are_passed_over() -> None:
    """A file that cannot be synced is an error all the same."""
    sync_path(Path("/proc/self"))
    with pytest.raises(OSError, match="Invalid argument"):
        sync_path(Path("/proc/self/status"))


@pytest.mark.parametrize("name", ["folder", "folder/file"])
def test_a_disk_that_refuses_is_told(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").touch()

    def refused(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", refused)
    with pytest.raises(OSError, match="Input/output error"):
        sync_path(tmp_path / name)

"""Where dpdist keeps its state: ledger, root key and store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from dpdist.errors import InvalidInput
from dpdist.process.path_encoding import encodes
from dpdist.storage.objects import Folder, StorageLocation, parse_location

if TYPE_CHECKING:
    from dpdist.storage.array_store import Store


def state_folder(home: Path | None = None) -> Path:
    """``DPDIST_HOME``, or the platform's user data folder. Raises: InvalidInput when its path is not UTF-8."""
    configured = home or os.environ.get("DPDIST_HOME") or platformdirs.user_data_dir("dpdist", appauthor=False)
    folder = Path(configured).expanduser().resolve()
    if not encodes(str(folder)):
        raise InvalidInput(f"the path of the state folder {folder} is not UTF-8; name another one in DPDIST_HOME")
    return folder


def store_of(home: Path) -> Store:
    """The store of a state folder, or the one at ``DPDIST_STORE`` (a folder, or a URL such as s3://bucket/prefix)."""
    from dpdist.storage.array_store import Store

    return Store(os.environ.get("DPDIST_STORE") or home / "store")


OUTPUT = "DPDIST_OUTPUT"
"""Where releases go whose spec names no folder: a folder, or a URL such as s3://bucket/prefix. Default: ``releases`` in the current one."""


def published_at(release: str, folder: str | None = None) -> StorageLocation:
    """Where a release is published.

    Args:
        folder: what its spec says: a URL, or a folder below the current one.
    """
    return parse_location(folder) if folder else parse_location(os.environ.get(OUTPUT) or "releases") / release


def release_location(release: str) -> StorageLocation:
    """Where a published release is: its URL, its folder, or the folder of that id."""
    named = parse_location(release)
    return published_at(release) if isinstance(named, Folder) and not named.path_or_url.is_dir() else named

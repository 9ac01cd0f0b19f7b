"""Where dpdist keeps its state: ledger, root key and store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from dpdist.errors import InvalidInput
from dpdist.process.encoding import encodes

if TYPE_CHECKING:
    from dpdist.machine.store import Store


def state_folder(home: Path | None = None) -> Path:
    """``DPDIST_HOME``, or the platform's user data folder. Raises: InvalidInput when its path is not UTF-8."""
    chosen = home or os.environ.get("DPDIST_HOME") or platformdirs.user_data_dir("dpdist", appauthor=False)
    folder = Path(chosen).expanduser().resolve()
    if not encodes(str(folder)):
        raise InvalidInput(f"the path of the state folder {folder} is not UTF-8; name another one in DPDIST_HOME")
    return folder


def store_of(home: Path) -> Store:
    """The store of a state folder, or the one at ``DPDIST_STORE`` (a folder, or a URL such as s3://bucket/prefix)."""
    from dpdist.machine.store import Store

    return Store(os.environ.get("DPDIST_STORE") or home / "store")


OUTPUT = "DPDIST_OUTPUT"
"""Where releases go whose spec names no folder: a folder, or a URL such as s3://bucket/prefix. Default: ``releases`` in the current one."""


def releases_at() -> Path | str:
    """Where releases are published whose spec does not say where."""
    named = os.environ.get(OUTPUT)
    return named.rstrip("/") if named and "://" in named else Path.cwd() / (named or "releases")


def published_at(release: str, folder: str | None = None) -> Path | str:
    """The folder or URL of a release.

    Args:
        folder: what its spec says: a URL, or a folder below the current one.
    """
    if folder:
        return folder if "://" in folder else Path.cwd() / folder
    base = releases_at()
    return base / release if isinstance(base, Path) else f"{base}/{release}"


def found_at(release: str) -> Path | str:
    """Where a published release is: its URL, its folder, or the folder of that id."""
    if "://" in release:
        return release
    return Path(release) if Path(release).is_dir() else published_at(release)

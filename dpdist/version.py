"""The version of the program that runs: of its package, with the commit it was built from or is checked out at."""

from __future__ import annotations

import importlib.metadata
import re
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parent
BUILD_COMMIT_FILE = "commit.txt"
"""The file that a build leaves in the package (setup.py)."""
SHOWN_DIGITS = 12
"""Digits of a commit that the version shows."""
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


@cache
def version() -> str:
    """The package's version, and ``+g`` with the first digits of the commit where it is known: 1.0.0+g0123456789ab."""
    commit_id = commit(PACKAGE)
    return importlib.metadata.version("dpdist") + (f"+g{commit_id[:SHOWN_DIGITS]}" if commit_id else "")


def commit(package: Path) -> str | None:
    """The commit of a package: the one written down by its build, else that of the source checkout around it, else None.

    The repository's files are read, no process is started. Changes that are not committed do not show.
    """
    built = _first_text_line(package / BUILD_COMMIT_FILE)
    if built is not None:
        return built if _COMMIT.fullmatch(built) else None
    return _checked_out_commit(package.parent)


def _checked_out_commit(source: Path) -> str | None:
    """The commit at the head of the repository whose work tree a folder is."""
    folder = source / ".git"
    pointer = _first_text_line(folder)  # a work tree beside others: .git is a file that names the folder
    if pointer is not None and pointer.startswith("gitdir: "):
        folder = source / pointer.removeprefix("gitdir: ")
    head = _first_text_line(folder / "HEAD")
    if head is None or not head.startswith("ref: "):
        return head if head is not None and _COMMIT.fullmatch(head) else None
    name, common_folder = head.removeprefix("ref: "), folder / (_first_text_line(folder / "commondir") or "")
    commit_id = (
        _first_text_line(folder / name)
        or _first_text_line(common_folder / name)
        or _packed_commit(common_folder / "packed-refs", name)
    )
    return commit_id if commit_id is not None and _COMMIT.fullmatch(commit_id) else None


def _packed_commit(file: Path, name: str) -> str | None:
    try:
        packed_refs = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    return next((packed_ref.split(" ")[0] for packed_ref in packed_refs if packed_ref.endswith(f" {name}")), None)


def _first_text_line(file: Path) -> str | None:
    """The first line of a file, None where it cannot be read."""
    try:
        return file.read_text(encoding="utf-8").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError):
        return None

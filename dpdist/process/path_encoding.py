"""Names of files and folders as text."""

from __future__ import annotations


def encodes(name: str) -> bool:
    """Whether a name can be written as UTF-8, as everything does that keeps or sends it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True

"""Folders and prefixes of object stores behind one face. Nobody else asks which of the two a place is by its text.

A place is made once, where a user's text comes in (``parse_location``), and travels from there on. ``bucket`` is the only user of obstore.
"""

from __future__ import annotations

import os
from pathlib import Path

from dpdist.storage.objects.folder import Folder
from dpdist.storage.objects.storage_location import AGAIN, Denied, Entry, FileState, Missing, StorageLocation, reason

__all__ = [
    "AGAIN",
    "Denied",
    "Entry",
    "FileState",
    "Folder",
    "Missing",
    "StorageLocation",
    "file_at",
    "parse_location",
    "reason",
]


def parse_location(
    location: str | Path | StorageLocation,
    *,
    label: str | None = None,
    below: Path | None = None,
    briefly: bool = False,
    checksums: bool = False,
) -> StorageLocation:
    """The folder or the prefix of an object store that a text names. Nothing is touched yet.

    Args:
        location: a path, or a URL such as ``s3://bucket/prefix`` (credentials from the environment).
        label: what messages call the place; default its path or URL.
        below: where relative paths start; default the current folder.
        briefly: give up soon when an object store does not answer.
        checksums: send Content-MD5 with every object, without which S3 refuses to write where a bucket's object lock has a retention.
    """
    if isinstance(location, StorageLocation):
        return location
    text = str(location)
    if "://" in text:
        from dpdist.storage.objects.bucket import Bucket  # imports obstore

        url = text.rstrip("/")
        return Bucket(url, label or url, url, briefly=briefly, checksums=checksums)
    expanded = Path(os.path.expanduser(text))
    path = str(expanded if expanded.is_absolute() else Path(below or Path.cwd(), expanded))
    return Folder(path, label or path)


def file_at(location: str | Path, label: str | None = None) -> StorageLocation:
    """A single file or object that was listed: its methods are called without a name."""
    return parse_location(location, label=label).verbatim()

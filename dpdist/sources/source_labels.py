"""How messages call what records stand in: by the spec's text and by fixed words.

Names of files, folders, columns and keys, and types of columns are data: whoever controls one record may make them, and they may be a
record (a header that is taken from a last row). So no message quotes one. A file is called by what the spec says, a column by the
spec's name for it, and a type by one of a few words. ``SourceLabel`` marks the names that messages may hold: whatever reads records takes
one of these where a path would do, and the type checker refuses the path. ``tests/sources/test_source_labels.py`` goes over every message.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import NamedTuple, NewType

SourceLabel = NewType("SourceLabel", str)
"""What a file of records is called in messages."""
UNNAMED = SourceLabel("the file of records")
FRAME_LABEL = SourceLabel("the table of records")
"""What a table in memory is called."""


class File(NamedTuple):
    """A file of records: where it is, and what messages call it."""

    path: str
    source_label: SourceLabel


def label_of_location(location: object) -> SourceLabel:
    """What the file is called that the spec names itself: the last part of its path or URL."""
    return SourceLabel(PurePosixPath(str(location).partition("://")[2] or str(location)).name or str(location))


def label_in_folder(folder: SourceLabel, number: int) -> SourceLabel:
    """What a file of a folder is called: by its number, from 1, in the order of paths in which files are read."""
    return SourceLabel(f"file {number} of {folder}/")

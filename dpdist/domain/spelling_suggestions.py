"""The known name that a misspelt one resembles."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice

ALIKE = 0.65
"""Twice the letters that two names share, over the letters of both, from which one is taken for the other."""

COMPARED = 1000
"""Names that are compared at most: of more, that would take longer than the message is worth."""


def nearest(given: str, known: Iterable[str]) -> str | None:
    """The known name that is most alike, whatever its case; None where none is.

    >>> nearest("Brnach", ["age", "branch"]), nearest("height", ["age", "branch"])
    ('branch', None)
    """
    names = {name.lower(): name for name in islice(known, COMPARED)}
    found = difflib.get_close_matches(given.lower(), names, n=1, cutoff=ALIKE)
    return names[found[0]] if found else None


def meant(given: str, known: Iterable[str]) -> str:
    """For messages: " (did you mean 'branch'?)", or nothing."""
    name = nearest(given, known)
    return "" if name is None else f" (did you mean {name!r}?)"

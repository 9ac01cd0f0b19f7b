"""The known name that a misspelt one resembles."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice

ALIKE = 0.65
"""Twice the letters that two names share, over the letters of both, from which one is taken for the other."""

COMPARED = 1000
"""Names that are compared at most: of more, that would take longer than the message is worth."""


def closest_name(misspelt: str, known_names: Iterable[str]) -> str | None:
    """The known name that is most alike, whatever its case; None where none is.

    >>> closest_name("Brnach", ["age", "branch"]), closest_name("height", ["age", "branch"])
    ('branch', None)
    """
    names = {name.lower(): name for name in islice(known_names, COMPARED)}
    matches = difflib.get_close_matches(misspelt.lower(), names, n=1, cutoff=ALIKE)
    return names[matches[0]] if matches else None


def did_you_mean(misspelt: str, known_names: Iterable[str]) -> str:
    """For messages: " (did you mean 'branch'?)", or nothing."""
    name = closest_name(misspelt, known_names)
    return "" if name is None else f" (did you mean {name!r}?)"

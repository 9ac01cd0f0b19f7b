"""Levels of an attribute as a spec declares them: lists of its categories, edges of wider bins, a step of the calendar, or columns of
a file."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from dpdist.domain import Attribute, Level
from dpdist.domain.times import Every
from dpdist.errors import InvalidInput

FILE_BYTES = 2**27
"""Longer files of levels are refused."""
MOST_STEPS = 2**22
"""Of more steps of time a level is not made: each takes a number in memory."""


Groups = Mapping[str, Sequence[str]] | Sequence[float] | Every


def level_of(attribute: Attribute, name: str, groups: Groups) -> Level:
    """A level of an attribute. Raises: InvalidInput unless every declared value is in exactly one group."""
    if isinstance(groups, str):
        return _of_calendar(attribute, name, groups)
    if isinstance(groups, Mapping):
        return _of_categories(attribute, name, groups)
    if attribute.categories or attribute.times is not None:
        lists = (
            "lists of its values" if attribute.times is None else "a longer step, such as 'month', or lists of its values"
        )
        raise InvalidInput(f"level {name!r} of {attribute.name!r} needs {lists}; only numbers have edges")
    edges, wide = np.asarray(attribute.edges), np.asarray(groups, dtype=np.float64)
    whole = len(wide) > 1 and bool((np.diff(wide) > 0).all()) and (wide[0], wide[-1]) == (edges[0], edges[-1])
    if not whole or not np.isin(wide, edges).all():
        raise InvalidInput(
            f"level {name!r} needs edges of {attribute.name!r} that increase from {edges[0]:g} to {edges[-1]:g}; a bin may not be cut"
        )
    found = np.searchsorted(wide, edges[:-1], side="right") - 1
    bins = Attribute(name, edges=tuple(wide.tolist()), outside="clip" if attribute.outside == "clip" else "error")
    return Level(name, tuple(bins.labels), tuple(found.tolist()))


def _of_calendar(attribute: Attribute, name: str, every: Every) -> Level:
    if attribute.times is None:
        raise InvalidInput(
            f"level {name!r} of {attribute.name!r}: only 'dates' have a {every}; list the values of each group"
        )
    if attribute.values > MOST_STEPS:
        raise InvalidInput(
            f"level {name!r} of {attribute.name!r}: at most {MOST_STEPS:,} steps have levels; take longer steps"
        )
    try:
        return Level(name, *attribute.times.within(every))
    except InvalidInput as refused:
        raise InvalidInput(f"level {name!r} of {attribute.name!r}: {refused}; name a longer step") from None


def _of_categories(attribute: Attribute, name: str, groups: Mapping[str, Sequence[str]]) -> Level:
    values = attribute.categories or tuple(attribute.labels[: attribute.values])
    known = frozenset(values)
    group_of: dict[str, int] = {}
    for number, members in enumerate(groups.values()):
        for value in members:
            if value not in known or value in group_of:
                what = "is in two groups" if value in group_of else "is no declared value"
                raise InvalidInput(f"level {name!r} of {attribute.name!r}: {value!r} {what}; name each value once")
            group_of[value] = number
    left = next((value for value in values if value not in group_of), None)
    if left is not None:
        raise InvalidInput(f"level {name!r} of {attribute.name!r}: {left!r} is in no group; put it into one")
    taken = next((label for label in groups if label in attribute.extra), None)
    if taken is not None:
        raise InvalidInput(
            f"level {name!r} of {attribute.name!r}: {taken!r} is the label of missing or other values; rename the group"
        )
    return Level(name, tuple(groups), tuple(group_of[value] for value in values))


def levels_of_file(attribute: Attribute, path: Path) -> dict[str, dict[str, list[str]]]:
    """The levels in a CSV file: values in the first column, a level in each other one. Raises: InvalidInput."""
    try:
        if path.stat().st_size > FILE_BYTES:
            raise InvalidInput(f"the levels in {path.name!r} take more than {FILE_BYTES:,} bytes; give one row a value")
        with path.open(encoding="utf-8-sig", newline="") as file:
            (head, *rows) = [row for row in csv.reader(file) if row] or [[]]
    except (OSError, UnicodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or "it is no CSV file in UTF-8"
        raise InvalidInput(f"the levels of {attribute.name!r} cannot be read from {path.name!r}: {reason}") from None
    strange = next((number for number, row in enumerate(rows, 2) if len(row) != len(head)), None)
    if len(head) < 2 or strange is not None:
        raise InvalidInput(
            f"{path.name!r} needs values in its first column and a level in each other one; row {strange or 1} is different"
        )
    levels: dict[str, dict[str, list[str]]] = {name: {} for name in head[1:]}
    for value, *groups in rows:
        for name, group in zip(head[1:], groups, strict=True):
            levels[name].setdefault(group, []).append(value)
    return levels

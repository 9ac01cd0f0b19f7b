"""What every kind of values says of itself: of an attribute that a spec declares."""

from __future__ import annotations

import csv
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field, model_validator

from dpdist.domain import Attribute, BinLabels, Level, TimeLabels
from dpdist.domain.calendar import CalendarUnit, Times
from dpdist.errors import InvalidInput
from dpdist.size_limits import SIZES, Sizes
from dpdist.spec.sections.calendar_steps import TimeSpec
from dpdist.spec.sections.private_bounds import PRIVATE
from dpdist.spec.tagged_unions import SpecKind
from dpdist.spec.value_types import DayOrTime, PathText, Text

FILE_BYTES = 2**27
"""Longer files of levels are refused."""
MOST_STEPS = 2**22
"""Of more steps of time a level is not made: each takes a number in memory."""


Groups = Mapping[str, Sequence[str]] | Sequence[float] | CalendarUnit


def level_of(attribute: Attribute, name: str, groups: Groups) -> Level:
    """A level of an attribute. Raises: InvalidInput unless every declared value is in exactly one group."""
    if isinstance(groups, str):
        return _calendar_level(attribute, name, groups)
    if isinstance(groups, Mapping):
        return _category_level(attribute, name, groups)
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
    group_numbers = np.searchsorted(wide, edges[:-1], side="right") - 1
    bins = Attribute(name, edges=tuple(wide.tolist()), outside="clip" if attribute.outside == "clip" else "error")
    return Level(name, tuple(bins.labels), tuple(group_numbers.tolist()))


def _calendar_level(attribute: Attribute, name: str, step: CalendarUnit) -> Level:
    if attribute.times is None:
        raise InvalidInput(
            f"level {name!r} of {attribute.name!r}: only 'dates' have a {step}; list the values of each group"
        )
    if attribute.values > MOST_STEPS:
        raise InvalidInput(
            f"level {name!r} of {attribute.name!r}: at most {MOST_STEPS:,} steps have levels; take longer steps"
        )
    try:
        return Level(name, *attribute.times.group_into(step))
    except InvalidInput as refused:
        raise InvalidInput(f"level {name!r} of {attribute.name!r}: {refused}; name a longer step") from None


def _category_level(attribute: Attribute, name: str, groups: Mapping[str, Sequence[str]]) -> Level:
    values = attribute.categories or tuple(attribute.labels[: attribute.values])
    declared_values = frozenset(values)
    group_of: dict[str, int] = {}
    for number, members in enumerate(groups.values()):
        for value in members:
            if value not in declared_values or value in group_of:
                fault = "is in two groups" if value in group_of else "is no declared value"
                raise InvalidInput(f"level {name!r} of {attribute.name!r}: {value!r} {fault}; name each value once")
            group_of[value] = number
    ungrouped = next((value for value in values if value not in group_of), None)
    if ungrouped is not None:
        raise InvalidInput(f"level {name!r} of {attribute.name!r}: {ungrouped!r} is in no group; put it into one")
    clashing = next((label for label in groups if label in attribute.extra), None)
    if clashing is not None:
        raise InvalidInput(
            f"level {name!r} of {attribute.name!r}: {clashing!r} is the label of missing or other values; rename the group"
        )
    return Level(name, tuple(groups), tuple(group_of[value] for value in values))


def _levels_of_file(attribute: Attribute, path: Path) -> dict[str, dict[str, list[str]]]:
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


LISTED_VALUES = 12
"""Values that a sentence lists."""


class Values(SpecKind):
    """The declared values of an attribute."""

    @abstractmethod
    def bins(self, name: str, sizes: Sizes = SIZES, **other_options: Any) -> Attribute:
        """The domain's attribute without levels.

        Args:
            other_options: where records without one of the values count, as ``Attribute`` knows it.
        """

    @abstractmethod
    def words(self) -> str:
        """Which values there are, for readers."""

    def with_levels(self, attribute: Attribute, folder: Path, group_bounds: Mapping[str, int] | None = None) -> Attribute:
        """The attribute with its coarser levels.

        Args:
            folder: from which files are taken.
            group_bounds: where persons are counted in every level by themselves, the bounds of levels on the groups of a person.
        """
        return attribute

    def boundaries(self, folder: Path) -> Any:
        """Where the values lie on a map (``MapSection.boundaries``), where the spec says it; else None. Raises: InvalidInput."""
        return None

    def facts(self) -> dict[str, Any]:
        """What a certificate says beside the values: a unit, and times that numbers stand for."""
        return {}

    def times(self, attribute: Attribute) -> Times | None:
        """The times that the steps of the attribute stand for, where the spec says it."""
        return attribute.times

    @property
    def digest_form(self) -> Values:
        """The same values without the words that only the page shows: they change no digest."""
        return self

    def meaning_facts(self, *, periodic: bool) -> Any:
        """What decides which value a record has, where the release is of one period out of several, or not."""
        return self.digest_form

    def steps(self, outside: str, ends: str) -> str:
        """How a column of values in order is divided into steps, where ``ends`` says which steps take values beyond."""
        return f"every value{ends}"

    def with_end(self, end: int | DayOrTime) -> Values:
        """The same values with an earlier end. Raises: InvalidInput for other forms of an end, and where values have none."""
        raise InvalidInput(
            "'extended_from' is the former 'to' of an attribute of numbers or dates (or the former 'steps' of dates), and the domain "
            "says the new one"
        )

    @property
    def begin(self) -> int | DayOrTime | None:
        """The first step of values in order; None where they have none."""
        return None


class LabelledValues(Values):
    """Values that have names, and may be put into groups."""

    levels: dict[str, dict[Text, tuple[Text, ...]] | tuple[float, ...] | CalendarUnit] | PathText | None = Field(
        None,
        description="coarser levels of the attribute. For each level, its name and its groups: lists of categories, the edges of wider "
        "bins, or a longer step of the calendar for 'dates', such as `week`. Or a CSV file with a header row, whose first column holds the "
        "values and whose other columns each hold a level. Marginals ask for a level by its name, as they do for an attribute",
        examples=[{"region": {"North": ["Centre", "Harbour"], "South": ["Airport"]}}],
    )
    labels: tuple[Text, ...] = Field(
        (), description="the names of the values or bins on the page, in their order", examples=[["young", "old"]]
    )

    def with_levels(self, attribute: Attribute, folder: Path, group_bounds: Mapping[str, int] | None = None) -> Attribute:
        if self.levels is None:
            return attribute
        levels_by_name = _levels_of_file(attribute, folder / self.levels) if isinstance(self.levels, str) else self.levels
        labels = () if isinstance(attribute.labels, BinLabels | TimeLabels) else attribute.labels[: attribute.values]
        levels = tuple(level_of(attribute, level_name, groups) for level_name, groups in levels_by_name.items())
        return replace(
            attribute,
            labels=labels,
            levels=levels,
            apart=() if group_bounds is None else tuple(map(group_bounds.get, levels_by_name)),
        )


class WithUnit(Values):
    """Numbers, which may have a unit."""

    unit: Text | None = Field(
        None, description="the unit of the attribute's numbers on the page, in the plural", examples=["years"]
    )


class PrivateValues(Values):
    """Values that a part of the budget finds in the records: their key says `private`."""

    private_key: ClassVar[str]
    selection_help: ClassVar[str]

    @classmethod
    def label(cls) -> str:
        return f"'{cls.private_key}: private'"

    @classmethod
    def is_meant(cls, content: Mapping[str, Any]) -> bool:
        return content.get(cls.private_key) == PRIVATE

    @model_validator(mode="before")
    @classmethod
    def _check_selection(cls, content: Any) -> Any:
        if "selection" not in content:
            raise ValueError(f"{cls.label()} {cls.selection_help}")
        return content

    @abstractmethod
    def resolve(self, selected_values: Any) -> Values:
        """The values that were found, or placeholders for them (None)."""


class Numeric(LabelledValues, WithUnit):
    """Numbers, which may have a unit or stand for times."""

    time: TimeSpec | None = Field(
        None,
        description="the times that the attribute's numbers stand for: the page shows these times",
        examples=[{"start": "2011-01-01T00:00", "step": "hour"}],
    )

    def facts(self) -> dict[str, Any]:
        times = {} if self.time is None else {"time": {"start": self.time.start.isoformat(), "step": self.time.step}}
        return {"unit": self.unit, **times}

    def times(self, attribute: Attribute) -> Times | None:
        return None if self.time is None else Times(self.time.start, 1, self.time.step)  # of the smallest number

    @property
    def digest_form(self) -> Values:
        return self.model_copy(update={"unit": None, "time": None})

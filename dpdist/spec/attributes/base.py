"""What every kind of values says of itself: of an attribute that a spec declares."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from dpdist.domain import Attribute, BinLabels, TimeLabels
from dpdist.domain.boundaries import Boundaries
from dpdist.domain.times import Every, Times
from dpdist.errors import InvalidInput
from dpdist.records.columns import Column
from dpdist.sizes import SIZES, Sizes
from dpdist.spec.dates import TimeSpec
from dpdist.spec.kinds import SpecKind
from dpdist.spec.levels import level_of, levels_of_file
from dpdist.spec.values import DayOrTime, PathText, Text

LISTED = 12
"""Values that a sentence lists."""


class Values(SpecKind):
    """The declared values of an attribute."""

    to_declare: ClassVar[tuple[str, ...]] = ()
    """Lines of an outline that say what to declare, where nothing is known of a column."""

    @abstractmethod
    def bins(self, name: str, sizes: Sizes = SIZES, **others: Any) -> Attribute:
        """The domain's attribute without levels.

        Args:
            others: where records without one of the values count, as ``Attribute`` knows it.
        """

    @abstractmethod
    def words(self) -> str:
        """Which values there are, for readers."""

    @classmethod
    def outline(cls, column: Column) -> Sequence[str]:
        """Lines of an outline for a column; none where it has other values."""
        return ()

    def with_levels(self, plain: Attribute, folder: Path) -> Attribute:
        """The attribute with its coarser levels. Files are taken from the folder."""
        return plain

    def boundaries(self, folder: Path) -> Boundaries | None:
        """Where the values lie on a map, where the spec says it. Files are taken from the folder. Raises: InvalidInput."""
        return None

    def facts(self) -> dict[str, Any]:
        """What a certificate says beside the values: a unit, and times that numbers stand for."""
        return {}

    def times(self, attribute: Attribute) -> Times | None:
        """The times that the steps of the attribute stand for, where the spec says it."""
        return attribute.times

    @property
    def measured(self) -> Values:
        """The same values without the words that only the page shows: they change no digest."""
        return self

    def meant(self, *, periodic: bool) -> Any:
        """What decides which value a record has, where the release is of one period out of several, or not."""
        return self.measured

    def steps(self, outside: str, ends: str) -> str:
        """How a column of values in order is divided into steps, where ``ends`` says which steps take values beyond."""
        return f"every value{ends}"

    def until(self, end: int | DayOrTime) -> Values:
        """The same values with an earlier end. Raises: InvalidInput for other forms of an end, and where values have none."""
        raise InvalidInput(
            "'extended_from' is the former 'to' of an attribute of numbers or dates (or the former 'steps' of dates), and the domain "
            "says the new one"
        )

    @property
    def begin(self) -> int | DayOrTime | None:
        """The first step of values in order; None where they have none."""
        return None


class Named(Values):
    """Values that have names, and may be put into groups."""

    levels: dict[str, dict[Text, tuple[Text, ...]] | tuple[float, ...] | Every] | PathText | None = Field(
        None,
        description="coarser levels of the attribute. For each level, its name and its groups: lists of categories, the edges of wider "
        "bins, or a longer step of the calendar for 'dates', such as `week`. Or a CSV file with a header row, whose first column holds the "
        "values and whose other columns each hold a level. Marginals ask for a level by its name, as they do for an attribute",
        examples=[{"region": {"North": ["Centre", "Harbour"], "South": ["Airport"]}}],
    )
    labels: tuple[Text, ...] = Field(
        (), description="the names of the values or bins on the page, in their order", examples=[["young", "old"]]
    )

    def with_levels(self, plain: Attribute, folder: Path) -> Attribute:
        if self.levels is None:
            return plain
        given = levels_of_file(plain, folder / self.levels) if isinstance(self.levels, str) else self.levels
        labels = () if isinstance(plain.labels, BinLabels | TimeLabels) else plain.labels[: plain.values]
        return replace(plain, labels=labels, levels=tuple(level_of(plain, each, groups) for each, groups in given.items()))


class WithUnit(Values):
    """Numbers, which may have a unit."""

    unit: Text | None = Field(
        None, description="the unit of the attribute's numbers on the page, in the plural", examples=["years"]
    )


class FoundValues(Values):
    """Values that a part of the budget finds in the records."""

    @abstractmethod
    def declared(self, found: Any) -> Values:
        """The values that were found, or placeholders for them (None)."""


class Numeric(Named, WithUnit):
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
    def measured(self) -> Values:
        return self.model_copy(update={"unit": None, "time": None})

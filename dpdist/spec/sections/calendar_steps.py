"""Times in a spec: the steps of an attribute of dates, what whole numbers stand for, and how far a stream has come."""

from __future__ import annotations

import datetime

import numpy as np
from pydantic import Field, field_validator, model_validator

from dpdist.domain import Attribute
from dpdist.domain.calendar import CalendarUnit, Times, is_zone, steps_between
from dpdist.errors import InvalidInput
from dpdist.spec.value_types import DayOrTime, Name, SpecPart


class TimeSpec(SpecPart):
    """The times that the whole numbers of an attribute stand for."""

    start: datetime.datetime = Field(
        description="the time that the attribute's smallest number stands for", examples=["2011-01-01T00:00"]
    )
    step: CalendarUnit = Field(description="how much time one unit of the attribute is", examples=["hour"])

    @field_validator("start")
    @classmethod
    def _as_the_clock_shows(cls, start: datetime.datetime) -> datetime.datetime:
        return start.replace(tzinfo=None)  # pages show the times of one clock, whose offset they do not need


class DatesSpec(SpecPart):
    """Consecutive hours, days, ISO weeks, calendar months, quarters or years.

    Columns hold dates, timestamps or ISO texts.
    """

    first: DayOrTime = Field(
        alias="from",
        description="a date or time in the first step. A spec for many periods may write '{period}'",
        examples=["2026-09-01"],
    )
    last: DayOrTime | None = Field(
        None,
        alias="to",
        description="a date or time in the last step; a date is meant with its whole day",
        examples=["2026-11-30"],
    )
    steps: int | None = Field(None, ge=1, le=2**40, description="how many steps there are, in place of 'to'", examples=[24])
    every: CalendarUnit = Field(
        "day",
        description="how long a step is. Weeks begin on Monday, months and years are those of the calendar",
        examples=["week"],
    )
    zone: str | None = Field(
        None,
        description="the time zone in whose local time timestamps with a zone are counted. An hour that is repeated when clocks go back is "
        "one step. Default: timestamps without a zone are taken as they are written, and those with a zone are refused",
        examples=["Europe/Berlin"],
    )

    @model_validator(mode="after")
    def _some_steps(self) -> DatesSpec:
        if (self.last is None) == (self.steps is None):
            raise ValueError("give either 'to' or 'steps'")
        ends = [end for end in (self.first, self.last) if isinstance(end, datetime.datetime)]
        if any(end.tzinfo is not None for end in ends):
            raise ValueError(
                "'from' and 'to' are times of the zone's own clock: write them without an offset, and name the 'zone'"
            )
        if self.zone is not None and not is_zone(self.zone):
            raise ValueError("the time zone is not known; write its name in the time zone database, such as 'Europe/Berlin'")
        if self.last is not None and self._end_moment < moment(self.first):
            raise ValueError("'from' must not come after 'to'")
        if self.steps is not None and self.steps > steps_between(moment(self.first), datetime.datetime.max, self.every):
            raise ValueError("times end with the year 9999, and so many 'steps' do not; give fewer")
        return self

    @property
    def _end_moment(self) -> datetime.datetime:
        assert self.last is not None
        whole = (
            datetime.timedelta(0)
            if isinstance(self.last, datetime.datetime)
            else datetime.timedelta(hours=23, minutes=59, seconds=59)
        )
        return moment(self.last) + whole

    @property
    def times(self) -> Times:
        """As the domain knows them."""
        start_moment = moment(self.first)
        return Times(
            start_moment, self.steps or steps_between(start_moment, self._end_moment, self.every), self.every, self.zone
        )


def moment(day: datetime.date) -> datetime.datetime:
    """The first moment of a day, or the moment itself."""
    return day if isinstance(day, datetime.datetime) else datetime.datetime(day.year, day.month, day.day)


class StreamSpec(SpecPart):
    """A series that grows. Each release measures the steps since the last one; all releases together are charged once."""

    name: Name = Field(
        description="the name of the series. All its releases state the same name; their ids differ",
        examples=["bikes"],
    )
    through: int | DayOrTime = Field(
        description="the last step that is complete, as a value of the attribute that is filtered, or a time in it. The domain declares "
        "all steps that there will ever be",
        examples=[503],
    )
    extended_from: tuple[int | DayOrTime, ...] = Field(
        (),
        description="where the domain ended before it was extended: the former 'to' of the attribute (or 'steps' of its dates), of several "
        "extensions all, oldest first. Each extension is charged what the longer series reveals more",
        examples=[[503]],
    )


def last_complete_step(stream: StreamSpec, attribute: Attribute) -> int:
    """The last complete step of a stream, as a number of the attribute. Raises: InvalidInput when it is none of its steps."""
    last_step, times = stream.through, attribute.times
    if times is None and isinstance(last_step, int):
        number = last_step
    elif times is not None and not isinstance(last_step, int):
        number = int(times.numbers(np.array([moment(last_step)], dtype="datetime64[s]"))[0])
    else:
        shown = "a date" if times is not None else "a number"
        raise InvalidInput(f"'through' is {shown} of {attribute.name!r}, found {last_step}")
    edges, labels = attribute.edges, attribute.labels
    if not edges[0] <= number < edges[-1]:
        ends = f"{edges[0]:g} to below {edges[-1]:g}" if times is None else f"{labels[0]} to {labels[attribute.values - 1]}"
        raise InvalidInput(f"'through' is a value of {attribute.name!r}, {ends}, found {last_step}")
    return number

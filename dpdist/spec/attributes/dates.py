"""Steps of time."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from dpdist.domain import Attribute, even_edges
from dpdist.size_limits import SIZES, Sizes
from dpdist.spec.attributes.attribute_kind import LabelledValues, Values
from dpdist.spec.sections.calendar_steps import DatesSpec
from dpdist.spec.value_types import DayOrTime


class Dates(LabelledValues):
    """Dates or times, in steps of a calendar."""

    dates: DatesSpec = Field(
        description="the steps of time of an attribute that holds dates or times",
        examples=[{"from": "2026-09-01", "to": "2026-11-30", "every": "day"}],
    )

    def bins(self, name: str, sizes: Sizes = SIZES, **other_options: Any) -> Attribute:
        times = self.dates.times
        return Attribute(name, edges=even_edges(0, 1, times.steps, sizes), times=times, labels=self.labels, **other_options)

    def words(self) -> str:
        times = self.dates.times
        shown = f"{times.steps:,} {times.every}{'s' if times.steps != 1 else ''} from {times.label(0)} to {times.label(times.steps - 1)}"
        return shown if times.zone is None else f"{shown}, by the clock of {times.zone}"

    def facts(self) -> dict[str, Any]:
        return {"time": {"start": self.dates.times.start.isoformat(), "step": self.dates.every}}

    def meaning_facts(self, *, periodic: bool) -> Any:
        if not periodic:
            return self
        times = self.dates.times
        return self.levels, times.steps, times.every, times.zone

    def steps(self, outside: str, ends: str) -> str:
        return f"every {self.dates.every}{'' if self.dates.zone is None else f' in {self.dates.zone}'}{ends}"

    def with_end(self, end: int | DayOrTime) -> Values:
        if self.dates.steps is not None and not isinstance(end, int):
            return super().with_end(end)
        dates = self.dates.model_copy(update={"last" if self.dates.steps is None else "steps": end})
        return self.model_copy(update={"dates": dates, "labels": self.labels[: dates.times.steps]})

    @property
    def begin(self) -> DayOrTime:
        return self.dates.first

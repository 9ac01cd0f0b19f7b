"""What charts call the values of attributes: bins, steps of time, and words of the publisher."""

from __future__ import annotations

import calendar
import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from dpdist.api.pages import Attribute, Domain, Matrix, Words, number_text, say
from dpdist.plugins.page.charts import Axis, Clock
from dpdist.plugins.page.map_outlines import Boundaries

MOST_LABELS = 100_000
"""Bins that are named for readers."""
STEPS_WITH_NUMBERS = ("week", "quarter")
"""Of a calendar: they are called by their number in the year, not by the day on which they begin."""


@dataclass(frozen=True)
class ChartWords(Words):
    """What a release calls its records and attributes, with what charts need of them.

    Attributes:
        boundaries: where values lie on a map, by attribute.
    """

    boundaries: Mapping[str, Boundaries] = field(default_factory=dict)

    def axis(self, domain: Domain, axis_index: int, picked: Matrix | None = None) -> Axis:
        """The values of an attribute of the domain, or some: of an ordered attribute they need not be neighbours.

        Of many values only the names and the edges of those that are picked are made.
        """
        attribute = domain.attributes[axis_index]
        facts = self.attributes.get(attribute.name, {})
        unit, title = facts.get("unit"), self.title(attribute.name)
        shown = title if not unit or unit in title else f"{title} ({unit})"
        if attribute.categories:
            return Axis(
                shown, attribute.labels, unordered=0 if _has_order(attribute.categories) else len(attribute.categories)
            ).select(picked)
        edges: Any = attribute.edges if picked is not None else np.asarray(attribute.edges, dtype=np.float64)
        open_ends = attribute.outside == "clip"
        named = bool(attribute.named)
        time = facts.get("time")
        clock = (
            None if time is None else Clock(float(edges[0]), datetime.datetime.fromisoformat(time["start"]), time["step"])
        )
        if clock is not None and named and not clock.is_step_label(str(attribute.labels[0])):
            clock = None  # the publisher has words of their own for the steps
        elif clock is not None:
            named = False
        if clock is not None and attribute.values > MOST_LABELS and picked is not None:
            picked_axis = Axis(shown, attribute.labels, edges, open_ends, open_ends, named, clock).select(picked)
            assert picked_axis.edges is not None
            return replace(picked_axis, labels=clock.texts(picked_axis.edges[:-1]))
        if attribute.values > MOST_LABELS:
            labels = attribute.labels  # all: those that are drawn are picked, and only they are made
        elif named:
            labels = attribute.labels[: attribute.values]
        elif clock is not None:
            labels = _time_step_names(attribute, clock)
        else:
            labels = bin_names(np.asarray(edges, dtype=np.float64), open_ends=open_ends)
        return Axis(shown, labels, edges, open_ends, open_ends, named, clock).select(picked)

    def density_unit(self, name: str) -> str:
        """What a density is per: one unit of an attribute."""
        unit = self.attributes.get(name, {}).get("unit")
        if not unit:
            return say("unit of {title}", title=self.title(name))
        return str(unit[:-1] if unit.endswith("s") and not unit.endswith("ss") else unit)


def bin_names(edges: Matrix, *, open_ends: bool) -> tuple[str, ...]:
    """What readers call bins: whole numbers by themselves, others from edge to edge; what lies beyond counts in open ends."""
    texts = [number_text(float(edge)) for edge in edges]
    whole = bool((np.diff(edges) == 1).all()) and float(edges[0]).is_integer()
    names = texts[:-1] if whole else [say("{low} to under {high}", low=low, high=high) for low, high in pairwise(texts)]
    if open_ends and len(names) > 1:
        names[0] = say("{high} or less", high=texts[0]) if whole else say("under {high}", high=texts[1])
        names[-1] = say("{low} or more", low=texts[-2])
    return tuple(names)


def _time_step_names(attribute: Attribute, clock: Clock) -> tuple[str, ...]:
    """What readers call steps of time: days, or numbers of weeks and quarters; what lies beyond counts in open ends."""
    names = clock.texts(attribute.edges[:-1])
    if attribute.times is not None and clock.step in STEPS_WITH_NUMBERS:
        names = tuple(map(attribute.times.label, range(attribute.values)))
    if attribute.outside == "clip" and len(names) > 1:
        return say("{high} or earlier", high=names[0]), *names[1:-1], say("{low} or later", low=names[-1])
    return names


def _has_order(categories: Sequence[str]) -> bool:
    """Whether categories are days of the week, months, or begin with a number: they stay in the order of the domain."""
    names = {
        name.lower()
        for calendar_names in (calendar.day_name, calendar.day_abbr, calendar.month_name, calendar.month_abbr)
        for name in calendar_names
    }
    return all(
        text.lower() in names or re.match(r"\W*(?:(?:under|over|above|below|up to) )?\d", text) for text in categories
    )

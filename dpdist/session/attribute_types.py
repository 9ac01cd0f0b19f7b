"""What an attribute can be, as Python says it: each function gives what a spec would declare."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dpdist.domain import Attribute
from dpdist.domain.attributes import DROP
from dpdist.domain.calendar import CalendarUnit
from dpdist.errors import InvalidInput
from dpdist.session.declarations import SpecContent, drop_none, validate_section
from dpdist.spec.attributes import AttributeSpec

Outside = Literal["clip", "drop", "error"]


@dataclass(frozen=True)
class DeclaredValues:
    """The declared values of an attribute.

    Attributes:
        content: of a spec's domain.
    """

    content: SpecContent

    def bins(self, name: str) -> Attribute:
        """The domain's attribute, without levels. Raises: InvalidSpec."""
        domain_attribute: Attribute = validate_section(AttributeSpec, name, self.content).bins(name)
        return domain_attribute


def edges(*ends: float, outside: Outside | None = None, unit: str | None = None, **more: Any) -> DeclaredValues:
    """Numbers in bins: each bin holds its lower edge and not its upper edge.

    Args:
        ends: the edges, in order.
        outside: what becomes of records with other numbers: they count in the nearest bin ("clip"), are left out ("drop"), or refuse
            the release ("error", the default).
        unit: of the numbers, in the plural.
        more: other keys of an attribute in a spec, such as ``missing`` and ``labels``.
    Raises: InvalidSpec.
    """
    return _declare_values("edges", {"edges": list(ends), **drop_none(outside=outside, unit=unit), **more})


def numbers(first: int, last: int, *, width: int = 1, outside: Outside | None = None, **more: Any) -> DeclaredValues:
    """Whole numbers.

    Args:
        first: the smallest.
        last: the largest, included.
        width: how many each bin holds.
        outside: as for ``edges``.
        more: as for ``edges``.
    Raises: InvalidSpec.
    """
    wide = {} if width == 1 else {"width": width}
    return _declare_values("numbers", {"from": first, "to": last, **wide, **drop_none(outside=outside), **more})


def dates(
    first: object, last: object, *, every: CalendarUnit = "day", outside: Outside | None = None, **more: Any
) -> DeclaredValues:
    """Steps of a calendar.

    Args:
        first: a date or time in the first step.
        last: a date or time in the last one.
        every: how long a step is.
        outside: as for ``edges``.
        more: a time ``zone``, such as "Europe/Berlin", and as for ``edges``.
    Raises: InvalidSpec.
    """
    steps = {"from": str(first), "to": str(last), "every": every, **drop_none(zone=more.pop("zone", None))}
    return _declare_values("dates", {"dates": steps, **drop_none(outside=outside), **more})


def categories(*names: str, other: str | None = None, missing: str | None = None, **more: Any) -> DeclaredValues:
    """Values without an order.

    Args:
        names: all of them.
        other: the label of records with another value, or "drop" to leave them out. Default: they refuse the release.
        missing: the same for records without a value.
        more: other keys of an attribute in a spec, such as ``labels`` and ``levels``.
    Raises: InvalidSpec.
    """
    return _declare_values("categories", {"categories": list(names), **drop_none(other=other, missing=missing), **more})


def declare_attribute(name: str, meant: Any) -> DeclaredValues:
    """What an attribute is declared to be.

    Args:
        meant: what one of the functions above gives; a list of names; ``bool``; a ``range`` of whole numbers; an Enum, a
            ``dpdist.Attribute`` or a categorical type of pandas or Polars with the names; or the keys of a spec.
    Raises: InvalidSpec, InvalidInput.
    """
    if isinstance(meant, DeclaredValues):
        return meant
    if isinstance(meant, Attribute):
        return _declare_values(name, _attribute_content(meant))
    if isinstance(meant, range) and meant.step == 1 and len(meant):
        return numbers(meant.start, meant.stop - 1)
    return _declare_values(name, dict(meant) if isinstance(meant, Mapping) else {"categories": _category_names(name, meant)})


def _declare_values(name: str, content: SpecContent) -> DeclaredValues:
    validate_section(AttributeSpec, name, content)
    return DeclaredValues(content)


def _category_names(name: str, meant: Any) -> list[str]:
    """The names of an attribute without an order. Raises: InvalidInput."""
    if meant is bool:
        return ["false", "true"]
    if isinstance(meant, type) and issubclass(meant, enum.Enum):
        return [str(value.value) for value in meant]
    name_values = getattr(meant, "categories", meant)
    if isinstance(name_values, str) or not isinstance(name_values, Iterable):
        raise InvalidInput(
            f"attribute {name!r} is a list of names, bool, a range of whole numbers, or what dp.edges, dp.numbers, dp.dates or "
            f"dp.categories gives; found {type(meant).__name__}"
        )
    return [str(value) for value in name_values]


def _attribute_content(meant: Attribute) -> SpecContent:
    """A domain's attribute, as a spec declares it. Raises: InvalidInput for one that no spec can declare."""
    if meant.amounts is not None or meant.times is not None or meant.levels:
        raise InvalidInput(
            f"attribute {meant.name!r} has amounts, times or levels, which a spec declares in its own words; write dp.dates(...), or "
            "the keys of a spec"
        )
    values = {"categories": list(meant.categories)} if meant.categories else {"edges": list(meant.edges)}
    bins = {"other": meant.other, "missing": meant.missing}
    kept_labels = {key: label or DROP for key, label in bins.items() if label is not None}
    outside = {} if meant.outside == "error" else {"outside": meant.outside}
    labels = {"labels": list(meant.labels[: meant.values])} if meant.named else {}
    return {**values, **outside, **kept_labels, **labels}

"""The declared values of an attribute, and how private names of one are selected."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema, model_validator

from dpdist.domain import DROP, NOWHERE, Attribute, BinLabels, TimeLabels, even_edges
from dpdist.errors import InvalidInput
from dpdist.sizes import SIZES, Sizes
from dpdist.spec.dates import DatesSpec, TimeSpec
from dpdist.spec.levels import level_of, levels_of_file
from dpdist.spec.values import DayOrTime, Exact, PathText, SpecPart, Text

WHOLE = 2**53
"""Whole numbers beyond are not exact as floating-point numbers."""


class SelectionSpec(SpecPart):
    """How the names of an attribute with ``categories: private`` are selected."""

    share: Exact = Field(
        Fraction(1, 10),
        description="the share of the release's budget that the selection spends, between 0 and 1",
        examples=[0.1],
    )
    delta: Exact = Field(
        description="a bound on the probability that a name is published that only one person or record has. If the budget is in epsilon, "
        "this is a part of its delta; if it is in rho, this is added to the guarantee",
        examples=[1e-7],
    )
    most: int = Field(
        100,
        ge=1,
        le=10**5,
        description="the largest number of names that are selected. If more are frequent enough, those with the largest noisy counts are "
        "kept",
        examples=[200],
    )
    candidates: int = Field(
        200_000,
        ge=1,
        le=10**8,
        description="the largest number of different names that the records may hold, with those that are misspelt or rare. It bounds the "
        "memory that counting them takes, 512 bytes each, and is checked before a record is read. The release is refused if there are more",
        examples=[1_000_000],
    )

    @model_validator(mode="after")
    def _parts_of_one(self) -> SelectionSpec:
        if not (0 < self.share < 1 and 0 < self.delta < 1):
            raise ValueError("'share' and 'delta' of a selection lie between 0 and 1")
        return self

    @property
    def placeholders(self) -> tuple[str, ...]:
        """Names that stand for those that are not selected yet: a release is planned for as many as there can be."""
        return tuple(f"name {number}" for number in range(1, self.most + 1))


PRIVATE = "private"
"""In place of a list of categories: the names are selected from the records, by a part of the budget."""
OTHER_NAMES = "other"
"""The bin of names that are not selected, unless the spec calls it something else."""
_CATEGORIES: dict[str, Any] = {
    "anyOf": [{"items": {"type": "string"}, "type": "array"}, {"const": PRIVATE, "type": "string"}, {"type": "null"}]
}


class AttributeSpec(SpecPart):
    """The public, declared values of one attribute: ``categories``, ``edges``, ``dates``, or whole numbers ``from``..``to``."""

    categories: Annotated[tuple[Text, ...] | None, WithJsonSchema(_CATEGORIES)] = Field(
        None,
        description="all values of an attribute that has no order. Or 'private': frequent names are selected from the records, as "
        "'selection' says, and all other names are counted together",
        examples=[["Centre", "North", "Harbour"]],
    )
    selection: SelectionSpec | None = Field(
        None,
        description="with 'categories: private': how the names are selected, and by which part of the budget",
        examples=[{"share": 0.1, "delta": 1e-7, "most": 200}],
    )
    edges: tuple[float, ...] | None = Field(
        None,
        description="the edges of the bins of a numeric attribute. A bin holds its lower edge and not its upper edge",
        examples=[[0, 18, 35, 65, 100]],
    )
    first: int | None = Field(
        None,
        alias="from",
        description="the smallest whole number. A fraction is counted at the whole number below it",
        examples=[0],
    )
    last: int | None = Field(None, alias="to", description="the largest whole number, included", examples=[99])
    width: int = Field(1, ge=1, description="with 'from' and 'to': how many whole numbers each bin holds", examples=[10])
    dates: DatesSpec | None = Field(
        None,
        description="the steps of time of an attribute that holds dates or times",
        examples=[{"from": "2026-09-01", "to": "2026-11-30", "every": "day"}],
    )
    outside: Literal["clip", "drop", "error"] = Field(
        "error",
        description="what happens to a record whose value is outside the domain: it is counted in the nearest bin, it is left out, "
        "or the release is refused",
        examples=["clip"],
    )
    missing: Text | None = Field(
        None,
        min_length=1,
        description="records without a value (null, NaN, an empty text): the label of a bin of their own, or 'drop' to leave them out of "
        "every table and query that uses the attribute. Default: what 'outside' says; with 'outside: clip' they are left out of all "
        "answers",
        examples=["unknown"],
    )
    other: Text | None = Field(
        None,
        min_length=1,
        description="records with a value that is not declared: the label of a bin of their own, or 'drop' to leave them out of "
        "every table and query that uses the attribute. Give it in place of 'outside'",
        examples=["another branch"],
    )
    levels: dict[str, dict[Text, tuple[Text, ...]] | tuple[float, ...]] | PathText | None = Field(
        None,
        description="coarser levels of the attribute. For each level, its name and its groups: lists of categories, or the edges of wider "
        "bins. Or a CSV file with a header row, whose first column holds the values and whose other columns each hold a level. Marginals "
        "ask for a level by its name, as they do for an attribute",
        examples=[{"region": {"North": ["Centre", "Harbour"], "South": ["Airport"]}}],
    )
    labels: tuple[Text, ...] = Field(
        (), description="the names of the values or bins on the page, in their order", examples=[["young", "old"]]
    )
    title: Text | None = Field(
        None, description="what the page calls the attribute; by default its name", examples=["Age last birthday"]
    )
    unit: Text | None = Field(
        None, description="the unit of the attribute's numbers on the page, in the plural", examples=["years"]
    )
    time: TimeSpec | None = Field(
        None,
        description="the times that the attribute's numbers stand for: the page shows these times",
        examples=[{"start": "2011-01-01T00:00", "step": "hour"}],
    )

    @model_validator(mode="before")
    @classmethod
    def _private_names(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        private, selection = given.get("categories") == PRIVATE, given.get("selection")
        if not private:
            if selection is not None:
                raise ValueError("'selection' belongs to 'categories: private'; write that, or leave it out")
            return given
        if selection is None:
            raise ValueError(
                "'categories: private' selects names by a part of the budget: add 'selection: {share: 0.1, delta: 1e-7, most: 100}'"
            )
        return {
            **{name: value for name, value in given.items() if name != "categories"},
            "other": given.get("other", OTHER_NAMES),
        }

    @model_validator(mode="after")
    def _one_form(self) -> AttributeSpec:
        forms = [self.categories is not None, self.edges is not None, self.first is not None or self.last is not None]
        forms.append(self.selection is not None)
        if self.selection is not None and (
            self.labels or self.levels is not None or self.unit is not None or self.time is not None
        ):
            raise ValueError(
                "private categories have neither 'labels', 'levels', 'unit' nor 'time': nobody knows the names; leave them out"
            )
        forms.append(self.dates is not None)
        if self.categories is not None and not self.categories:
            raise ValueError("'categories' is empty; list every value that the attribute may have")
        if sum(forms) != 1:
            raise ValueError("give exactly one of 'categories', 'edges', 'dates', or 'from' with 'to'")
        if forms[2] and (self.first is None or self.last is None or self.last < self.first):
            raise ValueError("'from' and 'to' must both be given, with from <= to")
        if self.categories is not None and (self.unit is not None or self.time is not None):
            raise ValueError("categories have neither 'unit' nor 'time', which belong to numbers; leave them out")
        if self.other is not None and "outside" in self.model_fields_set:
            raise ValueError("'other' and 'outside' both say where values beyond the declared ones count; leave one out")
        if self.dates is not None and (self.unit is not None or self.time is not None or self.width != 1):
            raise ValueError("dates have neither 'unit', 'time' nor 'width'; leave them out, and say 'every' in 'dates'")
        if any(abs(value) > WHOLE for value in (self.first or 0, self.last or 0, self.width)):
            raise ValueError(
                f"whole numbers lie between -{WHOLE:,} and {WHOLE:,}: larger ones are not exact as floating-point numbers"
            )
        return self

    @property
    def measured(self) -> AttributeSpec:
        """The same attribute without the words that only the page shows: they change no digest."""
        return self.model_copy(update={"title": None, "unit": None, "time": None})

    @property
    def steps(self) -> str:
        """How an attribute's column is divided into steps; of values beyond the ends that are clipped, the ends, too."""
        if self.edges is not None:
            return f"steps between {', '.join(f'{edge!r}' for edge in self.edges)}, {self.outside},"
        bins = self.bins("steps")
        if self.dates is not None:
            how = f"every {self.dates.every}{'' if self.dates.zone is None else f' in {self.dates.zone}'}"
        else:
            how = "every number" if self.width == 1 else f"every {self.width} numbers from {(self.first or 0) % self.width}"
        return f"{how}, from {bins.labels[0]} to {bins.labels[bins.values - 1]}," if self.outside == "clip" else how

    def until(self, end: int | DayOrTime) -> AttributeSpec:
        """The same attribute with an earlier 'to', or fewer 'steps' of its dates. Raises: InvalidInput for another form."""
        if self.dates is not None and (self.dates.steps is None or isinstance(end, int)):
            dates = self.dates.model_copy(update={"last" if self.dates.steps is None else "steps": end})
            copy = self.model_copy(update={"dates": dates, "labels": ()})
        elif self.first is not None and isinstance(end, int):
            copy = self.model_copy(update={"last": end, "labels": ()})
        else:
            raise InvalidInput(
                "'extended_from' is the former 'to' of an attribute of numbers or dates (or the former 'steps' of dates), and the domain "
                "says the new one"
            )
        return copy.model_copy(update={"labels": self.labels[: copy.bins("steps").values]})

    def attribute(
        self, name: str, sizes: Sizes = SIZES, *, everywhere: bool = False, ordered: bool = False, folder: Path | None = None
    ) -> Attribute:
        """The domain's attribute, with its levels.

        Args:
            folder: from which a file of levels is taken.
            everywhere, ordered: as for ``bins``.
        """
        plain = self.bins(name, sizes, everywhere=everywhere, ordered=ordered)
        if self.levels is None:
            return plain
        given = levels_of_file(plain, (folder or Path()) / self.levels) if isinstance(self.levels, str) else self.levels
        labels = () if isinstance(plain.labels, BinLabels | TimeLabels) else plain.labels[: plain.values]
        return replace(plain, labels=labels, levels=tuple(level_of(plain, each, groups) for each, groups in given.items()))

    def bins(self, name: str, sizes: Sizes = SIZES, *, everywhere: bool = False, ordered: bool = False) -> Attribute:
        """The domain's attribute without levels.

        Args:
            everywhere: whether every query asks for the attribute: records that are dropped then need no bin.
            ordered: whether every query is over its order: no query counts other and missing values, which then need none either.
        """
        missing, other = (_bin_of(label, everywhere, ordered) for label in (self.missing, self.other))
        given: Any = {"outside": self.outside, "labels": self.labels, "missing": missing, "other": other}
        names = self.categories if self.selection is None else self.selection.placeholders
        if names is not None:
            return Attribute(name, categories=names, **given)
        if self.edges is not None:
            return Attribute(name, edges=self.edges, **given)
        if self.dates is not None:
            times = self.dates.times
            return Attribute(name, edges=even_edges(0, 1, times.steps, sizes), times=times, **given)
        assert self.first is not None
        assert self.last is not None
        bins = -(-(self.last - self.first + 1) // self.width)
        return Attribute(name, edges=even_edges(self.first, self.width, bins, sizes), **given)


def _bin_of(label: str | None, everywhere: bool, ordered: bool) -> str | None:
    """Where records go that have a label in place of a declared value, by the queries that could count them."""
    return NOWHERE if label is not None and (ordered or (everywhere and label == DROP)) else label

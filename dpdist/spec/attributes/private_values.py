"""Attributes whose names or edges a part of the budget finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from dpdist.domain import EXCLUDE_RECORD, Attribute
from dpdist.domain.numeric_columns import MOST_STEPS
from dpdist.size_limits import SIZES, Sizes
from dpdist.spec.attributes.attribute_kind import PrivateValues, Values, WithUnit
from dpdist.spec.attributes.categories import Categories
from dpdist.spec.attributes.numbers import Edges
from dpdist.spec.sections.private_bounds import PRIVATE, ShareSpec
from dpdist.spec.value_types import Exact


class SelectionSpec(ShareSpec):
    """How the names of an attribute with ``categories: private`` are selected."""

    delta: Exact = Field(
        description="of names, needed: a bound on the probability that a name is published that only one person or record has. If the "
        "budget has a delta, this is a part of it; if it is in rho or in epsilon alone, this is added to the guarantee",
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
    names_per_person: int = Field(
        20,
        ge=1,
        le=1000,
        description="where 'records: person' has a column: how many different names of a person count at most, whatever 'most_records' is. "
        "A person with d names adds about 1 / sqrt(d) to each (1 / d under Laplace noise), so that more names cost hardly more budget, and "
        "what frequent names do not need goes to the person's others. If a person has more names, a keyed random order decides which count",
        examples=[50],
    )

    @model_validator(mode="after")
    def _chance(self) -> SelectionSpec:
        if not 0 < self.delta < 1:
            raise ValueError("'delta' of a selection lies between 0 and 1")
        return self

    @property
    def placeholders(self) -> tuple[str, ...]:
        """Names that stand for those that are not selected yet: a release is planned for as many as there can be."""
        return tuple(f"name {number}" for number in range(1, self.most + 1))


OTHER_NAMES = "other"
"""The bin of names that are not selected, unless the spec calls it something else."""


class PrivateCategories(PrivateValues):
    """Names that are selected from the records."""

    private_key: ClassVar[str] = "categories"
    selection_help: ClassVar[str] = (
        "selects names by a part of the budget: add 'selection: {share: 0.1, delta: 1e-7, most: 100}'"
    )
    default_keys: ClassVar[Mapping[str, Any]] = {"other": OTHER_NAMES}
    exclusion_reason: ClassVar[str] = ", and nobody knows private names"

    selection: SelectionSpec = Field(
        description="with 'categories: private' or 'edges: private': how they are found, and by which part of the budget",
        examples=[{"share": 0.1, "delta": 1e-7, "most": 200}],
    )
    categories: Literal["private"] = Field("private", description="selects the names from the records", examples=["private"])

    def resolve(self, selected_values: Sequence[str] | None) -> Values:
        return Categories.model_validate({"categories": tuple(selected_values or self.selection.placeholders)})

    def bins(self, name: str, sizes: Sizes = SIZES, **other_options: Any) -> Attribute:
        if other_options.get("other") == EXCLUDE_RECORD:  # until names are selected, records of any name may count
            other_options["other"] = OTHER_NAMES
        return Attribute(name, categories=self.selection.placeholders, **other_options)

    def words(self) -> str:
        return f"up to {self.selection.most:,} names, selected from the records"


MOST_BINS = 100


class EdgesSelectionSpec(ShareSpec):
    """How the edges of an attribute with `edges: private` are chosen."""

    first: Exact = Field(
        alias="from",
        description="of edges, needed: the smallest number, which is the first edge. The range is public, and may be far too wide",
        examples=[0],
    )
    last: Exact = Field(
        alias="to", description="of edges, needed: the largest number. The last edge is one step above it", examples=[120]
    )
    step: Exact = Field(
        Fraction(1),
        description="edges are 'from' and whole numbers of steps above it. 'to' is one of them, and at most "
        f"{MOST_STEPS - 1:,} steps above 'from'",
        examples=[0.01],
    )
    bins: int = Field(
        10,
        ge=2,
        le=MOST_BINS,
        description="how many bins are asked for, with about as many records in each. Where many records have the same number there are "
        "fewer",
        examples=[8],
    )

    @model_validator(mode="after")
    def _some_steps(self) -> EdgesSelectionSpec:
        if self.step <= 0 or self.last <= self.first:
            raise ValueError("'from' must be smaller than 'to', and 'step' positive")
        steps = (self.last - self.first) / self.step
        if steps.denominator != 1 or not self.bins <= steps + 1 <= MOST_STEPS:
            raise ValueError(
                f"'from' and 'to' must be a whole number of steps apart, at least one less than 'bins' and at most {MOST_STEPS - 1:,}, "
                f"found {float(steps):,.10g}; change 'step', 'to' or 'bins'"
            )
        return self

    @property
    def size(self) -> int:
        """How many numbers are distinguished."""
        return int((self.last - self.first) / self.step) + 1

    def edge(self, step: int) -> float:
        """The number that lies so many steps above the first one."""
        return float(self.first + self.step * step)

    @property
    def placeholders(self) -> tuple[int, ...]:
        """Steps of inner edges that stand for those that are not chosen yet: a release is planned for as many bins as there can be."""
        return tuple(self.size * edge_number // self.bins for edge_number in range(1, self.bins))

    def steps_of(self, numbers: NDArray[np.float64]) -> NDArray[np.int64]:
        """In steps above the first one: the step at or below every number, as bins with all these edges would hold it."""
        edges = np.array([self.edge(step) for step in range(self.size)])
        return np.clip(np.searchsorted(edges, numbers, side="right") - 1, 0, self.size - 1)


class PrivateEdges(PrivateValues, WithUnit):
    """Numbers in bins whose edges are chosen from the records."""

    private_key: ClassVar[str] = "edges"
    selection_help: ClassVar[str] = (
        "chooses edges by a part of the budget: add 'selection: {from: 0, to: 120, bins: 8, share: 0.1}'"
    )
    exclusion_reason: ClassVar[str] = ", and nobody knows the bins of 'edges: private'"

    edges: Literal["private"] = Field(description="chooses the edges from the records", examples=[PRIVATE])
    selection: EdgesSelectionSpec = Field(
        description="with 'edges: private': how the edges are chosen, and by which part of the budget",
        examples=[{"from": 0, "to": 120, "bins": 8, "share": 0.1}],
    )

    @classmethod
    def key(cls) -> str:
        return "edges: private"

    def resolve(self, selected_values: Sequence[int] | None) -> Values:
        edges_spec = self.selection
        inner = edges_spec.placeholders if selected_values is None else selected_values
        edges = tuple(edges_spec.edge(step) for step in (0, *inner, edges_spec.size))
        return Edges.model_validate({"edges": edges, "unit": self.unit})

    def bins(self, name: str, sizes: Sizes = SIZES, **other_options: Any) -> Attribute:
        return self.resolve(None).bins(name, sizes, **other_options)

    def words(self) -> str:
        edges_spec = self.selection
        ends = f"{float(edges_spec.first):,.12g} to {float(edges_spec.last):,.12g}"
        return f"up to {edges_spec.bins} bins from {ends}, with edges chosen from the records"

    def facts(self) -> dict[str, Any]:
        return {"unit": self.unit}

    @property
    def digest_form(self) -> Values:
        return self.model_copy(update={"unit": None})

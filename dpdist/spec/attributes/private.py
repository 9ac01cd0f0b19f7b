"""Values that nobody has declared: a part of the budget selects frequent names, or chooses the edges of bins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from dpdist.domain import NOWHERE, Attribute
from dpdist.sizes import SIZES, Sizes
from dpdist.spec.attributes.base import FoundValues, Values
from dpdist.spec.attributes.categories import Categories
from dpdist.spec.chosen_bounds import PRIVATE
from dpdist.spec.values import Exact, SpecPart


class SelectionSpec(SpecPart):
    """How the names of an attribute with ``categories: private`` are selected."""

    share: Exact = Field(
        Fraction(1, 10),
        description="the share of the release's budget that the selection spends, between 0 and 1",
        examples=[0.1],
    )
    delta: Exact = Field(
        description="of names, needed: a bound on the probability that a name is published that only one person or record has. If the "
        "budget is in epsilon, this is a part of its delta; if it is in rho, this is added to the guarantee",
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


OTHER_NAMES = "other"
"""The bin of names that are not selected, unless the spec calls it something else."""


class Private(FoundValues):
    """Names that are selected from the records."""

    beside: ClassVar[Mapping[str, Any]] = {"other": OTHER_NAMES}
    apart: ClassVar[str] = ", and nobody knows private names"

    selection: SelectionSpec = Field(
        description="with 'categories: private' or 'edges: private': how they are found, and by which part of the budget",
        examples=[{"share": 0.1, "delta": 1e-7, "most": 200}],
    )
    categories: Literal["private"] = Field("private", description="selects the names from the records", examples=["private"])

    @classmethod
    def named(cls) -> str:
        return "'categories: private'"

    @classmethod
    def is_meant(cls, given: Mapping[str, Any]) -> bool:
        return given.get("categories") == PRIVATE

    @model_validator(mode="before")
    @classmethod
    def _says_how(cls, given: Any) -> Any:
        if "selection" not in given:
            raise ValueError(
                "'categories: private' selects names by a part of the budget: add 'selection: {share: 0.1, delta: 1e-7, most: 100}'"
            )
        return given

    def declared(self, found: Sequence[str] | None) -> Values:
        return Categories.model_validate({"categories": tuple(found or self.selection.placeholders)})

    def bins(self, name: str, sizes: Sizes = SIZES, **others: Any) -> Attribute:
        if others.get("other") == NOWHERE:  # until names are selected, records of any name may count
            others["other"] = OTHER_NAMES
        return Attribute(name, categories=self.selection.placeholders, **others)

    def words(self) -> str:
        return f"up to {self.selection.most:,} names, selected from the records"

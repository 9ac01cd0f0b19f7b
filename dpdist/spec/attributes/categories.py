"""Values without an order, each of them declared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field, model_validator

from dpdist.domain import Attribute
from dpdist.records.columns import Column
from dpdist.sizes import SIZES, Sizes
from dpdist.spec.attributes.base import LISTED, Named
from dpdist.spec.attributes.private import PRIVATE
from dpdist.spec.values import Text
from dpdist.spec.yaml_text import quoted


class Categories(Named):
    """Listed values."""

    to_declare: ClassVar[tuple[str, ...]] = ("categories: CATEGORIES   # texts: [Centre, North, Harbour]",)

    categories: tuple[Text, ...] = Field(
        description="all values of an attribute that has no order. Or 'private': frequent names are selected from the records, as "
        "'selection' says, and all other names are counted together",
        examples=[["Centre", "North", "Harbour"]],
    )

    @classmethod
    def is_meant(cls, given: Mapping[str, Any]) -> bool:
        return bool(given.get("categories", PRIVATE) != PRIVATE)

    @model_validator(mode="after")
    def _some(self) -> Categories:
        if not self.categories:
            raise ValueError("'categories' is empty; list every value that the attribute may have")
        return self

    def bins(self, name: str, sizes: Sizes = SIZES, **others: Any) -> Attribute:
        return Attribute(name, categories=self.categories, labels=self.labels, **others)

    def words(self) -> str:
        shown, count = ", ".join((self.labels or self.categories)[:LISTED]), len(self.categories)
        return f"{count:,} categories: {shown}" + (f" and {count - LISTED:,} more" if count > LISTED else "")

    @classmethod
    def outline(cls, column: Column) -> Sequence[str]:
        if column.kind == "boolean":
            return ("categories: ['false', 'true']",)
        if column.kind != "text":
            return ()
        if column.values:
            return f"categories: [{', '.join(map(quoted, column.values))}]", "other: other"
        return (
            "categories: CATEGORIES   # all of them: [Centre, North, Harbour]",
            "other: other             # the label of records with any other text",
        )

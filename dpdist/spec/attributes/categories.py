"""Values without an order, each of them declared."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from dpdist.domain import Attribute
from dpdist.size_limits import SIZES, Sizes
from dpdist.spec.attributes.attribute_kind import LISTED_VALUES, LabelledValues, Values
from dpdist.spec.sections.plugin_sections import MapSection, SectionKey
from dpdist.spec.sections.private_bounds import PRIVATE
from dpdist.spec.value_types import Text


class Categories(LabelledValues):
    """Listed values."""

    categories: tuple[Text, ...] = Field(
        description="all values of an attribute that has no order. Or 'private': frequent names are selected from the records, as "
        "'selection' says, and all other names are counted together",
        examples=[["Centre", "North", "Harbour"]],
    )

    map: Annotated[MapSection | None, SectionKey("domain.map")] = None

    @classmethod
    def is_meant(cls, content: Mapping[str, Any]) -> bool:
        return bool(content.get("categories", PRIVATE) != PRIVATE)

    @model_validator(mode="after")
    def _check_values(self) -> Categories:
        if not self.categories:
            raise ValueError("'categories' is empty; list every value that the attribute may have")
        return self

    def bins(self, name: str, sizes: Sizes = SIZES, **other_options: Any) -> Attribute:
        return Attribute(name, categories=self.categories, labels=self.labels, **other_options)

    def boundaries(self, folder: Path) -> Any:
        return None if self.map is None else self.map.boundaries(self.categories, folder)

    @property
    def digest_form(self) -> Values:
        return self.model_copy(update={"map": None})

    def words(self) -> str:
        shown, count = ", ".join((self.labels or self.categories)[:LISTED_VALUES]), len(self.categories)
        return f"{count:,} categories: {shown}" + (f" and {count - LISTED_VALUES:,} more" if count > LISTED_VALUES else "")

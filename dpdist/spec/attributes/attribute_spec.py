"""One attribute as a spec declares it: its values, of one kind, and what happens to records without one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from dpdist.domain import DROP, EXCLUDE_RECORD, Attribute
from dpdist.domain.spelling_suggestions import did_you_mean
from dpdist.errors import InvalidInput
from dpdist.size_limits import SIZES, Sizes
from dpdist.spec.attributes.attribute_kind import PrivateValues, Values
from dpdist.spec.attributes.categories import Categories
from dpdist.spec.attributes.dates import Dates
from dpdist.spec.attributes.numbers import Edges, Numbers
from dpdist.spec.attributes.private_values import PrivateCategories, PrivateEdges
from dpdist.spec.tagged_unions import Family, UnionPart
from dpdist.spec.value_types import DayOrTime, Text, Titled

ATTRIBUTES = Family(
    Categories,
    PrivateCategories,
    Numbers,
    Edges,
    PrivateEdges,
    Dates,
)
"""The kinds of values that specs can declare."""


class AttributeSpec(UnionPart, Titled):
    """The public, declared values of one attribute: ``categories``, ``edges``, ``dates``, or whole numbers ``from``..``to``."""

    values: Annotated[Values, ATTRIBUTES]
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

    total: Text | None = Field(
        None,
        min_length=1,
        description="with 'count: persons': the label of one more bin, for the persons who have records with any of these values, each "
        "once. Persons of the values do not add up to it. Where several attributes have one, so has every combination of them",
        examples=["all branches"],
    )

    most_groups: dict[Text, Annotated[int, Field(ge=1)]] = Field(
        {},
        description="with 'count: persons': in how many groups of a table by a level a person counts, where it is fewer than 'most_groups' "
        "of 'person' says, by the level's name",
        examples=[{"week": 2}],
    )

    level_titles: dict[Text, Text] = Field(
        {},
        description="what the page calls levels, by their names; by default their names",
        examples=[{"region": "Region of the world"}],
    )

    @model_validator(mode="after")
    def _check_labels(self) -> AttributeSpec:
        if self.total is not None and self.total in (DROP, self.missing, self.other):
            raise ValueError(f"'total' needs a label of its own, found {self.total!r}")
        if self.other is not None and "outside" in self.model_fields_set:
            raise ValueError("'other' and 'outside' both say where values beyond the declared ones count; leave one out")
        return self

    @property
    def digest_form(self) -> AttributeSpec:
        """The same attribute without the words that only the page shows: they change no digest."""
        return self.model_copy(update={"title": None, "level_titles": {}, "values": self.values.digest_form})

    def meaning_facts(self, *, periodic: bool) -> Any:
        """What decides which cell of the attribute a record counts in, and what its number is a number of.

        Args:
            periodic: whether the release is of one period out of several.
        """
        unit = self.values.facts().get("unit")
        options = [option for option in (self.total, self.most_groups) if option]
        return unit, self.values.meaning_facts(periodic=periodic), self.outside, self.missing, self.other, *options

    def facts(self) -> dict[str, Any]:
        """What a certificate says of the attribute."""
        labels = {"missing": self.missing, "other": self.other, "total": self.total}
        stated_labels = {name: label for name, label in labels.items() if label is not None}
        words = {"title": self.title, "unit": None, "values": self.values.words(), "outside": self.outside}
        titles = {"level_titles": self.level_titles} if self.level_titles else {}
        return {**words, **stated_labels, **titles, **self.values.facts()}

    @property
    def steps(self) -> str:
        """How an attribute's column is divided into steps; of values beyond the ends that are clipped, the ends, too."""
        bins = self.bins("steps")
        ends = f", from {bins.labels[0]} to {bins.labels[bins.values - 1]}," if self.outside == "clip" else ""
        return self.values.steps(self.outside, ends)

    def with_end(self, end: int | DayOrTime) -> AttributeSpec:
        """The same attribute with an earlier end. Raises: InvalidInput where its values have none."""
        return self.model_copy(update={"values": self.values.with_end(end)})

    def with_selected_values(self, values: Any) -> AttributeSpec:
        """The same attribute with the values that a part of the budget found, or with placeholders for them (None)."""
        assert isinstance(self.values, PrivateValues)
        return self.model_copy(update={"values": self.values.resolve(values)})

    def attribute(
        self,
        name: str,
        sizes: Sizes = SIZES,
        *,
        everywhere: bool = False,
        ordered: bool = False,
        separate_levels: bool = False,
        folder: Path | None = None,
    ) -> Attribute:
        """The domain's attribute, with its levels.

        Args:
            folder: from which a file of levels is taken.
            everywhere, ordered: as for ``bins``.
            separate_levels: whether levels have bins of their own, in which persons are counted by themselves.
        Raises: InvalidInput for the title or the bound of a level that there is not.
        """
        bare_attribute = self.bins(name, sizes, everywhere=everywhere, ordered=ordered)
        full_attribute = self.values.with_levels(
            bare_attribute, folder or Path(), self.most_groups if separate_levels else None
        )
        level_names = [level.name for level in full_attribute.levels]
        for key, level_options in (("level_titles", self.level_titles), ("most_groups", self.most_groups)):
            strange = next((level for level in level_options if level not in level_names), None)
            if strange is not None:
                raise InvalidInput(
                    f"{key!r} of {name!r} names {strange!r}{did_you_mean(strange, level_names)}; its levels are "
                    f"{', '.join(level_names) or 'none'}"
                )
        return full_attribute

    def bins(self, name: str, sizes: Sizes = SIZES, *, everywhere: bool = False, ordered: bool = False) -> Attribute:
        """The domain's attribute without levels.

        Args:
            everywhere: whether every query asks for the attribute: records that are dropped then need no bin.
            ordered: whether every query is over its order: no query counts other and missing values, which then need none either.
        """
        missing, other_label = (_bin_of(label, everywhere, ordered) for label in (self.missing, self.other))
        return self.values.bins(name, sizes, outside=self.outside, missing=missing, other=other_label, total=self.total)


def _bin_of(label: str | None, everywhere: bool, ordered: bool) -> str | None:
    """Where records go that have a label in place of a declared value, by the queries that could count them."""
    return EXCLUDE_RECORD if label is not None and (ordered or (everywhere and label == DROP)) else label

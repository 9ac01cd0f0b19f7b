"""A thresholded histogram: rows of a space of keys that is never written down."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from pydantic import Field, model_validator

from dpdist.domain import Attribute
from dpdist.domain.key_spaces import IntegerKeys, Keys, KeySpace, ListedKeys, TextKeys
from dpdist.spec.sections.private_bounds import SHARE_DESCRIPTION, ShareSpec
from dpdist.spec.value_types import Exact, SpecPart, Text

MOST_CODES = 100_000


class IntegersSpec(SpecPart):
    """Whole numbers of a range."""

    first: int = Field(alias="from", description="the smallest key", examples=[1])
    last: int = Field(alias="to", description="the largest key", examples=[125_000_000])


class TextsSpec(SpecPart):
    """Texts of one length."""

    alphabet: Text = Field(
        min_length=1, description="the characters, each once, all of ASCII", examples=["0123456789abcdef"]
    )
    length: int = Field(ge=1, le=62, description="how many characters a key has", examples=[15])


class KeySpec(SpecPart):
    """The keys that a column may have, from public knowledge. Records with other ones are in no row."""

    codes: tuple[Text, ...] | None = Field(
        None, min_length=1, max_length=MOST_CODES, description="all keys, listed", examples=[["DE", "FR"]]
    )
    integers: IntegersSpec | None = Field(
        None, description="the whole numbers of a range", examples=[{"from": 1, "to": 125_000_000}]
    )
    text: TextsSpec | None = Field(
        None,
        description="all texts of one length over an alphabet: hashes, ISBN, H3, postcodes",
        examples=[{"alphabet": "0123456789abcdef", "length": 15}],
    )

    @model_validator(mode="after")
    def _one_kind(self) -> KeySpec:
        if sum(kind is not None for kind in (self.codes, self.integers, self.text)) != 1:
            raise ValueError("a column of keys has one of 'codes', 'integers' and 'text'")
        return self

    @property
    def keys(self) -> Keys:
        """The keys. Raises: InvalidInput where there are none, or two are alike."""
        if self.codes is not None:
            return ListedKeys.of_texts(self.codes)
        if self.integers is not None:
            return IntegerKeys(self.integers.first, self.integers.last)
        assert self.text is not None
        return TextKeys(self.text.alphabet, self.text.length)

    def uncounted(self, name: str) -> Attribute:
        """The column where it is read for rows of its own, and counted in no cell of the domain."""
        return Attribute(name, categories=("a key",), other="other keys", missing="no key")

    def facts(self) -> dict[str, Any]:
        """What a certificate says of the keys."""
        return {
            "codes": None if self.codes is None else len(self.codes),
            "integers": None if self.integers is None else [self.integers.first, self.integers.last],
            "alphabet": None if self.text is None else self.text.alphabet,
            "length": None if self.text is None else self.text.length,
        }


class ThresholdedSpec(ShareSpec):
    """Rows of all combinations of keys whose noisy counts reach a threshold, from a part of the budget."""

    share: Exact = Field(Fraction(1, 2), description=SHARE_DESCRIPTION, examples=[0.5])
    of: dict[str, KeySpec] = Field(
        min_length=1,
        description="the columns of keys. All their combinations, up to 2^62, are cells, and have noise, with records or without",
        examples=[{"country": {"codes": ["DE", "FR"]}, "page": {"integers": {"from": 1, "to": 125_000_000}}}],
    )
    at_least: Exact = Field(
        gt=0,
        description="the least noisy count that is published. 'dpdist plan' says how many rows without records are expected to reach it",
        examples=[90],
    )
    cells_per_person: int = Field(
        1,
        ge=1,
        le=10_000,
        description="where 'records: person' has a column: in how many different cells a person counts at most, whatever 'most_records' "
        "is. If a person is in more, a keyed random order decides in which",
        examples=[10],
    )
    records_per_cell: int = Field(
        1, ge=1, le=10_000, description="how many records of a person count in each of these cells", examples=[1]
    )

    @model_validator(mode="after")
    def _check_decimals(self) -> ThresholdedSpec:
        if (self.at_least * 1000).denominator != 1:
            raise ValueError("'at_least' is a whole number of thousandths of a record: round it")
        return self

    @property
    def space(self) -> KeySpace:
        """The cells. Raises: InvalidInput for too many of them."""
        return KeySpace({name: keys.keys for name, keys in self.of.items()})

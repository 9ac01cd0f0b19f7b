"""A thresholded histogram: rows of a space of keys that is never written down."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from dpdist.domain import Attribute
from dpdist.domain.key_spaces import IntegerKeys, Keys, KeySpace, ListedKeys, TextKeys
from dpdist.sources.file_listing import locate_records
from dpdist.sources.key_files import FileKeys
from dpdist.spec.sections.private_bounds import SHARE_DESCRIPTION, ShareSpec
from dpdist.spec.value_types import Exact, PathText, SpecPart, Text

MOST_CODES = 100_000
RESERVED_COLUMNS = ("value", "rest", "total", "low_95", "high_95")
"""What the columns of published numbers are called; so no column of keys is."""


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


class KeyFileSpec(SpecPart):
    """Keys of a public file."""

    file: PathText = Field(
        description="a text file in UTF-8 with a key in each line, or a .parquet file with one column of texts; up to 10^9 keys, each "
        "once, in the order of their bytes (LC_ALL=C sort -u). A path or URL, as of records; workers read it, too",
        examples=["pages.txt"],
    )
    sha256: str = Field(
        pattern="^[0-9a-f]{64}$",
        description="the SHA-256 of the file, as sha256sum prints it. Another file is refused before anything is charged",
        examples=["e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"],
    )


class KeySpec(SpecPart):
    """The keys that a column may have, from public knowledge. Records with other ones are in no row."""

    codes: Annotated[tuple[Text, ...], Field(min_length=1, max_length=MOST_CODES)] | KeyFileSpec | None = Field(
        None, description="all keys, listed here or in a public file", examples=[["DE", "FR"]]
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

    def keys(self, folder: Path) -> Keys:
        """The keys. Raises: InvalidInput where there are none, or two are alike; also for a file that is not as the spec says.

        Args:
            folder: where relative paths start.
        """
        if isinstance(self.codes, KeyFileSpec):
            return FileKeys.of_location(locate_records(self.codes.file, below=folder).location, self.codes.sha256)
        if self.codes is not None:
            return ListedKeys.of_texts(self.codes)
        if self.integers is not None:
            return IntegerKeys(self.integers.first, self.integers.last)
        assert self.text is not None
        return TextKeys(self.text.alphabet, self.text.length)

    def uncounted(self, name: str) -> Attribute:
        """The column where it is read for rows of its own, and counted in no cell of the domain."""
        return Attribute(name, categories=("a key",), other="other keys", missing="no key")

    def facts(self, keys: Keys) -> dict[str, Any]:
        """What a certificate says of the keys."""
        file_facts = {"sha256": self.codes.sha256} if isinstance(self.codes, KeyFileSpec) else {}
        return {
            "codes": None if self.codes is None else keys.size,
            **file_facts,
            "integers": None if self.integers is None else [self.integers.first, self.integers.last],
            "alphabet": None if self.text is None else self.text.alphabet,
            "length": None if self.text is None else self.text.length,
        }


class RestSpec(ShareSpec):
    """Totals of all rows that are not published, and of all rows."""

    share: Exact = Field(
        Fraction(1, 5),
        description="what part of the histogram's budget they take; the rows have the rest of it",
        examples=[0.2],
    )
    by: tuple[str, ...] = Field(
        (),
        description="a total for each combination of the keys of these columns; without any, one total",
        examples=[["country"]],
    )
    measured: Literal["rest", "totals"] = Field(
        "rest",
        description="which of the two has noise of its own, no bias and an interval: what all other rows have together ('rest'), or what "
        "all rows have ('totals'). The other one follows from it and the published rows, so that all of them agree. It is biased by as "
        "much as published rows are on average, whose noise had to lift them above 'at_least'",
        examples=["totals"],
    )


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

    rest: RestSpec | None = Field(
        None,
        description="also publishes how many records all other rows have together, such as 'all other pages of DE', and all rows. The "
        "published rows and the rest add up to the totals",
        examples=[{"by": ["country"]}],
    )

    @model_validator(mode="after")
    def _check_rest(self) -> ThresholdedSpec:
        if self.rest is not None:
            unknown = [name for name in self.rest.by if name not in self.of]
            if unknown or len(set(self.rest.by)) < len(self.rest.by):
                raise ValueError("'rest: by' names columns of 'of', each once")
        return self

    @model_validator(mode="after")
    def _check_names(self) -> ThresholdedSpec:
        taken = next((name for name in RESERVED_COLUMNS if name in self.of), None)
        if taken is not None:
            raise ValueError(
                f"the published tables have a column {taken!r} of their own: call the keys otherwise, and name their column under "
                "'records: columns'"
            )
        return self

    @model_validator(mode="after")
    def _check_decimals(self) -> ThresholdedSpec:
        if (self.at_least * 1000).denominator != 1:
            raise ValueError("'at_least' is a whole number of thousandths of a record: round it")
        return self

    def space(self, folder: Path) -> KeySpace:
        """The cells. Raises: InvalidInput for too many of them."""
        return KeySpace({name: keys.keys(folder) for name, keys in self.of.items()})

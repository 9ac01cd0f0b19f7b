"""The part of a spec that says how CSV files of records are written."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from dpdist.records.csv_grammar import QUOTE, UTF_8, DecimalMark, Grammar, check_dates, is_encoding
from dpdist.spec.values import SpecPart


class CsvDatesSpec(SpecPart):
    """How dates and times are written in CSV files."""

    form: str = Field(
        alias="format",
        description="the parts of a date or time: %Y (or %y, two digits), %m, %d, %j (the day of the year), %H, %M, %S, %f (a fraction of "
        "a second), %z (the offset from UTC) and other ASCII text between them. The year is needed. A text of another form is a missing "
        "value",
        examples=["%d.%m.%Y"],
    )

    @field_validator("form")
    @classmethod
    def _says_which_day(cls, form: str) -> str:
        check_dates(form)
        return form


class CsvSpec(SpecPart):
    """How CSV files are written. One line is one record. Nothing is guessed from the values."""

    delimiter: str = Field(",", description="the character between values", examples=[";"])
    quoting: Literal["double", "none"] = Field(
        "double",
        description="'double': quotation marks (\") may stand around whole values and are closed on the same line; two of them inside are "
        "a quotation mark. 'none': quotation marks are text like any other",
        examples=["none"],
    )
    multiline: bool = Field(
        False,
        description="whether values in quotation marks may hold line ends. Files must then keep to RFC 4180: the run is refused at the "
        "first line that does not",
        examples=[True],
    )
    decimal: DecimalMark = Field(".", description="the mark before the decimals of numbers", examples=[","])
    encoding: str = Field(
        UTF_8,
        description="the encoding of the text: utf-8, or one with a byte for each character",
        examples=["windows-1252"],
    )
    dates: CsvDatesSpec | None = Field(
        None,
        description="how the dates and times of attributes with 'dates' are written. Default: as ISO 8601 says, such as 2026-09-01",
        examples=[{"format": "%d.%m.%Y"}],
    )

    @model_validator(mode="after")
    def _one_way_to_read(self) -> CsvSpec:
        mark = self.delimiter
        if len(mark) != 1 or not mark.isascii() or mark.isalnum() or mark in "\r\n\0+-" or mark == QUOTE:
            raise ValueError(
                "'delimiter' is one ASCII character that is no letter, digit, sign, quotation mark or line end, such as ';' or a tab"
            )
        if mark == self.decimal:
            raise ValueError(
                f"'delimiter' and 'decimal' are both {mark!r}; they must differ, so name the delimiter of the file"
            )
        if self.multiline and self.quoting == "none":
            raise ValueError("'multiline' needs quotation marks around values, and 'quoting: none' has none; leave one out")
        if not is_encoding(self.encoding):
            raise ValueError(
                "'encoding' is utf-8, or an encoding with a byte for each character such as latin-1 or windows-1252; save files in "
                "others, such as UTF-16, as UTF-8"
            )
        return self

    @property
    def grammar(self) -> Grammar:
        """As the readers know it."""
        name = UTF_8 if self.encoding.lower().replace("_", "-") in (UTF_8, "utf8") else self.encoding
        form = None if self.dates is None else self.dates.form
        return Grammar(self.delimiter, self.quoting, self.multiline, self.decimal, name, form)

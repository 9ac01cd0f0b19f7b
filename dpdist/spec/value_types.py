"""Values as a spec writes them: exact numbers, texts, parts that know their keys."""

from __future__ import annotations

import datetime
import re
from fractions import Fraction
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema


def exact(value: Any) -> Fraction:
    """A number as it is written: 0.1 is one tenth. Raises: ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("a number is needed")
    if (isinstance(value, int) and value.bit_length() > 300) or not _NUMBER.fullmatch(text := str(value).strip()):
        digits = (
            ", written with at most 90 digits and a power of ten from -99 to 99" if _DIGITS.fullmatch(str(value)[:9]) else ""
        )
        raise ValueError(f"a number is needed, such as 0.5, 1e-6 or 1/3{digits}")
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise ValueError("a number is needed") from None


_NUMBER = re.compile(r"[-+]?[0-9_.]{1,92}([eE][-+]?[0-9]{1,2})?|[-+]?[0-9]{1,45}/[0-9]{1,45}")
"""Fraction would compute all digits of 1e-99999999."""
_DIGITS = re.compile(r"[-+0-9_.eE/]+")


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _end(value: Any) -> Any:
    """A number, or a date or time as text."""
    if isinstance(value, datetime.date):
        return value.isoformat()
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


Exact = Annotated[Fraction, BeforeValidator(exact), Field(json_schema_extra={"type": "number"})]


def _percentage(value: Any) -> Fraction:
    """A share as a percentage, such as 10%. Raises: ValueError."""
    if isinstance(value, Fraction):
        return value
    text = str(value).strip()
    try:
        found = exact(text[:-1]) / 100 if text.endswith("%") else Fraction(-1)
    except ValueError:
        found = Fraction(-1)
    if not 0 <= found <= 1:
        raise ValueError("a share is needed, from 0% to 100%, such as 10%")
    return found


Share = Annotated[
    Fraction,
    BeforeValidator(_percentage),
    PlainSerializer(lambda share: f"{float(100 * share):g}%", return_type=str),
    WithJsonSchema({"type": "string"}),
]


def _day_or_time(value: Any) -> Any:
    """A date where only a day is written, else a time."""
    try:
        if isinstance(value, str):
            return (datetime.date if len(value) == len("2026-09-01") else datetime.datetime).fromisoformat(value)
    except ValueError:
        pass
    if not isinstance(value, datetime.date):  # a number would be taken for seconds since 1970
        raise ValueError("a day such as 2026-11-16 or a time such as 2026-11-16T08:00 is needed")
    return value


DayOrTime = Annotated[datetime.date | datetime.datetime, BeforeValidator(_day_or_time)]
"""A date, or a time of a day."""


End = Annotated[float | str, BeforeValidator(_end)]
"""An end of an interval: a number, or a date or time."""


Text = Annotated[str, BeforeValidator(_text)]


def _path(value: str) -> str:
    if "\0" in value:
        raise ValueError("a path or URL without a NUL character is needed")
    return value


PathText = Annotated[str, AfterValidator(_path)]
"""A path or URL; no file system and no store knows names that hold a NUL character."""


Name = Annotated[str, Field(min_length=1, max_length=150, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
"""What data sets and streams are called in the ledger."""


class SpecPart(BaseModel):
    """Base of all parts: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, populate_by_name=True)


class Titled(SpecPart):
    """A part that readers see under a title."""

    title: Text | None = Field(None, description="what the page calls it; by default its name", examples=["Hours worked"])

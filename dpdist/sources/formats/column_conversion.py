"""Columns of one type each, which the spec alone decides: every value is converted by itself, and what does not convert is missing.

How a writer stored a column must not matter: one record can turn a column of whole numbers into decimals, dates into times, or anything
into text, and the values of all other records must stay what they were.
"""

from __future__ import annotations

import datetime
import re
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpdist.domain.calendar import moment_of_text
from dpdist.errors import InvalidSpec
from dpdist.process import arrow_arrays
from dpdist.process import arrow_compute as pc
from dpdist.sources.column_types import ColumnType
from dpdist.sources.formats.number_parsing import numbers_of_texts

Family = Literal["nothing", "text", "whole", "number", "decimal", "date", "time", "boolean", "bytes", "uuid", "other"]
"""What the values of a column are, however wide they are stored."""
Column: TypeAlias = pa.Array | pa.ChunkedArray
WORDS: dict[Family, str] = {
    "nothing": "no value",
    "text": "texts",
    "whole": "whole numbers",
    "number": "numbers",
    "decimal": "exact decimals",
    "date": "dates",
    "time": "times",
    "boolean": "yes or no",
    "bytes": "bytes",
    "uuid": "UUIDs",
    "other": "lists, structures or others that are no single values",
}
NUMBERS: tuple[Family, ...] = ("whole", "number", "decimal")
ARROW: dict[ColumnType, pa.DataType] = {
    "text": pa.string(),
    "whole": pa.int64(),
    "number": pa.float64(),
    "date": pa.date32(),
    "time": pa.timestamp("us"),
    "boolean": pa.bool_(),
}
"""What columns are stored as when they are converted."""
_PLAIN_DIGITS = 40
"""Numbers of up to so many digits are written without an exponent."""
_WHOLE = r"\A *[-+]?0*[0-9]{1,30} *\z"
_EXACT = 2.0**53
SHORT_NUMBERS = 10**18
"""Whole numbers nearer to zero have up to 18 digits: they are hashed, and looked up, as numbers."""
_SHORT_TEXT = r"\A(?:0|-?[1-9][0-9]{0,17})\z"


class Unconvertible(InvalidSpec):
    """A column no value of which can be of the type that is needed: the end of a sentence about it."""


def family_of(arrow_type: pa.DataType) -> Family:
    """What the values of a column are."""
    kind, types = arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type, pa.types
    tests: tuple[tuple[Family, Callable[[pa.DataType], bool]], ...] = (
        ("nothing", types.is_null),
        ("boolean", types.is_boolean),
        ("whole", types.is_integer),
        ("number", types.is_floating),
        ("decimal", types.is_decimal),
        ("date", types.is_date),
        ("uuid", lambda data_type: getattr(data_type, "extension_name", "") == "arrow.uuid"),
        ("time", types.is_timestamp),
        (
            "text",
            lambda data_type: (
                types.is_string(data_type) or types.is_large_string(data_type) or types.is_string_view(data_type)
            ),
        ),
        (
            "bytes",
            lambda data_type: (
                types.is_binary(data_type) or types.is_large_binary(data_type) or types.is_binary_view(data_type)
            ),
        ),
    )
    return next((name for name, test in tests if test(kind)), "other")


def convert_column(column: Column, kind: ColumnType) -> pa.Array:
    """The values of a column of any type as one of ``ARROW``, each by itself; null where a value does not convert.

    Raises: Unconvertible; pa.ArrowException for bytes that are not UTF-8.
    """
    return _CONVERSIONS[kind](_flatten(column))


def texts_of(column: Column) -> pa.Array:
    """The texts of a column's values, the same however they are stored: 1, 1.0 and 1.00 are "1", and midnight is its date.

    Raises: as ``converted``.
    """
    flat_column = _flatten(column)
    family = family_of(flat_column.type)
    if family == "other":
        raise _unconvertible(flat_column.type, "texts, numbers, dates and yes or no: write one value a row")
    if family == "uuid":
        return _uuid_texts(flat_column.storage)
    if family == "time":
        written = _times_as_texts(flat_column)
        return pc.replace_substring_regex(written, r"\A(\S+) 00:00:00\z", r"\1")
    if family == "date":
        flat_column = flat_column.cast(pa.date32())
    texts = flat_column.cast(pa.string())
    texts.validate(full=True)
    return numbers_as_texts(texts) if family in ("number", "decimal") else texts


def encoded_texts(column: Column) -> pa.DictionaryArray:
    """The texts of a column's values as places in a dictionary, which may also have texts that no value has.

    Raises: as ``texts_of``.
    """
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    is_encoded = whole.type == pa.dictionary(pa.int32(), pa.string())
    if is_encoded and len(whole.dictionary) <= len(whole) and not whole.dictionary.null_count:
        whole.validate(full=True)
        return whole
    return texts_of(whole).dictionary_encode()


def numbers_as_texts(texts: pa.Array) -> pa.Array:
    """Texts that are numbers, each in the one way to write it."""
    return _convert_each(texts, lambda text: number_text(Decimal(text)), pa.string())


def short_numbers(column: Column) -> NDArray[np.int64] | None:
    """The values of a column of whole numbers of up to 18 digits, none of which is missing; None for other columns."""
    flat_column = _flatten(column)
    if family_of(flat_column.type) != "whole" or flat_column.null_count:
        return None
    values = arrow_arrays.values_of(flat_column)
    if values.itemsize == 8 and values.size and (values.max() >= SHORT_NUMBERS or values.min() <= -SHORT_NUMBERS):
        return None
    return values.astype(np.int64, copy=False)


def short_number_texts(texts: pa.Array) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Which texts are whole numbers of up to 18 digits as ``texts_of`` writes them, and these numbers."""
    matches = pc.and_kleene(texts.is_valid(), pc.match_substring_regex(texts, _SHORT_TEXT))  # pa.scalar would import pandas
    return arrow_arrays.flags_of(matches), arrow_arrays.values_of(texts.filter(matches).cast(pa.int64()))


def moments_of(column: Column, *, finer: bool) -> pa.Array:
    """Dates and times as texts that ``Times.of_texts`` reads: times with their zone.

    Args:
        finer: whether steps shorter than a day are counted: dates have no place in them, and midnight is not taken for a whole day.
    """
    flat_column = _flatten(column)
    family = family_of(flat_column.type)
    if family not in ("nothing", "text", "time", "date") or (finer and family == "date"):
        raise _unconvertible(
            flat_column.type, "times and ISO texts" if finer else "dates, timestamps and ISO texts such as 2026-09-01"
        )
    return _times_as_texts(flat_column) if family == "time" and finer else texts_of(flat_column)


def _flatten(column: Column) -> pa.Array:
    """The values without dictionaries and chunks."""
    flat_column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return flat_column.cast(flat_column.type.value_type) if pa.types.is_dictionary(flat_column.type) else flat_column


def type_name(arrow_type: pa.DataType | str) -> str:
    """What a type is called, without the names of its fields: JSON may have taken them from a record."""
    return re.split(r"[<(\[{,]", str(arrow_type))[0]


def _unconvertible(arrow_type: pa.DataType, allowed: str) -> Unconvertible:
    family = family_of(arrow_type)
    type_text = f" (type {type_name(arrow_type)})" if family == "other" else ""
    return Unconvertible(f"holds {WORDS[family]}{type_text}; allowed are {allowed}")


def _uuid_texts(storage: pa.Array) -> pa.Array:
    """The text of each UUID, in lower case with hyphens."""
    encoded = storage.dictionary_encode()
    texts = pa.array([str(uuid.UUID(bytes=content)) for content in encoded.dictionary.to_pylist()], pa.string())
    return texts.take(encoded.indices)


def _convert_each(texts: pa.Array, convert: Callable[[str], object], kind: pa.DataType) -> pa.Array:
    """What becomes of each text; each different one is looked at once."""
    encoded = texts.dictionary_encode()
    results = pa.array([convert(text) for text in encoded.dictionary.to_pylist()], kind)
    return results.take(encoded.indices)


def number_text(number: Decimal) -> str:
    """The one way to write a number: no zeros at its end, no exponent unless it is very long, no sign of zero."""
    if not number.is_finite():
        return str(number).lower().replace("infinity", "inf")
    if not number:
        return "0"
    sign, digits, _ = number.as_tuple()
    if abs(number.adjusted()) > _PLAIN_DIGITS:
        rest = "".join(map(str, digits[1:])).rstrip("0")
        return f"{'-' * sign}{digits[0]}{'.' * bool(rest)}{rest}e{number.adjusted():+d}"
    digits_text = format(number, "f")
    return digits_text.rstrip("0").rstrip(".") if "." in digits_text else digits_text


def _times_as_texts(times: pa.Array) -> pa.Array:
    """Times without zeros at the end of their second; those with a zone in UTC, which is then said."""
    unit, zone = times.type.unit, times.type.tz
    texts = times.cast(pa.timestamp(unit, zone and "UTC")).cast(pa.string())
    return texts if unit == "s" else pc.replace_substring_regex(texts, r"(?:\.0*|(\.[0-9]*[1-9])0*)(Z?)\z", r"\1\2")


def _numbers(flat_column: pa.Array) -> pa.Array:
    family = family_of(flat_column.type)
    if family == "text":
        return numbers_of_texts(_valid(flat_column))
    if family not in (*NUMBERS, "nothing"):
        raise _unconvertible(flat_column.type, "numbers")
    return flat_column.cast(pa.float64(), safe=False)  # the nearest ones to whole numbers beyond 2^53


def _wholes(flat_column: pa.Array) -> pa.Array:
    """Whole numbers, exact; a fraction is none."""
    family = family_of(flat_column.type)
    if family in ("whole", "nothing") and flat_column.type != pa.uint64():
        return flat_column.cast(pa.int64())
    if family == "whole":
        return _wholes_of_decimals(flat_column.cast(pa.decimal128(38, 0)))
    if family == "text":
        texts = _valid(flat_column)
        exact = pc.match_substring_regex(texts, _WHOLE)
        written = pc.replace_substring(pc.ascii_trim(texts, " "), "+", "")
        whole = _wholes_of_decimals(pc.if_else(exact, written, None).cast(pa.decimal128(38, 0)))
        return pc.coalesce(whole, _wholes(pc.if_else(exact, None, numbers_of_texts(texts))))
    if family == "decimal":
        return _wholes_of_decimals(flat_column)
    numbers = _numbers(flat_column)
    is_exact = pc.and_(pc.equal(numbers, pc.floor(numbers)), pc.less_equal(pc.abs(numbers), _EXACT))
    return pc.if_else(is_exact, numbers, None).cast(pa.int64())


def _wholes_of_decimals(numbers: pa.Array) -> pa.Array:
    """Those of exact decimals that are whole and int64."""
    return _convert_each(numbers.cast(pa.string()), _whole_of_decimal, pa.int64())


def _whole_of_decimal(text: str) -> int | None:
    number = Decimal(text)
    return int(number) if number == number.to_integral_value() and -(2**63) <= number < 2**63 else None


def _dates(flat_column: pa.Array) -> pa.Array:
    family = family_of(flat_column.type)
    if family == "text":
        return _convert_each(_valid(flat_column), _date_of_text, pa.date32())
    if family == "time":
        return pc.floor_temporal(_in_utc(flat_column), unit="day").cast(pa.date32())
    if family not in ("date", "nothing"):
        raise _unconvertible(flat_column.type, "dates, times and ISO texts")
    return flat_column.cast(pa.date32())


def _date_of_text(text: str) -> datetime.date | None:
    moment = moment_of_text(text)
    return None if moment is None else _naive(moment).date()


def _times(flat_column: pa.Array) -> pa.Array:
    family = family_of(flat_column.type)
    if family == "text":
        return _convert_each(_valid(flat_column), _time_of_text, pa.timestamp("us"))
    if family not in ("date", "time", "nothing"):
        raise _unconvertible(flat_column.type, "dates, times and ISO texts")
    # a cast alone would round times before 1970 up
    times = pc.floor_temporal(_in_utc(flat_column), unit="microsecond") if family == "time" else flat_column
    return times.cast(pa.timestamp("us"), safe=False)


def _time_of_text(text: str) -> datetime.datetime | None:
    moment = moment_of_text(text)
    return None if moment is None else _naive(moment)


def _naive(moment: datetime.datetime) -> datetime.datetime:
    """As the clock shows it; where an offset is written, what a clock in UTC shows."""
    ahead = moment.utcoffset()
    try:
        return moment if ahead is None else moment.replace(tzinfo=None) - ahead
    except OverflowError:  # an hour before the year 1, or after 9999
        return moment.replace(tzinfo=None)


def _in_utc(times: pa.Array) -> pa.Array:
    return times.cast(pa.timestamp(times.type.unit))


def _booleans(flat_column: pa.Array) -> pa.Array:
    family = family_of(flat_column.type)
    if family == "text":
        return _convert_each(_valid(flat_column), lambda text: {"true": True, "false": False}.get(text.lower()), pa.bool_())
    if family not in ("boolean", "nothing"):
        raise _unconvertible(flat_column.type, "true and false")
    return flat_column.cast(pa.bool_())


def _valid(texts: pa.Array) -> pa.Array:
    """The texts, of one type. Raises: pa.ArrowException for bytes that are not UTF-8."""
    valid_texts = texts.cast(pa.string())
    valid_texts.validate(full=True)
    return valid_texts


_CONVERSIONS: dict[ColumnType, Callable[[pa.Array], pa.Array]] = {
    "text": texts_of,
    "whole": _wholes,
    "number": _numbers,
    "date": _dates,
    "time": _times,
    "boolean": _booleans,
}

"""Texts to numbers, each by itself: whatever is no number has none, and its neighbours keep theirs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dpdist.process import arrow_arrays
from dpdist.process import arrow_compute as pc
from dpdist.sources.formats.csv_grammar import DecimalMark


def numbers_of_texts(texts: pa.Array | pa.ChunkedArray, *, decimal: DecimalMark = ".") -> pa.Array:
    """The number that each text is, float64; null where the text is missing or is no number.

    A number is a sign or none, ASCII digits, of which some may stand behind the decimal mark, and an exponent or none; or nan, inf and
    infinity in any case. Spaces and tabs around it count for nothing. There are no marks between thousands. The nearest float64 is
    taken, so that whole numbers up to 2^53 are exact, and inf beyond the largest one.

    Args:
        texts: of type string, large_string or string_view.
    """
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    texts = texts.cast(pa.string())
    if decimal == "." and (all_numbers := _if_all_are_numbers(texts)) is not None:
        return all_numbers
    trimmed = pc.ascii_trim(texts, " \t")
    # what the cast below takes must be decided here, text by text: it fails for all of them at once, and takes nan(x), too
    trimmed = pc.if_else(pc.match_substring_regex(trimmed, _GRAMMAR[decimal]), trimmed, arrow_arrays.text(None))
    return (trimmed if decimal == "." else pc.replace_substring(trimmed, decimal, ".")).cast(pa.float64())


def unreadable_texts(texts: pa.Array | pa.ChunkedArray, values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Where a text has no value although it holds something: neither spaces nor a word that programs write where nothing is.

    Args:
        values: what the texts became; null where they are nothing of the kind.
    """
    flat_texts = (texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts).cast(pa.string())
    holds_text = pc.invert(pc.match_substring_regex(flat_texts, _NOTHING))
    is_unread = pc.and_(pc.is_null(values), holds_text)
    return pc.fill_null(is_unread, arrow_arrays.numbers(np.zeros(1, dtype=bool))[0])


def _if_all_are_numbers(texts: pa.Array) -> pa.Array | None:
    """The same at three times the speed; None where a text is no number, stands between spaces, or says nan."""
    try:
        numbers = texts.cast(pa.float64())
    except pa.ArrowInvalid:
        return None
    return None if pc.any(pc.is_nan(numbers)).as_py() else numbers


def _grammar(decimal_mark: str) -> str:
    return rf"\A[-+]?(?:(?:[0-9]+{decimal_mark}?[0-9]*|{decimal_mark}[0-9]+)(?:[eE][-+]?[0-9]+)?|(?i:nan|inf|infinity))\z"


_NOTHING = r"\A[ \t]*(?i:na|n/a|#n/a|nan|null|none)?[ \t]*\z"
"""Blank, or a word that stands where nothing is."""
_GRAMMAR: dict[DecimalMark, str] = {".": _grammar(r"\."), ",": _grammar(",")}

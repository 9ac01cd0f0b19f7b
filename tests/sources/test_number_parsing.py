"""Texts to numbers: the value of each one, whatever stands beside it."""

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpdist.sources.formats.number_parsing import numbers_of_texts

NUMBERS = {
    "17": 17.0,
    "-0": -0.0,
    "+5": 5.0,
    "  7.25 ": 7.25,
    "\t7 ": 7.0,
    "5.": 5.0,
    ".5": 0.5,
    "-1e3": -1000.0,
    "1E+05": 100000.0,
    "007": 7.0,
    "9007199254740991": 2.0**53 - 1,
    "1e999": math.inf,
    "1e-999": 0.0,
    "nan": math.nan,
    "-NaN": math.nan,
    "Inf": math.inf,
    "-Infinity": -math.inf,
}
NO_NUMBERS = (
    *(
        "",
        " ",
        ".",
        "-",
        "+",
        "1e",
        "e5",
        "1e+",
        "--5",
        "+-5",
        "1.5.2",
        "1,5",
        "1 000",
        "1_000",
        "0x10",
        "nan(a)",
        "infi",
        "1d5",
    ),
    *(
        "5\n",
        "5\r",
        "5\0",
        "\N{NO-BREAK SPACE}5",
        "\N{FULLWIDTH DIGIT ONE}",
        "\N{ARABIC-INDIC DIGIT ONE}",
        "\N{MINUS SIGN}5",
        "1/2",
    ),
)


def equal(found: list[float | None], expected: list[float | None]) -> bool:
    return list(map(repr, found)) == list(map(repr, expected))  # tells -0.0 from 0.0, and takes nan for nan


def python_number(text: str) -> float | None:
    """The same by Python alone."""
    trimmed = text.strip(" \t")
    if not trimmed.isascii() or "_" in trimmed or trimmed != trimmed.strip():
        return None
    try:
        return abs(float(trimmed)) if trimmed.lower().endswith("nan") else float(trimmed)
    except ValueError:
        return None


def test_numbers_and_what_is_none() -> None:
    texts = [*NUMBERS, *NO_NUMBERS, None]
    assert equal(numbers_of_texts(pa.array(texts)).to_pylist(), [*NUMBERS.values(), *[None] * (len(NO_NUMBERS) + 1)])
    assert numbers_of_texts(pa.array([], pa.string())).type == pa.float64()
    assert numbers_of_texts(pa.array(["nan(a)", "1"])).to_pylist() == [None, 1.0]  # where a cast of all finds no fault


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_types_and_chunks_of_texts(kind: pa.DataType) -> None:
    chunks = pa.chunked_array([pa.array(["1", None], kind), pa.array([], kind), pa.array(["x", "2"], kind)])
    assert numbers_of_texts(chunks).to_pylist() == [1.0, None, None, 2.0]


def test_all_short_texts_of_the_alphabet_are_what_they_are_to_python() -> None:
    texts = ["".join(text) for length in range(7) for text in itertools.product("05.-e ", repeat=length)]
    assert equal(numbers_of_texts(pa.array(texts)).to_pylist(), list(map(python_number, texts)))


@given(st.lists(st.text('0123456789.,-+eEinfa \n\0_"é', max_size=12) | st.floats().map(repr) | st.integers().map(str)))
def test_a_text_is_the_same_number_alone_and_among_others(texts: list[str]) -> None:
    found = numbers_of_texts(pa.array(texts, pa.string())).to_pylist()
    assert equal(found, list(map(python_number, texts)))
    assert equal(found, [numbers_of_texts(pa.array([text])).to_pylist()[0] for text in texts])


def test_whole_numbers_up_to_two_to_the_53_are_exact() -> None:
    numbers = [sign * (2**53 - less) for less in range(1000) for sign in (1, -1)]
    assert np.array_equal(numbers_of_texts(pa.array(map(str, numbers))).to_numpy().astype(np.int64), numbers)


def test_a_decimal_comma_leaves_the_point_no_meaning() -> None:
    texts = pa.array(["1,5", "-,5", "7", "1.5", "1.234,5", "1,5e2", "inf"])
    assert numbers_of_texts(texts, decimal=",").to_pylist() == [1.5, -0.5, 7.0, None, None, 150.0, math.inf]

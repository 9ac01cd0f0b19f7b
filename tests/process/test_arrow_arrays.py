"""Arrays of Arrow made without ``pyarrow.array``, and read without ``to_numpy``: both are what these make and read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpdist.process import arrow_arrays

TEXTS = st.lists(st.none() | st.text(max_size=4), max_size=20)


@given(TEXTS)
def test_texts_are_those_of_arrow(values: list[str | None]) -> None:
    found = arrow_arrays.texts(values)
    found.validate(full=True)
    assert found.equals(pa.array(values, pa.string()))


@given(TEXTS.filter(bool), st.data())
def test_places_are_those_in_the_dictionary(values: list[str | None], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(values)))
    encoded = pa.array(values, pa.string()).slice(start).dictionary_encode()
    names = encoded.dictionary.to_pylist()
    assert [None if place < 0 else names[place] for place in arrow_arrays.dictionary_indices(encoded)] == values[start:]


@pytest.mark.parametrize(
    "values",
    [
        np.array([], dtype=np.float64),
        np.array([True, False, True] * 7),
        np.arange(-5, 6)[::-2],
        np.array([1.5, np.nan, -np.inf]),
        np.arange(4, dtype=np.uint8),
        np.arange(6, dtype=np.float32).reshape(2, 3)[:, 1],
    ],
)
def test_numbers_are_those_of_arrow(values: NDArray[Any]) -> None:
    """With none missing, and with every second one: also where they do not lie beside each other in memory."""
    odd = np.arange(values.size) % 2 == 1
    for missing in (None, odd):
        found = arrow_arrays.numbers(values, missing=missing)
        found.validate(full=True)
        expected = pa.array(values, mask=missing)
        assert found.type == expected.type
        np.testing.assert_array_equal(found.to_numpy(zero_copy_only=False), expected.to_numpy(zero_copy_only=False))
        assert found.null_count == expected.null_count


@pytest.mark.parametrize("parts", [[], [[1.5, None, 2.5]], [[None], [], [3.0, None, float("inf")]]])
@pytest.mark.parametrize("start", [0, 1])
def test_floats_are_nan_where_one_is_missing(parts: list[list[float | None]], start: int) -> None:
    column = pa.chunked_array(parts, pa.float64()).slice(start)
    np.testing.assert_array_equal(arrow_arrays.floats_of(column), np.array(column.to_pylist(), dtype=np.float64))


def test_values_are_read_where_they_lie() -> None:
    column = pa.array(np.arange(10))
    np.testing.assert_array_equal(arrow_arrays.values_of(column.slice(3, 4)), [3, 4, 5, 6])
    assert np.shares_memory(arrow_arrays.values_of(column), np.frombuffer(column.buffers()[1], dtype=np.int64))


@pytest.mark.filterwarnings("ignore:Exporting an unversioned DLPack")  # NumPy asks a second time
def test_a_missing_value_is_no_number() -> None:
    with pytest.raises(pa.ArrowTypeError):
        arrow_arrays.values_of(pa.array([1, None]))

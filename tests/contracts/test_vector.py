"""What every vector promises: any range of it reads as the same range of the whole, in every process."""

from __future__ import annotations

import pickle
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import cloudpickle
import numpy as np
import pytest

from dpdist.arrays.lazy_vector import (
    ArrayVector,
    Constant,
    LazyVector,
    Vector,
    group_constants,
    interleave_vectors,
    least_positive,
    repeat_values,
    reverse_circle,
    scaled,
    slice_vector,
    to_array,
)
from dpdist.operators.toeplitz import PowerCoefficients
from dpdist.runtime.stored_vectors import StoredVector
from dpdist.size_limits import Sizes
from dpdist.storage.array_store import Store
from dpdist.workloads.predicates import TruthTable

VALUES = np.random.default_rng(0).integers(-9, 10, 23)


def twice(start: int, count: int, values: np.ndarray, shorter: np.ndarray) -> np.ndarray:
    assert values.shape == shorter.shape == (count,)
    return 2.0 * values + shorter + np.arange(start, start + count)


def stored(store: Store) -> Vector:
    return StoredVector(store, store.put(f"values-{VALUES.size}", VALUES))


KINDS: dict[str, tuple[Callable[[Store], Vector], np.ndarray]] = {
    "held": (lambda _: ArrayVector(VALUES), VALUES),
    "stored": (stored, VALUES),
    "computed": (
        lambda s: LazyVector(23, (stored(s), ArrayVector(VALUES[:5])), twice, 24, "twice"),
        2.0 * VALUES + np.pad(VALUES[:5], (0, 18)) + np.arange(23),
    ),
    "every third": (lambda s: slice_vector(stored(s), 2, 3, 7), VALUES[2:23:3]),
    "a part": (lambda s: slice_vector(stored(s), 4, 1, 11), VALUES[4:15]),
    "backwards": (lambda s: reverse_circle(stored(s)), np.roll(VALUES[::-1], 1)),
    "constant": (lambda _: Constant(2.5, 9), np.full(9, 2.5)),
    "blocks": (lambda _: group_constants((1.0, 2.5, -1.0), 4), np.repeat([1.0, 2.5, -1.0], 4)),
    "repeated": (lambda s: repeat_values(stored(s), 3, 2), np.tile(np.repeat(VALUES, 3), 2)),
    "interleaved": (
        lambda s: interleave_vectors(
            ((stored(s), ArrayVector(-VALUES)), (ArrayVector(VALUES + 1), ArrayVector(VALUES + 2))), 17
        ),
        np.concatenate([np.stack(pair, axis=1)[:17].ravel() for pair in ((VALUES, -VALUES), (VALUES + 1, VALUES + 2))]),
    ),
    "powers": (lambda _: PowerCoefficients(23, 0.5), np.arange(1.0, 24.0) ** -0.5),
    "truth": (lambda _: TruthTable(4, (5, 8)), np.array([x & 5 == 5 or x >= 8 for x in range(16)], dtype=float)),
    "scaled": (lambda s: scaled(stored(s), 0.3), VALUES * 0.3),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_range_is_that_of_the_whole(kind: str, tmp_path: Path) -> None:
    make, expected = KINDS[kind]
    vector = make(Store(tmp_path, Sizes(shard_bytes=8 * 5)))
    assert vector.size == expected.size
    assert vector.bytes_each >= 0
    for start in sorted({*range(0, vector.size + 1, max(1, vector.size // 24)), vector.size}):
        for stop in {*range(start, min(start + 24, vector.size) + 1), vector.size}:
            found = vector.read(start, stop)
            assert found.dtype == vector.dtype
            np.testing.assert_array_equal(found, expected[start:stop])
    np.testing.assert_array_equal(to_array(vector), expected)


LARGE = ArrayVector(np.arange(2**14))


@pytest.mark.parametrize(
    "vector",
    [
        slice_vector(LARGE, 2, 3, 5000),
        reverse_circle(LARGE),
        group_constants((1.0, 2.5, -1.0), 2**14),
        repeat_values(LARGE, 3, 2),
        interleave_vectors(((LARGE, LARGE), (LARGE,)), 2**14),
        scaled(LARGE, 0.3),
        LazyVector(2**14, (LARGE, ArrayVector(VALUES)), twice, 40, "twice"),
    ],
    ids=["slice", "circle", "groups", "repeated", "interleaved", "scaled", "computed"],
)
def test_a_range_takes_no_more_memory_than_it_says(vector: LazyVector) -> None:
    vector.read(0, 9)
    tracemalloc.start()
    try:
        vector.read(0, vector.size)
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert taken <= vector.bytes_each * vector.size + 2**13


@pytest.mark.parametrize("kind", KINDS)
def test_it_travels_and_is_told_from_others(kind: str, tmp_path: Path) -> None:
    make, expected = KINDS[kind]
    store = Store(tmp_path)
    vector = make(store)
    there: Vector = pickle.loads(cloudpickle.dumps(vector))
    np.testing.assert_array_equal(to_array(there), expected)
    assert there.digest == make(store).digest == vector.digest
    others = {name: other(store).digest for name, (other, _) in KINDS.items() if name != kind}
    assert vector.digest not in others.values()


def test_vectors_held_together_are_read_together() -> None:
    rows = np.arange(12).reshape(3, 4)
    together = ArrayVector(rows)
    assert together.size == 4
    np.testing.assert_array_equal(together.read(1, 3), rows[:, 1:3])
    padded = LazyVector(6, (together,), lambda start, count, values: values, 8)
    np.testing.assert_array_equal(padded.read(2, 6), [[2, 3, 0, 0], [6, 7, 0, 0], [10, 11, 0, 0]])
    np.testing.assert_array_equal(reverse_circle(together).read(0, 4), np.roll(rows[:, ::-1], 1, axis=1))


def test_the_smallest_positive_value() -> None:
    assert least_positive(ArrayVector(np.array([0.0, 3.0, 0.5, -1.0]))) == 0.5
    assert least_positive(ArrayVector(np.zeros(3))) == 1.0
    assert least_positive(Constant(7.0, 3)) == 7.0

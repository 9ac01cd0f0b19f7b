"""Sums of products over attributes, against the same functions written down over all cells."""

from __future__ import annotations

from functools import reduce
from itertools import combinations

import numpy as np
import pytest

from dpdist.query.linear_functions import FunctionBatch, LinearFunction, decompose_function, functionals

SHAPE = (3, 2, 4)
SETS = [axes for size in range(4) for axes in combinations(range(3), size)]


def random_function(state: np.random.Generator) -> LinearFunction:
    """Up to three products with coefficients that are not one, some of them over vectors that are constant."""
    products = []
    for _ in range(int(state.integers(0, 4))):
        axes = SETS[state.integers(len(SETS))]
        vectors = {axis: state.integers(-2, 3, SHAPE[axis]).astype(np.float64) for axis in axes}
        vectors |= {axis: np.full(SHAPE[axis], 2.0) for axis in axes if state.random() < 0.2}
        products.append((float(state.integers(2, 6)), vectors))
    return LinearFunction(tuple(products))


def dense(function: LinearFunction) -> np.ndarray:
    """The function's value in every cell."""
    total = np.zeros(SHAPE)
    for coefficient, vectors in function.products:
        total += coefficient * reduce(np.multiply.outer, [vectors.get(axis, np.ones(n)) for axis, n in enumerate(SHAPE)])
    return total


@pytest.mark.parametrize("seed", range(20))
def test_what_is_made_of_functions_is_what_is_made_of_their_values(seed: int) -> None:
    state = np.random.default_rng(seed)
    function, addend = random_function(state), random_function(state)
    values = dense(function)
    np.testing.assert_allclose(dense(function + addend), values + dense(addend))
    np.testing.assert_allclose(dense(function * 0.3), 0.3 * values)
    np.testing.assert_allclose(dense(function.simplified(SHAPE)), values, atol=1e-12)
    more = {axis: state.random(SHAPE[axis]) for axis in (0, 2)}
    np.testing.assert_allclose(dense(function.times_vectors(more)), values * more[0][:, None, None] * more[2])
    low, high = function.entry_range
    assert low <= values.min()
    assert values.max() <= high
    shares = [state.dirichlet(np.ones(n)) for n in SHAPE]
    assert function.value_on_product(shares) == pytest.approx((values * reduce(np.multiply.outer, shares)).sum())
    both = functionals([function, addend], SHAPE)
    by_product = [
        reduce(np.multiply.outer, [both.vectors[axis][k] if axis in both.vectors else np.ones(n) for axis, n in enumerate(SHAPE)])
        for k in range(both.coefficients.size)
    ]  # fmt: skip
    found = np.tensordot(both.matrix, np.array(by_product), axes=1)
    np.testing.assert_allclose(found, [values, dense(addend)], atol=1e-12)


@pytest.mark.parametrize("axes", SETS, ids=str)
def test_a_decomposed_function_is_the_function_in_few_products(axes: tuple[int, ...]) -> None:
    """Of numbers, of few different slices, and of one product."""
    state, sizes = np.random.default_rng(0), [SHAPE[axis] for axis in axes]
    product = reduce(np.multiply.outer, [state.integers(1, 4, n) for n in sizes], np.array(3.0))
    for whole, most in ((state.random(sizes), 12), (state.integers(0, 2, sizes).astype(np.float64), 12), (product, 1)):
        function = decompose_function(axes, whole)
        over = whole.reshape([n if axis in axes else 1 for axis, n in enumerate(SHAPE)])
        np.testing.assert_allclose(dense(function), np.broadcast_to(over, SHAPE), atol=1e-12)
        assert len(function.products) <= most


def test_functions_of_some_values_leave_out_all_others() -> None:
    kept = np.array([1, 3])
    batch = FunctionBatch([LinearFunction(((2.0, {2: np.array([5.0, 7.0]), 0: np.arange(3.0)}),))], {2: kept})
    (whole,) = batch.over_all_values(SHAPE).functions
    expected = np.zeros(SHAPE)
    expected[:, :, kept] = 2.0 * np.arange(3.0)[:, None, None] * np.array([5.0, 7.0])
    np.testing.assert_array_equal(dense(whole), expected)

"""Questions to measured products that cancel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpdist.arrays.lazy_vector import ArrayVector
from dpdist.query.linear_functions import LinearFunction, decompose_function, functionals
from dpdist.reconstruction.axis_factors import IdentityFactor, MatrixFactor
from dpdist.reconstruction.measured_space import Functionals, NotMeasured
from dpdist.reconstruction.product_space import ProductSpace, SpaceTerm
from tests.contracts.cases import CASES
from tests.contracts.pipeline import Pipeline


def test_no_variance_is_negative_where_products_cancel(tmp_path: Path) -> None:
    """0.1 x + 0.2 x - 0.3 x is nothing, up to what rounding leaves on either side of it."""
    planned = Pipeline(CASES["kronecker"], tmp_path, 3).plan("add-remove")
    shape = planned.workload.domain.shape
    space = planned.measurement.measured_space(ArrayVector(np.zeros(planned.measurement.rows, dtype=np.int64)), shape, 2**20)
    assert isinstance(space, ProductSpace)
    state = np.random.default_rng(0)
    shares = state.random((50, 2))
    coefficients = np.column_stack([shares, -shares.sum(axis=1)]).ravel()
    vectors = {axis: np.repeat(state.random((50, size)), 3, axis=0) for axis, size in enumerate(shape)}
    squares = space.estimate(Functionals(coefficients, np.repeat(np.arange(50), 3), vectors, 50)).squares
    alone = space.estimate(Functionals(np.ones(150), np.arange(150), vectors, 150)).squares
    assert (squares >= 0).all()
    assert squares.max() < 1e-12 * alone.min()


@pytest.mark.parametrize("times", [1e-3, 7.0])
def test_how_near_noise_is_to_one_draw_hangs_on_no_unit(times: float, tmp_path: Path) -> None:
    """An answer and many times the answer add the same draws."""
    planned = Pipeline(CASES["kronecker"], tmp_path, 3).plan("add-remove")
    shape = planned.workload.domain.shape
    space = planned.measurement.measured_space(ArrayVector(np.zeros(planned.measurement.rows, dtype=np.int64)), shape, 2**20)
    state = np.random.default_rng(0)
    vectors = {axis: state.random((20, size)) for axis, size in enumerate(shape)}
    once, often = (space.estimate(Functionals(np.full(20, each), np.arange(20), vectors, 20)) for each in (1.0, times))
    np.testing.assert_allclose(often.squares, times**2 * once.squares, rtol=1e-9)
    np.testing.assert_allclose(often.concentrations, once.concentrations, rtol=1e-9)
    assert (once.concentrations < 1).all()


SHAPE = (3, 2, 4)
SETS: tuple[tuple[int, ...], ...] = ((), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2))


@pytest.mark.parametrize("seed", range(12))
def test_tables_that_hold_each_other_are_read_by_least_squares(seed: int) -> None:
    """Of tables with weights of their own, against the pseudo-inverse of all their rows: values, covariances, and what is not known."""
    state = np.random.default_rng(seed)
    chosen = sorted(state.choice(len(SETS), size=int(state.integers(2, 7)), replace=False).tolist())
    cells, terms, rows = np.arange(np.prod(SHAPE)).reshape(SHAPE), [], []
    for axes in (SETS[i] for i in chosen):
        weight = int(state.integers(1, 9))
        terms.append(SpaceTerm(axes, tuple(IdentityFactor(SHAPE[axis]) for axis in axes), weight))
        sums = np.zeros((int(np.prod([SHAPE[axis] for axis in axes], dtype=int)), cells.size))
        where, sizes = np.unravel_index(cells.ravel(), SHAPE), [SHAPE[axis] for axis in axes]
        places = np.ravel_multi_index([where[axis] for axis in axes], sizes) if axes else 0
        sums[places, cells.ravel()] = weight
        rows.append(sums)
    strategy = np.concatenate(rows)
    measured = state.integers(-1000, 1000, len(strategy))
    space, inverse = ProductSpace(tuple(terms), SHAPE, measured), np.linalg.pinv(strategy)
    functions = [state.random([SHAPE[axis] for axis in axes]) for axes in SETS]
    known = 0
    for axes, whole in zip(SETS, functions, strict=True):
        over = whole.reshape([size if axis in axes else 1 for axis, size in enumerate(SHAPE)])
        function = np.broadcast_to(over, SHAPE).ravel()
        asked = functionals([decompose_function(axes, whole)], SHAPE)
        weights = function @ inverse
        if np.abs(weights @ strategy - function).max() > 1e-9:
            with pytest.raises(NotMeasured):
                space.estimate(asked)
            continue
        known += 1
        found = space.estimate(asked)
        np.testing.assert_allclose(found.values, weights @ measured, rtol=1e-9)
        np.testing.assert_allclose(found.squares, weights @ weights, rtol=1e-9)
        np.testing.assert_allclose(space.gram(asked), [[weights @ weights]], rtol=1e-9)
        assert found.concentrations >= (weights**4).sum() / (weights @ weights) ** 2 * (1 - 1e-9)
    assert known > 0


def independent_rows(state: np.random.Generator, values: int, *, zero_sum: bool) -> np.ndarray:
    """Some rows of whole numbers over the values of an attribute, none of which the others give."""
    most = values - 1 if zero_sum else values
    rows = state.integers(-3, 4, (int(state.integers(1, most + 1)), most))
    rows[:, : len(rows)] += 7 * np.eye(len(rows), dtype=np.int64)
    return np.asarray(
        rows @ (np.eye(values, dtype=np.int64)[:-1] - np.eye(values, k=1, dtype=np.int64)[:-1]) if zero_sum else rows
    )


@pytest.mark.parametrize("several", [False, True], ids=["one term", "several terms"])
@pytest.mark.parametrize("seed", range(6))
def test_rows_that_lack_some_functions_give_the_others_by_least_squares(seed: int, several: bool) -> None:
    """Products of functions of single attributes, inside of the rows and outside: the values, variances and covariances of all rows, or a
    refusal."""
    state, shape = np.random.default_rng(seed), (4, 3)
    factors = [independent_rows(state, size, zero_sum=several) for size in shape]
    terms, rows = [], []
    for axes in ((), (0,), (1,), (0, 1)) if several else ((0, 1),):
        weight = int(state.integers(1, 5))
        terms.append(SpaceTerm(axes, tuple(MatrixFactor(factors[axis]) for axis in axes), weight))
        rows.append(weight * np.kron(*(factors[axis] if axis in axes else np.ones((1, shape[axis])) for axis in (0, 1))))
    strategy = np.concatenate(rows)
    measured, inverse = state.integers(-1000, 1000, len(strategy)), np.linalg.pinv(strategy)
    space, answered = ProductSpace(tuple(terms), shape, measured), 0
    for _ in range(20):
        vectors = {
            axis: state.random(len(factor)) @ factor + several * state.random()
            if state.random() < 0.8
            else state.random(shape[axis])
            for axis, factor in enumerate(factors)
        }
        function, question = np.kron(vectors[0], vectors[1]), functionals([LinearFunction(((1.0, vectors),))], shape)
        weights = function @ inverse
        if np.abs(weights @ strategy - function).max() > 1e-9 * np.abs(function).max():
            for ask in (space.estimate, space.gram):
                with pytest.raises(NotMeasured):
                    ask(question)
            continue
        answered += 1
        reading = space.estimate(question)
        np.testing.assert_allclose(reading.values, weights @ measured, rtol=1e-6, atol=1e-6 * np.abs(measured).max())
        np.testing.assert_allclose([reading.squares, space.gram(question)[0]], weights @ weights, rtol=1e-6)
    assert answered


def test_cells_of_some_values_say_the_same_of_these_alone() -> None:
    """One table of all cells: values, variances and covariances of functions of two of its values; other spaces need all cells."""
    state = np.random.default_rng(1)
    term = SpaceTerm((0, 2), (IdentityFactor(6), IdentityFactor(4)), 3, 1)
    space, few = ProductSpace((term,), (6, 2, 4), state.integers(-9, 9, 24)), np.array([1, 4])
    vectors = {0: np.zeros((5, 6)), 1: np.ones((5, 2)), 2: state.random((5, 4))}
    vectors[0][:, few] = state.random((5, 2))
    index = np.array([0, 0, 1, 2, 2])
    part = space.over_values({0: few})
    assert part is not None
    asked, of_few = (
        Functionals(np.ones(5), index, {**vectors, 0: over_first}, 3) for over_first in (vectors[0], vectors[0][:, few])
    )
    whole, found = space.estimate(asked), part.estimate(of_few)
    for name in ("values", "squares", "concentrations"):
        np.testing.assert_allclose(getattr(found, name), getattr(whole, name), rtol=1e-12)
    np.testing.assert_allclose(part.gram(of_few), space.gram(asked), rtol=1e-12)
    assert space.over_values({1: np.array([0])}) is None
    differences = replace(
        term, factors=(MatrixFactor(np.eye(6, dtype=np.int64) - np.eye(6, k=1, dtype=np.int64)), IdentityFactor(4))
    )
    assert ProductSpace((differences,), (6, 2, 4), space.values).over_values({0: few}) is None
    for separate in (False, True):
        two = ProductSpace((term, SpaceTerm((0,), (IdentityFactor(6),))), (6, 2, 4), np.arange(30), separate=separate)
        assert two.over_values({0: few}) is None

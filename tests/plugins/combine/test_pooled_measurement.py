"""Least squares over several measurements, against normal equations that are written down over all cells."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from dpdist.errors import InvalidInput, OutOfMemory
from dpdist.operators import AllRanges, Dense, Identity, Matrix, Padded, Prefix, Total
from dpdist.plugins.combine import pooled_measurement
from dpdist.plugins.combine.independent_terms import IndependentTerm, independent_terms
from dpdist.plugins.combine.pooled_measurement import PooledMeasurement, pool
from dpdist.reconstruction.axis_factors import IdentityFactor
from dpdist.reconstruction.measured_space import NotMeasured
from dpdist.reconstruction.product_space import ProductSpace, SpaceTerm
from dpdist.workloads import Block

SHAPE = (4, 3, 5)
BLOCKS = (
    Block("first by third", (0, 2), (Identity(4), Prefix(5)), ((), ())),
    Block("third by first", (2, 0), (Padded(Identity(4), 1), Identity(4)), ((), ())),
    Block("all", (1,), (Total(3),), ((),)),
    Block("second by third", (1, 2), (Identity(3), AllRanges(5)), ((), ())),
)
JOINT = Block("a condition", (0, 1), (Dense(np.arange(24.0).reshape(2, 12) % 5),), ((),))
CENTRED = np.eye(4) - 0.25
STEPS = np.tril(np.ones((5, 5)))
PARTS = np.array([[1.0, 1, 0, 0, 0], [0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])


def noisy_terms(seed: int, *, tables: bool) -> tuple[list[IndependentTerm], Matrix, Matrix]:
    """Terms, with their rows over all cells divided by the noise, and the true cells."""
    state = np.random.default_rng(seed)
    truth = state.integers(0, 50, SHAPE).astype(float)
    planned: list[tuple[tuple[int, ...], tuple[Matrix | None, ...], float]] = [
        ((0, 2), (None, None), 2.0),
        ((0, 1), (None, None), 1.0),
        ((0,), (CENTRED,), 0.5),
        ((1, 2), (None, None), 3.0),
    ]
    if not tables:
        planned += [
            ((1, 2), (None, STEPS), 1.5),
            ((2,), (PARTS,), 0.7),
            ((0, 1), (state.integers(0, 2, (6, 12)) + 0.0,), 1.1),
        ]
    terms, weighted_rows = [], []
    for axes, factors, deviation in planned:
        if len(factors) == len(axes):
            by_axis = dict(zip(axes, factors, strict=True))
            rows: Matrix = np.ones((1, 1))
            for axis, size in enumerate(SHAPE):
                factor = by_axis.get(axis, np.ones((1, size)))
                rows = np.kron(rows, np.eye(size) if factor is None else factor)
        else:
            joint = factors[0]
            assert joint is not None
            rows = np.repeat(joint, SHAPE[2], axis=1)  # the joint rows are over the first two attributes
        values = rows @ truth.ravel() + deviation * state.normal(size=len(rows))
        terms.append(IndependentTerm(axes, factors, values, deviation))
        weighted_rows.append(np.column_stack([rows, values]) / deviation)
    stacked = np.concatenate(weighted_rows)
    return terms, stacked, truth


@pytest.mark.parametrize("tables", [True, False])
def test_estimates_and_covariances_are_those_of_least_squares(*, tables: bool) -> None:
    terms, stacked, _ = noisy_terms(1, tables=tables)
    blocks = BLOCKS if tables else (*BLOCKS, JOINT)
    pooled = pool(SHAPE, terms, blocks)
    assert pooled.dense == (() if tables else (0, 1, 2))
    rows, values = stacked[:, :-1], stacked[:, -1]
    inverse = np.linalg.pinv(rows)
    queries = np.concatenate([block.operator(SHAPE).dense() for block in blocks]) @ inverse
    answers, variances = (np.concatenate(column) for column in zip(*map(pooled.estimate, blocks), strict=True))
    assert answers == pytest.approx(queries @ values, rel=1e-9)
    assert variances == pytest.approx((queries**2).sum(axis=1), rel=1e-9)
    assert pooled.covariance(blocks) == pytest.approx(queries @ queries.T, rel=1e-8, abs=1e-9)
    residual = values - rows @ (inverse @ values)
    assert pooled.disagreement == pytest.approx(residual @ residual, rel=1e-6)
    assert pooled.freedom == len(rows) - np.linalg.matrix_rank(rows)


def test_one_attribute_of_steps_is_put_together_alone() -> None:
    terms, stacked, _ = noisy_terms(2, tables=True)
    series = IndependentTerm((1, 2), (None, STEPS), np.arange(15.0), 1.5)
    pooled = pool(SHAPE, [*terms, series])
    assert pooled.dense == (2,)
    rows = np.kron(np.ones((1, 4)), np.kron(np.eye(3), STEPS)) / 1.5
    inverse = np.linalg.pinv(np.concatenate([stacked[:, :-1], rows]))
    values = np.concatenate([stacked[:, -1], series.values / 1.5])
    for block in BLOCKS:
        queries = block.operator(SHAPE).dense() @ inverse
        answers, variances = pooled.estimate(block)
        assert answers == pytest.approx(queries @ values, rel=1e-9)
        assert variances == pytest.approx((queries**2).sum(axis=1), rel=1e-9)


def test_what_is_written_down_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    series = IndependentTerm((0,), (STEPS,), np.arange(5.0), 1.0)
    steps = Block("steps", (0,), (Identity(5),), ((),))
    monkeypatch.setattr(pooled_measurement, "MOST_DENSE_VALUES", 5)
    monkeypatch.setattr(pooled_measurement, "MOST_COVARIANCES", 5)
    assert pool((5,), [series]).covariance([steps]).shape == (5, 5)
    monkeypatch.setattr(pooled_measurement, "MOST_COVARIANCES", 4)
    with pytest.raises(InvalidInput, match="covariances of 5 queries; at most 4 are written down"):
        pool((5,), [series]).covariance([steps])
    monkeypatch.setattr(pooled_measurement, "MOST_DENSE_VALUES", 4)
    with pytest.raises(InvalidInput, match="5 values together; at most 4 are written down"):
        pool((5,), [series])


def test_what_was_not_measured_is_refused() -> None:
    terms, _, _ = noisy_terms(3, tables=True)
    whole = Block("all three", (0, 1, 2), (Identity(4), Identity(3), Identity(5)), ((), (), ()))
    with pytest.raises(NotMeasured):
        pool(SHAPE, terms).estimate(whole)
    coarse = IndependentTerm((2,), (PARTS,), np.array([1.0, 2.0, 3.0]), 1.0)
    pooled = pool(SHAPE, [coarse])
    assert pooled.estimate(Block("two", (2,), (Dense(PARTS[:2]),), ((),)))[0].size == 2
    with pytest.raises(NotMeasured):
        pooled.estimate(Block("five", (2,), (Identity(5),), ((),)))
    with pytest.raises(InvalidInput, match="4,096 are written down"):
        pool((5000,), [IndependentTerm((0,), (np.tril(np.ones((2, 5000))),), np.zeros(2), 1.0)])


class InRounds(ProductSpace):
    rows_depend_on_noise = True


def test_tables_that_were_chosen_in_rounds_are_not_joined() -> None:
    """Which tables there are depends on the noise of those before: what they say together is biased. The same tables by plan are joined."""
    terms = tuple(SpaceTerm((axis,), (IdentityFactor(SHAPE[axis]),)) for axis in (0, 1))
    values = np.arange(SHAPE[0] + SHAPE[1])
    assert len(independent_terms(ProductSpace(terms, SHAPE, values), (0, 1, 2), 1.0)) == 2
    with pytest.raises(InvalidInput, match="chosen in rounds"):
        independent_terms(InRounds(terms, SHAPE, values), (0, 1, 2), 1.0)


def test_measurements_of_other_records_disagree() -> None:
    terms, _, _ = noisy_terms(4, tables=True)
    pool(SHAPE, terms).check_agreement()
    moved = terms[1].values.copy()
    moved[3] += 15.0
    with pytest.raises(InvalidInput, match="different records"):
        pool(SHAPE, [terms[0], IndependentTerm((0, 1), (None, None), moved, 1.0), *terms[2:]]).check_agreement()


def test_the_planned_memory_is_an_upper_bound_and_is_refused_before_anything_is_computed() -> None:
    """Of what all tables over three attributes take, measured twice, with their answers; the refusal itself takes nothing."""
    shape, state = (60, 50, 40), np.random.default_rng(1)
    families = [(0, 1, 2), (0, 1), (1, 2), (0, 2), (0,), (1,), (2,)]
    blocks = [
        Block(str(axes), axes, tuple(Identity(shape[axis]) for axis in axes), tuple(() for _ in axes)) for axes in families
    ]

    def terms() -> list[IndependentTerm]:
        sizes = (np.prod([shape[axis] for axis in axes]) for axes in families)
        return [
            IndependentTerm(axes, (None,) * len(axes), state.normal(size=int(size)), 1.0)
            for axes, size in zip(families, sizes, strict=True)
        ]

    values = sum(block.queries for block in blocks)
    planned = pooled_measurement.pooled_bytes(2 * values, values, parts=8)
    tracemalloc.start()
    try:
        pooled = pool(shape, [*terms(), *terms()], blocks, memory_bytes=planned)
        answers = [pooled.estimate(block) for block in blocks]
        peak = tracemalloc.get_traced_memory()[1]
        assert len(answers) == len(blocks)
        assert 0.3 * planned < peak <= planned
        measured = [*terms(), *terms()]
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        with pytest.raises(OutOfMemory, match="joining measurements needs"):
            pool(shape, measured, blocks, memory_bytes=planned - 1)
        assert tracemalloc.get_traced_memory()[1] - before < values
    finally:
        tracemalloc.stop()


def test_the_planned_memory_covers_attributes_that_are_put_together() -> None:
    """Prefix sums over 300 steps, whose normal equations are written down."""
    steps, state = 300, np.random.default_rng(2)
    sums = np.tril(np.ones((steps, steps)))
    terms = [IndependentTerm((0, 1), (sums, None), state.normal(size=steps * 4), 1.0) for _ in range(2)]
    block = Block("sums", (0, 1), (Prefix(steps), Identity(4)), ((), ()))
    planned = pooled_measurement.pooled_bytes(2 * steps * 4, steps * 4, parts=2, dense_values=steps)
    tracemalloc.start()
    try:
        pool((steps, 4), terms, [block], memory_bytes=planned).estimate(block)
        assert 0.3 * planned < tracemalloc.get_traced_memory()[1] <= planned
    finally:
        tracemalloc.stop()


def test_a_large_table_is_never_put_together() -> None:
    """A table of 10^5 cells and its margins: estimates need as many numbers as there are cells."""
    shape = (400, 250)
    state = np.random.default_rng(5)
    table = IndependentTerm((0, 1), (None, None), state.normal(size=100_000), 1.0)
    margin = IndependentTerm((0,), (None,), state.normal(size=400), 1.0)
    pooled: PooledMeasurement = pool(shape, [table, margin])
    answers, variances = pooled.estimate(Block("first", (0,), (Identity(400),), ((),)))
    sums = table.values.reshape(shape).sum(axis=1)
    assert answers == pytest.approx((sums / 250 + margin.values) / (1 / 250 + 1), rel=1e-6, abs=1e-9)
    assert variances == pytest.approx(np.full(400, 250 / 251))

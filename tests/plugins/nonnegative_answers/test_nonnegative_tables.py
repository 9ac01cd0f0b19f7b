"""Fitted tables: the closest ones by slow oracles, never worse for any data, and read alike however they are held."""

from __future__ import annotations

import itertools
import math
import tracemalloc

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from dpdist.arrays.lazy_vector import ArrayVector, to_array
from dpdist.operators import Groups, Identity, Padded, Prefix, Total
from dpdist.plugins.nonnegative_answers import nonnegative_tables, table_fitting
from dpdist.plugins.nonnegative_answers.nonnegative_tables import TableFamily, fit_tables, threshold
from dpdist.plugins.nonnegative_answers.table_fitting import classify_block, fit_answers, fit_together, query_groups
from dpdist.reconstruction.answer_vectors import AnswerRequest, Answers
from dpdist.workloads import Block, Workload, explicit, marginals, random_ranges, union

SHAPE = (3, 2, 4)
WAYS: list[tuple[int, ...]] = [(0, 1), (1, 2), (0, 2)]
NESTED: list[tuple[int, ...]] = [(), (0,), (0, 1), (1, 2)]


def family(axes: list[tuple[int, ...]] = WAYS, weights: tuple[float, ...] | None = None) -> TableFamily:
    return TableFamily(tuple(axes), SHAPE, weights or (1.0,) * len(axes))


def sums(axes: tuple[int, ...], cells: np.ndarray) -> np.ndarray:
    """The table of some attributes."""
    return np.asarray(cells.sum(axis=tuple(axis for axis in range(3) if axis not in axes)))


def tables(kind: TableFamily, cells: np.ndarray) -> list[np.ndarray]:
    return [sums(axes, cells) for axes in kind.axes]


def flat(found: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.ravel(table) for table in found])


def weights_of(kind: TableFamily) -> np.ndarray:
    return np.concatenate([np.full(kind.size(axes), w) for axes, w in zip(kind.axes, kind.weights, strict=True)])


def noisy(kind: TableFamily, cells: np.ndarray, scale: float, seed: int) -> list[np.ndarray]:
    """Tables with noise of their own each, which do not agree."""
    state = np.random.default_rng(seed)
    return [table + scale * state.standard_normal(np.shape(table)) for table in tables(kind, cells)]


def test_thresholds_by_hand_and_by_sorting() -> None:
    assert threshold(np.array([5.0, 3.0, 1.0]), 4.0) == 2.0
    assert threshold(np.array([7.0]), 3.0, start=100.0) == 4.0
    state = np.random.default_rng(0)
    for start in (None, -50.0, 3.0, 500.0):
        values = state.standard_normal(200) * 30
        ordered = np.sort(values)[::-1]
        means = (np.cumsum(ordered) - 40.0) / np.arange(1, 201)
        expected = means[np.flatnonzero(ordered > means)[-1]]
        assert threshold(values, 40.0, start) == pytest.approx(expected)


@pytest.mark.parametrize("kind", [family(), family(NESTED, (9.0, 0.5, 2.0, 1.0)), family([(0, 1), (0, 1)])])
def test_agreeing_tables_are_the_projection(kind: TableFamily) -> None:
    """Against dense weighted least squares over all cells."""
    cells = np.eye(24).reshape(24, *SHAPE)
    dense = np.array([flat(tables(kind, each)) for each in cells]).T
    given_ = noisy(kind, np.random.default_rng(3).poisson(4.0, SHAPE).astype(float), 5.0, 4)
    root = np.sqrt(weights_of(kind))
    expected = dense @ np.linalg.lstsq(root[:, None] * dense, root * flat(given_), rcond=None)[0]
    np.testing.assert_allclose(flat(kind.consistent(given_)), expected, atol=1e-9)


@pytest.mark.parametrize("kind", [family(), family(NESTED, (9.0, 0.5, 2.0, 1.0))])
def test_the_nearest_tables_against_a_general_solver(kind: TableFamily) -> None:
    truth = np.zeros(SHAPE)
    truth[0, 0, 1], truth[2, 1, 3] = 30.0, 12.0
    given_ = noisy(kind, truth, 6.0, 7)
    dense = np.array([flat(tables(kind, each)) for each in np.eye(24).reshape(24, *SHAPE)]).T
    y, w = flat(given_), weights_of(kind)
    first = kind.consistent(given_)
    solved = scipy.optimize.minimize(
        lambda x: float((w * (dense @ x - y) ** 2).sum()),
        np.full(24, 42.0 / 24),
        jac=lambda x: 2 * dense.T @ (w * (dense @ x - y)),
        constraints=[
            {"type": "ineq", "fun": lambda x: dense @ x, "jac": lambda x: dense},
            {"type": "eq", "fun": lambda x: x.sum() - 42.0, "jac": lambda x: np.ones(24)},
        ],
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-12},
    )
    found = fit_tables(kind, given_, 42.0, 1e-6)
    assert found.distance <= 1e-6
    assert all((table >= 0).all() for table in found.tables)
    assert min(table.min() for table in first) < -1  # there was something to do
    np.testing.assert_allclose(flat(found.tables), dense @ solved.x, atol=0.01)


cells_ = st.lists(st.integers(0, 3), min_size=24, max_size=24).map(
    lambda each: np.array(each, dtype=float).reshape(SHAPE) ** 3
)


@given(cells_, st.sampled_from([family(), family(NESTED, (9.0, 0.5, 2.0, 1.0))]), st.floats(0.1, 50), st.integers(0, 10**6))
def test_fitted_tables_are_never_worse(cells: np.ndarray, kind: TableFamily, scale: float, seed: int) -> None:
    """For any data and noise: given the number of records, without exception; where it is estimated, but for its own error."""
    given_, truth, w = noisy(kind, cells, scale, seed), flat(tables(kind, cells)), weights_of(kind)

    def squared(found: list[np.ndarray]) -> float:
        return float((w * (flat(found) - truth) ** 2).sum())

    total, before = float(cells.sum()), squared(given_)
    slack = 1e-5 * (before + 1)
    assert squared(fit_tables(kind, given_, total, 1e-7).tables) <= before + slack
    if total > 0:
        estimated = max(kind.total(given_), 0.0)
        more = (estimated / total - 1) ** 2 * float((w * truth**2).sum())
        assert squared(fit_tables(kind, given_, estimated, 1e-7).tables) <= before + more + slack


def test_momentum_saves_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    truth = np.zeros(SHAPE)
    truth[0, 0, 1] = 300.0
    given_ = noisy(family(), truth, 40.0, 1)
    fast = fit_tables(family(), given_, 300.0, 1e-4)
    monkeypatch.setattr(nonnegative_tables, "_moved_uphill", lambda *_: True)
    slow = fit_tables(family(), given_, 300.0, 1e-4)
    assert fast.rounds < slow.rounds
    np.testing.assert_allclose(flat(fast.tables), flat(slow.tables), atol=0.01)


def test_without_records_all_cells_are_empty() -> None:
    found = fit_tables(family(), noisy(family(), np.zeros(SHAPE), 5.0, 2), -3.0, 1e-4)
    assert not flat(found.tables).any()


LEVEL = Block("level", (0, 1), (Groups(np.array([0, 0, 1]), 2), Identity(2)), (("x", "y"), ("a", "b")))


def test_kinds_of_groups() -> None:
    kinds = {
        "table": [Block("t", (0, 2), (Identity(3), Identity(4)), ((), ())), Block("all", (1,), (Total(2),), ((),))],
        "parts": [LEVEL, Block("shown", (2,), (Padded(Identity(3), 1),), ((),))],
        "counts": [Block("cdf", (2,), (Prefix(4),), ((),)), *random_ranges(4, 6, seed=0).blocks],
        "any": [*explicit(np.array([[1.0, -1.0, 0.0, 2.0]])).blocks],
    }
    for kind, blocks in kinds.items():
        assert [classify_block(block) for block in blocks] == [kind] * len(blocks)


def answers(workload: Workload, seed: int = 0) -> tuple[np.ndarray, Answers]:
    """True and unbiased answers of few records."""
    state = np.random.default_rng(seed)
    truth = workload.unweighted.matvec(state.poisson(0.5, workload.shape[1]).astype(float))
    errors = np.full(truth.size, 4.0)
    return truth, Answers(
        ArrayVector(truth + 4 * state.standard_normal(truth.size)), ArrayVector(errors), ArrayVector(1.96 * errors)
    )


def test_weighted_tables_far_from_zero_are_fitted_by_weighted_least_squares() -> None:
    """The weights of groups multiply their errors, so that their squares count."""
    workload = union(marginals(SHAPE, 1), marginals(SHAPE, 2), weights=(3.0, 0.5))
    queries = workload.unweighted.dense()
    y = queries @ np.full(queries.shape[1], 1000.0) + np.random.default_rng(0).standard_normal(len(queries))
    ones = np.ones(len(y))
    done = fit_answers(
        workload,
        Answers(ArrayVector(y), ArrayVector(ones), ArrayVector(ones)),
        None,
        None,
        AnswerRequest("x"),
        0,
    )
    weights = np.concatenate([np.full(block.queries, block.weight) for block in workload.blocks])
    cells = np.linalg.lstsq(weights[:, None] * queries, weights * y, rcond=1e-10)[0]
    np.testing.assert_allclose(to_array(done.answer), queries @ cells, rtol=1e-9)


@pytest.mark.parametrize("records", [None, 14.0])
def test_groups_by_themselves_and_together_are_fitted_alike(records: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A single table, a level, and sums of cells: by thresholds over stored answers, and in memory."""
    domain = marginals(SHAPE, 1).domain
    workload = Workload(domain, (*marginals(SHAPE, 3).blocks[:1], LEVEL, Block("cdf", (2,), (Prefix(4),), (("",) * 4,))))
    _, unbiased = answers(workload)
    made = []
    for most in (table_fitting.MAX_IN_MEMORY, 1):
        monkeypatch.setattr(table_fitting, "MAX_IN_MEMORY", most)
        done = fit_answers(workload, unbiased, records, None, AnswerRequest("x"), 0)
        made.append(to_array(done.answer))
    np.testing.assert_allclose(*made, atol=1e-9)
    assert (made[0] >= 0).all()
    total = 14.0 if records else max(float(to_array(unbiased.answer)[:24].sum()), 0.0)
    assert made[0][:24].sum() == pytest.approx(total)


@pytest.mark.parametrize("most", [table_fitting.MAX_IN_MEMORY, 1])
def test_groups_of_fewer_records_are_not_raised_to_all(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a group shows some of the values alone, nobody knows how many records it holds; a table holds all of them."""
    monkeypatch.setattr(table_fitting, "MAX_IN_MEMORY", most)
    shown = Block("shown", (2,), (Padded(Identity(3), 1),), (("a", "b", "c"),))
    workload = Workload(marginals(SHAPE, 1).domain, (*marginals(SHAPE, 3).blocks[:1], LEVEL, shown))
    _, unbiased = answers(workload)
    given = to_array(unbiased.answer)
    for records in (5.0, 1000.0):
        done = to_array(fit_answers(workload, unbiased, records, None, AnswerRequest("x"), 0).answer)
        for part in query_groups(workload):
            own, before = done[part.start : part.stop], given[part.start : part.stop]
            total = records if part.kind == "table" else min(records, max(before.sum(), 0.0))
            assert own.sum() == pytest.approx(total), (part.name, records)


SIGNED = explicit(np.array([[1.0, -1.0, 0.0, 2.0], [-1.0, -1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]]))
"""Differences, which may be below zero, and a count."""


@pytest.mark.parametrize("value", [-100.0, -3.0, 0.0, 3.0, 100.0])
def test_answers_that_may_be_negative_and_their_intervals_are_left_as_they_are(value: float) -> None:
    given, errors = np.full(SIGNED.shape[0], value), np.full(SIGNED.shape[0], 4.0)
    unbiased = Answers(ArrayVector(given), ArrayVector(errors), ArrayVector(1.96 * errors))
    assert {part.kind for part in query_groups(SIGNED)} == {"any"}
    done = fit_answers(SIGNED, unbiased, None, None, AnswerRequest("x"), 0)
    np.testing.assert_array_equal(to_array(done.answer), given)
    np.testing.assert_allclose(to_array(done.half_width), to_array(unbiased.half_width), rtol=1e-12)


def test_intervals_hold_those_of_the_unbiased_answers() -> None:
    workload = marginals((5, 4), 2)
    truth, unbiased = answers(workload, 3)
    done = fit_answers(workload, unbiased, None, None, AnswerRequest("x"), 0)
    fitted, half = to_array(done.answer), to_array(done.half_width)
    low, high = (np.maximum(to_array(unbiased.answer) + side * to_array(unbiased.half_width), 0) for side in (-1, 1))
    assert (fitted - half <= low).all()
    assert (fitted + half >= high).all()
    inside = np.abs(truth - to_array(unbiased.answer)) <= to_array(unbiased.half_width)
    assert (np.abs(truth - fitted) <= half)[inside].all()


def test_the_effect_is_simulated_from_a_public_seed() -> None:
    workload = marginals((5, 4), 2)
    _, unbiased = answers(workload, 3)

    def simulate(true: np.ndarray, state: np.random.RandomState) -> np.ndarray:
        return np.asarray(true + 4 * state.standard_normal(true.size))

    first, second = (fit_answers(workload, unbiased, None, simulate, AnswerRequest("x"), seed).effect for seed in (1, 2))
    assert first is not None
    assert first.total is not None
    assert second is not None
    assert second.total is not None
    assert first != second
    assert 0 < first.total.ratio < 0.8
    assert abs(first.total.ratio - second.total.ratio) < 6 * math.hypot(first.total.error, second.total.error)


def test_the_tables_of_a_workload_are_found() -> None:
    workload = marginals(SHAPE, 2)
    assert [part.axes for part in query_groups(workload)] == list(itertools.combinations(range(3), 2))
    values = workload.unweighted.matvec(np.arange(24.0))
    np.testing.assert_allclose(fit_together(query_groups(workload), SHAPE, None, 1e-9, values)[0], values, atol=1e-6)


def test_fitting_together_takes_the_memory_that_is_planned() -> None:
    workload = marginals((300, 200, 100), 2)
    values = np.random.default_rng(2).standard_normal(workload.shape[0]) * 20
    tracemalloc.start()
    fit_together(query_groups(workload), (300, 200, 100), 1000.0, 1.0, values)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert values.nbytes * 8 < peak < values.nbytes * table_fitting.COPIES


def test_variances_of_tables_that_agree_are_those_of_their_noise() -> None:
    """By simulation, within five standard deviations; of sums of cells, too. Weights twice as large are found."""
    axes, shape, weights, draws = ((0,), (1,), (0, 1), (1, 2)), (3, 4, 2), (1.0, 0.25, 0.5, 4.0), 3000
    family, state = TableFamily(axes, shape, weights), np.random.default_rng(6)
    made: list[list[np.ndarray]] = []
    for _ in range(draws):
        noise = [state.normal(size=[shape[axis] for axis in each]) / w**0.5 for each, w in zip(axes, weights, strict=True)]
        made.append(family.consistent(noise))
    for place, each in enumerate(axes):
        found = np.mean([np.square(tables[place]).mean() for tables in made]) / family.variance(each)
        assert abs(found - 1) < 5 * (2 / draws) ** 0.5
        assert abs(2 * found - 1) > 5 * (2 / draws) ** 0.5
    two, whole = (np.mean([tables[1][:cells].sum() ** 2 for tables in made]) for cells in (2, 4))
    assert two / family.variance((1,), np.array([2.0]))[0] == pytest.approx(1, abs=5 * (2 / draws) ** 0.5)
    assert whole / family.variance(()) == pytest.approx(1, abs=5 * (2 / draws) ** 0.5)

"""DenseGrid, sensitivity, reconstruction; the statistical test's error rate is 1e-9, a scale off by 10 % misses by far more."""

from __future__ import annotations

import hashlib
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from dpdist.arrays.lazy_vector import ArrayVector, Constant, to_array
from dpdist.content.release_content import decimals_of
from dpdist.domain import Attribute, Domain
from dpdist.errors import InvalidInput
from dpdist.measurement.dense_measurement import COMPLETION, COMPLETION_L1, DenseMeasurement, complete_rank
from dpdist.measurement.integer_measurement import Norm
from dpdist.measurement.sensitivity.column_norms import l1_sensitivity, sensitivity_squared
from dpdist.operators import Identity, Prefix, Total
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import GAUSSIAN, LAPLACE
from dpdist.reconstruction.answer_vectors import AnswerRequest
from dpdist.size_limits import Sizes
from dpdist.stability import Distance
from dpdist.strategies import Strategy, coa, gaussian, hierarchical, identity, laplace, wavelet
from dpdist.strategies.representations import DenseStrategy
from dpdist.workloads import Workload, explicit, marginals, predicates, prefix, union
from dpdist.workloads.range_workloads import cdf
from tests.support.complete_tree import installed_strategies
from tests.support.measurement_readers import reader_of
from tests.support.oracles import brute_force_sensitivity

DOMAIN = Domain(
    (
        Attribute("age", edges=tuple(range(6))),
        Attribute("sex", categories=("m", "f")),
        Attribute("work", categories=("a", "b", "c")),
    )
)
MIXED = union(
    marginals(DOMAIN, (1, 2)),
    cdf(DOMAIN, "age", ("sex",)),
    predicates(DOMAIN, ["sex == 'm' or work == 'a'"]),
    weights=(1.0, 2.0, 0.5),
)
REAL = explicit(np.random.default_rng(5).standard_normal((4, 6)))


BUILD: dict[str, Callable[[Workload], Strategy]] = {
    "coa": coa,
    "identity": lambda w: identity(w.shape[1], w),
    "gaussian": gaussian,
    "wavelet": lambda w: wavelet(w.domain.shape, w),
    "hierarchical": lambda w: hierarchical(w.domain.shape, w),
    "identity, L1": lambda w: identity(w.shape[1], w, norm="l1"),
    "laplace": laplace,
    "wavelet, L1": lambda w: wavelet(w.domain.shape, w, norm="l1"),
    "hierarchical, L1": lambda w: hierarchical(w.domain.shape, w, branching=3, norm="l1"),
}
for low_rank in installed_strategies("low_rank").values():
    BUILD |= {"low rank": low_rank, "low rank, L1": partial(low_rank, norm="l1")}


def unit_noise(grid: DenseMeasurement) -> Noise:
    """Noise of multiplier 1: its scale is the sensitivity itself."""
    return Noise(LAPLACE if grid.norm == "l1" else GAUSSIAN, round(grid.sensitivity))


@pytest.mark.parametrize("workload", [MIXED, REAL, prefix(7)], ids=["mixed", "real", "prefix"])
@pytest.mark.parametrize("name", BUILD)
def test_without_noise_answers_are_true_and_predicted_cost_is_kept(workload: Workload, name: str) -> None:
    strategy = BUILD[name](workload)
    grid = strategy.measurement(workload, neighbours="add-remove", most_records=1)
    reader = reader_of(workload, grid, direct=(not strategy.consistent))
    x = np.random.default_rng(0).integers(0, 1000, workload.shape[1])
    z = grid.apply(grid.base.matvec(x))
    assert z.dtype == np.int64
    answers, errors, _ = reader.answers(0, workload.shape[0], reader.estimate(z), unit_noise(grid))
    slack = 2e-5 if (not strategy.consistent) and not workload.unweighted.integral else 1e-8
    np.testing.assert_allclose(answers, workload.unweighted.matvec(x), atol=slack, rtol=1e-10)
    cost = float((errors**2 * workload.weights**2).sum())
    deficient = name == "low rank, L1" and workload is REAL  # completed: see COMPLETION_L1
    assert cost == pytest.approx(strategy.workload_cost, rel=5e-6 if deficient else 1e-6)
    assert strategy.cost(workload) == pytest.approx(strategy.workload_cost, rel=1e-6)
    half = workload.shape[0] // 2
    part, _, _ = reader.answers(half, workload.shape[0], reader.estimate(z), unit_noise(grid))
    np.testing.assert_allclose(part, answers[half:], rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("name", ["gaussian", "laplace"])
def test_means_of_windows_that_are_measured_one_by_one_are_no_rounding_away(name: str) -> None:
    """A coefficient of 1/300 is rounded by a ten-millionth of itself: it is none of the records that are counted."""
    windows = explicit(np.array([np.roll([1 / 300] * 300 + [0.0] * 30, lag) for lag in range(30)]))
    grid = BUILD[name](windows).measurement(windows, neighbours="add-remove", most_records=1)
    x = np.random.default_rng(3).integers(0, 10**7, 330)
    kind = LAPLACE if name == "laplace" else GAUSSIAN
    measured = ArrayVector(np.asarray(grid.mixing) @ x)
    answers = grid.answers(windows, measured, Noise(kind, 2**30), AnswerRequest("answers"))
    np.testing.assert_allclose(to_array(answers.answer), windows.unweighted.dense() @ x, rtol=1e-12)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("name", BUILD)
def test_sensitivity_against_every_pair_of_neighbours(neighbours: str, most: int, name: str) -> None:
    for workload in (prefix(4), explicit(np.array([[1, -1, 0, 2], [0, 3, 0, -1]])), marginals((2, 2), (0, 1))):
        strategy = BUILD[name](workload)
        grid = strategy.measurement(workload, neighbours=neighbours, most_records=most)
        rows = np.concatenate(list(grid.row_blocks())).astype(object)
        base = grid.base.dense().astype(np.int64).astype(object)
        mixing = grid.mixing.astype(object)
        assert (rows == (mixing[:, None] * base if mixing.ndim == 1 else mixing @ base)).all()
        if grid.norm == "l1":
            assert grid.sensitivity_squared == brute_force_sensitivity(rows, neighbours, most, power=1) ** 2
        else:
            truth = brute_force_sensitivity(rows, neighbours, most, power=2)
            assert truth <= grid.sensitivity_squared <= truth * (1 + 1e-9)


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("name", ["coa", "identity, L1", "laplace", "wavelet", "wavelet, L1"])
def test_more_cells_or_steps_reach_as_far_as_as_many_records_of_one_cell_where_nothing_more_is_known(
    name: str, replaced: bool
) -> None:
    """The grid is not made again for them: it is the same with the sensitivity of the triangle inequality, and never a smaller one."""
    strategy = BUILD[name](MIXED)
    for moved in (
        Distance(2, replaced=replaced, groups=3, signed=True),
        Distance(2, replaced=replaced, participations=3, separation=2),
    ):
        grid = strategy.measurement(MIXED, neighbours=moved.neighbours, most_records=2)
        again = strategy.measurement(MIXED, neighbours=moved.neighbours, most_records=6)
        assert grid.with_contributions(moved) == replace(grid, sensitivity_squared=again.sensitivity_squared)


@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_a_strategy_of_many_rows_is_completed_without_a_matrix_over_pairs_of_rows(norm: Norm) -> None:
    """Two thousand rows over eight columns of rank six: the rows that are added are those of all singular vectors."""
    rows = np.random.default_rng(3).integers(-3, 4, (2000, 6)) @ np.random.default_rng(4).integers(-3, 4, (6, 8)) * 1.0
    tracemalloc.start()
    found = complete_rank(rows, norm)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * rows.shape[0] ** 2 / 10
    assert np.array_equal(found[:2000], rows)
    assert np.linalg.matrix_rank(found[2000:]) == 2
    assert np.linalg.svd(found, compute_uv=False)[-1] > 0.1 * (COMPLETION if norm == "l2" else COMPLETION_L1)
    if norm == "l2":
        assert np.abs(rows @ found[2000:].T).max() < 1e-9


def test_l1_sensitivity_beyond_pairs_is_an_upper_bound() -> None:
    mixing = np.array([[3, -1, 2], [0, 2, 2]], dtype=np.int64)
    exact = l1_sensitivity(mixing, Identity(3), "replace-one")
    assert exact == 6  # columns (3, 0) and (-1, 2)
    assert l1_sensitivity(mixing, Identity(3), "replace-one", Sizes(pair_work=1)) == 8
    assert l1_sensitivity(np.array([5, -7, 2]), Identity(3), "replace-one") == 12
    with pytest.raises(InvalidInput, match="too large"):
        l1_sensitivity(np.array([[2**61]], dtype=np.int64), Identity(1), "add-remove")


def test_sensitivity_of_integers_by_hand() -> None:
    mixing = np.array([[3, -1], [0, 2]], dtype=np.int64)
    assert sensitivity_squared(mixing, Identity(2), "add-remove") == 9
    assert 20 <= sensitivity_squared(mixing, Identity(2), "replace-one") <= 21
    assert sensitivity_squared(np.full(5, 7), Identity(5), "replace-one") == 98
    assert sensitivity_squared(np.full(3, 2), Prefix(3), "add-remove") == 12
    huge = np.array([[2**34]], dtype=np.int64)
    assert sensitivity_squared(huge, Identity(1), "add-remove") == 2**68
    with pytest.raises(InvalidInput, match="too large"):
        sensitivity_squared(np.array([[2**60]], dtype=np.int64), Identity(1), "add-remove")


def test_answers_of_one_estimate_are_consistent() -> None:
    workload = marginals(DOMAIN, (0, 1, 2))
    strategy = coa(workload)
    grid = strategy.measurement(workload, neighbours="add-remove", most_records=1)
    reader = reader_of(workload, grid, direct=False)
    z = np.random.default_rng(0).integers(-(2**40), 2**40, grid.rows)
    answers, _, _ = reader.answers(0, workload.shape[0], reader.estimate(z), unit_noise(grid))
    parts = {b.name: answers[s : s + b.queries].reshape([f.shape[0] for f in b.factors]) for s, b in workload.block_starts()}
    scale = np.abs(answers).max()
    np.testing.assert_allclose(parts["age x sex"].sum(axis=1), parts["age"], atol=1e-9 * scale)
    np.testing.assert_allclose(parts["age x work"].sum(axis=0), parts["work"], atol=1e-9 * scale)
    np.testing.assert_allclose(parts["sex x work"].sum(axis=1), parts["sex"], atol=1e-9 * scale)
    np.testing.assert_allclose(parts["sex"].sum(), parts["total"].item(), atol=1e-9 * scale)


def test_measuring_refuses_what_it_cannot_read() -> None:
    strategy = DenseStrategy("total", Total(4))
    grid = strategy.measurement(prefix(4), neighbours="add-remove", most_records=1)
    with pytest.raises(InvalidInput, match="does not determine every answer"):
        reader_of(prefix(4), grid, direct=False)
    with pytest.raises(InvalidInput, match="at least one record"):
        strategy.measurement(prefix(4), neighbours="add-remove", most_records=0)


def test_grid_digest_binds_the_strategy() -> None:
    one, other = coa(prefix(5)), coa(prefix(5), tolerance=1e-3)
    grids = [s.measurement(prefix(5), neighbours="add-remove", most_records=1) for s in (one, one, other)]
    assert grids[0].digest == grids[1].digest != grids[2].digest


def test_decimals() -> None:
    assert decimals_of(ArrayVector(np.array([12.0, 500.0]))) == 2
    assert decimals_of(ArrayVector(np.array([0.05]))) == 5
    assert decimals_of(ArrayVector(np.array([1e6]))) == 0
    assert decimals_of(ArrayVector(np.array([0.0, 12.0]))) == 2  # a query of no cell has no error
    assert decimals_of(Constant(0.05, 10**12)) == 5


def test_conditioning_is_the_conditional_distribution() -> None:
    """Against the textbook: mean and covariance of a normal vector given linear facts about it."""
    strategy = coa(MIXED)
    grid = strategy.measurement(MIXED, neighbours="add-remove", most_records=1)
    reader = reader_of(MIXED, grid, direct=False)
    noise = unit_noise(grid)
    known = (*marginals(DOMAIN, 0).blocks, *predicates(DOMAIN, ["sex == 'f' and work == 'b'"]).blocks)
    x = np.random.default_rng(0).multinomial(900, np.full(30, 1 / 30))
    facts = np.concatenate([block.operator(DOMAIN.shape).matvec(x) for block in known]).astype(float)
    z = grid.apply(grid.base.matvec(x)) + noise.draw(hashlib.sha256(b"given").digest(), count=grid.rows)
    plain, _, _ = reader.answers(0, MIXED.shape[0], reader.estimate(z), noise)
    given, moved = reader.condition_on_counts(reader.estimate(z), known, facts, noise)
    answers, errors, _ = given.answers(0, MIXED.shape[0], moved, noise)
    inverse = np.linalg.pinv(strategy.matrix()) * strategy.l2_sensitivity
    rows = MIXED.unweighted.dense()
    fixed = np.concatenate([block.operator(DOMAIN.shape).dense() for block in known])
    covariance = inverse @ inverse.T
    gain = rows @ covariance @ fixed.T @ np.linalg.inv(fixed @ covariance @ fixed.T)
    estimate = np.linalg.lstsq(rows, plain, rcond=None)[0]
    np.testing.assert_allclose(answers, plain - gain @ (fixed @ estimate - facts), atol=1e-6 * np.abs(plain).max())
    truth = rows @ covariance @ rows.T - gain @ fixed @ covariance @ rows.T
    np.testing.assert_allclose(errors**2, np.diag(truth), atol=1e-6 * np.diag(truth).max())
    with pytest.raises(InvalidInput, match="follows from the others"):
        reader.condition_on_counts(reader.estimate(z), (known[0], known[0]), facts, noise)
    with pytest.raises(InvalidInput, match="known count 2000 of 'total' contradicts the noisy records by"):
        reader.condition_on_counts(reader.estimate(z), known, np.array([2000.0, facts[1]]), noise)

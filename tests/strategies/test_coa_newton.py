"""Roots by deflation, and the certified optimum of grams whose cells are scaled over decades or whose queries nearly repeat."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from scipy.linalg import lapack

from dpdist.errors import Cancelled
from dpdist.operators import Matrix
from dpdist.strategies import coa, dual_bound, effort
from dpdist.strategies.dense import coa_newton, deflation
from dpdist.strategies.dense.deflation import deflated_roots
from dpdist.strategies.dense.trace_problem import SquareProblem, problem_of
from dpdist.strategies.strategy import Step, proven_root_trace
from dpdist.workloads import Gram, all_ranges


def scales(n: int, decades: float) -> Matrix:
    return np.random.default_rng(4).permutation(np.geomspace(1.0, 10.0**-decades, n))


def repeating(n: int) -> Matrix:
    """Queries with singular values from 1 to 1e-6."""
    state = np.random.default_rng(3)
    left, right = (np.linalg.qr(state.standard_normal((n, n)))[0] for _ in range(2))
    return (left * np.geomspace(1.0, 1e-6, n)) @ right.T


ROWS: dict[str, Callable[[int], Matrix]] = {
    "prefix over four decades": lambda n: np.tril(np.ones((n, n))) * scales(n, 4),
    "random cells over six decades": lambda n: (np.random.default_rng(2).random((2 * n, n)) < 0.2) * scales(n, 6),
    "ranges over four decades": lambda n: all_ranges(n).rows(slice(None)) * scales(n, 4),
    "nearly repeating": repeating,
}


def singular_values(matrix: Matrix) -> Matrix:
    """By one-sided Jacobi rotations: each to full relative precision where the columns are of different scale (Drmac & Veselic)."""
    values, _, _, work, _, failed = lapack.dgejsv(matrix, joba=0, jobu=3, jobv=3)
    assert failed == 0
    return np.sort(values * work[0] / work[1])


@pytest.mark.parametrize("name", ["prefix over four decades", "random cells over six decades", "ranges over four decades"])
def test_roots_over_many_decades(name: str) -> None:
    """Of K = B'B, B's columns over ten decades and more; one eigen-decomposition loses those below 1e-8 of the largest."""
    matrix = ROWS[name](48) * scales(48, 6)
    known, found = singular_values(matrix), deflated_roots(matrix)
    assert known[0] < 1e-10 * known[-1]
    coupled = 48 * (deflation.EPSILON * known[-1]) ** 2 / deflation.DEFLATION_THRESHOLD
    np.testing.assert_allclose(np.sort(found.values) ** 2, known**2, rtol=1e-5, atol=coupled)
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(48), atol=1e-13)
    assert known.sum() * (1 - 1e-7) <= found.proven < known.sum()
    assert 1.0 < found.relative_time < 3.0
    lost = proven_root_trace(np.linalg.eigvalsh(matrix.T @ matrix))
    assert lost < found.proven


def test_a_single_eigendecomposition_where_nothing_is_small() -> None:
    matrix = np.random.default_rng(1).standard_normal((30, 20))
    found = deflated_roots(matrix)
    assert found.relative_time == 1.0
    np.testing.assert_allclose(np.sort(found.values), np.linalg.svd(matrix)[1][::-1], rtol=1e-9)
    np.testing.assert_allclose((found.vectors * found.values**2) @ found.vectors.T, matrix.T @ matrix, atol=1e-11)
    singular = deflated_roots(np.outer(np.ones(4), [3.0, 1.0, 1.0]))  # and where two of three are zero, the deflation ends
    assert singular.proven == pytest.approx(np.sqrt(44.0), rel=1e-12)
    assert singular.proven <= np.sqrt(44.0)


class Raising(np.ndarray):
    """Vectors whose product with a matrix has columns that are longer by a factor."""

    factor = 1.0

    def __rmatmul__(self, other: Matrix) -> Matrix:  # type: ignore[override]
        return (other @ np.asarray(self)) * self.factor


@pytest.mark.parametrize("rounding", ["of vectors", "of products"])
def test_the_sum_is_proven_with_the_worst_rounding(rounding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of diagonal matrices, whose roots are known: vectors that are turned, or products that are longer, as far as the proof allows."""
    n, eigh = 40, deflation.linear_algebra.eigh
    if rounding == "of vectors":  # the rest is zero; the least root that is kept and one of zero are mixed
        roots = np.array([*np.zeros(n - 2), np.sqrt(1.1 * deflation.DEFLATION_THRESHOLD), 1.0])
        turned, longer = 0.95 * np.sqrt(n) * deflation.EPSILON / (1.1 * deflation.DEFLATION_THRESHOLD), 0.0
    else:
        roots = np.array([*np.full(n - 1, 0.9 * np.sqrt(deflation.DEFLATION_THRESHOLD)), 1.0])
        turned, longer = 0.0, 0.95 * n * deflation.EPSILON / roots[0]

    def worst(gram: Matrix, **options: bool) -> tuple[Matrix, Matrix]:
        monkeypatch.setattr(deflation.linear_algebra, "eigh", eigh)
        values, vectors = eigh(gram, **options)
        mixed = vectors.copy()
        mixed[:, n - 3] = np.cos(turned) * vectors[:, n - 3] + np.sin(turned) * vectors[:, n - 2]
        mixed[:, n - 2] = np.cos(turned) * vectors[:, n - 2] - np.sin(turned) * vectors[:, n - 3]
        found = mixed.view(Raising)
        monkeypatch.setattr(Raising, "factor", 1.0 + longer)
        return values, found

    monkeypatch.setattr(deflation.linear_algebra, "eigh", worst)
    found = deflated_roots(np.diag(roots))
    assert found.relative_time > 1
    assert roots.sum() * (1 - 1e-4) < found.proven <= roots.sum()


@pytest.mark.parametrize("name", ROWS)
def test_the_certified_optimum_in_few_eigendecompositions(name: str) -> None:
    """About 40 before."""
    rows = ROWS[name](120)
    gram = rows.T @ rows
    assert isinstance(problem_of(Gram(gram.copy())), SquareProblem)
    tracemalloc.start()
    found = coa(Gram(gram))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= effort(Gram(gram)).memory_bytes
    assert found.solve is not None
    assert (found.solve.method, found.solve.stop) == ("dual Newton", "converged")
    assert 0 <= found.gap <= 1e-6
    assert found.solve.eigendecompositions <= 8.0
    assert found.solve.dual is not None
    assert found.lower_bound >= dual_bound(Gram(gram), found.solve.dual) * (1 - 1e-9)
    assert np.linalg.norm(found.matrix(), axis=0).max() == pytest.approx(1.0, abs=1e-12)
    spread = np.linalg.solve(found.matrix().T, rows.T)  # the queries over the strategy, without squaring
    assert (spread**2).sum() == pytest.approx(found.workload_cost, rel=1e-5)


def test_memory_is_at_most_six_squares() -> None:
    rows = ROWS["prefix over four decades"](400)
    gram = rows.T @ rows
    tracemalloc.start()
    coa(Gram(gram))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 6 * 8 * 400**2 * 1.05


def test_without_deflation_the_tolerance_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deflation, "DEFLATIONS", 1)
    rows = ROWS["prefix over four decades"](120)
    found = coa_newton.solve(problem_of(Gram(rows.T @ rows)), tolerance=1e-7, max_iterations=30, on_step=lambda step: None)
    assert found[3].stop == "stalled"


def test_a_damped_step_solves_the_linear_system() -> None:
    """Of log diag X(v) = 0 without a ridge, whose derivative is taken by differences."""
    rows = ROWS["prefix over four decades"](11)
    point = 4.0 * np.log(scales(11, 4) / 3.0) / 2.0 + np.random.default_rng(6).uniform(-0.5, 0.5, 11)

    def residual(log_weight: Matrix) -> Matrix:
        return np.log(deflated_roots(rows * np.exp(log_weight / 2)).diagonal) - log_weight

    steps = 1e-5 * np.eye(11)
    jacobian = np.array([(residual(point + step) - residual(point - step)) / 2e-5 for step in steps]).T
    found = deflated_roots(rows * np.exp(point / 2))
    move, products = coa_newton.damped_step(found, residual(point), ridge=np.zeros(11), forcing=1e-6)
    assert 0 < products <= coa_newton.INNER_STEPS
    assert np.abs(move).max() < coa_newton.LARGEST_STEP
    np.testing.assert_allclose(jacobian @ move, -residual(point), atol=1e-3 * np.abs(residual(point)).max())
    shorter, _ = coa_newton.damped_step(found, residual(point), ridge=found.diagonal, forcing=1e-6)
    assert np.linalg.norm(shorter) < np.linalg.norm(move)


def test_an_interrupted_solve_resumes() -> None:
    rows, seen = ROWS["prefix over four decades"](60), list[Step]()

    def stop(step: Step) -> None:
        seen.append(step)
        if step.iteration == 2:
            raise Cancelled("enough")

    with pytest.raises(Cancelled):
        coa(Gram(rows.T @ rows), on_step=stop)
    resumed = coa(Gram(rows.T @ rows), start=seen[-1].checkpoint)
    assert resumed.solve is not None
    assert resumed.gap <= 1e-6
    assert resumed.solve.history[0].gap <= seen[-1].gap * (1 + 1e-6)
    ended = coa(Gram(rows.T @ rows), max_iterations=1)
    assert ended.solve is not None
    assert ended.solve.stop == "iteration limit"
    assert ended.workload_cost >= resumed.lower_bound


def test_a_solve_that_stalls_is_handed_to_the_barrier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coa_newton, "PATIENCE", 1)
    monkeypatch.setattr(coa_newton, "LARGEST_STEP", 1e-3)
    rows = ROWS["prefix over four decades"](40)
    found = coa(Gram(rows.T @ rows))
    assert found.solve is not None
    assert found.solve.method == "dual barrier Newton"
    assert 0 <= found.gap <= 1e-6

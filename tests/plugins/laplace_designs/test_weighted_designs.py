"""AM's section 3.5: the best lengths for known queries under Laplace noise."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from dpdist.errors import InvalidInput
from dpdist.mechanisms.mechanism_registry import mechanism_of
from dpdist.operators import Haar, Matrix
from dpdist.plugins.laplace_designs.weighted_designs import fourier_queries, weight_design
from dpdist.strategies import effort, hierarchical, identity, laplace_bound, p_identity, wavelet, weighted_design
from dpdist.strategies.dense.adaptive_mechanism import eigen_queries, program_1
from dpdist.strategies.solver_resources import worst_row_bytes
from dpdist.strategies.strategy import Step
from dpdist.workloads import Gram, Workload, all_ranges, marginals, prefix, random_ranges, ranges


def test_two_lengths_by_hand() -> None:
    """Sum and difference of two cells: u_1 + u_2 <= 1, so the least of c_1 / u_1^2 + c_2 / u_2^2 is (c_1^(1/3) + c_2^(1/3))^3."""
    queries = np.array([[1.0, 1.0], [1.0, -1.0]])
    workload = np.array([[1.0, 1.0], [1.0, 1.0], [1.0, 0.0]])
    costs = ((workload @ np.linalg.inv(queries)) ** 2).sum(axis=0)  # 2.25, 0.25
    found = program_1(np.ones((2, 2)), costs, power=2, tolerance=1e-10)
    assert found.cost == pytest.approx(np.cbrt(costs).sum() ** 3, rel=1e-9)
    assert found.weight == pytest.approx(np.cbrt(costs) / np.cbrt(costs).sum(), rel=1e-6)
    strategy = weighted_design(Gram(workload.T @ workload), design=queries, tolerance=1e-10)
    assert strategy.workload_cost == pytest.approx(2 * np.cbrt(costs).sum() ** 3, rel=1e-8)
    assert strategy.l1_sensitivity == pytest.approx(1.0, abs=1e-12)


def test_program_against_a_general_solver() -> None:
    state = np.random.default_rng(0)
    sizes, costs = np.abs(np.linalg.qr(state.standard_normal((6, 6)))[0].T), state.uniform(0.1, 5.0, 6)
    found = program_1(np.ascontiguousarray(sizes), costs, power=2, tolerance=1e-9)
    assert found.gap <= 1e-9
    assert (sizes @ found.weight).max() <= 1 + 1e-12
    slow = minimize(
        lambda u: float((costs / u**2).sum()),
        np.full(6, 0.3),
        jac=lambda u: -2 * costs / u**3,
        bounds=[(1e-6, None)] * 6,
        constraints={"type": "ineq", "fun": lambda u: 1 - sizes @ u, "jac": lambda u: -sizes},
        method="SLSQP",
        options={"maxiter": 2000, "ftol": 1e-15},
    )
    assert found.cost == pytest.approx(slow.fun, rel=1e-6)
    assert found.lower_bound <= slow.fun * (1 + 1e-9)


def cost_of(workload: Workload, rows: Matrix) -> float:
    """2 Delta_1^2 tr(V (A'A)^+), densely."""
    return float(2 * np.abs(rows).sum(axis=0).max() ** 2 * np.trace(workload.gram() @ np.linalg.pinv(rows.T @ rows)))


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 7), st.integers(1, 7), st.integers(0, 10**6), st.sampled_from([1e-9, 1.0, 1e9]))
def test_between_the_bound_and_the_identity(n: int, m: int, seed: int, scale: float) -> None:
    rows = np.random.default_rng(seed).integers(-2, 3, (m, n)).astype(float)
    if not rows.any():
        return
    gram = scale * rows.T @ rows
    found = weighted_design(Gram(gram))
    assert laplace_bound(Gram(gram)) <= found.workload_cost <= 2 * np.trace(gram) * (1 + 1e-6)
    assert found.cost(Gram(gram)) == pytest.approx(found.workload_cost, rel=1e-6)
    assert found.l1_sensitivity == pytest.approx(1.0, abs=1e-9)
    if np.linalg.matrix_rank(gram) == n:
        assert found.workload_cost == pytest.approx(
            2 * np.trace(gram @ np.linalg.inv(found.matrix().T @ found.matrix())), rel=1e-6
        )


@pytest.mark.parametrize("workload", [all_ranges(32), prefix(32), random_ranges(32, 40, seed=1)], ids=str)
def test_lengths_mend_a_tree_and_a_wavelet(workload: Workload) -> None:
    """Eigen-queries are the worst of all, as the paper says; p-Identity stays better."""
    gram = workload.gram()
    found = weighted_design(workload)
    tree = hierarchical((32,), workload, branching=None, norm="l1")
    haar, _ = weight_design(gram, Haar(32).dense())
    assert found.workload_cost < 0.98 * min(0.7 * tree.workload_cost, identity(32, workload, norm="l1").workload_cost)
    assert cost_of(workload, haar) < wavelet((32,), workload, norm="l1").workload_cost * (1 - 1e-3)
    eigen, lengths = weight_design(gram, eigen_queries(gram.copy())[0])
    assert lengths.gap <= 1e-6
    assert cost_of(workload, eigen) > cost_of(workload, haar)
    assert p_identity(workload).workload_cost < found.workload_cost


def test_lengths_and_left_inverse_take_turns() -> None:
    """A tree has more queries than cells: the lengths of the first left inverse are not the last ones."""
    workload = all_ranges(32)
    tree = hierarchical((32,), norm="l1").matrix()
    inverse = np.linalg.pinv(tree)
    costs = np.einsum("ij,ij->j", inverse, workload.gram() @ inverse)
    once = program_1(np.ascontiguousarray(tree.T), costs, power=2).weight[:, None] * tree
    rows, lengths = weight_design(workload.gram(), tree)
    assert cost_of(workload, rows) < 0.97 * cost_of(workload, once)
    assert lengths.gap <= 1e-6


def test_fourier_queries_are_orthonormal_and_marginals_need_few() -> None:
    for size in (1, 2, 3, 4, 7, 8):
        np.testing.assert_allclose(fourier_queries(size) @ fourier_queries(size).T, np.eye(size), atol=1e-14)
    np.testing.assert_allclose(fourier_queries(2), np.array([[1, 1], [1, -1]]) / np.sqrt(2), atol=1e-15)
    workload = marginals((2,) * 6, (1,))
    needed: Matrix = np.ones((1, 1))
    for _ in range(6):
        needed = np.kron(needed, fourier_queries(2))
    rows, _ = weight_design(workload.gram(), needed)
    spread = np.zeros(64, dtype=int)  # how many frequencies of single attributes a row has
    for place in range(64):
        spread[place] = bin(place).count("1")
    assert cost_of(workload, rows) <= 2 * np.trace(workload.gram())
    single = needed[spread <= 1]
    assert cost_of(workload, single) >= cost_of(workload, rows) * (1 - 1e-9)


def test_progress_is_told_and_a_workload_of_several_attributes_is_taken() -> None:
    seen: list[Step] = []
    workload = marginals((2, 3, 2), (1, 2))
    found = weighted_design(workload, on_step=seen.append)
    assert len(seen) == 5
    assert seen[-1].objective == found.workload_cost
    assert found.workload_cost <= identity(12, workload, norm="l1").workload_cost * (1 + 1e-9)
    assert found.solve.method.startswith("lengths of ")


@pytest.mark.parametrize("design", [np.ones((2, 5)), np.full((4, 4), np.nan), np.ones((1, 4)), np.ones(4)])
def test_refusals(design: Matrix) -> None:
    with pytest.raises(InvalidInput, match="design queries"):
        weighted_design(prefix(4), design=design)
    with pytest.raises(InvalidInput, match="nothing to answer"):
        weighted_design(Gram(np.zeros((2, 2))))


def test_it_takes_no_more_memory_than_is_promised() -> None:
    weighted_design(prefix(20), tolerance=1e-2)  # modules that are imported when they are needed are no part of it
    for workload in (prefix(200), ranges((12, 15))):
        tracemalloc.start()
        weighted_design(workload, tolerance=1e-2)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        stated = effort(workload, "weighted_design").memory_bytes
        assert peak <= stated <= 6 * peak


def test_the_worst_error_of_all_its_rows_is_planned_for() -> None:
    workload = all_ranges(64)
    rows = weighted_design(workload, tolerance=1e-2).operator.shape[0]
    assert mechanism_of("weighted-design").planning_bytes(workload) >= worst_row_bytes(workload, rows)

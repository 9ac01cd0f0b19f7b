from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from dpdist.errors import InvalidInput
from dpdist.operators import Haar, Matrix
from dpdist.planner.release_plan import plan
from dpdist.spec import load
from dpdist.strategies import coa, eigen_design, gaussian, identity, linear_algebra, singular_value_bound, wavelet
from dpdist.strategies.dense.adaptive_mechanism import eigen_queries, program_1
from dpdist.strategies.dense.completing_rows import _completed_error, completed_design
from dpdist.strategies.strategy import Step
from dpdist.workloads import Gram, Workload, all_ranges, explicit, marginals, prefix, random_ranges, ranges
from tests.properties.compositions import context_of_all
from tests.support import small_release
from tests.support.oracles import AM_FIGURE_1


def test_figure_1() -> None:
    gram = AM_FIGURE_1.T @ AM_FIGURE_1
    assert eigen_design(Gram(gram), complete=False).workload_cost == pytest.approx(15.80827, rel=2e-6)
    assert eigen_design(Gram(gram)).workload_cost == pytest.approx(15.47361, rel=2e-6)


def test_figure_2() -> None:
    """The only absolute errors of the paper's text: noise on answers 47.78, identity 45.36, wavelet 34.62, eigen-design 29.79, and 29.18
    that none is below. Their scale is 4 (2 log2(2 / delta))^1/2 at delta = 0.0001; the paper's matrix of the design is rounded."""
    workload = explicit(AM_FIGURE_1.astype(float))
    scale = 4 * np.sqrt(2 * np.log2(2 / 1e-4) / AM_FIGURE_1.shape[0])
    strategies = (gaussian(workload), identity(8, workload), wavelet(8, workload), eigen_design(workload))
    errors = [scale * np.sqrt(each.workload_cost) for each in strategies]
    assert errors == pytest.approx([47.81, 45.36, 34.64, 29.74], abs=5e-3)
    assert scale * np.sqrt(singular_value_bound(workload)) == pytest.approx(29.21, abs=5e-3)
    assert [*errors, 29.21] == pytest.approx([47.78, 45.36, 34.62, 29.79, 29.18], rel=2e-3)


@pytest.mark.parametrize("cells", [8, 64, 128])
def test_weights_are_chosen_with_their_completion(cells: int) -> None:
    """On prefix sums those of groups were better than those of all, because completing rows came last: 1.33 over the optimum of 1.44."""
    workload = prefix(cells)
    found, least = completed_design(workload), coa(workload).lower_bound
    whole, groups = eigen_design(workload), eigen_design(workload, group_size=16)
    assert least <= found.workload_cost <= min(whole.workload_cost, groups.workload_cost)
    assert found.workload_cost <= 1.11 * least
    assert found.cost(workload) == pytest.approx(found.workload_cost, rel=1e-6)
    assert found.solve.method == "weights of eigen-queries with their completion"


def test_errors_of_completed_designs_have_their_gradient() -> None:
    gram = all_ranges(6).gram()
    queries, costs, _ = eigen_queries(gram)
    objective = _completed_error(queries, np.ascontiguousarray(queries.T**2), gram, 50.0)
    logs = np.log(costs) / 3
    _, gradient = objective(logs)
    steps = 1e-6 * np.eye(6)
    by_differences = [(objective(logs + step)[0] - objective(logs - step)[0]) / 2e-6 for step in steps]
    assert gradient == pytest.approx(by_differences, rel=1e-5, abs=1e-7)


def test_program_1_against_a_general_solver() -> None:
    state = np.random.default_rng(0)
    queries = np.linalg.qr(state.standard_normal((6, 6)))[0]
    squares, costs = queries.T**2, state.uniform(0.1, 5.0, 6)
    found = program_1(np.ascontiguousarray(squares), costs, tolerance=1e-9)
    assert found.gap <= 1e-9
    assert (squares @ found.weight).max() <= 1 + 1e-12
    slow = minimize(
        lambda u: float((costs / u).sum()),
        np.full(6, 0.5),
        jac=lambda u: -costs / u**2,
        bounds=[(1e-9, None)] * 6,
        constraints={"type": "ineq", "fun": lambda u: 1 - squares @ u, "jac": lambda u: -squares},
        method="SLSQP",
        options={"maxiter": 2000, "ftol": 1e-14},
    )
    assert found.cost == pytest.approx(slow.fun, rel=1e-6)
    assert found.lower_bound <= slow.fun * (1 + 1e-9)


@pytest.mark.parametrize("power", [1, 2])
def test_the_products_of_a_solve_are_those_that_it_takes(power: Literal[1, 2], monkeypatch: pytest.MonkeyPatch) -> None:
    """Those in single precision are halves; that of the step after which it ends is not counted."""
    taken: list[float] = []

    def counted(matrix: Matrix, vector: Matrix) -> Matrix:
        taken.append({np.dtype(np.float64): 1.0, np.dtype(np.float32): 0.5}[matrix.dtype])
        return matrix @ vector

    state = np.random.default_rng(0)
    queries, costs = np.linalg.qr(state.standard_normal((6, 6)))[0], state.uniform(0.1, 5.0, 6)
    monkeypatch.setattr(linear_algebra, "times", counted)
    found = program_1(np.ascontiguousarray(queries.T**2), costs, power=power)
    assert found.stop == "converged"
    assert found.products == sum(taken) - 1


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 7), st.integers(1, 7), st.integers(0, 10**6), st.sampled_from([1e-9, 1.0, 1e9]))
def test_between_the_optimum_and_identity(n: int, m: int, seed: int, scale: float) -> None:
    rows = np.random.default_rng(seed).integers(-2, 3, (m, n)).astype(float)
    if not rows.any():
        return
    gram = scale * rows.T @ rows
    found = eigen_design(Gram(gram))
    assert found.workload_cost >= coa(Gram(gram)).lower_bound * (1 - 1e-8)
    assert found.workload_cost <= np.trace(gram) * (1 + 1e-6)
    assert found.workload_cost <= eigen_design(Gram(gram), complete=False).workload_cost * (1 + 1e-9)
    assert found.cost(Gram(gram)) == pytest.approx(found.workload_cost, rel=1e-6)
    assert found.lower_bound == pytest.approx(singular_value_bound(Gram(gram)), rel=1e-6)


def test_separation_and_principal_vectors_are_feasible_and_ordered() -> None:
    gram = all_ranges(64).gram()
    full = eigen_design(Gram(gram))
    for options in ({"group_size": 4}, {"principal": 4}, {"group_size": 64}, {"principal": 64}, {"group_size": 1}):
        other = eigen_design(Gram(gram), **options)
        assert full.workload_cost <= other.workload_cost * (1 + 1e-5)
        assert other.workload_cost < np.trace(gram)
    assert eigen_design(Gram(gram), group_size=64).workload_cost == pytest.approx(full.workload_cost, rel=1e-5)
    assert eigen_design(Gram(gram), principal=64).workload_cost == pytest.approx(full.workload_cost, rel=1e-5)


def test_other_design_sets() -> None:
    workload = all_ranges(16)
    haar = eigen_design(workload, design=Haar(16).dense())
    assert coa(workload).workload_cost <= haar.workload_cost
    plain = Haar(16).dense()
    inverse = np.linalg.inv(plain)
    unweighted = (plain**2).sum(axis=0).max() * np.trace(inverse.T @ workload.gram() @ inverse)
    assert haar.workload_cost < unweighted
    identity = eigen_design(workload, design=np.eye(16), complete=False)
    assert identity.workload_cost == pytest.approx(np.trace(workload.gram()), rel=1e-5)


@pytest.mark.parametrize(
    ("workload", "group"), [(ranges((5, 5)), None), (ranges((4, 4)), 3), (marginals((4, 4, 3), 2), 5)], ids=str
)
def test_repeated_eigenvalues_have_one_basis(workload: Workload, group: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever basis of an eigenspace LAPACK returns, the strategy has the same cost and the same precision."""
    eigh, state, turns = linear_algebra.eigh, np.random.default_rng(2), []

    def turned(matrix: Matrix, *, overwrite: bool = False) -> tuple[Matrix, Matrix]:
        whole = matrix.shape == workload.gram().shape and np.allclose(matrix, workload.gram())
        values, vectors = eigh(matrix, overwrite=overwrite)
        if whole:
            groups = np.split(np.arange(values.size), np.flatnonzero(np.diff(values) > 1e-9 * values[-1]) + 1)
            turns.append(max(group.size for group in groups))
            for group in groups:
                values[group] *= 1 + 1e-14 * state.standard_normal(group.size)
                vectors[:, group] = vectors[:, group] @ np.linalg.qr(state.standard_normal((group.size, group.size)))[0]
        return values, vectors

    found = eigen_design(Gram(workload.gram()), group_size=group, tolerance=1e-10)
    monkeypatch.setattr(linear_algebra, "eigh", turned)
    for _ in range(3):
        again = eigen_design(Gram(workload.gram()), group_size=group, tolerance=1e-10)
        assert again.workload_cost == pytest.approx(found.workload_cost, rel=1e-8)
        np.testing.assert_allclose(again.operator.gram(), found.operator.gram(), atol=1e-4 * found.operator.gram().max())
    assert min(turns) > 1


def test_relative_error_weights_small_queries_more() -> None:
    workload = prefix(16)
    absolute, relative = eigen_design(workload), eigen_design(workload, relative=True)

    def variances(strategy: object) -> np.ndarray:
        a = strategy.matrix()
        spread = workload.rows(slice(None)) @ np.linalg.pinv(a / strategy.l2_sensitivity)
        return (spread**2).sum(axis=1)

    assert variances(relative)[0] < variances(absolute)[0]
    rows = explicit(np.diag([1.0, 5.0, 0.0]))
    assert eigen_design(rows, relative=True).workload_cost == pytest.approx(2.0, rel=1e-5)


def test_progress_is_told() -> None:
    seen: list[Step] = []
    eigen_design(random_ranges(32, 20), on_step=seen.append)
    assert seen
    assert seen[-1].gap <= 1e-6


def compared_with_full(name: str, cells: int, shape: tuple[int, ...]) -> list[float]:
    """By how much separation and 6 % principal vectors raise the RMSE, and the full design's over the bound."""
    gram = all_ranges(cells).gram() if name == "ranges" else marginals(shape, 2).gram()
    full = eigen_design(Gram(gram))
    others = (eigen_design(Gram(gram), group_size=16), eigen_design(Gram(gram), principal=round(0.06 * cells)))
    costs = [np.sqrt(other.workload_cost / full.workload_cost) - 1 for other in others]
    return [*costs, np.sqrt(full.workload_cost / full.lower_bound) - 1]


def test_figures_of_the_paper_at_256_cells() -> None:
    """The small form of 2,048 cells; 6 % of few principal vectors cost a little more."""
    separated, leading, above = compared_with_full("ranges", 256, ())
    assert separated < 0.05
    assert leading == pytest.approx(0.134, abs=0.01)
    assert -1e-9 <= above < 0.3
    separated, leading, above = compared_with_full("marginals", 256, (8, 8, 4))
    assert 0.02 < separated < 0.12
    assert leading == pytest.approx(0.016, abs=0.015)
    assert -1e-9 <= above < 0.3


@pytest.mark.slow
def test_figures_of_the_paper_at_2048_cells() -> None:
    """Section 5.2 and Table 2, as ratios of RMSE: 1.3 of the bound; separation by 16: +5 % on ranges, +11 % on marginals;
    6 % principal vectors: +10 % on ranges, +0 % on marginals. Separation on 1-D ranges is better here (+0.1 %). Marginals have
    equal eigenvalues, whose eigenvectors are LAPACK's choice: separation costs 11 to 15 % on the processors seen."""
    results = {name: compared_with_full(name, 2048, (8, 16, 16)) for name in ("ranges", "marginals")}
    for *_, above in results.values():
        assert -1e-9 <= above < 0.3
    assert results["ranges"][0] < 0.05
    assert results["ranges"][1] == pytest.approx(0.10, abs=0.01)
    assert 0.08 < results["marginals"][0] < 0.18
    assert results["marginals"][1] == pytest.approx(0.0, abs=0.015)


@pytest.mark.parametrize(
    "options",
    [
        {"group_size": 2, "principal": 2},
        {"group_size": 0},
        {"principal": -1},
        {"design": np.ones((1, 4))},
        {"design": np.ones((4, 3))},
        {"design": np.eye(4), "principal": 1},
        {"relative": True},
    ],
)
def test_refusals(options: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        eigen_design(Gram(prefix(4).gram()), **options)


def test_the_certificate_says_which_design_was_the_best() -> None:
    """In the words of the solve, also where the rows are read from the store again; other mechanisms say nothing of it."""
    context = context_of_all()
    said = []
    for mechanism in ("eigen", "eigen", "coa"):
        spec = small_release.spec(
            domain={"age": {"from": 0, "to": 15}}, workload=[{"cdf": {"of": "age"}}], mechanism=mechanism
        )
        said.append(plan(context, load(spec)).certificate()["mechanism"].get("design"))
    assert said == [completed_design(prefix(16)).solve.method] * 2 + [None]

"""The steps that make a solve short: chains (grams whose inverse is tridiagonal), and Newton steps in single precision."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dpdist.errors import Cancelled
from dpdist.operators import Matrix
from dpdist.strategies import coa, dual_bound
from dpdist.strategies.dense import chain as chains
from dpdist.strategies.dense import coa_fixed_point, trace_problem
from dpdist.strategies.dense.block_diagonal import block_diagonalise, mean_square
from dpdist.strategies.dense.chain import Chain, chain_of
from dpdist.strategies.dense.coa_fixed_point import nearly_diagonal_start, newton_step
from dpdist.strategies.strategy import Step
from dpdist.workloads import Gram, all_ranges, prefix, random_ranges


def weighted_prefix(n: int) -> Matrix:
    rows = np.tril(np.ones((n, n))) * np.random.default_rng(1).uniform(0.5, 2.0, n)[:, None]
    return rows.T @ rows


def exponential(n: int) -> Matrix:
    places = np.arange(n)
    return np.exp(-5.0 * np.abs(places[:, None] - places) / n)


CHAINS: dict[str, Callable[[int], Matrix]] = {
    "prefix": lambda n: prefix(n).gram(),
    "weighted prefix": weighted_prefix,
    "all ranges": lambda n: all_ranges(n).gram(),
    "exponential": exponential,
}


def chain(name: str, n: int) -> tuple[Matrix, Chain]:
    gram = CHAINS[name](n)
    found = chain_of(gram)
    assert found is not None
    return gram, found


def root(gram: Matrix) -> Matrix:
    values, vectors = np.linalg.eigh(gram)
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_is_its_gram(name: str) -> None:
    gram, found = chain(name, 40)
    weight = np.random.default_rng(2).uniform(0.5, 2.0, 40)
    scaled = np.sqrt(weight)[:, None] * gram * np.sqrt(weight)
    diagonal, beside = found.inverse(weight)
    inverse = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
    np.testing.assert_allclose(inverse @ scaled, np.eye(40), atol=1e-9)
    roots, vectors, proven = found.spectrum(weight)
    np.testing.assert_allclose((vectors * roots) @ vectors.T, root(scaled), rtol=1e-9, atol=1e-9)
    assert roots.sum() * (1 - 1e-9) <= proven < roots.sum()
    np.testing.assert_allclose(found.root_diagonal(weight), np.diag(root(scaled)), rtol=1e-7)
    column = np.random.default_rng(3).uniform(0.5, 2.0, 40)
    dense = np.trace((column[:, None] * gram * column) @ np.linalg.inv((vectors * roots) @ vectors.T))
    assert found.cost(column, roots, vectors) == pytest.approx(dense, rel=1e-9)


@pytest.mark.parametrize("n", [8, 128, 1024])
def test_what_is_proven_is_below_known_singular_values(n: int) -> None:
    """Of prefix sums: 1 / (2 sin((2 k - 1) pi / (4 n + 2)))."""
    _, found = chain("prefix", n)
    known = 0.5 / np.sin((2.0 * np.arange(1, n + 1) - 1.0) * np.pi / (4 * n + 2))
    proven = found.spectrum(np.ones(n))[2]
    assert known.sum() * (1 - 1e-9) <= proven < known.sum()


def test_other_grams_are_no_chains() -> None:
    gram = prefix(30).gram()
    assert chain_of(gram) is not None
    touched = gram.copy()
    touched[3, 20] = touched[20, 3] = gram[3, 20] * (1 + 1e-11)
    order = np.random.default_rng(4).permutation(30)
    alike = gram.copy()
    alike[1], alike[:, 1] = alike[0], alike[:, 0]  # two cells with (nearly) equal columns: singular
    lagged = np.arange(30)[:, None] - np.arange(30)
    windows = ((lagged >= 0) & (lagged < 5)).astype(float)
    for other in (
        touched,
        gram[np.ix_(order, order)],
        alike,
        windows.T @ windows,
        np.eye(30),
        -gram,
        random_ranges(30, 90).gram(),
    ):
        assert chain_of(other) is None


@pytest.mark.parametrize("name", CHAINS)
def test_chains_are_solved_as_other_grams_are(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gram = CHAINS[name](120)
    found = coa(Gram(gram))
    assert found.solve is not None
    assert found.solve.eigendecompositions <= 0.6
    monkeypatch.setattr(trace_problem, "chain_of", lambda _: None)
    other = coa(Gram(gram))
    assert found.workload_cost == pytest.approx(other.workload_cost, rel=1.1e-6)
    assert found.cost(Gram(gram)) == pytest.approx(found.workload_cost, rel=1e-9)
    assert found.gap <= 1e-6
    assert found.lower_bound <= dual_bound(Gram(gram), found.solve.dual) * (1 + 1e-9)
    assert found.lower_bound <= other.workload_cost


def test_a_chain_whose_bound_is_too_low_is_solved_as_other_grams_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "ROUNDING", 1e9)
    found = coa(prefix(40))
    assert found.gap <= 1e-6
    assert found.solve is not None
    assert found.solve.stop == "converged"


def full(n: int) -> Matrix:
    state = np.random.default_rng(5)
    rows = (state.random((2 * n, n)) < 0.3).astype(float)
    return rows.T @ rows + np.diag(state.uniform(0.0, n, n))


WHOLE: dict[str, Matrix] = {
    "one part": full(11),
    "two parts of even size": full(10) + full(10)[::-1, ::-1],
    "two parts of odd size": full(11) + full(11)[::-1, ::-1],
    "chain": prefix(12).gram(),
}


@pytest.mark.parametrize("name", WHOLE)
def test_what_is_computed_of_parts_is_that_of_the_whole_gram(name: str) -> None:
    """Of X(v) = D^-1/2 (D^1/2 V D^1/2)^1/2 D^-1/2: diagonal, cost at unit diagonal, rows; and means over all cells."""
    gram = WHOLE[name]
    split = block_diagonalise(gram, chain_of(gram))
    assert (len(split.blocks), split.chain is not None) == (2 if "two" in name else 1, name == "chain")
    weight = np.random.default_rng(7).uniform(0.5, 2.0, split.multiplicity.size)
    cells = coa_fixed_point._unfold(weight, split, gram.shape[0])
    rooted = root(np.sqrt(cells)[:, None] * gram * np.sqrt(cells))
    dense = rooted / np.sqrt(np.outer(cells, cells))
    unit = dense / np.sqrt(np.outer(np.diag(dense), np.diag(dense)))
    spectra, proven = coa_fixed_point._spectra(split, weight, singular=False)
    assert proven == pytest.approx(np.trace(rooted), rel=1e-9)
    ratio = coa_fixed_point._diagonal(split, spectra, weight)
    diagonal = coa_fixed_point._unfold(ratio, split, gram.shape[0])
    np.testing.assert_allclose(diagonal, np.diag(dense), rtol=1e-9)
    cost = coa_fixed_point._unit_diagonal_cost(split, spectra, weight, ratio)
    assert cost == pytest.approx(np.trace(np.linalg.solve(unit, gram)), rel=1e-8)
    rows = split.root(spectra, weight, 1.0 / np.sqrt(ratio))
    np.testing.assert_allclose(rows.T @ rows, unit, atol=1e-9)
    assert mean_square(split, weight, ratio) == pytest.approx((cells * diagonal**2).sum() / cells.sum())
    balanced, scaled = coa_fixed_point._balance(split, np.log(weight), spectra)
    total = np.exp(coa_fixed_point._unfold(balanced, split, gram.shape[0])).sum()
    assert total == pytest.approx(sum(roots.sum() for roots, _ in scaled))
    again, _ = coa_fixed_point._spectra(split, np.exp(balanced), singular=False)
    assert total == pytest.approx(sum(roots.sum() for roots, _ in again))


@pytest.mark.parametrize("reversal", [False, True])
def test_a_newton_step_solves_the_linear_system(reversal: bool) -> None:
    """Of log diag X(v) = 0, whose derivative is taken by differences."""
    gram = full(11)
    gram = gram + gram[::-1, ::-1] if reversal else gram
    split = block_diagonalise(gram)
    assert split.reversal is reversal
    point = np.random.default_rng(6).uniform(-0.5, 0.5, split.multiplicity.size)

    def residual(log_weight: Matrix) -> Matrix:
        weight = np.exp(log_weight)
        spectra, _ = coa_fixed_point._spectra(split, weight, singular=False)
        return np.log(coa_fixed_point._diagonal(split, spectra, weight))

    point, spectra = coa_fixed_point._balance(
        split, point, coa_fixed_point._spectra(split, np.exp(point), singular=False)[0]
    )
    steps = 1e-5 * np.eye(point.size)
    jacobian = np.array([(residual(point + step) - residual(point - step)) / 2e-5 for step in steps]).T
    diagonal = np.exp(residual(point) + point) * split.multiplicity
    move, products = newton_step(split, spectra, diagonal, residual(point), 1e-5)
    np.testing.assert_allclose(jacobian @ move, -residual(point), atol=1e-4 * np.abs(residual(point)).max())
    assert 0 < products <= coa_fixed_point.INNER_STEPS


def test_large_grams_take_few_eigendecompositions() -> None:
    """Five before, for the first."""
    for gram in (random_ranges(256, 1024).gram(), full(256)):
        found = coa(Gram(gram))
        assert found.gap <= 1e-6
        assert found.solve is not None
        assert found.solve.eigendecompositions <= 2.7
        assert found.solve.products <= 12
        assert found.cost(Gram(gram)) == pytest.approx(found.workload_cost, rel=1e-6)
        assert found.lower_bound <= dual_bound(Gram(gram), found.solve.dual) * (1 + 1e-9)


def distance(gram: Matrix, dual: Matrix) -> float:
    """Mean square of log diag X(v), v scaled so that its sum is that of diag K^1/2."""
    values, vectors = np.linalg.eigh(np.sqrt(dual)[:, None] * gram * np.sqrt(dual))
    diagonal = vectors**2 @ np.sqrt(np.maximum(values, 0.0)) / dual
    return float(dual @ np.log(diagonal / (dual @ diagonal) * dual.sum()) ** 2 / dual.sum())


def random_sums(n: int) -> Matrix:
    rows = (np.random.default_rng(2).random((2 * n, n)) < 0.05).astype(float)
    return rows.T @ rows


def test_sums_of_random_cells_start_near_the_optimum() -> None:
    """One step in single precision before the certificate, where there were two."""
    gram = random_sums(220)
    dual = np.sqrt(np.diag(gram))
    begun = nearly_diagonal_start(gram, dual)
    assert distance(gram, begun) < 0.15 * distance(gram, dual)
    found = coa(Gram(gram))
    assert found.gap <= 1e-6
    assert found.solve is not None
    assert found.solve.eigendecompositions == 1.6
    assert found.lower_bound <= dual_bound(Gram(gram), found.solve.dual) * (1 + 1e-9)


def test_a_start_is_not_believed_where_a_gram_is_far_from_diagonal() -> None:
    for gram in (random_ranges(220, 800).gram(), prefix(220).gram()):
        dual = np.sqrt(np.diag(gram))
        assert nearly_diagonal_start(gram, dual) is dual


def test_a_start_by_hand() -> None:
    """3 I + 1 1' has the eigenvalues 3 and 3 + n, so diag V^1/2 = ((n - 1) 3^1/2 + (3 + n)^1/2) / n =: r; two steps give r^3/2."""
    n = 50
    root = (np.sqrt(3.0) * (n - 1) + np.sqrt(3.0 + n)) / n
    found = nearly_diagonal_start(3 * np.eye(n) + np.ones((n, n)), np.ones(n))
    np.testing.assert_allclose(found, root**1.5, rtol=0.02)


@pytest.mark.parametrize("gram", [full(220), prefix(220).gram()], ids=["single precision", "chain"])
def test_steps_without_proof_can_be_interrupted_and_resumed(gram: Matrix) -> None:
    seen: list[Step] = []

    def stop(step: Step) -> None:
        seen.append(step)
        raise Cancelled("enough")

    with pytest.raises(Cancelled):
        coa(Gram(gram), on_step=stop)
    assert seen[0].gap == np.inf
    optimum = coa(Gram(gram))
    assert optimum.lower_bound <= seen[0].objective
    assert coa(Gram(gram), start=seen[0].checkpoint).workload_cost == pytest.approx(optimum.workload_cost, rel=1.1e-6)
    assert coa(Gram(gram), max_iterations=1, tolerance=1e-9).gap < np.inf

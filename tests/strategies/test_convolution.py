"""Private convolution against dense optima, dense pseudo-inverses, closed forms and the paper's theorems."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dpdist.arrays.convolution import _limbs, digits, exact_convolution
from dpdist.arrays.vector import Held, held
from dpdist.arrays.workspace import MEMORY
from dpdist.domain import Attribute, Domain
from dpdist.errors import InvalidInput
from dpdist.grids.filters import FilterGrid
from dpdist.operators import Circulant, Fourier, Kronecker
from dpdist.privacy.accounting import zcdp_epsilon
from dpdist.privacy.distributions import GAUSSIAN
from dpdist.privacy.noise import Noise, discrete_laplace
from dpdist.strategies import coa, convolution, laplace_spectrum, singular_value_bound, spectral_lower_bound, square_root
from dpdist.strategies import filters as filters_module
from dpdist.strategies.filters import has_square_root
from dpdist.strategies.spectrum import fitted_decay
from dpdist.workloads import Workload, filtered, marginals, prefix, relative, union
from dpdist.workloads.filters import (
    Filter,
    baxter_king,
    coefficients,
    exponential,
    hodrick_prescott,
    polynomial,
    running_sum,
    window,
)
from dpdist.workloads.kinds import filters_of, is_filters
from tests.readers import filtered_answers

STATE = np.random.default_rng(7)
GROUPS = Domain((Attribute("sex", categories=("f", "m")), Attribute("hour", edges=tuple(range(13)))))


def filters(n: int) -> dict[str, Filter]:
    return {
        "running sum": running_sum(n),
        "window": window(5),
        "mean": window(4, mean=True),
        "exponential": exponential(0.8, n),
        "polynomial": polynomial(1.3, n),
        "trend": hodrick_prescott(20.0, n),
        "cycle": hodrick_prescott(20.0, n, part="cycle"),
        "band": baxter_king(4, 12, 6),
        "any": coefficients(np.array([1.0, -2.0, 0.0, 0.5])),
    }


NAMES = tuple(filters(16))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [15, 16])
def test_around_a_circle_no_strategy_is_better(name: str, n: int) -> None:
    workload = filtered(n, "x0", [filters(n)[name]], circular=True)
    found = convolution(workload)
    assert found.workload_cost == pytest.approx(singular_value_bound(workload), rel=1e-10)
    assert found.workload_cost == pytest.approx(coa(workload, tolerance=1e-11).workload_cost, rel=1e-10)
    assert found.cost(workload) == pytest.approx(found.workload_cost, rel=1e-9)
    assert found.lower_bound <= found.workload_cost
    spectrum = np.abs(np.fft.fft(np.fft.ifft(np.fft.fft(filters_of(workload)[0].coefficients)))) / math.sqrt(n)
    assert found.workload_cost == pytest.approx(spectrum.sum() ** 2, rel=1e-9)  # ||hhat||_1^2
    assert found.l2_sensitivity == pytest.approx(1.0)


@pytest.mark.parametrize("name", NAMES)
def test_costs_of_series_that_end(name: str) -> None:
    """The stated cost is that of reading around the circle; least squares over the cells alone is not worse, nor the optimum."""
    n = 24
    workload = filtered(n, "x0", [filters(n)[name]])
    found = convolution(workload)
    best = coa(workload, tolerance=1e-9)
    assert 0 <= found.lower_bound <= singular_value_bound(workload) * (1 + 1e-9)
    assert best.workload_cost <= found.workload_cost * (1 + 1e-9)
    assert found.cost(workload) <= found.workload_cost * (1 + 1e-9)
    assert found.l2_sensitivity == pytest.approx(found.operator.l2_sensitivity)
    if has_square_root(workload):
        root = square_root(workload)
        dense = root.operator.dense()
        ratio = workload.operator.dense() / np.where(np.tri(n), dense @ dense, 1.0)
        np.testing.assert_allclose(dense @ dense * float(ratio[0, 0]), workload.operator.dense(), atol=1e-9)
        assert root.cost(workload) == pytest.approx(root.workload_cost, rel=1e-8)
        assert best.workload_cost <= root.workload_cost * (1 + 1e-9)


def test_running_sums_in_figures() -> None:
    """n = 512: what each factorisation costs over the certified optimum; the root's rows are binomial."""
    workload = filtered(512, "x0", [running_sum(512)])
    best = coa(prefix(512)).workload_cost
    assert square_root(workload).workload_cost / best == pytest.approx(1.11235, abs=1e-4)
    assert convolution(workload).workload_cost / best == pytest.approx(1.17307, abs=1e-4)
    root = square_root(workload).coefficients
    assert root is not None
    binomial = [math.comb(2 * k, k) / 4**k for k in range(512)]
    np.testing.assert_allclose(root.real / root.real[0], binomial, rtol=1e-12)


def test_bounds_of_series_that_end() -> None:
    """Below the singular value bound, equal to it for running sums, close to it for filters that are short for the series."""
    for n in (1, 2, 33, 256):
        running = filtered(n, "x0", [coefficients(np.full(n, 2.5))])
        assert convolution(running).lower_bound == pytest.approx(singular_value_bound(running), rel=1e-9)
    for some in ([window(5)], [baxter_king(4, 12, 6)], [window(3), exponential(0.5, 256)]):
        workload = filtered(256, "x0", some)
        bound = singular_value_bound(workload)
        assert 0.75 * bound < convolution(workload).lower_bound <= bound
    both = union(filtered(64, "x0", [running_sum(64)]), filtered(64, "x0", [window(4)]), weights=(1.0, 3.0))
    assert 0.5 * singular_value_bound(both) < convolution(both).lower_bound <= singular_value_bound(both)
    by_sex = filtered(GROUPS, "hour", [window(4)], ("sex",))
    assert convolution(by_sex).lower_bound <= coa(by_sex).workload_cost
    over_all = filtered(GROUPS, "hour", [window(4)])
    assert convolution(over_all).lower_bound <= coa(over_all).workload_cost
    single = [convolution(filtered(12, "x0", [window(4)])).lower_bound, convolution(over_all).lower_bound]
    assert single[0] == pytest.approx(single[1])


def test_filters_released_together_are_cheaper_than_one_by_one() -> None:
    n = 64
    some = [running_sum(n), window(7), exponential(0.9, n)]
    together = convolution(filtered(n, "x0", some, circular=True)).workload_cost
    single = [convolution(filtered(n, "x0", [each], circular=True)).workload_cost for each in some]
    # a budget split by cost^(1/2): the best that single releases can do
    assert together < 0.8 * sum(math.sqrt(cost) for cost in single) ** 2
    workload = filtered(n, "x0", some, circular=True)
    assert together == pytest.approx(singular_value_bound(workload), rel=1e-10)
    heavy = union(*(filtered(n, "x0", [each], circular=True) for each in some), weights=(3.0, 1.0, 0.5))
    assert convolution(heavy).workload_cost == pytest.approx(singular_value_bound(heavy), rel=1e-10)


@pytest.mark.parametrize("length", [2, 2**9, 2**14, 2**17])
def test_rounding_stays_far_below_its_bound(length: int) -> None:
    """The largest distance from integers, and 20-bit coefficients and 16-bit counts against Python integers at some steps."""
    a, b = STATE.integers(-(2**20), 2**20, length), STATE.integers(0, 2**16, length)
    bits = max(int(np.abs(values).max()).bit_length() + 1 for values in (a, b))
    width, _ = _limbs(MEMORY, Held(a), Held(b), bits, length)
    worst, allowed = 0.0, 0.0
    for one in digits(a, width):
        for other in digits(b, width):
            real = np.fft.irfft(np.fft.rfft(one, length) * np.fft.rfft(other, length), length)
            worst += float(np.abs(real - np.rint(real)).max())
            allowed += 16 * math.log2(2 * length) * 2.0**-53 * float(np.linalg.norm(one)) * float(np.linalg.norm(other))
    assert allowed < 0.125
    assert worst < 0.3 * allowed
    found = held(exact_convolution(MEMORY, Held(a), Held(b), length))
    for step in STATE.integers(0, length, 5):
        turned = np.roll(a[::-1], step + 1).astype(object)
        assert int(found[step]) == int((turned * b.astype(object)).sum())
    assert width > 1
    assert (found == held(exact_convolution(MEMORY, Held(a), Held(b), 2 * length)).reshape(2, length).sum(axis=0)).all()


def dense_rows(grid: FilterGrid) -> np.ndarray:
    cells = math.prod(grid.shape)
    return np.stack([grid.measure(np.eye(cells, dtype=np.int64)[cell].reshape(grid.shape)) for cell in range(cells)], axis=1)


CASES: dict[str, Workload] = {
    "circle": filtered(12, "x0", [window(3), exponential(0.7, 12)], circular=True),
    "odd circle": filtered(9, "x0", [baxter_king(3, 8, 2)], circular=True),
    "ends": filtered(12, "x0", [hodrick_prescott(5.0, 12), running_sum(12)]),
    "by sex": filtered(GROUPS, "hour", [window(4), running_sum(12)], ("sex",)),
    "over all": filtered(GROUPS, "hour", [window(4)]),
}


@pytest.mark.parametrize("case", [*CASES, "square root", "square root by sex"])
@pytest.mark.parametrize(("neighbours", "most"), [("add-remove", 1), ("add-remove", 3), ("replace-one", 1)])
def test_measured_filters_have_their_sensitivity_and_errors(case: str, neighbours: str, most: int) -> None:
    """Brute force over neighbours; without noise answers are true; standard errors as the dense reading says."""
    by_sex = filtered(GROUPS, "hour", [exponential(0.7, 12)], ("sex",))
    if case.startswith("square"):
        workload = by_sex if case.endswith("sex") else filtered(12, "x0", [polynomial(0.8, 12)])
        strategy: Any = square_root(workload)
    else:
        workload = CASES[case]
        strategy = convolution(workload)
    grid = strategy.grid(workload, neighbours=neighbours, most_records=most)
    assert isinstance(grid, FilterGrid)
    rows = dense_rows(grid).astype(object)
    columns = [list(column) for column in rows.T]
    farthest = max(sum(int(v) ** 2 for v in column) for column in columns)
    if neighbours == "replace-one":
        pairs = (sum((int(u) - int(v)) ** 2 for u, v in zip(a, b, strict=True)) for a in columns for b in columns)
        farthest = max(farthest, *pairs)
    assert farthest * most**2 <= grid.sensitivity_squared
    assert grid.sensitivity_squared <= farthest * most**2 * (1 if neighbours == "add-remove" else 4)
    if neighbours == "replace-one":
        return
    noise = Noise(GAUSSIAN, 1000)
    shape = grid.shape
    x = STATE.integers(0, 2**20, shape)
    table = x if workload.domain.shape == shape else STATE.integers(0, 99, workload.domain.shape)
    if table is not x:
        x = table.sum(axis=tuple(a for a in range(table.ndim) if a not in grid.axes))
    z = grid.measure(x)
    assert z.shape == (grid.rows,)
    answers, errors = filtered_answers(workload, grid, z, noise)
    np.testing.assert_allclose(answers, workload.unweighted.matvec(table.ravel().astype(float)), rtol=1e-6, atol=1e-3)
    # every answer is a fixed combination of the measurements: its rows one by one
    unit = np.stack([filtered_answers(workload, grid, row, noise)[0] for row in np.eye(grid.rows, dtype=np.int64)], axis=1)
    np.testing.assert_allclose(errors, np.linalg.norm(unit, axis=1) * noise.deviation, rtol=1e-6)
    np.testing.assert_allclose(unit @ rows.astype(float), _over_table(workload, grid), atol=1e-6)
    most_error = max(strategy.coefficients.deviations)
    assert errors.max() == pytest.approx(
        most_error * grid.spacing * noise.deviation * 2**30 * strategy.l2_sensitivity / 2**30, rel=1e-4
    )


def _over_table(workload: Workload, grid: FilterGrid) -> np.ndarray:
    """The unweighted rows over the counted table."""
    parts = [Kronecker(block.factors).dense() for block in workload.blocks]
    return np.concatenate(parts)


def test_predicted_costs_are_what_is_published() -> None:
    """Squared errors of all answers over the noise of one unit add up to the cost."""
    one = filtered(GROUPS, "hour", [polynomial(0.8, 12)], ("sex",))
    for workload, strategy in (
        (CASES["ends"], convolution(CASES["ends"])),
        (CASES["circle"], convolution(CASES["circle"])),
        (one, square_root(one)),
    ):
        grid, noise = strategy.grid(workload, neighbours="add-remove", most_records=1), Noise(GAUSSIAN, 10**6)
        _, errors = filtered_answers(workload, grid, np.zeros(grid.rows, dtype=np.int64), noise)
        unit = noise.deviation * grid.spacing
        assert float((errors**2).sum()) / unit**2 == pytest.approx(strategy.workload_cost, rel=1e-8)
        assert errors.max() / unit == pytest.approx(strategy.worst(workload), rel=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_algorithm_1_has_the_error_of_theorem_9(name: str) -> None:
    """Mean squared error over many keys: 4 ln(1/delta) ||hhat||_1^2 / (epsilon^2 N); a scale 5 % off fails both ways."""
    n, epsilon, delta = 32, 1.0, 1e-6
    h = np.zeros(n)
    each = filters(n)[name]
    np.add.at(h, (each.first_lag + np.arange(each.coefficients.size)) % n, each.coefficients)
    noise = laplace_spectrum(h, epsilon, delta)
    unitary = np.abs(np.fft.fft(h)) / math.sqrt(n)
    theorem = 4 * math.log(1 / delta) * unitary.sum() ** 2 / (epsilon**2 * n)
    assert noise.mse == pytest.approx(theorem, rel=1e-9)
    assert noise.advanced_epsilon == pytest.approx(epsilon)
    kept = np.isfinite(noise.scales)
    draws = discrete_laplace((99).to_bytes(32, "big"), 2**30, count=int(kept.sum()) * 6000).reshape(6000, -1) / 2.0**30
    x = STATE.integers(0, 100, n)
    transform = Fourier(n)
    # the algorithm as published: noise on the coefficients of x, times the filter's eigenvalues, back
    coefficients_of_x = np.zeros((n, 6000))
    coefficients_of_x[kept] = transform.matvec(x.astype(float))[kept, None] + draws.T * noise.scales[kept, None]
    answers = Circulant(n, h).matvec(transform.rmatvec(coefficients_of_x))
    errors = answers - Circulant(n, h).matvec(x.astype(float))[:, None]
    assert np.mean(errors**2) == pytest.approx(theorem, rel=0.06)
    assert abs(np.mean(errors)) < 0.2 * math.sqrt(theorem)


def test_algorithm_2_and_the_baselines() -> None:
    n, epsilon, delta = 64, 0.8, 1e-5
    h = np.exp(-np.arange(n) / 5.0)
    best, parts, given, taken = (laplace_spectrum(h, epsilon, delta, m) for m in ("laplace", "partition", "input", "output"))
    eta = math.sqrt(2 * (1 + 6) * math.log(1 / delta)) / epsilon
    order = np.argsort(-parts.spectrum, kind="stable")
    ranks = {1: 6} | {rank: k for k in range(1, 7) for rank in range(n // 2**k + 1, n // 2 ** (k - 1) + 1)}
    np.testing.assert_allclose(parts.scales[order], [eta * 2 ** (-ranks[r] / 2) for r in range(1, n + 1)])
    for other in (parts, given, taken):
        assert other.mse > best.mse
    for noise in (best, parts, given, taken):  # all spend the same: seven groups share Algorithm 2's evenly
        assert noise.advanced_epsilon == pytest.approx(epsilon)
    # Gaussian noise of the same guarantee: zCDP of the same rho
    gaussian = convolution(filtered(n, "x0", [coefficients(h)], circular=True)).workload_cost / n / (2 * best.zcdp)
    assert gaussian < best.mse
    with pytest.raises(InvalidInput, match="power of two"):
        laplace_spectrum(np.ones(6), 1.0, 1e-6, "partition")


def test_numerical_composition() -> None:
    """zCDP is the same for a record at every step; composed loss distributions are below it and below the paper's bound."""
    h = np.exp(-np.arange(16) / 3.0)
    noise = laplace_spectrum(h, 0.7, 1e-6)
    for record in (1, 5, 15):
        assert float((noise.epsilons(record) ** 2).sum() / 2) == pytest.approx(noise.zcdp)
    composed = noise.composed_epsilon(3)
    assert 0.3 * noise.epsilon < composed < zcdp_epsilon(noise.zcdp, 1e-6)
    assert composed < noise.advanced_epsilon + 1e-3 or zcdp_epsilon(noise.zcdp, 1e-6) < noise.advanced_epsilon
    single = laplace_spectrum(np.array([1.0]), 1.0, 0.1)
    assert single.composed_epsilon() <= float(single.epsilons()[0]) + 2e-2


def test_the_spectral_bound_and_the_decay() -> None:
    n = 128
    h = np.zeros(n)
    h[0] = 1.0  # the identity: |hhat| = n^-1/2 everywhere
    assert spectral_lower_bound(h) == pytest.approx(n**2 / n / (n * 49))
    assert fitted_decay(h) == pytest.approx(0.0, abs=1e-9)
    spectrum = 1.0 / np.arange(1, 66) ** 2
    assert fitted_decay(np.fft.irfft(spectrum, n)) == pytest.approx(2.0, abs=0.4)


def test_a_root_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is asked whether there is one: of millions of steps each time would take seconds."""
    asked: list[object] = []
    original = filters_module.root_of
    monkeypatch.setattr(filters_module, "root_of", lambda work, each: asked.append(each) or original(work, each))
    rooted = filtered(40, "x0", [coefficients(np.array([1.0, 0.5]))])
    unrooted = filtered(40, "x0", [coefficients(np.array([1.0, -2.0, 0.0, 0.5]))])
    assert [has_square_root(workload) for workload in (rooted, rooted, unrooted, unrooted)] == [True, True, False, False]
    assert len(asked) == 2


def test_what_is_a_filter() -> None:
    assert is_filters(CASES["by sex"])
    assert not is_filters(marginals((4, 3), 1))
    assert not is_filters(union(filtered(5, "x0", [window(2)]), filtered(5, "x0", [window(3)], circular=True)))
    scaled = relative(filtered(9, "x0", [window(4), running_sum(9)]))
    assert is_filters(scaled)
    assert [block.weight for block in scaled.blocks] == pytest.approx([0.5, 1 / 3])
    with pytest.raises(InvalidInput, match="not filters along one attribute"):
        convolution(marginals((4, 3), 1))
    with pytest.raises(InvalidInput, match="grows beyond"):
        square_root(filtered(40, "x0", [coefficients(np.array([1.0, -2.0, 0.0, 0.5]))]))
    with pytest.raises(InvalidInput, match="filter of the past"):
        square_root(CASES["ends"])
    grid = convolution(CASES["circle"]).grid(CASES["circle"], neighbours="add-remove", most_records=1)
    assert grid.sensitivity_squared > 0


SHORT = [
    (1, 1e-6, 27.63), (2, 1e-6, 22.39), (3, 1e-6, 19.00), (14, 1e-6, 8.42), (16, 1e-6, 7.27),
    (1, 2.7e-5, 21.04), (1, 1.8e-2, 8.03), (2, 2.3e-6, 21.04), (2, 7.1e-3, 8.02),
]  # fmt: skip


@pytest.mark.parametrize(("width", "delta", "times"), SHORT)
def test_plain_noise_on_the_counts_beats_algorithm_1_on_short_filters(width: int, delta: float, times: float) -> None:
    """'Noise on the coefficients of x' is no plain Laplace noise on x, which is pure and gives 2 ||h||^2 / epsilon^2."""
    n, epsilon, h = 64, 0.5, np.ones(width)
    filled = np.pad(h, (0, n - h.size))
    plain = 2 * float(filled @ filled) / epsilon**2
    spectrum = np.abs(np.fft.fft(filled)) / math.sqrt(n)
    ratio = laplace_spectrum(filled, epsilon, delta).mse / plain
    assert ratio == pytest.approx(2 * math.log(1 / delta) * spectrum.sum() ** 2 / (n * float(filled @ filled)), rel=1e-6)
    assert ratio == pytest.approx(times, rel=1e-3)


def test_no_budget_is_spent_on_frequencies_that_are_rounding_error() -> None:
    """Of a total and one wave, all other frequencies are zero but for rounding; rows are those of ``Fourier``."""
    wave = np.ones(32) + np.cos(2 * np.pi * np.arange(32) / 32)
    scales = laplace_spectrum(wave, 1.0, 1e-6).scales
    np.testing.assert_array_equal(np.flatnonzero(np.isfinite(scales)), [0, 1, 2])


@pytest.mark.parametrize("times", [1e-30, 1e-12, 1e12])
def test_the_best_filter_of_a_scaled_filter_has_the_scaled_error(times: float) -> None:
    """However large the weight, the same frequencies are asked for."""
    lags = 0.7 ** np.arange(16)
    once, scaled = (convolution(filtered(16, "x0", [coefficients(each)])) for each in (lags, times * lags))
    assert once.workload_cost is not None
    assert scaled.workload_cost == pytest.approx(times**2 * once.workload_cost, rel=1e-9)

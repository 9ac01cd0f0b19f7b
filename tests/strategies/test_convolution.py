"""Private convolution against dense optima, dense pseudo-inverses, closed forms and the paper's theorems."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dpdist.arrays.array_workspace import MEMORY
from dpdist.arrays.convolution import _limbs, digits, exact_convolution
from dpdist.arrays.lazy_vector import ArrayVector, to_array
from dpdist.domain import Attribute, Domain
from dpdist.errors import InvalidInput
from dpdist.measurement.filter_measurement import FilterMeasurement
from dpdist.operators import Kronecker
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import GAUSSIAN
from dpdist.strategies import coa, convolution, singular_value_bound, square_root
from dpdist.strategies import filter_strategies as filters_module
from dpdist.strategies.filter_strategies import has_square_root
from dpdist.workloads import Workload, filtered, marginals, prefix, relative, union
from dpdist.workloads.time_filters import (
    Filter,
    baxter_king,
    coefficients,
    exponential,
    hodrick_prescott,
    polynomial,
    running_sum,
    window,
)
from tests.support.measurement_readers import filtered_answers

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
        "cycle": hodrick_prescott(20.0, n, component="cycle"),
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
    spectrum = np.abs(np.fft.fft(np.fft.ifft(np.fft.fft(workload.kind.filters[0].coefficients)))) / math.sqrt(n)
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
    np.testing.assert_allclose(root.real_values / root.real_values[0], binomial, rtol=1e-12)


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
    width, _ = _limbs(MEMORY, ArrayVector(a), ArrayVector(b), bits, length)
    worst, allowed = 0.0, 0.0
    for one in digits(a, width):
        for other in digits(b, width):
            real = np.fft.irfft(np.fft.rfft(one, length) * np.fft.rfft(other, length), length)
            worst += float(np.abs(real - np.rint(real)).max())
            allowed += 16 * math.log2(2 * length) * 2.0**-53 * float(np.linalg.norm(one)) * float(np.linalg.norm(other))
    assert allowed < 0.125
    assert worst < 0.3 * allowed
    found = to_array(exact_convolution(MEMORY, ArrayVector(a), ArrayVector(b), length))
    for step in STATE.integers(0, length, 5):
        turned = np.roll(a[::-1], step + 1).astype(object)
        assert int(found[step]) == int((turned * b.astype(object)).sum())
    assert width > 1
    assert (
        found
        == to_array(exact_convolution(MEMORY, ArrayVector(a), ArrayVector(b), 2 * length)).reshape(2, length).sum(axis=0)
    ).all()


def dense_rows(grid: FilterMeasurement) -> np.ndarray:
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
    grid = strategy.measurement(workload, neighbours=neighbours, most_records=most)
    assert isinstance(grid, FilterMeasurement)
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


def _over_table(workload: Workload, grid: FilterMeasurement) -> np.ndarray:
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
        grid, noise = strategy.measurement(workload, neighbours="add-remove", most_records=1), Noise(GAUSSIAN, 10**6)
        _, errors = filtered_answers(workload, grid, np.zeros(grid.rows, dtype=np.int64), noise)
        unit = noise.deviation * grid.spacing
        assert float((errors**2).sum()) / unit**2 == pytest.approx(strategy.workload_cost, rel=1e-8)
        assert errors.max() / unit == pytest.approx(strategy.worst(workload), rel=1e-8)


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
    assert CASES["by sex"].kind.is_filters
    assert not marginals((4, 3), 1).kind.is_filters
    assert not union(filtered(5, "x0", [window(2)]), filtered(5, "x0", [window(3)], circular=True)).kind.is_filters
    scaled = relative(filtered(9, "x0", [window(4), running_sum(9)]))
    assert scaled.kind.is_filters
    assert [block.weight for block in scaled.blocks] == pytest.approx([0.5, 1 / 3])
    with pytest.raises(InvalidInput, match="not filters along one attribute"):
        convolution(marginals((4, 3), 1))
    with pytest.raises(InvalidInput, match="grows beyond"):
        square_root(filtered(40, "x0", [coefficients(np.array([1.0, -2.0, 0.0, 0.5]))]))
    with pytest.raises(InvalidInput, match="filter of the past"):
        square_root(CASES["ends"])
    grid = convolution(CASES["circle"]).measurement(CASES["circle"], neighbours="add-remove", most_records=1)
    assert grid.sensitivity_squared > 0


@pytest.mark.parametrize("times", [1e-30, 1e-12, 1e12])
def test_the_best_filter_of_a_scaled_filter_has_the_scaled_error(times: float) -> None:
    """However large the weight, the same frequencies are asked for."""
    lags = 0.7 ** np.arange(16)
    once, scaled = (convolution(filtered(16, "x0", [coefficients(each)])) for each in (lags, times * lags))
    assert once.workload_cost is not None
    assert scaled.workload_cost == pytest.approx(times**2 * once.workload_cost, rel=1e-9)

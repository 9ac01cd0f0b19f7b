"""Filtered time series: strategies that are filters themselves.

``convolution`` is the Gaussian optimum around a circle: the precision with eigenvalues a_i ~ v_i^(1/2), v_i those of W'W, attains
the singular value bound, and costs one FFT. A series that ends is laid on a circle that is long enough. ``square_root`` splits a
filter of the past into two equal filters, W = R R: each step is measured from steps before it, so a series can grow.

Source: Fawaz, Muthukrishnan, Nikolov 2013 ("Nearly optimal private convolution") for Algorithms 1 and 2, here in the real
orthonormal Fourier basis; the Gaussian optimum goes beyond it. Square roots: Fichtenberger, Henzinger, Upadhyay 2023.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import scipy

from dpdist.errors import InvalidInput
from dpdist.operators import (
    Circulant,
    Dyadic,
    Fourier,
    Hadamard,
    Identity,
    Kronecker,
    Marginal,
    Matrix,
    Operator,
    Product,
    Ring,
    Sparse,
    Toeplitz,
    Total,
)
from dpdist.privacy.accounting import laplace_composition_epsilon
from dpdist.strategies.base import CLOSED_FORM, Strategy
from dpdist.strategies.coefficients import Coefficients
from dpdist.workloads import Workload

NEGLIGIBLE = 1e-24
"""Eigenvalues of W'W below this part of the largest are asked for by nobody: they are rounding."""


def is_filters(workload: Workload) -> bool:
    """Whether all queries are filters along one attribute, value by value of the same others."""
    try:
        line_of(workload)
    except InvalidInput:
        return False
    return True


def line_of(workload: Workload) -> tuple[int, tuple[int, ...], list[Toeplitz]]:
    """The filters' attribute, all attributes they are asked for, and the filters.

    Raises: InvalidInput for other workloads.
    """
    found: set[tuple[int, tuple[int, ...], bool]] = set()
    filters = []
    for block in workload.blocks:
        places = [i for i, f in enumerate(block.factors) if isinstance(f, Toeplitz)] if block.separable else []
        plain = all(isinstance(f, Identity) for i, f in enumerate(block.factors) if i not in places)
        if len(places) != 1 or not plain or block.scales:
            raise InvalidInput(f"queries {block.name!r} are no filter along one attribute; choose 'coa' or 'auto'")
        each = block.factors[places[0]]
        assert isinstance(each, Toeplitz)
        found.add((block.axes[places[0]], block.axes, each.circular))
        filters.append(each)
    if len(found) != 1:
        raise InvalidInput("filters released together run along one attribute, for the same others, all circular or none")
    axis, axes, _ = found.pop()
    return axis, axes, filters


def is_long(workload: Workload) -> bool:
    """Whether the workload goes through the store: formulas over many cells, or filters of long series.

    A long circle is a power of two.
    """
    if is_dyadic(workload):
        return workload.blocks[0].queries > workload.domain.sizes.long_steps
    if not is_filters(workload):
        return False
    first = line_of(workload)[2][0]
    return first.n > workload.domain.sizes.long_steps and not (first.circular and first.n & (first.n - 1))


def is_dyadic(workload: Workload) -> bool:
    """Whether all queries are formulas over the same binary attributes, for every way to negate them."""
    same = len({block.axes for block in workload.blocks}) == 1
    return same and all(isinstance(b.factors[0], Dyadic) and len(b.factors) == 1 and not b.scales for b in workload.blocks)


def is_convolution(workload: Workload) -> bool:
    """Whether ``convolution`` answers the workload."""
    return is_filters(workload) or is_dyadic(workload)


def dyadic_spectra(workload: Workload) -> list[Matrix]:
    """Eigenvalues of each block's formula, (2^d,) each."""
    return [block.factors[0].spectrum for block in workload.blocks if isinstance(block.factors[0], Dyadic)]


def _over_characters(workload: Workload) -> Strategy:
    """The optimum over Z_2^d: a precision of eigenvalues ~ v_i^(1/2) attains the singular value bound."""
    spectra = dyadic_spectra(workload)
    values = np.sum([block.weight**2 * s**2 for block, s in zip(workload.blocks, spectra, strict=True)], axis=0)
    values[values < NEGLIGIBLE * values.max()] = 0.0
    roots = np.sqrt(values)
    axes = workload.blocks[0].axes
    scales = np.sqrt(roots / roots.sum())
    cost = float(roots.sum()) ** 2 / roots.size
    kept = np.flatnonzero(scales)
    picked = Sparse(scipy.sparse.csr_array((scales[kept], (np.arange(kept.size), kept)), shape=(kept.size, scales.size)))
    operator = Product(Product(picked, Hadamard(len(axes))), Marginal(workload.domain.shape, axes))
    return Strategy("convolution", operator, cost, cost * (1 - 1e-12), CLOSED_FORM, characters=scales, axes=axes)


def convolution(workload: Workload) -> Strategy:
    """The least total error around a circle, for one or several filters of one series; or of formulas over binary attributes.

    Returns: a strategy with ``coefficients``, of unit sensitivity. Around a circle its cost is the lower bound; for a series that ends the
        bound is that of the singular values, as far as they are known.
    Raises: InvalidInput when the workload asks for anything but filters.
    """
    if is_dyadic(workload):
        return _over_characters(workload)
    axis, axes, filters = line_of(workload)
    steps = workload.domain.shape[axis]
    points = _points(filters)
    values = np.zeros(points // 2 + 1)
    for block, each in zip(workload.blocks, filters, strict=True):
        values += block.weight**2 * np.abs(each.spectrum(points)) ** 2
    values[values < NEGLIGIBLE * values.max()] = 0.0
    roots = np.sqrt(values)
    total = _sum_over_circle(roots, points)
    coefficients = scipy.fft.irfft(np.sqrt(points * roots / total), points)
    series = math.prod(workload.domain.shape[a] for a in axes if a != axis)
    cost = steps * series * (total / points) ** 2
    lower = cost * (1 - 1e-12) if filters[0].circular else series * _bound_of_ends(workload, filters) or None
    shape = Coefficients(coefficients, True, steps, axis, axes)
    return Strategy("convolution", _over_cells(shape, workload), cost, lower, CLOSED_FORM, coefficients=shape)


def _bound_of_ends(workload: Workload, filters: list[Toeplitz]) -> float:
    """What no strategy can beat, for one series that ends: (sum of W's singular values)^2 / n, from below.

    Of filters together, and of each by itself, whose bounds add up: the least of a sum is at least the sum of the leasts.
    """
    weights = [block.weight for block in workload.blocks]
    alone = sum(_nuclear_norm(filters[i : i + 1], weights[i : i + 1]) ** 2 for i in range(len(filters)))
    return max(alone, _nuclear_norm(filters, weights) ** 2) / filters[0].n


def pinched_bound(workload: Workload) -> float:
    """What no strategy can beat for one long series that ends: its blocks of steps along the diagonal alone cost as much.

    The singular values of a matrix sum to at least those of its diagonal blocks (Bhatia 1997, section IV.2), and every block of as
    many steps of one filter is the same. Those of a running sum are known for all steps.
    """
    _, _, filters = line_of(workload)
    n, first, most = filters[0].n, filters[0], workload.domain.sizes.pinched_steps
    if len(filters) == 1 and _is_running_sum(first):
        parts = (_running_sum_norm(n, start, min(start + most, n)) for start in range(0, n, most))
        return (
            (workload.blocks[0].weight * abs(float(first.entries.read(0, 1)[0])) * math.fsum(parts)) ** 2 / n * (1 - 1e-12)
        )
    count = -(-n // most)
    size = n // count  # few steps are left over
    blocks = []
    for each in filters:  # the lags that reach within a block
        begin = max(0, 1 - size - each.first_lag)
        end = min(each.entries.size, size - each.first_lag)
        blocks.append(Toeplitz(size, each.entries.read(begin, end), each.first_lag + begin))
    weights = [block.weight for block in workload.blocks]
    alone = sum(_nuclear_norm(blocks[i : i + 1], weights[i : i + 1]) ** 2 for i in range(len(blocks)))
    return count**2 * max(alone, _nuclear_norm(blocks, weights) ** 2) / n


def _running_sum_norm(n: int, start: int, stop: int) -> float:
    """The singular values start..stop of a running sum over n steps, summed: 1 / (2 sin((2 k - 1) pi / (4 n + 2)))."""
    odd = 2.0 * np.arange(start + 1, stop + 1) - 1.0
    return float((1.0 / (2.0 * np.sin(odd * np.pi / (4.0 * n + 2.0)))).sum())


def _nuclear_norm(filters: list[Toeplitz], weights: list[float]) -> float:
    """A lower bound of the sum of the singular values of stacked filters of n steps.

    Around a circle of n steps they are known, and what the circle adds, R, is small: ||W|| >= ||W + R|| - ||R||. A coefficient of lag l
    adds |l| entries to R, no two in one row or column: it has the singular value |h_l| as often. Those of lags up to K together stand in
    K columns (2 K if some look ahead): their singular values sum to at most K^1/2 ||R||_F; K is chosen best. Those of a running sum
    are known.
    """
    n = filters[0].n
    if len(filters) == 1 and _is_running_sum(filters[0]):
        return weights[0] * abs(float(filters[0].coefficients[0])) * _running_sum_norm(n, 0, n) * (1 - 1e-12)
    values = np.zeros(n // 2 + 1)
    squares, sums = np.zeros(n), np.zeros(n)
    ahead = back = False
    for each, weight in zip(filters, weights, strict=True):
        values += weight**2 * np.abs(each.spectrum(n)) ** 2
        lags = each.first_lag + np.arange(each.coefficients.size)
        np.add.at(squares, np.abs(lags), weight**2 * each.coefficients**2 * np.abs(lags))
        np.add.at(sums, np.abs(lags), weight * np.abs(each.coefficients) * np.abs(lags))
        ahead, back = ahead or bool(lags[0] < 0), back or bool(lags[-1] > 0)
    columns = np.minimum(n, (ahead + back) * np.arange(n))
    beyond = np.append(np.cumsum(sums[::-1])[::-1][1:], 0.0)
    added = float((np.sqrt(columns * np.cumsum(squares)) + beyond).min())
    return max(0.0, _sum_over_circle(np.sqrt(values), n) - added) * (1 - 1e-12)


def _is_running_sum(each: Toeplitz) -> bool:
    """Whether a filter is the sum of all steps so far, times a constant."""
    return each.first_lag == 0 and each.entries.size == each.n and each.entries.constant


def _points(filters: list[Toeplitz]) -> int:
    """Steps of the circle: the series' own, or enough that no filter sees its other end."""
    steps = filters[0].n
    if filters[0].circular:
        return steps
    return int(scipy.fft.next_fast_len(steps + max(each.reach for each in filters), real=True))


def _sum_over_circle(half: Matrix, points: int) -> float:
    """Sum over all frequencies of a symmetric spectrum given in rfft order."""
    doubled = half[1:-1] if points % 2 == 0 else half[1:]
    return float(half[0] + 2.0 * doubled.sum() + (half[-1] if points % 2 == 0 and points > 1 else 0.0))


def square_root(workload: Workload) -> Strategy:
    """One filter of the past as the product of two equal ones: the first is measured, the second read.

    Returns: a strategy with ``coefficients``; every step is measured from itself and earlier ones.
    Raises: InvalidInput when the workload is not one filter of the past whose present counts.
    """
    axis, axes, each, root = _rooted(workload)
    weight = workload.blocks[0].weight
    series = math.prod(workload.domain.shape[a] for a in axes if a != axis)
    squares = root**2
    cost = weight**2 * series * float(squares.sum() * (squares * np.arange(each.n, 0, -1)).sum())
    shape = Coefficients(root / math.sqrt(float(squares.sum())), False, each.n, axis, axes)
    return Strategy("square-root", _over_cells(shape, workload), cost, None, CLOSED_FORM, coefficients=shape)


def has_square_root(workload: Workload) -> bool:
    """Whether ``square_root`` answers the workload, and ``auto`` compares it: for long series of running sums only."""
    if is_long(workload):
        filters = line_of(workload)[2] if is_filters(workload) else []
        return len(filters) == 1 and not filters[0].circular and _is_running_sum(filters[0])
    try:
        _rooted(workload)
    except InvalidInput:
        return False
    return True


def _rooted(workload: Workload) -> tuple[int, tuple[int, ...], Toeplitz, Matrix]:
    """The one filter of the past that a workload asks for, its attribute, all attributes, and its root.

    Raises: InvalidInput for other workloads.
    """
    axis, axes, filters = line_of(workload)
    each = filters[0]
    if len(filters) > 1 or each.circular or each.first_lag != 0:
        raise InvalidInput(
            "a square root splits one filter of the past (no circle, no look ahead); choose 'convolution' or 'auto'"
        )
    return axis, axes, each, _series_root(each)


def _series_root(each: Toeplitz) -> Matrix:
    """The power series r with r * r = the filter's coefficients up to sign: Newton's iteration for 1 / r, products by FFT.

    Raises: InvalidInput when it grows: a filter that swings more than its past has no use for a root.
    """
    coefficients, n = _padded(each), each.n
    if _is_running_sum(each):  # binomial coefficients
        ratios = (2.0 * np.arange(1, n) - 1.0) / (2.0 * np.arange(1, n))
        return np.asarray(math.sqrt(abs(float(coefficients[0]))) * np.cumprod(np.concatenate([[1.0], ratios])))
    sign = float(np.sign(coefficients[0]))
    inverse = np.array([(coefficients[0] * sign) ** -0.5])
    with np.errstate(over="ignore", invalid="ignore"):
        while inverse.size < n:
            size = min(2 * inverse.size, n)
            square = _product(inverse, inverse)[:size]
            product = -_product(coefficients[:size] * sign, square)[:size]
            product[0] += 3.0
            inverse = _product(inverse, product)[:size] / 2.0
        root = _product(coefficients * sign, inverse)[:n]
        grown = not np.isfinite(root).all() or float(np.abs(root).max()) > MOST_GROWTH * abs(float(root[0]))
    if grown:
        raise InvalidInput("the square root of this filter grows beyond all bounds; choose 'convolution' or 'auto'")
    return root


MOST_GROWTH = 1e3
"""A root whose coefficients exceed the first one by this factor is refused."""


def _over_cells(coefficients: Coefficients, workload: Workload) -> Operator:
    line = (
        Ring(coefficients.points, coefficients.steps, coefficients.values)
        if coefficients.circular
        else Toeplitz(coefficients.steps, coefficients.values)
    )
    parts: list[Operator] = []
    for axis, size in enumerate(workload.domain.shape):
        parts.append(line if axis == coefficients.axis else Identity(size) if axis in coefficients.axes else Total(size))
    return parts[0] if len(parts) == 1 else Kronecker(parts)


def reading(coefficients: Coefficients, each: Toeplitz) -> Matrix:
    """What a measurement by a filter is filtered with to answer a filter: its spectrum on the circle, or its coefficients of the past."""
    if coefficients.circular:
        asked, given = each.spectrum(coefficients.points), scipy.fft.rfft(coefficients.values)
        wanted = np.abs(asked) ** 2 > NEGLIGIBLE * np.abs(asked).max() ** 2
        return np.asarray(np.where(wanted, asked / np.where(wanted, given, 1.0), 0.0))
    return _divided(_padded(each), coefficients.values)


def _padded(each: Toeplitz) -> Matrix:
    """The coefficients of a filter of the past, one a step, (n,)."""
    out = np.zeros(each.n)
    out[: each.coefficients.size] = each.coefficients
    return out


def _divided(series: Matrix, by: Matrix) -> Matrix:
    """The power series g with by * g = series: Newton's iteration for 1 / by, products by FFT."""
    n = series.size
    inverse = np.array([1.0 / by[0]])
    while inverse.size < n:
        size = min(2 * inverse.size, n)
        product = _product(by[:size], inverse)[:size]
        product[0] -= 2.0
        inverse = -_product(product, inverse)[:size]
    return _product(series, inverse)[:n]


def _product(a: Matrix, b: Matrix) -> Matrix:
    size = scipy.fft.next_fast_len(a.size + b.size - 1, real=True)
    out = scipy.fft.irfft(scipy.fft.rfft(a, size) * scipy.fft.rfft(b, size), size)
    return np.asarray(out[: a.size + b.size - 1])


def deviations(coefficients: Coefficients, each: Toeplitz) -> Matrix:
    """Standard error of the filter at every step, (steps,) float64, for noise of deviation 1 on the measured coefficients."""
    found = reading(coefficients, each)
    if coefficients.circular:
        return np.full(
            coefficients.steps, math.sqrt(_sum_over_circle(np.abs(found) ** 2, coefficients.points) / coefficients.points)
        )
    return np.asarray(np.sqrt(np.cumsum(found**2)))


def filters_of(workload: Workload) -> list[Toeplitz]:
    """The filter of each block. Raises: InvalidInput for other workloads."""
    return line_of(workload)[2]


Method = Literal["laplace", "partition", "input", "output"]


@dataclass(frozen=True)
class SpectrumNoise:
    """Independent Laplace noise on the coefficients of the real orthonormal Fourier basis, circular filters.

    Attributes:
        method: "laplace" (Algorithm 1), "partition" (Algorithm 2), "input" (equal noise on the coefficients of x), "output" (equal
            noise on those of the answer).
        scales: Laplace scale of every coefficient of x in the basis' order, infinite where none is released.
        spectrum: |eigenvalue| of the filter there.
        epsilon, delta: what was asked for.
    """

    method: Method
    scales: Matrix = field(repr=False)
    spectrum: Matrix = field(repr=False)
    epsilon: float
    delta: float

    @property
    def mse(self) -> float:
        """Mean squared error of an output: sum of 2 b_i^2 |eigenvalue_i|^2 / N."""
        kept = np.isfinite(self.scales)
        return float((2.0 * self.scales[kept] ** 2 * self.spectrum[kept] ** 2).sum() / self.scales.size)

    def epsilons(self, record: int = 0) -> Matrix:
        """Pure epsilon that each coefficient spends on a record at the given step: |entry of the basis| / scale, (N,)."""
        n = self.scales.size
        unit = np.zeros(n)
        unit[record] = 1.0
        return np.asarray(np.abs(Fourier(n).matvec(unit)) / self.scales)

    @property
    def advanced_epsilon(self) -> float:
        """The paper's bound: (2 ln(1/delta) sum of 1 / (N b_i^2))^1/2."""
        kept = np.isfinite(self.scales)
        spent = float((1.0 / (self.scales.size * self.scales[kept] ** 2)).sum())
        return math.sqrt(2.0 * math.log(1.0 / self.delta) * spent)

    @property
    def zcdp(self) -> float:
        """rho of all coefficients together, the same for a record at any step: half the sum of squared epsilons."""
        return float((self.epsilons() ** 2).sum() / 2.0)

    def composed_epsilon(self, record: int = 0) -> float:
        """Epsilon at delta for a record at a step, by composing privacy loss distributions numerically (extra ``pld``)."""
        spent = self.epsilons(record)
        return laplace_composition_epsilon(spent[spent > 1e-9], self.delta)


def laplace_spectrum(coefficients: Matrix, epsilon: float, delta: float, method: Method = "laplace") -> SpectrumNoise:
    """Noise for one circular filter by the published algorithms.

    Args:
        coefficients: h around the circle, (N,); Algorithm 2 needs N a power of two.
        method: see ``SpectrumNoise``. "partition" gives the largest coefficient the scale eta / N^1/2 of the second one: the scan's
            eta would spend 1/N of its share and leave Theorem 14 by a factor of N (docs/mathematics.md).
    Raises: InvalidInput.
    Source: Fawaz, Muthukrishnan, Nikolov 2013, Algorithms 1 and 2, Theorems 9 and 14.
    """
    if not (epsilon > 0 and 0 < delta < 1):
        raise InvalidInput(f"epsilon > 0 and 0 < delta < 1 are needed, found {epsilon!r} and {delta!r}")
    spectrum = _moduli(coefficients)
    n = spectrum.size
    unitary = spectrum / math.sqrt(n)
    unitary[unitary**2 < NEGLIGIBLE * unitary.max() ** 2] = 0.0
    asked = unitary > 0
    scales = np.full(n, math.inf)
    logs = math.log(1.0 / delta)
    if method == "laplace":
        scales[asked] = np.sqrt(2.0 * logs * unitary.sum() / (epsilon**2 * n * unitary[asked]))
    elif method == "partition":
        if n & (n - 1):
            raise InvalidInput(f"spectrum partition needs a power of two of steps, found {n}")
        levels = n.bit_length() - 1
        base = math.sqrt(2.0 * (1 + levels) * logs) / epsilon
        rank = np.empty(n, dtype=np.int64)
        rank[np.argsort(-unitary, kind="stable")] = np.arange(1, n + 1)
        level = levels - np.ceil(np.log2(np.maximum(rank, 2))).astype(np.int64) + 1
        scales = np.where(asked, base * 2.0 ** (-level / 2.0), math.inf)
    elif method == "input":
        scales[asked] = math.sqrt(2.0 * logs * asked.sum() / n) / epsilon
    else:
        scales[asked] = math.sqrt(2.0 * logs * float((spectrum**2).sum()) / n) / (epsilon * spectrum[asked])
    return SpectrumNoise(method, scales, spectrum, epsilon, delta)


def _moduli(coefficients: Matrix) -> Matrix:
    """|eigenvalue| of the circular filter for every row of the real Fourier basis, (N,)."""
    n = np.asarray(coefficients).size
    return np.asarray(np.abs(Circulant(n, coefficients).spectrum(n))[Fourier(n).frequencies])


def spectral_lower_bound(coefficients: Matrix) -> float:
    """max over i of i^2 |hhat_(i)|^2 / (N log2(N)^2), coefficients in decreasing order: no mechanism's mean squared error is below a
    constant (which depends on epsilon and delta only) times it.

    Source: Fawaz, Muthukrishnan, Nikolov 2013, Theorem 5.
    """
    values = np.sort(_moduli(coefficients))[::-1]
    n = values.size
    unitary = values / math.sqrt(n)
    rank = np.arange(1, n + 1)
    return float((rank**2 * unitary**2).max() / (n * max(1.0, math.log2(n)) ** 2))


def fitted_decay(coefficients: Matrix) -> float:
    """p of |hhat_(i)| <= c i^-p, by least squares over the logarithms of the asked coefficients in decreasing order."""
    values = np.sort(_moduli(coefficients))[::-1]
    values = values[values**2 > NEGLIGIBLE * values[0] ** 2]
    if values.size < 3:
        return math.inf
    return float(-np.polyfit(np.log(np.arange(1, values.size + 1)), np.log(values), 1)[0])

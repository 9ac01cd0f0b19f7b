"""Filtered time series: strategies that are filters themselves.

``convolution`` is the Gaussian optimum around a circle: the precision with eigenvalues a_i ~ v_i^(1/2), v_i those of W'W, attains
the singular value bound, and costs one FFT. A series that ends is laid on a circle that is long enough. ``square_root`` splits a
filter of the past into two equal filters, W = R R: each step is measured from steps before it, so a series can grow.

Source: Fawaz, Muthukrishnan, Nikolov 2013 ("Nearly optimal private convolution") for Algorithms 1 and 2, here in the real
orthonormal Fourier basis; the Gaussian optimum goes beyond it. Square roots: Fichtenberger, Henzinger, Upadhyay 2023.
"""

from __future__ import annotations

import math

import numpy as np
import scipy

from dpdist.errors import InvalidInput
from dpdist.grids.coefficients import NEGLIGIBLE, Coefficients, padded, series_product, sum_over_circle
from dpdist.operators import (
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
from dpdist.strategies.base import CLOSED_FORM
from dpdist.strategies.representations import CharacterStrategy, FilterStrategy
from dpdist.workloads import Workload
from dpdist.workloads.kinds import dyadic_spectra, is_dyadic, is_filters, is_long, is_running_sum, line_of


def is_convolution(workload: Workload) -> bool:
    """Whether ``convolution`` answers the workload."""
    return is_filters(workload) or is_dyadic(workload)


def _over_characters(workload: Workload) -> CharacterStrategy:
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
    return CharacterStrategy("convolution", operator, cost, cost * (1 - 1e-12), CLOSED_FORM, scales=scales, axes=axes)


def convolution(workload: Workload) -> FilterStrategy | CharacterStrategy:
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
    total = sum_over_circle(roots, points)
    coefficients = scipy.fft.irfft(np.sqrt(points * roots / total), points)
    series = math.prod(workload.domain.shape[a] for a in axes if a != axis)
    cost = steps * series * (total / points) ** 2
    lower = cost * (1 - 1e-12) if filters[0].circular else series * _bound_of_ends(workload, filters) or None
    shape = Coefficients(coefficients, True, steps, axis, axes)
    return FilterStrategy("convolution", _over_cells(shape, workload), cost, lower, CLOSED_FORM, coefficients=shape)


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
    if len(filters) == 1 and is_running_sum(first):
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

    Around a circle of n steps they are known, and what the circle adds, R, is small: ||W|| >= ||W + R|| - ||R||. A tap of lag l adds
    |l| entries to R, no two in one row or column: it has the singular value |h_l| as often. Those of lags up to K together stand in
    K columns (2 K if some look ahead): their singular values sum to at most K^1/2 ||R||_F; K is chosen best. Those of a running sum
    are known.
    """
    n = filters[0].n
    if len(filters) == 1 and is_running_sum(filters[0]):
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
    return max(0.0, sum_over_circle(np.sqrt(values), n) - added) * (1 - 1e-12)


def _points(filters: list[Toeplitz]) -> int:
    """Steps of the circle: the series' own, or enough that no filter sees its other end."""
    steps = filters[0].n
    if filters[0].circular:
        return steps
    return int(scipy.fft.next_fast_len(steps + max(each.reach for each in filters), real=True))


def square_root(workload: Workload) -> FilterStrategy:
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
    return FilterStrategy("square-root", _over_cells(shape, workload), cost, None, CLOSED_FORM, coefficients=shape)


def has_square_root(workload: Workload) -> bool:
    """Whether ``square_root`` answers the workload, and ``auto`` compares it: for long series of running sums only."""
    if is_long(workload):
        filters = line_of(workload)[2] if is_filters(workload) else []
        return len(filters) == 1 and not filters[0].circular and is_running_sum(filters[0])
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
    coefficients, n = padded(each), each.n
    if is_running_sum(each):  # binomial coefficients
        ratios = (2.0 * np.arange(1, n) - 1.0) / (2.0 * np.arange(1, n))
        return np.asarray(math.sqrt(abs(float(coefficients[0]))) * np.cumprod(np.concatenate([[1.0], ratios])))
    sign = float(np.sign(coefficients[0]))
    inverse = np.array([(coefficients[0] * sign) ** -0.5])
    with np.errstate(over="ignore", invalid="ignore"):
        while inverse.size < n:
            size = min(2 * inverse.size, n)
            square = series_product(inverse, inverse)[:size]
            product = -series_product(coefficients[:size] * sign, square)[:size]
            product[0] += 3.0
            inverse = series_product(inverse, product)[:size] / 2.0
        root = series_product(coefficients * sign, inverse)[:n]
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

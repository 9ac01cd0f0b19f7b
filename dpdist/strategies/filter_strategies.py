"""Strategies for filtered time series, which are filters themselves.

``convolution`` is the Gaussian optimum around a circle: the precision with eigenvalues a_i ~ v_i^(1/2), v_i those of W'W, attains
the singular value bound, and costs one FFT. A series that ends is laid on a circle that is long enough. ``square_root`` splits a
filter of the past into two equal filters, W = R R: each step is measured from steps before it, so a series can grow.

Source: the Gaussian optimum goes beyond Fawaz, Muthukrishnan, Nikolov 2013 ("Nearly optimal private convolution"), whose independent
Laplace noise on the coefficients has more error. Square roots: Fichtenberger, Henzinger, Upadhyay 2023.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from weakref import WeakKeyDictionary

import numpy as np
import scipy

from dpdist.arrays.array_workspace import MEMORY, OnDone, Workspace
from dpdist.arrays.causal_filters import reading_of, root_of
from dpdist.arrays.circular_filters import NEGLIGIBLE, optimum
from dpdist.arrays.convolution import Steps
from dpdist.arrays.lazy_vector import Held, LazyVector, Vector, held
from dpdist.errors import InvalidInput
from dpdist.measurement.coefficient_vectors import Coefficients, FilterCoefficients, Form, StoredRows, as_kept
from dpdist.measurement.hadamard_measurement import spectra_of
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
from dpdist.strategies.representations import CharacterStrategy, FilterStrategy
from dpdist.strategies.strategy import CLOSED_FORM, queries_of
from dpdist.workloads import Workload
from dpdist.workloads.workload_kind import is_dyadic, is_filters, is_long, is_running_sum, line_of

Made = Callable[[Workload], FilterStrategy]
"""Makes the strategy of one kind for a workload by itself."""
Named = Callable[[Workload, str], str]
"""Names what is kept of a workload's strategy."""


def through_horizons(workloads: Sequence[Workload], made: Made, work: Workspace, named: Named) -> FilterStrategy:
    """The strategy of a stream after all its extensions.

    Args:
        workloads: the same queries over the first, the second, ... and the present horizon.
        work: where it is kept; ``named``: under which name, of which the first one stays.
    """
    found, steps = made(workloads[0]), ""
    for workload in workloads[1:]:
        steps += f"-{found.coefficients.steps}"
        own = made(workload)
        found = _continued(workload, found, own, work, named(workload, f"{own.name}-after{steps}"))
    return found


def _continued(
    workload: Workload, former: FilterStrategy, own: FilterStrategy, work: Workspace, name: str
) -> FilterStrategy:
    """The former coefficients, and after them the later ones of the longer filter in their scale."""
    (each,) = line_of(workload)[2]
    values, facts = work.kept(name) or (None, {})
    if values is None:
        before, after = former.coefficients.real, own.coefficients.real
        listed = np.concatenate([before, after[before.size :] * (before[0] / after[0])])
        spread = np.cumsum(held(reading_of(MEMORY, each, Held(listed))) ** 2)
        facts = {"cost": float(listed @ listed) * float(spread.sum()), "deviations": [math.sqrt(float(spread[-1]))]}
        values = work.write(Held(listed), name, facts)
    first = former.coefficients.first_steps or former.coefficients.steps
    given = coefficients_of(workload, values, work, name, tuple(facts["deviations"]), circular=False)
    given = replace(given, first_steps=first)
    cost = workload.blocks[0].weight ** 2 * given.series * facts["cost"]
    return FilterStrategy(own.name, over_cells(given, workload), cost, own.lower_bound, CLOSED_FORM, coefficients=given)


def over_characters(workload: Workload, work: Workspace, name: str, on_done: OnDone | None) -> CharacterStrategy:
    """The optimum over Z_2^d: a precision of eigenvalues ~ v_i^(1/2) attains the singular value bound."""
    axes = workload.blocks[0].axes
    cells, form = 2 ** len(axes), Form.HELD if work.in_memory else Form.STORED
    values, facts = work.kept(name) or (None, {}) if name else (None, {})
    if not facts:
        with work.scratch() as inner:
            spectra, factors = list(spectra_of(inner, workload, on_done)), [block.weight for block in workload.blocks]
            least = NEGLIGIBLE * max(inner.fold(partial(_largest, factors), *spectra))
            sums = inner.fold(partial(_root_sums, factors, least), *spectra)
            total = math.fsum(part[0] for part in sums)
            squares = (math.fsum(part[1 + i] for part in sums) for i in range(len(spectra)))
            facts = {"cost": total**2 / cells, "deviations": [math.sqrt(each * total) / cells for each in squares]}
            if values is None:
                make = partial(_scales, factors, least, total)
                scales = LazyVector(cells, tuple(spectra), make, 8 * (len(spectra) + 4), "scales")
                values = work.write(as_kept(scales, work), name or None, facts)
    assert values is not None
    given = Coefficients(values, axes, (2,) * len(axes), form, tuple(facts["deviations"]), name, work)
    cost = facts["cost"]
    return CharacterStrategy(
        "convolution", _rows(given, workload), cost, cost * (1 - 1e-12), CLOSED_FORM, coefficients=given
    )


def _roots(factors: Sequence[float], least: float, spectra: Sequence[Matrix]) -> Matrix:
    values = np.zeros(spectra[0].size)
    for factor, part in zip(factors, spectra, strict=True):
        values += (factor * part) ** 2
    values[values < least] = 0.0
    return np.sqrt(values)


def _largest(factors: Sequence[float], start: int, *spectra: Matrix) -> float:
    return float(_roots(factors, 0.0, spectra).max() ** 2)


def _root_sums(factors: Sequence[float], least: float, start: int, *spectra: Matrix) -> list[float]:
    """The sum of the roots, and of each formula's squared eigenvalues over the roots."""
    roots = _roots(factors, least, spectra)
    asked = roots > 0
    below = np.where(asked, roots, 1.0)
    return [float(roots.sum()), *(float(np.where(asked, part.astype(float) ** 2 / below, 0.0).sum()) for part in spectra)]


def _scales(factors: Sequence[float], least: float, total: float, start: int, count: int, *spectra: Matrix) -> Matrix:
    return np.sqrt(_roots(factors, least, spectra) / total)


def _rows(given: Coefficients, workload: Workload) -> Operator:
    if given.form is Form.STORED:
        return StoredRows(given, given.values.size)
    scales = given.real
    kept = np.flatnonzero(scales)
    picked = Sparse(scipy.sparse.csr_array((scales[kept], (np.arange(kept.size), kept)), shape=(kept.size, scales.size)))
    return Product(Product(picked, Hadamard(len(given.axes))), Marginal(workload.domain.shape, given.axes))


def is_convolution(workload: Workload) -> bool:
    """Whether ``convolution`` answers the workload."""
    return is_filters(workload) or is_dyadic(workload)


def convolution(
    workload: Workload, work: Workspace = MEMORY, name: str = "", on_done: OnDone | None = None
) -> FilterStrategy | CharacterStrategy:
    """The strategy of least total error for circular filters of one series, or for formulas over binary attributes.

    Args:
        workload: filters around a circle or along a series, or formulas over binary attributes, (m, n).
        work: where it is computed.
        name: under which the coefficients are kept; the first ones stay.
        on_done: called with the parts that are done and their number.
    Returns: a strategy with ``coefficients``, of unit sensitivity. Around a circle its cost is the lower bound; for a series that ends the
        bound is that of the singular values, as far as they are known.
    Raises: InvalidInput when the workload asks for anything but filters.
    """
    queries_of(workload)
    if is_dyadic(workload):
        return over_characters(workload, work, name, on_done)
    filters = line_of(workload)[2]
    values, facts = work.kept(name) or (None, {}) if name else (None, {})
    if not facts:  # kept coefficients may stand alone
        with work.scratch() as inner:
            tell = Steps(on_done, len(filters) + 1)
            best = optimum(inner, filters, [b.weight for b in workload.blocks], _points(filters, work), tell)
            lower = best.cost * (1 - 1e-12) if filters[0].circular else bound_of_ends(workload)
            facts = {"cost": best.cost, "lower_bound": lower, "deviations": best.deviations}
            if values is None:
                values = work.write(as_kept(best.coefficients(inner, tell), work), name or None, facts)
    assert values is not None
    given = coefficients_of(workload, values, work, name, tuple(facts["deviations"]), circular=True)
    cost, lower = (given.series * facts[which] for which in ("cost", "lower_bound"))
    return FilterStrategy("convolution", over_cells(given, workload), cost, lower or None, CLOSED_FORM, coefficients=given)


def square_root(
    workload: Workload, work: Workspace = MEMORY, name: str = "", on_done: OnDone | None = None
) -> FilterStrategy:
    """The strategy that splits a filter of the past into two equal filters: the first is measured, the second gives the answers.

    Args:
        workload: one filter of the past, (n, n).
        work: where it is computed.
        name: under which the coefficients are kept; the first ones stay.
        on_done: called with the parts that are done and their number.
    Returns: a strategy with ``coefficients``; every step is measured from itself and earlier ones.
    Raises: InvalidInput when the workload is not one filter of the past whose present counts.
    Source: Henzinger, Upadhyay, Upadhyay 2023 (running sums); Fichtenberger, Henzinger, Upadhyay 2023.
    """
    queries_of(workload)
    each = _of_the_past(workload)
    values, facts = work.kept(name) or (None, {}) if name else (None, {})
    if not facts:
        root = root_of(work, each)
        facts = {"cost": root.cost, "deviations": [root.square]}
        if values is None:
            values = work.write(as_kept(root.coefficients, work), name or None, facts)
    assert values is not None
    given = coefficients_of(workload, values, work, name, tuple(facts["deviations"]), circular=False)
    cost = workload.blocks[0].weight ** 2 * given.series * facts["cost"]
    return FilterStrategy("square-root", over_cells(given, workload), cost, None, CLOSED_FORM, coefficients=given)


def has_square_root(workload: Workload) -> bool:
    """Whether ``square_root`` answers the workload, and ``auto`` compares it: for long series of running sums only."""
    if is_long(workload):
        filters = line_of(workload)[2] if is_filters(workload) else []
        return len(filters) == 1 and not filters[0].circular and is_running_sum(filters[0])
    try:
        each = _of_the_past(workload)
        if each not in _WITH_ROOT:
            _WITH_ROOT[each] = _has_root(each)
        return _WITH_ROOT[each]
    except InvalidInput:
        return False


_WITH_ROOT: WeakKeyDictionary[Toeplitz, bool] = WeakKeyDictionary()
"""Filters that were asked for their root: it takes seconds for millions of steps, and checks, plans and mechanisms all ask."""


def _has_root(each: Toeplitz) -> bool:
    try:
        root_of(MEMORY, each)
    except InvalidInput:
        return False
    return True


def is_past(workload: Workload) -> bool:
    """Whether the workload is one filter of the past, whatever its root."""
    try:
        _of_the_past(workload)
    except InvalidInput:
        return False
    return True


def answers_growing(workload: Workload) -> bool:
    """Whether the workload is one filter of the past whose present counts."""
    return is_filters(workload) and is_past(workload) and float(line_of(workload)[2][0].entries.read(0, 1)[0]) != 0.0


def _of_the_past(workload: Workload) -> Toeplitz:
    """The one filter of the past that a workload asks for. Raises: InvalidInput for other workloads."""
    filters = line_of(workload)[2]
    each = filters[0]
    if len(filters) > 1 or each.circular or each.first_lag != 0:
        raise InvalidInput(
            "mechanism 'square-root' answers one filter of the past (not circular, without future steps); choose 'convolution' or 'auto'"
        )
    return each


def coefficients_of(
    workload: Workload, values: Vector, work: Workspace, name: str, deviations: tuple[float, ...], *, circular: bool
) -> FilterCoefficients:
    """The coefficients of one filter as a strategy for every series of a workload."""
    axis, axes, _ = line_of(workload)
    shape, form = tuple(workload.domain.shape[a] for a in axes), Form.HELD if work.in_memory else Form.STORED
    return FilterCoefficients(values, axes, shape, form, deviations, name, work, circular=circular, place=axes.index(axis))


def bound_of_ends(workload: Workload) -> float:
    """What no strategy can beat, for one series that ends: (sum of W's singular values)^2 / n, from below.

    Of filters together, and of each by itself, whose bounds add up: the least of a sum is at least the sum of the leasts. Of long series
    blocks of steps along the diagonal are taken alone: the singular values of a matrix sum to at least those of its diagonal blocks
    (Bhatia 1997, section IV.2), and every block of as many steps of one filter is the same. Those of a running sum are known.
    """
    _, _, filters = line_of(workload)
    n, weights = filters[0].n, [block.weight for block in workload.blocks]
    count = -(-n // workload.domain.sizes.pinched_steps)
    size = n // count  # few steps are left over
    alone = (
        _running_sum_norm(n, weight, each) if is_running_sum(each) else count * _nuclear_norm([each], [weight], size)
        for each, weight in zip(filters, weights, strict=True)
    )
    together = count * _nuclear_norm(filters, weights, size) if len(filters) > 1 else 0.0
    return max(math.fsum(norm**2 for norm in alone), together**2) / n * (1 - 1e-12)


def _running_sum_norm(n: int, weight: float, each: Toeplitz) -> float:
    """The sum of the singular values of a running sum: 1 / (2 sin((2 k - 1) pi / (4 n + 2)))."""
    parts = (np.arange(start, min(start + 2**20, n)) for start in range(0, n, 2**20))
    found = math.fsum(float((0.5 / np.sin((2.0 * part + 1.0) * np.pi / (4.0 * n + 2.0))).sum()) for part in parts)
    return weight * abs(float(each.entries.read(0, 1)[0])) * found


def _nuclear_norm(filters: list[Toeplitz], weights: list[float], n: int) -> float:
    """A lower bound of the sum of the singular values of stacked filters, of n steps of each.

    It is the inner product of W with a matrix Z of norm at most one: Z is the first n rows and columns of each filter over N >= n steps
    around a circle whose responses are those of W over the root of their squared sum. A lag l stands n - |l| times in W.
    """
    points, seen, responses = 1 << (2 * n - 1).bit_length(), [], []
    for each, weight in zip(filters, weights, strict=True):
        begin, end = max(0, 1 - n - each.first_lag), max(0, min(each.entries.size, n - each.first_lag))
        lags, laid = each.first_lag + np.arange(min(begin, end), end), np.zeros(points)
        laid[lags] = weight * each.entries.read(min(begin, end), end)
        seen.append(laid[lags] * (n - np.abs(lags)))
        responses.append((lags, np.fft.rfft(laid)))
    root = np.sqrt(sum(np.abs(each) ** 2 for _, each in responses))
    root[root == 0] = 1.0
    total = sum(
        float(own @ np.fft.irfft(response / root, points)[lags])
        for own, (lags, response) in zip(seen, responses, strict=True)
    )
    return max(total, 0.0)


def _points(filters: list[Toeplitz], work: Workspace) -> int:
    """Steps of the circle: the series' own, or enough that no filter sees its other end; in the store a power of two."""
    steps = filters[0].n + max(each.reach for each in filters)
    if not work.in_memory:
        return int(1 << (steps - 1).bit_length())
    return filters[0].n if filters[0].circular else int(scipy.fft.next_fast_len(steps, real=True))


def over_cells(given: FilterCoefficients, workload: Workload) -> Operator:
    """The strategy's rows over the cells."""
    if given.form is Form.STORED:
        return StoredRows(given, given.values.size * given.series)
    real, axis = given.real, given.axes[given.place]
    line = Ring(real.size, given.steps, real) if given.circular else Toeplitz(given.steps, real)
    parts: list[Operator] = []
    for other, size in enumerate(workload.domain.shape):
        parts.append(line if other == axis else Identity(size) if other in given.axes else Total(size))
    return parts[0] if len(parts) == 1 else Kronecker(parts)

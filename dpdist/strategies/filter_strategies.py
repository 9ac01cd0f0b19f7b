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

from dpdist.arrays.array_workspace import MEMORY, ProgressCallback, Workspace
from dpdist.arrays.causal_filters import reading_of, root_of
from dpdist.arrays.circular_filters import NEGLIGIBLE, optimum
from dpdist.arrays.convolution import Steps
from dpdist.arrays.lazy_vector import ArrayVector, LazyVector, Vector, to_array
from dpdist.errors import InvalidInput
from dpdist.measurement.coefficient_vectors import Coefficients, FilterCoefficients, Form, StoredRows, stored_form
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
from dpdist.strategies.strategy import CLOSED_FORM, check_workload
from dpdist.workloads import Workload
from dpdist.workloads.workload_kind import is_running_sum

StrategyBuilder = Callable[[Workload], FilterStrategy]
"""Makes the strategy of one kind for a workload by itself."""
NameBuilder = Callable[[Workload, str], str]
"""Names what is kept of a workload's strategy."""


def through_horizons(
    workloads: Sequence[Workload], build_strategy: StrategyBuilder, work: Workspace, name_strategy: NameBuilder
) -> FilterStrategy:
    """The strategy of a stream after all its extensions.

    Args:
        workloads: the same queries over the first, the second, ... and the present horizon.
        work: where it is kept; ``name_strategy``: under which name, of which the first one stays.
    """
    strategy, steps = build_strategy(workloads[0]), ""
    for workload in workloads[1:]:
        steps += f"-{strategy.coefficients.steps}"
        horizon_strategy = build_strategy(workload)
        strategy = _extend_strategy(
            workload, strategy, horizon_strategy, work, name_strategy(workload, f"{horizon_strategy.name}-after{steps}")
        )
    return strategy


def _extend_strategy(
    workload: Workload, former_strategy: FilterStrategy, own_strategy: FilterStrategy, work: Workspace, name: str
) -> FilterStrategy:
    """The former coefficients, and after them the later ones of the longer filter in their scale."""
    (stream_filter,) = workload.kind.filters
    values, facts = work.find_vector(name) or (None, {})
    if values is None:
        before, after = former_strategy.coefficients.real_values, own_strategy.coefficients.real_values
        coefficients = np.concatenate([before, after[before.size :] * (before[0] / after[0])])
        variances = np.cumsum(to_array(reading_of(MEMORY, stream_filter, ArrayVector(coefficients))) ** 2)
        facts = {
            "cost": float(coefficients @ coefficients) * float(variances.sum()),
            "deviations": [math.sqrt(float(variances[-1]))],
        }
        values = work.write(ArrayVector(coefficients), name, facts)
    first_steps = former_strategy.coefficients.first_steps or former_strategy.coefficients.steps
    filter_coefficients = coefficients_of(workload, values, work, name, tuple(facts["deviations"]), circular=False)
    filter_coefficients = replace(filter_coefficients, first_steps=first_steps)
    cost = workload.blocks[0].weight ** 2 * filter_coefficients.series * facts["cost"]
    return filter_strategy(own_strategy.name, workload, filter_coefficients, cost, own_strategy.lower_bound)


def _character_strategy(
    workload: Workload, work: Workspace, name: str, report_progress: ProgressCallback | None
) -> CharacterStrategy:
    """The optimum over Z_2^d: a precision of eigenvalues ~ v_i^(1/2) attains the singular value bound."""
    axes = workload.blocks[0].axes
    cells, form = 2 ** len(axes), Form.IN_MEMORY if work.in_memory else Form.STORED
    values, facts = work.find_vector(name) or (None, {}) if name else (None, {})
    if not facts:
        with work.scratch() as inner:
            spectra = list(spectra_of(inner, workload, report_progress))
            factors = [block.weight for block in workload.blocks]
            threshold = NEGLIGIBLE * max(inner.fold(partial(_largest, factors), *spectra))
            sums = inner.fold(partial(_root_sums, factors, threshold), *spectra)
            total = math.fsum(block_sums[0] for block_sums in sums)
            squares = (math.fsum(block_sums[1 + i] for block_sums in sums) for i in range(len(spectra)))
            facts = {"cost": total**2 / cells, "deviations": [math.sqrt(square * total) / cells for square in squares]}
            if values is None:
                make = partial(_scales, factors, threshold, total)
                scales = LazyVector(cells, tuple(spectra), make, 8 * (len(spectra) + 4), "scales")
                values = work.write(stored_form(scales, work), name or None, facts)
    assert values is not None
    coefficients = Coefficients(values, axes, (2,) * len(axes), form, tuple(facts["deviations"]), name, work)
    cost = facts["cost"]
    return CharacterStrategy(
        "convolution",
        _character_rows(coefficients, workload),
        cost,
        cost * (1 - 1e-12),
        CLOSED_FORM,
        coefficients=coefficients,
    )


def _roots(factors: Sequence[float], threshold: float, spectra: Sequence[Matrix]) -> Matrix:
    values = np.zeros(spectra[0].size)
    for factor, spectrum in zip(factors, spectra, strict=True):
        values += (factor * spectrum) ** 2
    values[values < threshold] = 0.0
    return np.sqrt(values)


def _largest(factors: Sequence[float], start: int, *spectra: Matrix) -> float:
    return float(_roots(factors, 0.0, spectra).max() ** 2)


def _root_sums(factors: Sequence[float], threshold: float, start: int, *spectra: Matrix) -> list[float]:
    """The sum of the roots, and of each formula's squared eigenvalues over the roots."""
    roots = _roots(factors, threshold, spectra)
    nonzero = roots > 0
    denominators = np.where(nonzero, roots, 1.0)
    return [
        float(roots.sum()),
        *(float(np.where(nonzero, spectrum.astype(float) ** 2 / denominators, 0.0).sum()) for spectrum in spectra),
    ]


def _scales(factors: Sequence[float], threshold: float, total: float, start: int, count: int, *spectra: Matrix) -> Matrix:
    return np.sqrt(_roots(factors, threshold, spectra) / total)


def _character_rows(coefficients: Coefficients, workload: Workload) -> Operator:
    if coefficients.form is Form.STORED:
        return StoredRows(coefficients, coefficients.values.size)
    scales = coefficients.real_values
    nonzero = np.flatnonzero(scales)
    picked = Sparse(
        scipy.sparse.csr_array((scales[nonzero], (np.arange(nonzero.size), nonzero)), shape=(nonzero.size, scales.size))
    )
    return Product(Product(picked, Hadamard(len(coefficients.axes))), Marginal(workload.domain.shape, coefficients.axes))


def is_convolution(workload: Workload) -> bool:
    """Whether ``convolution`` answers the workload."""
    return workload.kind.is_filters or workload.kind.is_dyadic


def convolution(
    workload: Workload, work: Workspace = MEMORY, name: str = "", report_progress: ProgressCallback | None = None
) -> FilterStrategy | CharacterStrategy:
    """The strategy of least total error for circular filters of one series, or for formulas over binary attributes.

    Args:
        workload: filters around a circle or along a series, or formulas over binary attributes, (m, n).
        work: where it is computed.
        name: under which the coefficients are kept; the first ones stay.
        report_progress: called with the parts that are done and their number.
    Returns: a strategy with ``coefficients``, of unit sensitivity. Around a circle its cost is the lower bound; for a series that ends the
        bound is that of the singular values, as far as they are known.
    Raises: InvalidInput when the workload asks for anything but filters.
    """
    check_workload(workload)
    if workload.kind.is_dyadic:
        return _character_strategy(workload, work, name, report_progress)
    filters = workload.kind.filters
    values, facts = work.find_vector(name) or (None, {}) if name else (None, {})
    if not facts:  # kept coefficients may stand alone
        with work.scratch() as inner:
            progress = Steps(report_progress, len(filters) + 1)
            best = optimum(inner, filters, [b.weight for b in workload.blocks], _circle_points(filters, work), progress)
            lower = best.cost * (1 - 1e-12) if filters[0].circular else finite_series_bound(workload)
            facts = {"cost": best.cost, "lower_bound": lower, "deviations": best.deviations}
            if values is None:
                values = work.write(stored_form(best.coefficients(inner, progress), work), name or None, facts)
    assert values is not None
    filter_coefficients = coefficients_of(workload, values, work, name, tuple(facts["deviations"]), circular=True)
    cost, lower = (filter_coefficients.series * facts[fact_name] for fact_name in ("cost", "lower_bound"))
    return filter_strategy("convolution", workload, filter_coefficients, cost, lower or None)


def square_root(
    workload: Workload, work: Workspace = MEMORY, name: str = "", report_progress: ProgressCallback | None = None
) -> FilterStrategy:
    """The strategy that splits a filter of the past into two equal filters: the first is measured, the second gives the answers.

    Args:
        workload: one filter of the past, (n, n).
        work: where it is computed.
        name: under which the coefficients are kept; the first ones stay.
        report_progress: called with the parts that are done and their number.
    Returns: a strategy with ``coefficients``; every step is measured from itself and earlier ones.
    Raises: InvalidInput when the workload is not one filter of the past whose present counts.
    Source: Henzinger, Upadhyay, Upadhyay 2023 (running sums); Fichtenberger, Henzinger, Upadhyay 2023.
    """
    check_workload(workload)
    causal_filter = _causal_filter(workload)
    values, facts = work.find_vector(name) or (None, {}) if name else (None, {})
    if not facts:
        root = root_of(work, causal_filter)
        facts = {"cost": root.cost, "deviations": [root.square]}
        if values is None:
            values = work.write(stored_form(root.coefficients, work), name or None, facts)
    assert values is not None
    filter_coefficients = coefficients_of(workload, values, work, name, tuple(facts["deviations"]), circular=False)
    cost = workload.blocks[0].weight ** 2 * filter_coefficients.series * facts["cost"]
    return filter_strategy("square-root", workload, filter_coefficients, cost)


def has_square_root(workload: Workload) -> bool:
    """Whether ``square_root`` answers the workload, and ``auto`` compares it: for long series of running sums only."""
    if workload.kind.is_long:
        filters = workload.kind.filters if workload.kind.is_filters else []
        return len(filters) == 1 and not filters[0].circular and is_running_sum(filters[0])
    try:
        causal_filter = _causal_filter(workload)
        if causal_filter not in _WITH_ROOT:
            _WITH_ROOT[causal_filter] = _has_root(causal_filter)
        return _WITH_ROOT[causal_filter]
    except InvalidInput:
        return False


_WITH_ROOT: WeakKeyDictionary[Toeplitz, bool] = WeakKeyDictionary()
"""Filters that were asked for their root: it takes seconds for millions of steps, and checks, plans and mechanisms all ask."""


def _has_root(causal_filter: Toeplitz) -> bool:
    try:
        root_of(MEMORY, causal_filter)
    except InvalidInput:
        return False
    return True


def is_causal_filter(workload: Workload) -> bool:
    """Whether the workload is one filter of the past, whatever its root."""
    try:
        _causal_filter(workload)
    except InvalidInput:
        return False
    return True


def answers_growing(workload: Workload) -> bool:
    """Whether the workload is one filter of the past whose present counts."""
    return (
        workload.kind.is_filters
        and is_causal_filter(workload)
        and float(workload.kind.filters[0].entries.read(0, 1)[0]) != 0.0
    )


def _causal_filter(workload: Workload) -> Toeplitz:
    """The one filter of the past that a workload asks for. Raises: InvalidInput for other workloads."""
    filters = workload.kind.filters
    causal_filter = filters[0]
    if len(filters) > 1 or causal_filter.circular or causal_filter.first_lag != 0:
        raise InvalidInput(
            "mechanism 'square-root' answers one filter of the past (not circular, without future steps); choose 'convolution' or 'auto'"
        )
    return causal_filter


def coefficients_of(
    workload: Workload, values: Vector, work: Workspace, name: str, deviations: tuple[float, ...], *, circular: bool
) -> FilterCoefficients:
    """The coefficients of one filter as a strategy for every series of a workload."""
    axis, axes, _ = workload.kind.filters_along_axis
    shape = tuple(workload.domain.shape[table_axis] for table_axis in axes)
    form = Form.IN_MEMORY if work.in_memory else Form.STORED
    return FilterCoefficients(
        values, axes, shape, form, deviations, name, work, circular=circular, step_axis=axes.index(axis)
    )


def filter_strategy(
    name: str, workload: Workload, coefficients: FilterCoefficients, cost: float, lower_bound: float | None = None
) -> FilterStrategy:
    """The strategy that is one filter, with its cost for a workload; arguments: as of ``Strategy``."""
    rows = rows_over_cells(coefficients, workload)
    return FilterStrategy(name, rows, cost, lower_bound, CLOSED_FORM, coefficients=coefficients)


def finite_series_bound(workload: Workload) -> float:
    """What no strategy can beat, for one series that ends: (sum of W's singular values)^2 / n, from below.

    Of filters together, and of each by itself, whose bounds add up: the least of a sum is at least the sum of the leasts. Of long series
    blocks of steps along the diagonal are taken alone: the singular values of a matrix sum to at least those of its diagonal blocks
    (Bhatia 1997, section IV.2), and every block of as many steps of one filter is the same. Those of a running sum are known.
    """
    _, _, filters = workload.kind.filters_along_axis
    n, weights = filters[0].n, [block.weight for block in workload.blocks]
    count = -(-n // workload.domain.sizes.pinched_steps)
    size = n // count  # few steps are left over
    alone = (
        _running_sum_norm(n, weight, stream_filter)
        if is_running_sum(stream_filter)
        else count * _nuclear_norm([stream_filter], [weight], size)
        for stream_filter, weight in zip(filters, weights, strict=True)
    )
    together = count * _nuclear_norm(filters, weights, size) if len(filters) > 1 else 0.0
    return max(math.fsum(norm**2 for norm in alone), together**2) / n * (1 - 1e-12)


def _running_sum_norm(n: int, weight: float, running_sum: Toeplitz) -> float:
    """The sum of the singular values of a running sum: 1 / (2 sin((2 k - 1) pi / (4 n + 2)))."""
    step_blocks = (np.arange(start, min(start + 2**20, n)) for start in range(0, n, 2**20))
    norm = math.fsum(
        float((0.5 / np.sin((2.0 * step_block + 1.0) * np.pi / (4.0 * n + 2.0))).sum()) for step_block in step_blocks
    )
    return weight * abs(float(running_sum.entries.read(0, 1)[0])) * norm


def _nuclear_norm(filters: list[Toeplitz], weights: list[float], n: int) -> float:
    """A lower bound of the sum of the singular values of stacked filters, of n steps of each.

    It is the inner product of W with a matrix Z of norm at most one: Z is the first n rows and columns of each filter over N >= n steps
    around a circle whose responses are those of W over the root of their squared sum. A lag l stands n - |l| times in W.
    """
    points, weighted_coefficients, responses = 1 << (2 * n - 1).bit_length(), [], []
    for member, weight in zip(filters, weights, strict=True):
        begin, end = max(0, 1 - n - member.first_lag), max(0, min(member.entries.size, n - member.first_lag))
        lags, laid = member.first_lag + np.arange(min(begin, end), end), np.zeros(points)
        laid[lags] = weight * member.entries.read(min(begin, end), end)
        weighted_coefficients.append(laid[lags] * (n - np.abs(lags)))
        responses.append((lags, np.fft.rfft(laid)))
    root = np.sqrt(sum(np.abs(member) ** 2 for _, member in responses))
    root[root == 0] = 1.0
    total = sum(
        float(step_weights @ np.fft.irfft(response / root, points)[lags])
        for step_weights, (lags, response) in zip(weighted_coefficients, responses, strict=True)
    )
    return max(total, 0.0)


def _circle_points(filters: list[Toeplitz], work: Workspace) -> int:
    """Steps of the circle: the series' own, or enough that no filter sees its other end; in the store a power of two."""
    steps = filters[0].n + max(stream_filter.padding_steps for stream_filter in filters)
    if not work.in_memory:
        return int(1 << (steps - 1).bit_length())
    return filters[0].n if filters[0].circular else int(scipy.fft.next_fast_len(steps, real=True))


def rows_over_cells(filter_coefficients: FilterCoefficients, workload: Workload) -> Operator:
    """The strategy's rows over the cells."""
    if filter_coefficients.form is Form.STORED:
        return StoredRows(filter_coefficients, filter_coefficients.values.size * filter_coefficients.series)
    real, axis = filter_coefficients.real_values, filter_coefficients.axes[filter_coefficients.step_axis]
    series_operator = (
        Ring(real.size, filter_coefficients.steps, real)
        if filter_coefficients.circular
        else Toeplitz(filter_coefficients.steps, real)
    )
    factors: list[Operator] = []
    for attribute, size in enumerate(workload.domain.shape):
        factors.append(
            series_operator
            if attribute == axis
            else Identity(size)
            if attribute in filter_coefficients.axes
            else Total(size)
        )
    return factors[0] if len(factors) == 1 else Kronecker(factors)

"""Running sums from a few buffers: a strategy that is drawn and read step by step in a few numbers, whatever the length of the series.

Its coefficients are a sum of d falling exponentials (buffered linear Toeplitz: McMahan, Xu, Zhang 2024). The generating function is a
rational one with interlaced poles and zeros, F(x) = prod (1 - nu_i x) / prod (1 - lambda_i x), and so is 1 / ((1 - x) F), which reads
it: both lengths, and with them the total error, are closed forms in 2 d numbers, which are fitted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy

from dpdist.api import InvalidInput
from dpdist.api.mechanisms import (
    MEMORY,
    ArrayVector,
    FilterStrategy,
    Matrix,
    Workload,
    Workspace,
    check_workload,
    coefficients_of,
    filter_strategy,
    finite_series_bound,
    is_running_sum,
)

BUFFER_COUNT = 6
"""Seven would gain less than one part in a thousand up to 2^20 steps (benchmarks/buffered_streams.py)."""


@dataclass(frozen=True)
class BufferedCoefficients:
    """A fitted strategy for running sums.

    Attributes:
        rates: decay of each exponential of the coefficients, ``amplitudes`` their sizes: c_k = sum of share exp(-rate k) for k >= 1.
        reading_rates, reading_amplitudes: the same of what reads them, from k = 0 on.
        cost: total variance at noise multiplier 1.
    """

    rates: Matrix
    amplitudes: Matrix
    reading_rates: Matrix
    reading_amplitudes: Matrix
    cost: float


def buffered_coefficients(steps: int, spacings: Matrix) -> BufferedCoefficients:
    """The strategy of logarithmic spacings of poles and zeros, in turn, the slowest first.

    With F(x) = prod (1 - nu x) / prod (1 - lambda x) the coefficients are those of F and the reading's of 1 / ((1 - x) F).
    """
    exponents = np.cumsum(np.exp(spacings))
    poles, zeros = exponents[0::2], exponents[1::2]
    reading = np.append(0.0, zeros)
    amplitudes, reading_amplitudes = _residues(zeros, poles), _residues(poles, reading)
    squares = 1.0 + amplitudes @ (_geometric_sums(poles[:, None] + poles, steps)[0] - 1.0) @ amplitudes
    errors = reading_amplitudes @ _geometric_sums(reading[:, None] + reading, steps)[1] @ reading_amplitudes
    return BufferedCoefficients(poles, amplitudes, reading, reading_amplitudes, float(squares * errors))


def fit_buffers(steps: int, count: int) -> BufferedCoefficients:
    """The buffers of least total error over so many steps."""

    def objective(spacings: Matrix) -> float:
        return math.log(buffered_coefficients(steps, spacings).cost)

    initial = np.log(np.diff(np.append(0.0, np.geomspace(0.5 / steps, 1.0, 2 * count))))
    limits = [(-40.0, 3.0)] * initial.size
    result = scipy.optimize.minimize(
        objective, initial, method="L-BFGS-B", bounds=limits, options={"maxiter": 2000, "maxfun": 10**5}
    )
    return buffered_coefficients(steps, result.x)


def _residues(tops: Matrix, bottoms: Matrix) -> Matrix:
    """Of prod (1 - e^-top x) / prod (1 - e^-bottom x) at each of its poles."""
    differences = -np.expm1(bottoms[:, None] - bottoms)
    np.fill_diagonal(differences, 1.0)
    return np.asarray(np.prod(-np.expm1(bottoms[:, None] - tops), axis=1) / np.prod(differences, axis=1))


def _geometric_sums(decay: Matrix, steps: int) -> tuple[Matrix, Matrix]:
    """Sums over k < steps of e^(-decay k), and of those times steps - k."""
    is_flat = decay * steps < 1e-9
    nonzero_decay = np.where(is_flat, 1.0, decay)
    geometric_sum = np.where(is_flat, steps, np.expm1(-nonzero_decay * steps) / np.expm1(-nonzero_decay))
    return geometric_sum, np.where(
        is_flat, steps * (steps + 1) / 2, -(steps - np.exp(-decay) * geometric_sum) / np.expm1(-nonzero_decay)
    )


def is_growing_sum(workload: Workload) -> bool:
    """Whether all that is asked is one running sum, which is held in memory."""
    if not workload.kind.is_filters or workload.kind.is_long:
        return False
    filters = workload.kind.filters
    return len(filters) == 1 and not filters[0].circular and is_running_sum(filters[0])


def buffered(workload: Workload, work: Workspace = MEMORY, name: str = "", *, count: int = BUFFER_COUNT) -> FilterStrategy:
    """A strategy of a few buffers for one running sum of each series.

    Args:
        workload: one running sum of each series, (m, n).
        work: where it is kept.
        name: under which the coefficients are kept; the first ones stay.
        count: number of buffers.
    Returns: a strategy with ``coefficients``; every step is measured from itself and earlier ones.
    Raises: InvalidInput for other workloads.
    """
    check_workload(workload)
    if not is_growing_sum(workload):
        raise InvalidInput(
            "mechanism 'buffered' answers one running sum that is held in memory; choose 'square-root' or 'auto'"
        )
    (stream_filter,), weight = workload.kind.filters, workload.blocks[0].weight
    values, facts = work.find_vector(name) or (None, {}) if name else (None, {})
    if values is None:
        fitted = fit_buffers(stream_filter.n, count)
        coefficients = np.append(1.0, fitted.amplitudes @ np.exp(-fitted.rates[:, None] * np.arange(1, stream_filter.n)))
        reading = fitted.reading_amplitudes @ np.exp(-fitted.reading_rates[:, None] * np.arange(stream_filter.n))
        length = math.sqrt(float(coefficients @ coefficients))
        facts = {"cost": fitted.cost, "deviations": [length * math.sqrt(float(reading @ reading))]}
        values = work.write(ArrayVector(coefficients / length), name or None, facts)
    factor = abs(float(stream_filter.entries.read(0, 1)[0]))
    filter_coefficients = coefficients_of(
        workload, values, work, name, tuple(factor * d for d in facts["deviations"]), circular=False
    )
    cost = weight**2 * factor**2 * filter_coefficients.series * facts["cost"]
    lower = filter_coefficients.series * finite_series_bound(workload)
    return filter_strategy("buffered", workload, filter_coefficients, cost, lower)

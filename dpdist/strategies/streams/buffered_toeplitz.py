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

from dpdist.arrays.array_workspace import MEMORY, Workspace
from dpdist.arrays.lazy_vector import Held
from dpdist.errors import InvalidInput
from dpdist.operators import Matrix
from dpdist.strategies.filter_strategies import bound_of_ends, coefficients_of, over_cells
from dpdist.strategies.representations import FilterStrategy
from dpdist.strategies.strategy import CLOSED_FORM, queries_of
from dpdist.workloads import Workload
from dpdist.workloads.workload_kind import is_filters, is_long, is_running_sum, line_of

BUFFERS = 6
"""Seven would gain less than one part in a thousand up to 2^20 steps (benchmarks/buffers.py)."""


@dataclass(frozen=True)
class Buffers:
    """A fitted strategy for running sums.

    Attributes:
        rates: decay of each exponential of the coefficients, ``shares`` their sizes: c_k = sum of share exp(-rate k) for k >= 1.
        reading_rates, reading_shares: the same of what reads them, from k = 0 on.
        cost: total variance at noise multiplier 1.
    """

    rates: Matrix
    shares: Matrix
    reading_rates: Matrix
    reading_shares: Matrix
    cost: float


def buffers(steps: int, spacings: Matrix) -> Buffers:
    """The strategy of logarithmic spacings of poles and zeros, in turn, the slowest first.

    With F(x) = prod (1 - nu x) / prod (1 - lambda x) the coefficients are those of F and the reading's of 1 / ((1 - x) F).
    """
    places = np.cumsum(np.exp(spacings))
    poles, zeros = places[0::2], places[1::2]
    reading = np.append(0.0, zeros)
    shares, reading_shares = _residues(zeros, poles), _residues(poles, reading)
    squares = 1.0 + shares @ (_sums(poles[:, None] + poles, steps)[0] - 1.0) @ shares
    errors = reading_shares @ _sums(reading[:, None] + reading, steps)[1] @ reading_shares
    return Buffers(poles, shares, reading, reading_shares, float(squares * errors))


def fitted(steps: int, count: int) -> Buffers:
    """The buffers of least total error over so many steps."""

    def objective(spacings: Matrix) -> float:
        return math.log(buffers(steps, spacings).cost)

    first = np.log(np.diff(np.append(0.0, np.geomspace(0.5 / steps, 1.0, 2 * count))))
    within = [(-40.0, 3.0)] * first.size
    found = scipy.optimize.minimize(
        objective, first, method="L-BFGS-B", bounds=within, options={"maxiter": 2000, "maxfun": 10**5}
    )
    return buffers(steps, found.x)


def _residues(tops: Matrix, bottoms: Matrix) -> Matrix:
    """Of prod (1 - e^-top x) / prod (1 - e^-bottom x) at each of its poles."""
    others = -np.expm1(bottoms[:, None] - bottoms)
    np.fill_diagonal(others, 1.0)
    return np.asarray(np.prod(-np.expm1(bottoms[:, None] - tops), axis=1) / np.prod(others, axis=1))


def _sums(decay: Matrix, steps: int) -> tuple[Matrix, Matrix]:
    """Sums over k < steps of e^(-decay k), and of those times steps - k."""
    still = decay * steps < 1e-9
    moving = np.where(still, 1.0, decay)
    plain = np.where(still, steps, np.expm1(-moving * steps) / np.expm1(-moving))
    return plain, np.where(still, steps * (steps + 1) / 2, -(steps - np.exp(-decay) * plain) / np.expm1(-moving))


def is_growing_sum(workload: Workload) -> bool:
    """Whether all that is asked is one running sum, which is held in memory."""
    if not is_filters(workload) or is_long(workload):
        return False
    filters = line_of(workload)[2]
    return len(filters) == 1 and not filters[0].circular and is_running_sum(filters[0])


def buffered(workload: Workload, work: Workspace = MEMORY, name: str = "", *, count: int = BUFFERS) -> FilterStrategy:
    """A strategy of a few buffers for one running sum of each series.

    Args:
        workload: one running sum of each series, (m, n).
        work: where it is kept.
        name: under which the coefficients are kept; the first ones stay.
        count: number of buffers.
    Returns: a strategy with ``coefficients``; every step is measured from itself and earlier ones.
    Raises: InvalidInput for other workloads.
    """
    queries_of(workload)
    if not is_growing_sum(workload):
        raise InvalidInput(
            "mechanism 'buffered' answers one running sum that is held in memory; choose 'square-root' or 'auto'"
        )
    (each,), weight = line_of(workload)[2], workload.blocks[0].weight
    values, facts = work.kept(name) or (None, {}) if name else (None, {})
    if values is None:
        found = fitted(each.n, count)
        listed = np.append(1.0, found.shares @ np.exp(-found.rates[:, None] * np.arange(1, each.n)))
        reading = found.reading_shares @ np.exp(-found.reading_rates[:, None] * np.arange(each.n))
        length = math.sqrt(float(listed @ listed))
        facts = {"cost": found.cost, "deviations": [length * math.sqrt(float(reading @ reading))]}
        values = work.write(Held(listed / length), name or None, facts)
    factor = abs(float(each.entries.read(0, 1)[0]))
    given = coefficients_of(workload, values, work, name, tuple(factor * d for d in facts["deviations"]), circular=False)
    cost = weight**2 * factor**2 * given.series * facts["cost"]
    lower = given.series * bound_of_ends(workload)
    return FilterStrategy("buffered", over_cells(given, workload), cost, lower, CLOSED_FORM, coefficients=given)

"""Filtered time series: running sums, windows, decays, trends, bands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import numpy as np
import scipy

from dpdist.domain import Domain
from dpdist.domain.labels import LazySequence
from dpdist.errors import InvalidInput
from dpdist.operators import Circulant, Matrix, Operator, StepMeans, Toeplitz
from dpdist.operators.linear_operator import Entries
from dpdist.operators.toeplitz import PowerCoefficients
from dpdist.size_limits import SIZES, Sizes
from dpdist.workloads.block import Block
from dpdist.workloads.workload import Workload, along, values_of

NEGLIGIBLE = 1e-12
"""Coefficients of infinite filters below this part of the largest are cut."""


@dataclass(frozen=True)
class Filter:
    """y_t = sum over k of coefficients[k] x_{t - first_lag - k}.

    Attributes:
        name: the filter in words.
        coefficients: (lags,) float64.
        first_lag: negative where the filter looks ahead.
        normalised: whether what it holds at the ends of a series is divided by the sum of the coefficients there.
    """

    name: str
    coefficients: Matrix | Entries = field(repr=False)
    first_lag: int = 0
    normalised: bool = False


def running_sum(n: int, sizes: Sizes = SIZES) -> Filter:
    """The sum of all steps so far."""
    return Filter("running sum", PowerCoefficients(n, 0.0) if n > sizes.listed_values else np.ones(n))


def window(width: int, *, mean: bool = False) -> Filter:
    """The sum (or mean) of the last ``width`` steps."""
    _check_at_least("the width of a window", width, 1)
    statistic = "mean" if mean else "sum"
    return Filter(f"{statistic} of {width} steps", np.full(width, 1.0 / width if mean else 1.0))


def exponential(rate: float, n: int) -> Filter:
    """sum of rate^k x_{t-k}, 0 < rate < 1."""
    if not 0 < rate < 1:
        raise InvalidInput(f"the rate of an exponential decay lies in (0, 1), found {rate:g}; for 1 ask for the running sum")
    lags = min(n, 1 + math.ceil(math.log(NEGLIGIBLE) / math.log(rate)))
    return Filter(f"exponential decay {rate:g}", powers(rate, lags))


def powers(rate: float, count: int) -> Matrix:
    """1, rate, rate^2, ..., (count,): the same bits on every processor, whose vector units round powers in ways of their own.

    >>> powers(0.5, 5).tolist()
    [1.0, 0.5, 0.25, 0.125, 0.0625]
    """
    values = np.ones(1)
    while values.size < count:
        values = np.append(values, values * float(Decimal(rate) ** values.size))
    return values[:count]


def polynomial(power: float, n: int, sizes: Sizes = SIZES) -> Filter:
    """sum of (k + 1)^-power x_{t-k}, power > 0."""
    if not (power > 0 and math.isfinite(power)):
        raise InvalidInput(f"the power of a polynomial decay is positive, found {power:g}")
    decay = PowerCoefficients(n, power)
    return Filter(f"polynomial decay {power:g}", decay if n > sizes.listed_values else decay.values)


def hodrick_prescott(smoothing: float, n: int, *, component: str = "trend") -> Filter:
    """The two-sided Hodrick-Prescott filter far from the ends of a series: for the trend or the cycle (series minus trend).

    Args:
        smoothing: lambda, 1600 for quarters.
    Source: Hodrick & Prescott 1997; transfer function of the cycle 4 l (1 - cos w)^2 / (1 + 4 l (1 - cos w)^2) (King & Rebelo 1993).
    """
    if not (smoothing > 0 and math.isfinite(smoothing)) or component not in ("trend", "cycle"):
        raise InvalidInput(
            f"a Hodrick-Prescott filter needs a positive lambda and 'trend' or 'cycle', found {smoothing:g}, {component!r}"
        )
    reach = 64 * math.ceil(smoothing**0.25)  # coefficients fall below 1e-12 of the largest well before
    points = scipy.fft.next_fast_len(max(4 * min(n, max(SIZES.listed_values, reach)), reach))
    weight = 4.0 * smoothing * (1.0 - np.cos(2.0 * np.pi * np.arange(points // 2 + 1) / points)) ** 2
    response = weight / (1.0 + weight) if component == "cycle" else 1.0 / (1.0 + weight)
    around = scipy.fft.irfft(response, points)[: points // 2]
    half_width = min(n - 1, int(np.flatnonzero(np.abs(around) > NEGLIGIBLE * np.abs(around[0])).max()))
    tail = around[1 : half_width + 1]
    return Filter(
        f"Hodrick-Prescott {component}, lambda {smoothing:g}", np.concatenate([tail[::-1], around[:1], tail]), -half_width
    )


def baxter_king(shortest: float, longest: float, width: int) -> Filter:
    """The band of periods from ``shortest`` to ``longest`` steps, by 2 width + 1 coefficients that sum to zero.

    Source: Baxter & King 1999.
    """
    _check_at_least("the half width of a Baxter-King filter", width, 1)
    if not 2 <= shortest < longest:
        raise InvalidInput(f"a band needs 2 <= shortest < longest period, found {shortest:g} and {longest:g}")
    low, high = 2.0 * np.pi / longest, 2.0 * np.pi / shortest
    k = np.arange(1, width + 1)
    tail = (np.sin(high * k) - np.sin(low * k)) / (np.pi * k)
    band = np.concatenate([tail[::-1], [(high - low) / np.pi], tail])
    return Filter(f"periods of {shortest:g} to {longest:g} steps", band - band.mean(), -width)


def coefficients(values: Matrix, name: str = "filter", *, first_lag: int = 0) -> Filter:
    """The filter with the given coefficients."""
    return Filter(name, np.asarray(values), first_lag)


def whole_steps(series_filter: Filter, steps: int) -> range:
    """The steps of a series at which all coefficients of a filter lie within it.

    >>> whole_steps(window(7), 10), whole_steps(baxter_king(2, 3, 2), 10)
    (range(6, 10), range(2, 8))
    """
    size = series_filter.coefficients.size
    return range(max(0, series_filter.first_lag + size - 1), min(steps, steps + series_filter.first_lag))


def filtered(
    domain: Domain | int, of: str, filters: Sequence[Filter], by: tuple[str, ...] = (), *, circular: bool = False
) -> Workload:
    """Filters of the counts along one ordered attribute: one query for each filter, step and combination of the ``by`` attributes.

    A step without records has the count zero. Coefficients that would reach beyond the series are cut off.

    Args:
        domain: a domain, or the number of steps of an anonymous one (its attribute is x0).
        of: name of the ordered attribute, whose values are the steps.
        filters: the filters, with a name and coefficients each.
        by: names of the attributes whose every combination has a series of its own.
        circular: whether the step after the last one is the first one.
    Raises: InvalidInput for an attribute that does not exist.
    """
    whole = domain if isinstance(domain, Domain) else Domain.of_shape((domain,))
    names = [f.name for f in filters]
    if not filters or len(set(names)) != len(names):
        raise InvalidInput(f"filters need distinct names and at least one, found {names}")
    attribute = whole.attribute(of)
    if attribute.categories:
        raise InvalidInput(f"attribute {of!r} has categories, which have no order; filters need edges or from/to")
    if of in by or len(set(by)) != len(by):
        raise InvalidInput(f"filters of {of!r} name an attribute twice: {[of, *by]}")
    kind = Circulant if circular else Toeplitz
    blocks = []
    for series_filter in filters:
        steps = kind(attribute.values, series_filter.coefficients, series_filter.first_lag)
        axis_factors: list[tuple[int, Operator]] = [
            (whole.axis(of), along(attribute, StepMeans(steps) if series_filter.normalised else steps))
        ]
        axis_factors += [(whole.axis(name), values_of(whole.attribute(name))) for name in by]
        axis_factors.sort(key=lambda axis_factor: axis_factor[0])
        axes, factors = tuple(axis for axis, _ in axis_factors), tuple(factor for _, factor in axis_factors)
        texts = (_names(f, whole.attributes[axis].labels, whole.sizes) for axis, f in zip(axes, factors, strict=True))
        title = series_filter.name + (" by " + ", ".join(by) if by else "")
        blocks.append(Block(title, axes, factors, tuple(texts)))
    return Workload(whole, tuple(blocks))


@dataclass(frozen=True)
class RowNames(LazySequence[str]):
    """Names of an operator's rows, made when they are read."""

    operator: Operator
    cells: Sequence[str]

    def __len__(self) -> int:
        return self.operator.shape[0]

    def value_at(self, index: int) -> str:
        return self.operator.row_names(index, index + 1, self.cells)[0]

    def slice_values(self, start: int, stop: int) -> list[str]:
        return self.operator.row_names(start, stop, self.cells)


def _names(operator: Operator, cells: Sequence[str], sizes: Sizes) -> Sequence[str]:
    names = RowNames(operator, cells)
    return names if len(names) > sizes.listed_values else tuple(names[:])


def _check_at_least(subject: str, value: int, minimum: int) -> None:
    if value != int(value) or value < minimum:
        raise InvalidInput(f"{subject} is a whole number of at least {minimum}, found {value!r}")

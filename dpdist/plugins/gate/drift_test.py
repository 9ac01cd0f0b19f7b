"""Whether the newest answers of a series drift away from its trend, with a stated rate of false alarms.

A drift of which every step is small is followed by forecasts of the next answer. So the last periods of each window are compared with all
of the earlier ones at once: answers are a line, a season of a year (two harmonics), a level that walks, independent errors, and a slope
that begins with the window. Generalised least squares gives the slope and its standard error; by how much the level walks is found by
restricted likelihood (Patterson & Thompson 1971), and of all walks that are about as likely as the best one that counts which makes the
slope least certain. If the errors are normal, slope / standard error then follows Student's t distribution or is closer to zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from dpdist.plugins.gate.linear_forecasts import MOST_PERIODS_A_YEAR, YEAR_HARMONICS, harmonics, walk_covariance

Answers = NDArray[np.float64]

WINDOWS = (8, 16, 26)
"""A drift is looked for in so many last periods."""
WALKS = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""Variances of a step of the level, in those of an answer's own error."""
LIKELY = 3.0
"""A walk counts if the logarithm of its likelihood is at most so much smaller than that of the best one."""


@dataclass(frozen=True)
class UnlikelySlope:
    """An answer that drifts.

    Attributes:
        index: of the answer among those that are compared.
        periods: in which it does.
        growth: per period.
        half_width: of the growth that chance allows.
    """

    index: int
    periods: int
    growth: float
    half_width: float


def find_drifts(answers: Answers, deviations: Answers, periods_a_year: float, level: float) -> list[UnlikelySlope]:
    """The answers that drift, each with the window in which it is surest.

    Args:
        answers: one period a row, the newest last.
        deviations: standard deviations of their noise.
        level: the probability of an alarm for one answer that does not drift.
    """
    drifts: dict[int, tuple[float, UnlikelySlope]] = {}
    for window in WINDOWS if has_drift_windows(len(answers), periods_a_year) else ():
        if len(answers) < periods_a_year + window:
            continue
        design = _design(len(answers), window, periods_a_year)
        slopes, errors = _surest_slopes(answers, deviations, design)
        limit = -float(stdtrit(len(answers) - design.shape[1], level / (2 * len(WINDOWS))))
        for index in np.flatnonzero(np.abs(slopes) > limit * errors):
            distance = float(abs(slopes[index]) / errors[index])
            drift = UnlikelySlope(int(index), window, float(slopes[index]), limit * float(errors[index]))
            drifts[int(index)] = max(drifts.get(int(index), (0.0, drift)), (distance, drift), key=lambda found: found[0])
    return [drift for _, (_, drift) in sorted(drifts.items())]


def has_drift_windows(periods: int, periods_a_year: float) -> bool:
    """Whether so many periods are enough to look for drifts."""
    return periods_a_year <= MOST_PERIODS_A_YEAR and periods >= periods_a_year + WINDOWS[0]


def _design(periods: int, window: int, periods_a_year: float) -> Answers:
    """A line, the season and, as the last column, the slope that begins with the window."""
    time = np.arange(periods, dtype=np.float64)
    seasons = harmonics(periods, periods_a_year, YEAR_HARMONICS)
    return np.column_stack([np.ones(periods), time / periods, *seasons, np.maximum(0, time - (periods - 1 - window))])


def _surest_slopes(answers: Answers, deviations: Answers, design: Answers) -> tuple[Answers, Answers]:
    """The slope of each answer and its standard error, by the likely walk that makes it least certain."""
    noise = (deviations**2).mean(axis=0)
    fits = list(_fits(answers, design, noise))
    likelihoods = np.array([likelihood for likelihood, _, _ in fits])
    slopes, errors = np.array([slope for _, slope, _ in fits]), np.array([error for _, _, error in fits])
    certainty = np.where(likelihoods >= likelihoods.max(axis=0) - LIKELY, np.abs(slopes) / errors, np.inf)
    chosen = certainty.argmin(axis=0)
    columns = np.arange(answers.shape[1])
    return slopes[chosen, columns], errors[chosen, columns]


def _fits(answers: Answers, design: Answers, noise: Answers) -> Iterator[tuple[Answers, Answers, Answers]]:
    """For each walk the restricted logarithms of the likelihoods, the slopes and their standard errors."""
    periods, parameters = design.shape
    for walk in WALKS:
        whitening = _whitening(periods, walk)
        rows, values = whitening @ design, whitening @ answers
        base, upper = np.linalg.qr(rows)
        coefficients = np.linalg.solve(upper, base.T @ values)
        variance = ((values - rows @ coefficients) ** 2).sum(axis=0) / (periods - parameters)
        logarithm = np.log(np.diag(whitening)).sum() - np.log(np.abs(np.diag(upper))).sum()
        likelihood = logarithm - (periods - parameters) / 2 * np.log(np.maximum(variance, 1e-300))
        error = np.sqrt(np.maximum(variance, noise)) / abs(upper[-1, -1])
        yield likelihood, coefficients[-1], error


@lru_cache(maxsize=len(WALKS))
def _whitening(periods: int, walk: float) -> Answers:
    """The matrix that makes answers independent whose level walks: the inverse of the factor of their covariance."""
    return np.asarray(np.linalg.inv(np.linalg.cholesky(walk_covariance(periods, walk))))

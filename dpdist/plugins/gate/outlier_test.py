"""Whether an answer of the newest period is an outlier beside those of earlier periods, with a stated rate of false alarms.

An answer y is compared with a forecast f of it from the answers of earlier periods. The forecast is the one, of a few simple ones, that
had the least squared error so far. If the errors of a forecast are independent and normal, (y - f) / s follows Student's t distribution,
with one degree of freedom less than there are errors in the root mean square s. An answer is an outlier where the probability of such a
distance is at most the level: false alarms a year, divided by the comparisons of a year (Bonferroni: these may depend on each other in
any way) and by ``CHOICES``. The noise that was added to the answers is known, and is the least that s can be.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

Answers = NDArray[np.float64]

RECENT = (1, 4)
"""Forecasts are the mean of so many last periods, for a series without seasons,"""
SEASONS = (4, 7, 12, 52)
"""or the answer of as many periods ago, as it was or with the change since then of the period before."""
CHOICES = 4
"""By so much smaller is the level of each comparison, because the forecast with the least error so far has smaller errors by chance. Found
by simulation (``python -m benchmarks.gate``)."""
RECENT_ERRORS = 8
"""The root mean square of the last errors counts where it is larger: series are calmer at some times of the year than at others."""
LEAST_ERRORS = 5
"""A forecast is used that had so many errors at least: fewer say too little of their size."""


@dataclass(frozen=True)
class UnlikelyAnswer:
    """An answer that is further from its forecast than chance allows.

    Attributes:
        index: of the answer among those that are compared.
        distance: in standard errors of the forecast.
    """

    index: int
    answer: float
    forecast: float
    half_width: float
    distance: float


def find_outliers(
    history: Answers, deviations: Answers, answers: Answers, deviation: Answers, level: float
) -> list[UnlikelyAnswer]:
    """The answers that are outliers beside their history.

    Args:
        history: answers of earlier periods, one a row, the newest last.
        deviations: standard deviations of their noise.
        answers, deviation: those of the newest period.
        level: the probability of an alarm for one answer that is none.
    """
    outliers = []
    for index in range(answers.size):
        known = _best_forecast(history[:, index])
        if known is None:
            continue
        forecast, errors, periods = known
        noise = math.hypot(deviation[index], float(np.sqrt((deviations[-periods:, index] ** 2).mean() / periods)))
        spread = max(float(np.sqrt((errors**2).mean())), float(np.sqrt((errors[-RECENT_ERRORS:] ** 2).mean())), noise)
        limit = -float(stdtrit(errors.size - 1, level / 2))
        if abs(answers[index] - forecast) > limit * spread:
            distance = abs(answers[index] - forecast) / spread
            outliers.append(UnlikelyAnswer(index, float(answers[index]), forecast, limit * spread, float(distance)))
    return outliers


def _best_forecast(history: Answers) -> tuple[float, Answers, int] | None:
    """The forecast of the next answer with the least squared error so far, its errors, and how many periods it is the mean of."""
    best: tuple[float, tuple[float, Answers, int]] | None = None
    for forecasts, next_forecast, periods in _forecasts(history):
        if forecasts.size < LEAST_ERRORS:
            continue
        errors = history[-forecasts.size :] - forecasts
        square = float((errors**2).mean())
        if best is None or square < best[0]:
            best = square, (next_forecast, errors, periods)
    return None if best is None else best[1]


def _forecasts(history: Answers) -> Iterator[tuple[Answers, float, int]]:
    """Forecasts of the last answers from those before each, that of the next one, and of how many periods each is the mean."""
    for periods in RECENT:
        if history.size >= periods:
            means = np.convolve(history, np.full(periods, 1 / periods), mode="valid")
            yield means[:-1], float(means[-1]), periods
    for season in SEASONS:
        if history.size > season:
            yield history[:-season], float(history[-season]), 1
        if history.size > season + 1:
            moved = history[1:-season] + history[season:-1] - history[: -season - 1]
            yield moved, float(history[-season] + history[-1] - history[-season - 1]), 1


def comparison_level(false_alarms: float, periods_a_year: float, comparisons: int) -> float:
    """The level of one comparison, so that at most so many false alarms a year are expected over all of them."""
    return min(0.5, false_alarms / (CHOICES * periods_a_year * max(comparisons, 1)))


def periods_a_year(days: Sequence[float]) -> float:
    """How many periods a year has, from the days on which they begin."""
    steps = np.diff(np.sort(np.asarray(days, dtype=np.float64)))
    return 365.25 / float(np.median(steps)) if steps.size else 365.25

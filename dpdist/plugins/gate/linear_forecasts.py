"""Forecasts of the newest answer of a series that are linear in its earlier answers, with their errors in all earlier periods.

Most of them are the best linear unbiased forecasts of a model: answers are a level and seasons, whose sizes are not known, a level that
walks, and independent errors. The errors of forecasting each period from those before it, each divided by its
standard deviation in the model, are then independent and of one variance (recursive residuals: Brown, Durbin & Evans 1975), whatever the
sizes are. The others are the answers of a season ago, for seasons of any form.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Answers = NDArray[np.float64]

WALKS = (0.0, 0.1, 1.0)
"""Variances of a step of the level, in those of an answer's own error."""
SEASONS = (4, 7, 12, 52)
"""Or the forecast is the answer of as many periods ago, as it was or with the change since then of the period before."""
LEAST_ERRORS = 5
"""A forecast is used that had so many errors at least: fewer say too little of their size."""
MOST_PERIODS_A_YEAR = 100
"""Of series with more periods a year too few years are compared to know the season of a year; of days that of a week is."""
DAYS_A_YEAR = (364, 367)
YEAR_HARMONICS, WEEK_HARMONICS = (1, 2), (1, 2, 3)
UNKNOWN = 1e8
"""The variance of the regressors' coefficients, in those of an answer's own error: nothing is known of them."""
MOST_SCALE = 10.0
"""Errors of forecasts that are so many times less certain than the newest, as those before the regressors are known, say nothing."""


@dataclass(frozen=True)
class LinearForecast:
    """A forecast as weights of answers.

    Attributes:
        errors: weights that give its errors in the last periods, one a row, (errors, periods), all of one variance; the last row is that
            of the newest period.
        scales: standard deviations of these errors before they had one variance, (errors,).
    """

    errors: Answers = field(repr=False)
    scales: Answers = field(repr=False)


@lru_cache(maxsize=256)
def linear_forecasts(periods: int, periods_a_year: float) -> tuple[LinearForecast, ...]:
    """The forecasts of the last of some periods that had errors enough to be judged by.

    Args:
        periods: with the newest one.
    """
    models = (_model_forecast(regressors, walk) for regressors in _regressors(periods, periods_a_year) for walk in WALKS)
    return tuple(forecast for forecast in (*models, *_seasonal_forecasts(periods)) if len(forecast.errors) > LEAST_ERRORS)


def harmonics(periods: int, period: float, numbers: tuple[int, ...]) -> list[Answers]:
    """Cosines and sines with so many periods, and of parts of these, that whole periods tell apart."""
    angles = [2 * np.pi * number * np.arange(periods) / period for number in numbers if 2 * number < period]
    return [wave(angle) for angle in angles for wave in (np.cos, np.sin)]


def walk_covariance(periods: int, walk: float) -> Answers:
    """The covariance of answers whose level walks, in the variance of their own errors."""
    return np.eye(periods) + walk * np.minimum.outer(np.arange(periods), np.arange(periods))


def _regressors(periods: int, periods_a_year: float) -> Iterator[Answers]:
    """The columns of each model."""
    seasons = list[list[Answers]]([[]])
    if periods_a_year <= MOST_PERIODS_A_YEAR and periods > periods_a_year / 2:
        seasons.append(harmonics(periods, periods_a_year, YEAR_HARMONICS[:1]))
    if periods_a_year <= MOST_PERIODS_A_YEAR and periods > periods_a_year + LEAST_ERRORS:
        seasons.append(harmonics(periods, periods_a_year, YEAR_HARMONICS))
    if DAYS_A_YEAR[0] < periods_a_year < DAYS_A_YEAR[1]:
        seasons.append(harmonics(periods, 7, WEEK_HARMONICS))
    return (np.column_stack([np.ones(periods), *season]) for season in seasons if 1 + len(season) < periods)


def _model_forecast(regressors: Answers, walk: float) -> LinearForecast:
    """The best linear unbiased forecast of a model: the factor of a covariance has the scales of its errors on the diagonal."""
    base, _ = np.linalg.qr(regressors)
    factor = np.linalg.cholesky(walk_covariance(len(base), walk) + UNKNOWN * (base @ base.T))
    scales = np.diag(factor)
    start = 1 + int(np.flatnonzero(scales > MOST_SCALE * scales[-1]).max(initial=-1))
    return LinearForecast(np.linalg.inv(factor)[start:], scales[start:])


def _seasonal_forecasts(periods: int) -> Iterator[LinearForecast]:
    answers = np.eye(periods)
    for season in SEASONS:
        if periods > season + 1:
            yield LinearForecast(answers[season:] - answers[:-season], np.ones(periods - season))
            changes = answers[season + 1 :] - answers[season:-1] - answers[1:-season] + answers[: -season - 1]
            yield LinearForecast(changes, np.ones(periods - season - 1))

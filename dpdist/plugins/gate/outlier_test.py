"""Whether an answer of the newest period is an outlier beside those of earlier periods, with a stated rate of false alarms.

An answer y is compared with a forecast f of it from the answers of earlier periods. If the errors of a forecast are independent and
normal, (y - f) / s follows Student's t distribution, with one degree of freedom less than there are errors in the root mean square s.
Errors of the same size in all periods and errors in proportion to the answer give two s. Of all forecasts with their s those count whose
likelihood so far is about that of the best one, and of these the one that makes the answer least certain to be an outlier. It is one where
the probability of such a distance is at most the level: false alarms a year, divided by the comparisons of a year (Bonferroni: these may
depend on each other in any way) and by ``CHOICES``. The noise that was added to the answers is known, and is the least that s can be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from dpdist.plugins.gate.linear_forecasts import linear_forecasts

Answers = NDArray[np.float64]

CHOICES = 1.5
"""By so much smaller is the level of each comparison, because the likeliest forecast has smaller errors by chance. Found by simulation
(``python -m benchmarks.gate``)."""
NEAR = 0.03
"""A forecast counts whose errors are larger by such a part at most than those of the best one, in the geometric mean over periods."""


@dataclass(frozen=True)
class UnlikelyAnswer:
    """An answer that is further from its forecast than chance allows.

    Attributes:
        index: of the answer among those that are compared.
    """

    index: int
    answer: float
    forecast: float
    half_width: float


def find_outliers(answers: Answers, deviations: Answers, periods_a_year: float, level: float) -> list[UnlikelyAnswer]:
    """The answers of the newest period that are outliers beside those before.

    Args:
        answers: one period a row, the newest last.
        deviations: standard deviations of their noise.
        level: the probability of an alarm for one answer that is none.
    """
    compared = list(_comparisons(answers, deviations, periods_a_year, level))
    if not compared:
        return []
    distances, limits, sizes = (np.array(rows) for rows in zip(*compared, strict=True))
    is_likely = sizes <= sizes.min(axis=0) + NEAR
    certainty = np.abs(distances) / np.maximum(limits, 1e-300)
    chosen, columns = np.where(is_likely, certainty, np.inf).argmin(axis=0), np.arange(answers.shape[1])
    newest, distance, limit = answers[-1], distances[chosen, columns], limits[chosen, columns]
    return [
        UnlikelyAnswer(int(index), *(float(values[index]) for values in (newest, newest - distance, limit)))
        for index in np.flatnonzero(np.abs(distance) > limit)
    ]


def _comparisons(
    answers: Answers, deviations: Answers, periods_a_year: float, level: float
) -> Iterator[tuple[Answers, Answers, Answers]]:
    """For each forecast and law of its errors: the newest errors, what they may be, and the logarithm of the size of those before."""
    for forecast in linear_forecasts(len(answers), periods_a_year):
        errors = forecast.errors @ (answers - answers[0])  # which changes no error, but those of rounding
        forecasts = answers[-len(errors) :] - forecast.scales[:, None] * errors
        scale, noise = forecast.scales[-1], forecast.errors[-1] ** 2 @ deviations**2
        limit = -float(stdtrit(len(errors) - 2, level / 2))
        for variance, logarithm in _error_variances(errors, forecasts, deviations):
            least = np.maximum(noise, 1e-300)
            size = (np.maximum(logarithm, np.log(least)) / 2) + np.log(forecast.scales[:-1]).mean() + np.log(limit)
            yield scale * errors[-1], limit * scale * np.sqrt(np.maximum(variance, noise)), size


def _error_variances(errors: Answers, forecasts: Answers, deviations: Answers) -> Iterator[tuple[Answers, Answers]]:
    """Variances of the newest errors, and mean logarithms of those before: of equal errors, and of errors in proportion to forecasts.

    Args:
        errors, forecasts: (errors, answers).
        deviations: of the noise, (periods, answers).
    """
    squares, noise = errors[:-1] ** 2, deviations[-len(errors) :] ** 2
    equal = squares.mean(axis=0)
    yield equal, np.log(np.maximum(equal, 1e-300))
    beside_noise, sizes = np.maximum(equal - noise[:-1].mean(axis=0), 0.0), forecasts**2
    variances = np.maximum(noise + beside_noise * sizes / np.maximum(sizes[:-1].mean(axis=0), 1e-300), 1e-300)
    ratios = (squares / variances[:-1]).mean(axis=0)
    yield ratios * variances[-1], np.log(np.maximum(ratios, 1e-300)) + np.log(variances[:-1]).mean(axis=0)


def comparison_level(false_alarms: float, periods_a_year: float, comparisons: int) -> float:
    """The level of one comparison, so that at most so many false alarms a year are expected over all of them."""
    return min(0.5, false_alarms / (CHOICES * periods_a_year * max(comparisons, 1)))


def periods_a_year(days: Sequence[float]) -> float:
    """How many periods a year has, from the days on which they begin."""
    steps = np.diff(np.sort(np.asarray(days, dtype=np.float64)))
    return 365.25 / float(np.median(steps)) if steps.size else 365.25

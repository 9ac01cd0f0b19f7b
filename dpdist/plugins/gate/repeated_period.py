"""Whether a period's answers are those of an earlier one again, as after an old file was delivered twice.

If records are the same, the answers of two periods differ by their noise alone. That alone says nothing: periods may be alike. So what is
tested is that two *different* periods of the series come as close as these, with a bound on the probability that they do.

Let d be the differences of k answers between two periods that lie any number of periods apart: a part that could be foretold, such as
trend and season, and chance with a covariance C, normal. By Anderson's inequality (1955) the foretold part makes every set that is convex
and symmetric around zero less likely. Differences of pairs of earlier periods have a mean square S, of m disjoint pairs. If the foretold
part is none, d'S^-1 d follows Hotelling's law, k m / (m - k + 1) F(k, m - k + 1), whatever C is: answers may depend on each other in any
way. So the lower tail of that law bounds the probability of so small a distance. Where the pairs' own differences have a foretold part, S
is too large; therefore S is computed from pairs one period apart, from pairs one season apart and from pairs as far apart as the two, and
the largest probability counts. Few periods give few pairs and few answers, and F says what they can tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri, fdtr

Answers = NDArray[np.float64]

MOST_ANSWERS = 12
"""Answers that are compared at most."""
PAIRS_AN_ANSWER = 2
"""Disjoint pairs of earlier periods for every answer that is compared, at least."""
LAGS = (1, 4, 7, 12, 52)
"""Pairs of periods so far apart say how far apart different periods are."""
LARGEST_ERRORS = 6.7
"""Differences of equal records are at most so many standard deviations of their noise: of twelve answers in all but one of a thousand
cases, for Laplace noise, too."""
INDEPENDENT = 1e-6
"""An answer that others determine up to so much of its own size is not compared beside them."""


@dataclass(frozen=True)
class RepeatedPeriod:
    """An earlier period whose answers the newest ones are again.

    Attributes:
        index: of the earlier period.
        answers: so many were compared.
        distance: root mean square of their differences, in standard deviations of the noise.
        low, high: between which it lies in 95 of 100 cases where the records are the same.
        usual: the median of it for neighbouring earlier periods.
    """

    index: int
    answers: int
    distance: float
    low: float
    high: float
    usual: float


def find_repeated_period(answers: Answers, deviations: Answers, level: float) -> RepeatedPeriod | None:
    """The earlier period whose answers the newest ones are again; None where there is none.

    Args:
        answers: one period a row, the newest last.
        deviations: standard deviations of their noise, independent from period to period.
        level: the probability of an alarm where all periods are different.
    """
    history = answers[:-1]
    columns = _compared_columns(history, deviations[:-1])
    if not columns:
        return None
    noise = np.hypot(deviations[:-1], deviations[-1])[:, columns]
    differences = answers[-1, columns] - history[:, columns]
    is_near = (np.abs(differences) <= LARGEST_ERRORS * noise).all(axis=1)
    for index in np.flatnonzero(is_near)[::-1]:
        lag = len(history) - int(index)
        probability = max(
            closeness_probability(differences[index], pairs) for pairs in _pair_differences(history[:, columns], lag)
        )
        if probability <= level / len(history):
            distances = np.sqrt(((differences / noise) ** 2).mean(axis=1))
            steps = np.diff(history[:, columns], axis=0) / np.hypot(deviations[1:-1], deviations[:-2])[:, columns]
            low, high = (float(np.sqrt(chdtri(len(columns), tail) / len(columns))) for tail in (0.975, 0.025))
            usual = float(np.median(np.sqrt((steps**2).mean(axis=1))))
            return RepeatedPeriod(int(index), len(columns), float(distances[index]), low, high, usual)
    return None


def closeness_probability(difference: Answers, pairs: Answers) -> float:
    """At most how likely it is that two different periods are as close as this.

    Args:
        difference: of the answers of the two, (answers,).
        pairs: differences of disjoint pairs of different periods, (pairs, answers); more pairs than answers.
    """
    count, size = pairs.shape
    try:
        distance = float(difference @ np.linalg.solve(pairs.T @ pairs / count, difference))
    except np.linalg.LinAlgError:
        return 1.0
    freedom = count - size + 1
    return float(fdtr(size, freedom, max(distance, 0.0) * freedom / (size * count)))


def _compared_columns(history: Answers, deviations: Answers) -> list[int]:
    """The answers with the most records for their noise of which none follows from the others: chosen by their means, not by chance."""
    most = min(MOST_ANSWERS, len(history) // 2 // PAIRS_AN_ANSWER)
    if most == 0:
        return []
    pairs = next(_pair_differences(history, 1))
    columns, base = list[int](), np.zeros((len(pairs), 0))
    with np.errstate(divide="ignore", invalid="ignore"):
        sizes = np.nan_to_num(np.abs(history.mean(axis=0)) / deviations.mean(axis=0), nan=0.0, posinf=0.0)
    for column in np.argsort(-sizes, kind="stable")[: 10 * MOST_ANSWERS]:
        rest = pairs[:, column] - base @ (base.T @ pairs[:, column])
        length = float(np.linalg.norm(rest))
        if length > INDEPENDENT * max(1.0, float(np.linalg.norm(history[:, column]))) and len(columns) < most:
            columns.append(int(column))
            base = np.column_stack([base, rest / length])
    return sorted(columns)


def _pair_differences(history: Answers, own_lag: int) -> Iterator[Answers]:
    """Differences of disjoint pairs of earlier periods, for each lag of which there are enough pairs; those one period apart first."""
    enough = (len(history) // 2 + 1) // 2
    for lag in dict.fromkeys((*LAGS, own_lag)):
        later = _later_periods(len(history), lag)
        if len(later) >= enough:
            yield history[later] - history[[place - lag for place in later]]


def _later_periods(periods: int, lag: int) -> Sequence[int]:
    """The later period of each of the most recent disjoint pairs that lie some periods apart."""
    from_end = np.arange(periods)[::-1]
    return [int(place) for place in from_end[(np.arange(periods) // lag) % 2 == 0] if place >= lag]

"""Distributions of numbers of records and of amounts, as a spec says them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from dpdist.api import InvalidSpec
from dpdist.api.steps import Matrix

MOST_RECORDS = 10_000
"""Of one person, in the mean, that a distribution may assume."""
QUANTILE_COUNT = 10_000
"""Equally likely parts that a distribution of amounts is cut into; each stands for its mean."""
TAIL = 1e-12
"""Probability that is left out of a distribution of whole numbers."""


@dataclass(frozen=True)
class Distribution:
    """Numbers and how likely each is, in ascending order."""

    values: Matrix
    weights: Matrix

    @property
    def mean(self) -> float:
        """Their mean."""
        return float(self.values @ self.weights)

    @property
    def square(self) -> float:
        """The mean of their squares."""
        return float(self.values**2 @ self.weights)

    def clip(self, low: float, high: float) -> Distribution:
        """Each number moved into a range."""
        return Distribution(np.clip(self.values, low, high), self.weights)

    def clipped_mean(self, low: float, high: float) -> float:
        """The mean of the numbers, each moved into a range."""
        return self.clip(low, high).mean

    def quantile(self, probability: float) -> float:
        """The smallest number that is not exceeded with this probability."""
        return float(self.values[min(int(np.searchsorted(np.cumsum(self.weights), probability)), self.values.size - 1)])


def _geometric(mean: float) -> Distribution:
    if mean == 1:
        return _fixed(mean)
    failure_chance = 1 - 1 / mean
    return _of_whole(np.arange(math.ceil(math.log(TAIL) / math.log(failure_chance))) * math.log(failure_chance))


def _poisson(mean: float) -> Distribution:
    rate, term_count = mean - 1, math.ceil(mean + 10 * math.sqrt(mean) + 20)
    logs = [math.log(rate) * k - math.lgamma(k + 1) for k in range(term_count)] if rate > 0 else [0.0]
    return _of_whole(np.array(logs))


def _of_whole(logs: Matrix) -> Distribution:
    """Of 1, 2, ..., by the logarithms of what their probabilities are in proportion to."""
    weights = np.exp(logs - logs.max())
    return Distribution(np.arange(1.0, weights.size + 1), weights / weights.sum())


def _fixed(number: float) -> Distribution:
    return Distribution(np.array([number]), np.ones(1))


def _lognormal(median: float, log_deviation: float) -> Distribution:
    ends = np.array([-math.inf, *(NormalDist().inv_cdf(k / QUANTILE_COUNT) for k in range(1, QUANTILE_COUNT)), math.inf])
    below = np.array(
        [0.0 if end == -math.inf else 1.0 if end == math.inf else NormalDist().cdf(end - log_deviation) for end in ends]
    )
    return _equally_likely(median * math.exp(log_deviation**2 / 2) * np.diff(below) * QUANTILE_COUNT)


def _uniform(low: float, high: float) -> Distribution:
    return _equally_likely(low + (high - low) * (np.arange(QUANTILE_COUNT) + 0.5) / QUANTILE_COUNT)


def _equally_likely(values: Matrix) -> Distribution:
    return Distribution(values, np.full(values.size, 1 / values.size))


COUNTS: dict[str, tuple[tuple[str, ...], Callable[..., Distribution]]] = {
    "geometric": (("mean",), _geometric),
    "poisson": (("mean",), _poisson),
    "fixed": (("number",), _fixed),
}
"""Distributions of numbers of records: nobody has none."""
AMOUNTS: dict[str, tuple[tuple[str, ...], Callable[..., Distribution]]] = {
    "lognormal": (("median", "spread of the logarithm"), _lognormal),
    "uniform": (("from", "to"), _uniform),
    "fixed": (("number",), _fixed),
}
FILE = "file"


def _numbers(text: str, kinds: dict[str, Any]) -> tuple[str, list[float]]:
    """The kind of a distribution and its numbers; of a file none. Raises: ValueError."""
    kind, *words = str(text).split()
    if kind == FILE and len(words) == 1:
        return kind, []
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        numbers = []
    allowed = [f"'{name} {' '.join(f'<{word}>' for word in named)}'" for name, (named, _) in kinds.items()]
    if kind not in kinds or len(numbers) != len(kinds[kind][0]) or not np.isfinite(numbers).all():
        raise ValueError(f"what is assumed is {', '.join(allowed)} or 'file <path>', found {text!r}")
    return kind, numbers


def check_counts(text: str) -> str:
    """The words of a distribution of numbers of records. Raises: ValueError."""
    kind, numbers = _numbers(text, COUNTS)
    if numbers and not (1 <= numbers[0] <= MOST_RECORDS and (kind != "fixed" or numbers[0].is_integer())):
        raise ValueError(
            f"a person has 1 to {MOST_RECORDS:,} records or groups in the mean, 'fixed' a whole number, found {text!r}"
        )
    return text


def check_amounts(text: str) -> str:
    """The words of a distribution of amounts. Raises: ValueError."""
    kind, numbers = _numbers(text, AMOUNTS)
    if (kind == "lognormal" and not (numbers[0] > 0 and 0 < numbers[1] <= 5)) or (
        kind == "uniform" and numbers[0] >= numbers[1]
    ):
        raise ValueError(
            f"'lognormal' needs a positive median and a spread up to 5, 'uniform' ascending ends, found {text!r}"
        )
    return text


def distribution_of(text: str, folder: Path) -> Distribution:
    """What is assumed in such words; files are taken from the folder. Raises: InvalidSpec for a file without numbers above zero."""
    kind, *arguments = text.split()
    if kind != FILE:
        _, make = {**COUNTS, **AMOUNTS}[kind]
        return make(*map(float, arguments))
    path = folder / arguments[0]
    try:
        numbers = np.array([float(number_text) for number_text in path.read_text(encoding="utf-8").split()])
    except (OSError, ValueError):
        numbers = np.zeros(0)
    if numbers.size == 0 or not (np.isfinite(numbers).all() and (numbers >= 0).all() and numbers.any()):
        raise InvalidSpec(
            f"assume: {path.name} is not a file with a number of 0 or more in each line; nothing else was read"
        )
    values, counts = np.unique(numbers, return_counts=True)
    return Distribution(values, counts / numbers.size)

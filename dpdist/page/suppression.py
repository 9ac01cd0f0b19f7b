"""Suppression of small answers: decided by noisy answers alone, with its errors predicted from the public noise."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa

from dpdist.errors import InvalidInput
from dpdist.operators import Matrix

DROPPED = 0.025
"""From ``sure_from`` on at most this share of the rows of mean error is dropped."""


@dataclass(frozen=True)
class Predicted:
    """How often suppression errs, from the public errors alone: means over all answers.

    Attributes:
        shown_at_zero, shown_at_limit: predicted share of the rows whose true count is zero, or just the limit, and that are shown
            nevertheless: spurious rows.
        dropped_at_double: predicted share of the rows whose true count is twice the limit and that are dropped: lost rows.
        sure_from: the true count from which at most a share of 2.5 % of the rows of mean error is dropped.
    """

    shown_at_zero: float
    shown_at_limit: float
    dropped_at_double: float
    sure_from: float

    def sentence(self, below: float) -> str:
        """In words."""
        return (
            f"predicted from the public noise: of rows that are truly {below:g} a share of {self.shown_at_limit:.2%} is shown, of "
            f"rows that are truly 0 {self.shown_at_zero:.2g}; of rows that are truly {2 * below:g} a share of "
            f"{self.dropped_at_double:.2%} is dropped; from {self.sure_from:,.0f} on at most 2.5 % are"
        )


@dataclass(frozen=True)
class Suppression:
    """An answer is shown when it lies at least ``at`` standard errors above ``below``, and suppressed otherwise.

    The decision is a function of published numbers, so it is post-processing and costs nothing.

    Raises: InvalidInput for a negative ``below`` or ``at``.
    """

    below: float
    at: float = 2.0

    def __post_init__(self) -> None:
        if not (self.below >= 0 and self.at >= 0 and np.isfinite(self.below) and np.isfinite(self.at)):
            raise InvalidInput(f"suppression needs below >= 0 and at >= 0, found {self.below:g} and {self.at:g}")

    def shows(self, answers: Matrix, errors: Matrix) -> Matrix:
        """Which answers are shown, by their standard errors."""
        return np.asarray(answers >= self.below + self.at * errors)

    def predicted(self, errors: Iterable[Matrix], noise: str) -> Predicted:
        """How often this errs for answers with these standard errors, given in parts.

        Answers hold sums of many draws. Under Laplace noise their tails lie between those of one draw and of a normal
        distribution: the worse of the two is predicted.

        Args:
            noise: Gaussian or Laplace.
        """
        zero = double = total = 0.0
        rows = 0
        for part in errors:
            zero += float(_above(self.below + self.at * part, part, noise).sum())
            double += float(_above(self.below - self.at * part, part, noise).sum())
            total += float(part.sum())
            rows += part.size
        one = np.ones(1)
        sure = max(1.959963984540054, -math.log(2 * DROPPED) / math.sqrt(2.0) if noise == "Laplace" else 0.0)
        return Predicted(
            zero / rows,
            float(_above(self.at * one, one, noise)[0]),
            double / rows,
            self.below + (self.at + sure) * total / rows,
        )


def _above(height: Matrix, errors: Matrix, noise: str) -> Matrix:
    """The probability that noise exceeds a height; an answer without noise never strays."""
    import scipy.special

    steps = np.divide(height, errors, out=np.where(height > 0, np.inf, -np.inf), where=errors > 0)
    normal = scipy.special.ndtr(-steps)
    if noise == "Gaussian":
        return np.asarray(normal)
    tail = 0.5 * np.exp(-math.sqrt(2.0) * np.abs(steps))
    return np.asarray(np.maximum(normal, np.where(steps > 0, tail, 1.0 - tail)))


def suppressed_sentence(certificate: dict[str, Any]) -> str | None:
    """How many answers are not shown, and how often that errs; None where all are."""
    facts = certificate.get("suppression")
    if facts is None:
        return None
    predicted = Predicted(**{field.name: facts[field.name] for field in fields(Predicted)})
    return (
        f"{facts['answers'] - facts['shown']:,} of {facts['answers']:,} answers are suppressed: they do not lie at least {facts['at']:g} "
        f"standard errors above {facts['below']:g}. The noisy answers alone decided; {predicted.sentence(facts['below'])}."
    )


@dataclass(frozen=True)
class Suppressed:
    """The answers that are kept.

    Attributes:
        table: their rows.
        rule: which answers are shown.
        all_rows: how many answers there were.
        predicted: how often the rule errs.
    """

    table: pa.Table
    rule: Suppression
    all_rows: int
    predicted: Predicted

    @property
    def facts(self) -> dict[str, Any]:
        """The numbers without the rows."""
        return {**asdict(self.rule), "all_rows": self.all_rows, **asdict(self.predicted)}

    def __str__(self) -> str:
        return (
            f"{self.table.num_rows:,} of {self.all_rows:,} answers lie at least {self.rule.at:g} standard errors above "
            f"{self.rule.below:g}; {self.predicted.sentence(self.rule.below)}"
        )


def suppressed(table: pa.Table, *, below: float, at: float = 2.0, noise: str = "Gaussian") -> Suppressed:
    """The published rows whose answer lies at least ``at`` standard errors above ``below``.

    The decision is a function of published numbers, so it is post-processing and costs nothing. Tune neither number on exact counts.

    Args:
        noise: Gaussian or Laplace, as the certificate says.
    Raises: InvalidInput for a negative ``below`` or ``at``, or a table without rows.
    """
    rule, errors = Suppression(below, at), table["standard_error"].to_numpy()
    if not errors.size:
        raise InvalidInput("there is no answer to show: the release suppressed all of them")
    kept = table.filter(pa.array(rule.shows(table["answer"].to_numpy(), errors)))
    return Suppressed(kept, rule, table.num_rows, rule.predicted([errors], noise))

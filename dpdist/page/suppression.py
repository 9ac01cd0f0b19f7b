"""Suppression of small answers: decided by noisy answers alone, with its errors predicted from the public noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpdist.errors import InvalidInput


@dataclass(frozen=True)
class Suppressed:
    """The answers that are kept.

    Attributes:
        table: their rows.
        below, at: an answer is kept when it lies at least ``at`` standard errors above ``below``.
        all_rows: how many answers there were.
        shown_at_zero, shown_at_limit: predicted share of the rows whose true count is zero, or just the limit, and that are shown
            nevertheless: spurious rows.
        dropped_at_double: predicted share of the rows whose true count is twice the limit and that are dropped: lost rows.
        sure_from: the true count from which at most a share of 2.5 % of the rows of mean error is dropped.
    """

    table: pa.Table
    below: float
    at: float
    all_rows: int
    shown_at_zero: float
    shown_at_limit: float
    dropped_at_double: float
    sure_from: float

    def __str__(self) -> str:
        return (
            f"{self.table.num_rows:,} of {self.all_rows:,} answers lie at least {self.at:g} standard errors above {self.below:g}; "
            f"predicted from the public noise: of rows that are truly {self.below:g} a share of {self.shown_at_limit:.2%} is shown, of "
            f"rows that are truly 0 {self.shown_at_zero:.2g}; of rows that are truly {2 * self.below:g} a share of "
            f"{self.dropped_at_double:.2%} is dropped; from {self.sure_from:,.0f} on at most 2.5 % are"
        )


def suppressed(table: pa.Table, *, below: float, at: float = 2.0) -> Suppressed:
    """The published rows whose answer lies at least ``at`` standard errors above ``below``.

    The decision is a function of published numbers, so it is post-processing and costs nothing. Tune neither number on exact counts.

    Raises: InvalidInput for a negative ``below`` or ``at``.
    """
    if not (below >= 0 and at >= 0 and np.isfinite(below) and np.isfinite(at)):
        raise InvalidInput(f"suppression needs below >= 0 and at >= 0, found {below:g} and {at:g}")
    errors = table["standard_error"].to_numpy()
    kept = table.filter(pc.greater_equal(table["answer"], pa.array(below + at * errors)))
    limits = below + at * errors
    return Suppressed(
        kept,
        below,
        at,
        table.num_rows,
        shown_at_zero=float(_above(limits / errors).mean()),
        shown_at_limit=float(_above(np.full(errors.size, at)).mean()),
        dropped_at_double=float(1 - _above((limits - 2 * below) / errors).mean()),
        sure_from=float(below + (at + 1.96) * errors.mean()),
    )


def _above(standard_errors: NDArray[Any]) -> NDArray[Any]:
    """The probability that normal noise exceeds so many standard errors."""
    import scipy.special

    return np.asarray(scipy.special.ndtr(-standard_errors))

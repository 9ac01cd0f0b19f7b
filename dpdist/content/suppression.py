"""Suppression of small answers: decided by noisy answers alone, with its errors predicted from the public noise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
import pyarrow as pa

from dpdist.content.table_rows import NUMBERS
from dpdist.content.truncated_intervals import intervals_of_shown
from dpdist.errors import InvalidInput
from dpdist.language import say
from dpdist.operators import Matrix
from dpdist.privacy.noise_distributions import GAUSSIAN, LAPLACE, NORMAL_95, Kind

DROPPED_FRACTION = 0.025
"""From ``sure_from`` on at most this share of the rows of mean error is dropped."""


@dataclass(frozen=True)
class SuppressionRates:
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
        return say(
            "predicted from the public noise: of rows that are truly {below:g} a share of {shown_at_limit:.2%} is shown, of rows that are "
            "truly 0 {shown_at_zero:.2g}; of rows that are truly {double:g} a share of {dropped_at_double:.2%} is dropped; from "
            "{sure_from:,.0f} on at most 2.5 % are",
            below=below,
            double=2 * below,
            **asdict(self),
        )


@dataclass(frozen=True)
class Suppression:
    """An answer is shown when it lies at least ``at`` standard errors above ``below``, and suppressed otherwise.

    The decision is a function of published numbers, so it is post-processing and costs nothing.

    Attributes:
        noise: its kind.
        extra: what intervals have on both sides beyond the noise: how far whole numbers are from their answers, at most.

    Raises: InvalidInput for a negative ``below`` or ``at``.
    """

    below: float
    at: float = 2.0
    noise: Kind = field(default=GAUSSIAN, kw_only=True)
    extra: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        if not (self.below >= 0 and self.at >= 0 and np.isfinite(self.below) and np.isfinite(self.at)):
            raise InvalidInput(f"suppression needs below >= 0 and at >= 0, found {self.below:g} and {self.at:g}")

    def is_shown(self, answers: Matrix, errors: Matrix) -> Matrix:
        """Which answers are shown, by their standard errors."""
        return np.asarray(answers >= self.limits(errors))

    @property
    def facts(self) -> dict[str, float]:
        """What is said of the rule itself."""
        return {"below": self.below, "at": self.at}

    def intervals(
        self, answers: Matrix, errors: Matrix, usual: tuple[Matrix, Matrix], compared: Matrix
    ) -> tuple[Matrix, Matrix]:
        """Both ends of intervals of shown answers, given that they are shown: of those near the limit these are not the usual ones.

        Args:
            answers: NaN where they are hidden.
            compared: which of them the rule is for.
        """
        return intervals_of_shown(answers, errors, usual, self.limits(errors), compared, self.noise, self.extra)

    def limits(self, errors: Matrix) -> Matrix:
        """The least answers that are shown, by their standard errors."""
        return np.asarray(self.below + self.at * errors)

    def predict_rates(self, errors: Iterable[Matrix]) -> SuppressionRates:
        """How often this errs for answers with these standard errors, given in parts.

        Answers hold sums of many draws. Under Laplace noise their tails lie between those of one draw and of a normal
        distribution: the worse of the two is predicted.
        """
        zero = double = total = 0.0
        rows = 0
        for error_batch in errors:
            zero += float(_exceedance_probability(self.below + self.at * error_batch, error_batch, self.noise).sum())
            double += float(_exceedance_probability(self.below - self.at * error_batch, error_batch, self.noise).sum())
            total += float(error_batch.sum())
            rows += error_batch.size
        unit_error = np.ones(1)
        sure = max(NORMAL_95, -math.log(2 * DROPPED_FRACTION) / math.sqrt(2.0) if self.noise is LAPLACE else 0.0)
        return SuppressionRates(
            zero / rows,
            float(_exceedance_probability(self.at * unit_error, unit_error, self.noise)[0]),
            double / rows,
            self.below + (self.at + sure) * total / rows,
        )


def _exceedance_probability(height: Matrix, errors: Matrix, noise: Kind) -> Matrix:
    """The probability that noise exceeds a height; an answer without noise never strays."""
    import scipy.special

    steps = np.divide(height, errors, out=np.where(height > 0, np.inf, -np.inf), where=errors > 0)
    normal = scipy.special.ndtr(-steps)
    if noise is GAUSSIAN:
        return np.asarray(normal)
    tail = 0.5 * np.exp(-math.sqrt(2.0) * np.abs(steps))
    return np.asarray(np.maximum(normal, np.where(steps > 0, tail, 1.0 - tail)))


def suppression_sentence(certificate: dict[str, Any]) -> str | None:
    """How many answers are not shown, and how often that errs; None where all are."""
    facts = certificate.get("suppression")
    if facts is None:
        return None
    predicted = SuppressionRates(**{rate_field.name: facts[rate_field.name] for rate_field in fields(SuppressionRates)})
    return say(
        "{hidden:,} of {answers:,} answers are suppressed: they do not lie at least {at:g} standard errors above {below:g}. The noisy "
        "answers alone decided; {predicted}.",
        hidden=facts["answers"] - facts["shown"],
        answers=facts["answers"],
        at=facts["at"],
        below=facts["below"],
        predicted=predicted.sentence(facts["below"]),
    )


@dataclass(frozen=True)
class SuppressionResult:
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
    predicted: SuppressionRates

    @property
    def facts(self) -> dict[str, Any]:
        """The numbers without the rows."""
        return {**self.rule.facts, "all_rows": self.all_rows, **asdict(self.predicted)}

    def __str__(self) -> str:
        return (
            f"{self.table.num_rows:,} of {self.all_rows:,} answers lie at least {self.rule.at:g} standard errors above "
            f"{self.rule.below:g}; {self.predicted.sentence(self.rule.below)}"
        )


def suppress_small_answers(
    table: pa.Table, *, below: float, at: float = 2.0, certificate: Mapping[str, Any]
) -> SuppressionResult:
    """The published rows whose answer lies at least ``at`` standard errors above ``below``, with intervals given that they are shown.

    The decision is a function of published numbers, so it is post-processing and costs nothing. Tune neither number on exact counts.
    Intervals of answers with a bias, which were fitted, stay as they are: how the fit moved them is no noise.

    Args:
        certificate: of the release.
    Raises: InvalidInput for a negative ``below`` or ``at``, or a table without rows.
    """
    mechanism, noise = certificate["mechanism"], Kind(certificate["privacy"]["noise"].lower())
    rule = Suppression(below, at, noise=noise, extra=rounding_deviation(certificate))
    errors = table["standard_error"].to_numpy()
    if not errors.size:
        raise InvalidInput("there is no answer to show: the release suppressed all of them")
    shown_rows = table.filter(pa.array(rule.is_shown(table["answer"].to_numpy(), errors)))
    fitted = "non_negative" in certificate or any(text.startswith(FITTED) for text in certificate["post_processing"])
    if not (fitted or mechanism["biased"]):
        shown_rows = _conditional_intervals(shown_rows, rule, certificate)
    return SuppressionResult(shown_rows, rule, table.num_rows, rule.predict_rates([errors]))


FITTED = "the non-negative"
"""How the sentence about a fit begins: of some fits version 1.0.0 said nothing else."""


def rounding_deviation(certificate: Mapping[str, Any]) -> float:
    """What the intervals of a release have on both sides beyond the noise; an earlier version rounded each answer by itself."""
    return (
        float(certificate["rounding"]["deviation"])
        if "rounding" in certificate
        else 0.5 * certificate["mechanism"]["rounded"]
    )


def _conditional_intervals(shown_rows: pa.Table, rule: Suppression, certificate: Mapping[str, Any]) -> pa.Table:
    """The rows that are kept, with their intervals given that. Of two rules the one with the higher limit decided."""
    answer, error, *usual = (shown_rows[name].to_numpy().astype(np.float64) for name in NUMBERS)
    limits, release_rule = rule.limits(error), certificate.get("suppression")
    if release_rule is not None:
        limits = np.maximum(limits, release_rule["below"] + release_rule["at"] * error)
    all_compared = np.ones(error.size, dtype=bool)
    ends = intervals_of_shown(answer, error, (usual[0], usual[1]), limits, all_compared, rule.noise, rule.extra)
    counts = "possible" in certificate["confidence"] and "sums" not in certificate["method"]
    for name, end, usual_end in zip(NUMBERS[2:], ends, usual, strict=True):
        column = np.where(counts & (usual_end >= 0), np.maximum(end, 0.0), end)  # below 0 where answers may be negative
        shown_rows = shown_rows.set_column(shown_rows.column_names.index(name), name, pa.array(np.round(column, 6)))
    return shown_rows

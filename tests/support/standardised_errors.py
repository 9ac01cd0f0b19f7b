"""Whether answers lie around the truth as their standard errors say: one check with a stated rate of false alarms.

Answers of a release share their noise, so the mean square of standardised errors spreads more than that of as many draws.
``noise_combination`` says how each answer is made of independent noise; with it errors are taken apart into as many independent ones
as there are, and small releases tell a scale that is twice or half as large.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import scipy.optimize
from scipy import stats

from dpdist.arrays.lazy_vector import ArrayVector, to_array
from dpdist.measurement.dense_measurement import DenseMeasurement
from dpdist.measurement.filter_measurement import FilterMeasurement
from dpdist.measurement.hadamard_measurement import HadamardMeasurement
from dpdist.measurement.term_measurement import TermMeasurement
from dpdist.pipeline.release_run import Release
from dpdist.reconstruction.answer_vectors import AnswerRequest
from tests.support.complete_tree import plugin_object
from tests.support.measurement_readers import Remembering, filtered_answers, formula_answers, of_block, reader_of

LaplaceTermMeasurement = plugin_object("dpdist.plugins.laplace_designs.laplace_terms:LaplaceTermMeasurement")

RATE = 1e-4
"""False alarms a check. The tests draw the same noise each time: one is met when noise or strategy change, not in every run."""
KEPT = 0.01
"""Directions in which answers vary less than this part of the most are left out: rounding of answers would show in them."""


def noise_combination(done: Release) -> np.ndarray:
    """Errors of a release's answers as a combination of its noise values, (queries, values), up to one factor."""
    grid, workload, noise = done.plan.measurement, done.job.workload.queries, done.plan.noise

    def answers_of(values: np.ndarray) -> np.ndarray:
        if isinstance(grid, FilterMeasurement):
            return filtered_answers(workload, grid, values, noise)[0]
        if isinstance(grid, HadamardMeasurement):
            return formula_answers(workload, grid, values, noise)[0]
        if isinstance(grid, LaplaceTermMeasurement):
            integers = ArrayVector(values.astype(np.int64))
            return to_array(grid.answers(workload, integers, noise, AnswerRequest("answers", Remembering())).answer)
        if isinstance(grid, TermMeasurement):
            return np.concatenate([of_block(grid, block, values, noise)[0] for block in workload.blocks])
        return reader.answers(0, workload.shape[0], reader.estimate(values), noise)[0]

    if isinstance(grid, DenseMeasurement):
        reader = reader_of(workload, grid, direct=not done.plan.strategy.consistent)
    return np.stack([answers_of(values) for values in np.eye(grid.rows)], axis=1)


def limits(freedom: int, rate: float = RATE) -> tuple[float, float]:
    """Mean squares of that many independent normal draws lie between, but for half the rate."""
    return float(stats.chi2.ppf(rate / 4, freedom)) / freedom, float(stats.chi2.isf(rate / 4, freedom)) / freedom


def covered_share_limits(draws: int, rate: float = RATE) -> tuple[float, float]:
    """Of so many draws 95 % intervals hold a share between these, but for the rate; half a percent more as their ends are rounded."""
    return float(stats.binom.ppf(rate / 2, draws, 0.95)) / draws, float(
        stats.binom.isf(rate / 2, draws, 0.95)
    ) / draws + 0.005


def cautious_limits(freedom: float, rate: float = RATE) -> tuple[float, float]:
    """The same for a mean square of correlated draws: their number over the largest eigenvalue of their correlations.

    Chernoff's bound for weights w of squared normal draws, with sum 1 and none above 1/freedom = k: every -ln(1 - 2 s w) / 2 is
    convex in w, so the sum is at most that of k equal ones, on both sides exp(-k (t - 1 - ln t) / 2).
    """
    beyond = 2 * math.log(4 / rate) / freedom

    def excess(log: float) -> float:
        return math.exp(log) - 1 - log - beyond

    return math.exp(scipy.optimize.brentq(excess, -2 - beyond, 0)), math.exp(scipy.optimize.brentq(excess, 0, 2 + beyond))


def farthest(answers: int, *, laplace: bool = False, rate: float = RATE) -> float:
    """No standardised error of so many lies farther off, but for half the rate: a union bound, true of correlated ones.

    Sums of Laplace draws have at most the moments of one: P(z > t) <= exp(-s t) / (1 - s^2 / 2), at its best s.
    """
    if not laplace:
        return float(stats.norm.isf(rate / 4 / answers))

    def log_tail(t: float) -> float:
        s = (math.sqrt(1 + 2 * t**2) - 1) / t
        return -s * t - math.log1p(-(s**2) / 2) - math.log(rate / 4 / answers)

    return float(scipy.optimize.brentq(log_tail, 1.0, 1000.0))


def unmixed(standardised: np.ndarray, mixed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Independent errors of variance 1, and how they are made of noise values (orthonormal rows)."""
    unit = mixed / np.linalg.norm(mixed, axis=1, keepdims=True)
    left, sizes, right = np.linalg.svd(unit, full_matrices=False)
    kept = sizes > KEPT * sizes[0]
    return (left[:, kept].T @ standardised) / sizes[kept], right[kept]


def laplace_limits(rows: np.ndarray, rate: float = RATE) -> tuple[float, float]:
    """Mean squares of such combinations of Laplace draws lie between, but for half the rate.

    The least and the largest of N simulated ones: another one lies outside with a chance of 2 / (N + 1).
    """
    drawn = np.random.default_rng(0).laplace(scale=math.sqrt(0.5), size=(math.ceil(4 / rate), rows.shape[1]))
    squares = np.mean((drawn @ rows.T) ** 2, axis=1)
    return float(squares.min()), float(squares.max())


def assert_errors_fit(
    errors: np.ndarray,
    standard_errors: np.ndarray,
    *,
    mixed: np.ndarray | None = None,
    freedom: float = 1.0,
    laplace: bool = False,
    rate: float = RATE,
) -> None:
    """Fail for true standard errors with a chance of at most ``rate``, and for those off by enough in either direction.

    Args:
        errors: answers minus the truth.
        mixed: how the errors are made of independent noise values (``noise_combination``), (queries, values).
        freedom: without it, how many independent errors there are at least, see ``cautious_limits``; 1 is true of any.
        laplace: the noise is Laplace's, not Gaussian; needs ``mixed``.
    """
    assert mixed is not None or not laplace
    standardised = np.asarray(errors / standard_errors, dtype=np.float64)
    reach = farthest(standardised.size, laplace=laplace, rate=rate)
    assert np.abs(standardised).max() <= reach, (
        f"an answer is {np.abs(standardised).max():.2f} standard errors off: {reach:.2f}"
    )
    if mixed is not None:
        independent, rows = unmixed(standardised, mixed)
        low, high = laplace_limits(rows, rate) if laplace else limits(independent.size, rate)
        square = float(np.mean(independent**2))
    else:
        low, high = cautious_limits(freedom, rate)
        square = float(np.mean(standardised**2))
    assert low <= square <= high, (
        f"the mean square of standardised errors is {square:.3f}, not within {low:.3f} and {high:.3f}"
    )


def assert_release_fits(done: Release, table: pa.Table, truth: np.ndarray) -> None:
    """The same for a release of few cells and the table that it published."""
    errors = table["answer"].to_numpy() - truth
    standard_errors = table["standard_error"].to_numpy()
    assert_errors_fit(errors, standard_errors, mixed=noise_combination(done), laplace=done.plan.noise.kind == "laplace")

"""Coverage of everything that is asked of a finished release, over thousands of simulated releases of known counts.

Noise is whole numbers on the grid, as in a release, read through the measured space. With 4,000 releases a coverage of 95 % leaves
94 to 96.5 % by chance for one seed in 270; that of quantiles, which is 95.8 to 96.2 % over these bins (20,000 releases), for up
to one in 6. Seeds are fixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpdist.content.suppression import suppress_small_answers
from dpdist.errors import InvalidInput
from dpdist.plugins.questions import rank_ranges as ranks
from dpdist.plugins.questions.question_answers import quantile_interval
from dpdist.plugins.questions.rank_ranges import critical_value, rank_ranges
from dpdist.privacy.noise import NORMAL_95
from dpdist.privacy.noise_distributions import LAPLACE
from dpdist.query.linear_functions import ALL_RECORDS, LinearFunction, functionals
from dpdist.reconstruction.axis_factors import IdentityFactor, MatrixFactor
from dpdist.reconstruction.product_space import ProductSpace, SpaceTerm
from dpdist.statistics.ratio_intervals import fieller
from tests.case_selection import slow_after_first

RELEASES = 14_000
LOW, HIGH = 0.94, 0.965
"""Shares of releases that 95 % intervals cover: those beyond which a right one falls in about one of a million runs, where the critical
value is simulated with an error of 0.01, which moves the share by 0.001."""


def simulated(
    space: ProductSpace, asked: Sequence[LinearFunction], counts: np.ndarray, scale: int, seed: int
) -> tuple[Any, Any, Any]:
    """Estimates of every simulated release, (releases, functions), their standard errors, and their covariance."""
    made = functionals(asked, space.shape)
    size = space.values.size
    (((term, within, (side,)), _),) = space.weighted_terms(made)
    weights = made.matrix @ (term.unit * within[:, None] * np.broadcast_to(side, (within.size, size)))
    exact = _measured(space, counts)
    noise = np.rint(np.random.default_rng(seed).normal(0, scale, (RELEASES, size)))
    reading = replace(space, values=exact).estimate(made)
    estimates = reading.values + noise @ weights.T
    return estimates, np.sqrt(reading.squares) * scale, space.gram(made) * scale**2


def _measured(space: ProductSpace, counts: np.ndarray) -> np.ndarray:
    (term,) = space.terms
    out = counts.astype(np.int64)
    for axis, factor in enumerate(term.factors):
        matrix = factor.matrix if isinstance(factor, MatrixFactor) else np.eye(factor.shape[1], dtype=np.int64)
        out = np.moveaxis(np.tensordot(matrix, out, axes=(1, axis)), 0, axis)
    return np.asarray(term.multiplier * out).ravel()


def cells(*shape: int) -> ProductSpace:
    term = SpaceTerm(tuple(range(len(shape))), tuple(IdentityFactor(size) for size in shape), multiplier=1000)
    return ProductSpace((term,), shape, np.zeros(int(np.prod(shape)), dtype=np.int64))


def tree(size: int) -> ProductSpace:
    """Every value and every pair of neighbouring values: estimates of cells are dependent."""
    pairs = np.eye(size, dtype=np.int64) + np.eye(size, k=1, dtype=np.int64)
    factor = MatrixFactor(np.concatenate([1000 * np.eye(size, dtype=np.int64), 700 * pairs]))
    term = SpaceTerm((0,), (factor,))
    return ProductSpace((term,), (size,), np.zeros(2 * size, dtype=np.int64))


@pytest.mark.statistical
@pytest.mark.parametrize("space", [cells(30), tree(30)], ids=["cells", "tree"])
def test_means_and_ratios_cover(space: ProductSpace) -> None:
    values = np.arange(30.0)
    counts = np.random.default_rng(3).poisson(40, 30)
    asked = [ALL_RECORDS.times_vectors({0: values}), ALL_RECORDS]
    estimates, _, covariance = simulated(space, asked, counts, 15_000, seed=1)
    truth = float(values @ counts / counts.sum())
    found = [fieller(each, covariance, NORMAL_95) for each in estimates]
    inside = [interval is None or interval[0] <= truth <= interval[1] for interval in found]
    assert LOW <= np.mean(inside) <= HIGH


@pytest.mark.statistical
def test_ratios_with_a_doubtful_denominator_cover_where_the_delta_method_does_not() -> None:
    """The denominator is 3 of its standard errors: Fieller's interval holds, and is unbounded in some releases."""
    counts = np.array([5, 60])
    space = cells(2)
    asked = [LinearFunction(((1.0, {0: np.array([1.0, 0.0])}),)), LinearFunction(((1.0, {0: np.array([0.0, 1.0])}),))]
    estimates, _, covariance = simulated(space, asked, counts, 20_000, seed=2)
    found = [fieller(each, covariance, NORMAL_95) for each in estimates]
    assert 0.05 < np.mean([interval is None for interval in found]) < 0.3
    bounded = [interval is None or interval[0] <= 5 / 60 <= interval[1] for interval in found]
    assert LOW <= np.mean(bounded) <= 1.0


@pytest.mark.statistical
@pytest.mark.parametrize("share", slow_after_first(1, [0.5, 0.9]))
def test_quantiles_cover_what_they_say_and_hardly_more_over_fine_bins(share: float) -> None:
    counts = np.full(400, 25)
    below = np.tril(np.ones((400, 400)))[:-1] - share
    asked = [ALL_RECORDS.times_vectors({0: row}) for row in below]
    estimates, errors, _ = simulated(cells(400), asked, counts, 20_000, seed=9)
    truth = int((below @ counts < 0).sum())
    found = [quantile_interval(each, NORMAL_95 * errors) for each in estimates]
    covered = np.mean([low <= truth <= high for _, low, high in found])
    assert LOW <= covered <= HIGH
    assert 0.4 <= np.mean([value < truth for value, _, _ in found]) <= 0.6
    narrow = np.mean(
        [low <= truth <= high for _, low, high in (quantile_interval(e, 0.8 * NORMAL_95 * errors) for e in estimates)]
    )
    assert narrow < LOW  # the test sees error bars that are a fifth too short


@pytest.mark.statistical
def test_quantiles_over_coarse_bins_cover_at_least_what_they_say() -> None:
    counts = np.random.default_rng(5).poisson(200, 12)
    below = np.tril(np.ones((12, 12)))[:-1] - 0.5
    asked = [ALL_RECORDS.times_vectors({0: row}) for row in below]
    estimates, errors, _ = simulated(tree(12), asked, counts, 50_000, seed=4)
    truth = int((below @ counts < 0).sum())
    covered = np.mean(
        [low <= truth <= high for _, low, high in (quantile_interval(e, NORMAL_95 * errors) for e in estimates)]
    )
    assert covered >= LOW


@pytest.mark.statistical
@pytest.mark.parametrize("space", [cells(8), tree(8)], ids=["cells", "tree"])
def test_ranks_cover_all_places_at_once(space: ProductSpace) -> None:
    """Of equal counts every place must stay possible: the hardest case, where coverage is exactly what is said."""
    counts = np.full(8, 100)
    asked = [ALL_RECORDS.times_vectors({0: row}) for row in np.eye(8)]
    estimates, _, covariance = simulated(space, asked, counts, 15_000, seed=5)
    critical = critical_value(covariance)
    found = [rank_ranges(each, covariance, critical) for each in estimates]
    assert LOW <= np.mean([(best == 1).all() and (worst == 8).all() for best, worst in found]) <= HIGH
    far = rank_ranges(np.arange(8) * 1000.0, covariance, critical)
    np.testing.assert_array_equal(far, [np.arange(8, 0, -1)] * 2)


@pytest.mark.statistical
@pytest.mark.parametrize(("groups", "simulated"), [(8, 64), (8, 4), (70, 64)])
def test_all_differences_lie_within_the_critical_value_at_once(
    groups: int, simulated: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulated for few groups, Bonferroni's bound for many; of each at least 95 %, whatever the number from which they are many."""
    monkeypatch.setattr(ranks, "MOST_SIMULATED", simulated)
    state = np.random.default_rng(8)
    root = np.eye(groups) + 0.3 * state.standard_normal((groups, groups)) / np.sqrt(groups)
    covariance = root @ root.T
    critical, errors = critical_value(covariance), ranks.difference_errors(covariance)
    draws = state.standard_normal((RELEASES, groups)) @ root.T
    apart = np.array([np.abs((each[:, None] - each) / errors).max() for each in draws])
    covered = np.mean(apart <= critical)
    assert covered >= LOW
    assert groups > simulated or covered <= HIGH
    assert np.mean(apart <= 0.8 * critical) < LOW  # the test sees intervals that are a fifth too short


@pytest.mark.statistical
@pytest.mark.parametrize("groups", [2, 8, 40])
def test_all_differences_of_laplace_sums_lie_within_the_critical_value_at_once(groups: int) -> None:
    """Of any weights: the first group has one draw, the others none or one. Exact for two groups, of which one is known."""
    root = np.diag(np.arange(groups) != 1).astype(float)
    covariance, draws = root @ root.T, np.random.default_rng(8).laplace(scale=0.5**0.5, size=(RELEASES, groups)) @ root.T
    errors = ranks.difference_errors(covariance)
    apart = np.array([np.abs((each[:, None] - each) / errors).max() for each in draws])
    covered = np.mean(apart <= critical_value(covariance, LAPLACE))
    assert covered >= LOW
    assert groups > 2 or covered <= HIGH
    assert groups == 2 or np.mean(apart <= critical_value(covariance)) < LOW  # normal tails are too short


FITTED = {
    "privacy": {"noise": "Gaussian"},
    "mechanism": {"rounded": False, "biased": False},
    "non_negative": {"rule": 1, "draws": 0, "groups": []},
    "post_processing": [],
}
"""What is looked at of a certificate, where intervals stay as they are."""
FITTED_EARLIER = {name: fact for name, fact in FITTED.items() if name != "non_negative"} | {
    "post_processing": ["the non-negative cells"]
}
"""The same of version 1.0.0, which said of some fits no more."""


@pytest.mark.statistical
def test_shares_of_spurious_and_lost_rows_are_those_predicted() -> None:
    errors = np.random.default_rng(6).uniform(5, 25, 200)
    draws = np.random.default_rng(7).normal(0, 1, (2000, 200)) * errors
    for truth, name, wanted in (
        (0.0, "shown_at_zero", True),
        (50.0, "shown_at_limit", True),
        (100.0, "dropped_at_double", False),
    ):
        rows = pa.table({"answer": np.zeros(200), "standard_error": errors})
        predicted = getattr(suppress_small_answers(rows, below=50, at=2, certificate=FITTED).predicted, name)
        shown = (truth + draws >= 50 + 2 * errors).mean()
        assert (shown if wanted else 1 - shown) == pytest.approx(predicted, rel=0.05, abs=2e-4)
    kept = suppress_small_answers(
        pa.table({"answer": [60.0, 80.0], "standard_error": [10.0, 10.0]}), below=50, at=2, certificate=FITTED
    )
    assert kept.table["answer"].to_pylist() == [80.0]
    earlier = suppress_small_answers(
        pa.table({"answer": [60.0, 80.0], "standard_error": [10.0, 10.0]}), below=50, at=2, certificate=FITTED_EARLIER
    )
    assert earlier.table == kept.table
    with pytest.raises(InvalidInput, match="below >= 0"):
        suppress_small_answers(rows, below=-1, certificate=FITTED)

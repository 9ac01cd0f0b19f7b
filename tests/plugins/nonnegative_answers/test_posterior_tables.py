"""Posterior tables: against integrals, against counts drawn from the prior itself, and that tables agree."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from dpdist.operators import Matrix
from dpdist.plugins.nonnegative_answers import posterior_tables
from dpdist.plugins.nonnegative_answers.posterior_tables import fit_to_tables, posterior

CELLS = 2000


def drawn(seed: int, scale: float) -> tuple[Matrix, Matrix, Matrix]:
    """Counts, a quarter of them zero and the others spread as a Gamma distribution; noisy values; what is expected."""
    state = np.random.default_rng(seed)
    expected = np.exp(state.uniform(0, 5, CELLS))
    counts = expected * np.where(state.random(CELLS) < 0.25, 0.0, state.gamma(2.0, 0.5 / 0.75, CELLS))
    return counts, counts + scale * state.normal(size=CELLS), expected


@pytest.mark.parametrize("value", [-3.0, 0.5, 9.0, 60.0])
def test_one_cell_is_as_an_integral_says(monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    monkeypatch.setattr("dpdist.plugins.nonnegative_answers.posterior_tables.MIXTURE", ((1.0, 2.0),))
    monkeypatch.setattr("dpdist.plugins.nonnegative_answers.posterior_tables.NODES", 512)
    prior, error = scipy.stats.gamma(2.0, scale=6.0), 4.0

    def moment(power: int) -> float:
        inside = (max(value - 8 * error, 0.0), max(value, 0.0) + 8 * error)
        return float(
            scipy.integrate.quad(lambda x: x**power * prior.pdf(x) * np.exp(-0.5 * ((value - x) / error) ** 2), *inside)[0]
        )

    mean = moment(1) / moment(0)
    found, variance = posterior(np.array([value]), np.array([error]), np.array([12.0]))
    assert found[0] == pytest.approx(mean, rel=2e-3)
    assert variance[0] == pytest.approx(moment(2) / moment(0) - mean**2, rel=5e-3)


@pytest.mark.parametrize("scale", [2.0, 20.0])
def test_quantiles_hold_what_they_say(scale: float) -> None:
    """Of 2,000 counts of which a quarter is zero: between the quantiles at 5 and 95 % lie 90 %, within five standard deviations and what
    the estimated mixture costs. Noise said to be half as large is found."""
    counts, values, expected = drawn(1, scale)

    def coverage(error: float) -> float:
        errors = np.full(CELLS, error)
        low, high = (posterior(values, errors, expected, np.full(CELLS, level))[0] for level in (0.05, 0.95))
        return float(((low - 0.01 * scale <= counts) & (counts <= high)).mean())

    assert 0.87 <= coverage(scale) <= 0.95
    assert coverage(scale / 2) < 0.87


@pytest.mark.slow
def test_means_are_nearer_than_the_values_and_draws_average_to_them() -> None:
    counts, values, expected = drawn(2, 20.0)
    errors = np.full(CELLS, 20.0)
    means, variances = posterior(values, errors, expected)
    assert np.square(means - counts).mean() < 0.7 * np.square(np.maximum(values, 0.0) - counts).mean()
    levels = [posterior_tables._levels((7, number, 0), CELLS) for number in range(16)]
    draws = np.array([posterior(values, errors, expected, each)[0] for each in levels])
    apart = (draws.mean(axis=0) - means) / np.sqrt(variances / len(draws))
    assert abs(apart.mean()) < 0.1
    assert np.square(apart).mean() < 1.2
    assert draws.var(axis=0).mean() == pytest.approx(variances.mean(), rel=0.1)


def test_draws_of_one_cell_are_spread_evenly() -> None:
    levels = np.sort([posterior_tables._levels((3 << 40, number, 0), 50) for number in range(8)], axis=0)
    assert levels[0].max() < 0.3
    assert levels[-1].min() > 0.7
    assert not np.array_equal(posterior_tables._levels((3, 0, 0), 50), posterior_tables._levels((3, 0, 1), 50))


@pytest.mark.parametrize("draw", [None, (5, 1)])
def test_tables_agree_with_each_other(draw: tuple[int, int] | None) -> None:
    """Tables of two and three attributes that share some: what they share is the same in each, and so is the total."""
    state, shape, number = np.random.default_rng(0), (3, 4, 2, 5), 5000
    records = np.column_stack([state.integers(0, size, number) ** 2 % size for size in shape])
    wanted = ((0, 1, 2), (0, 1, 3), (2, 3))

    def noisy_table(axes: tuple[int, ...]) -> tuple[Matrix, Matrix]:
        sizes = tuple(shape[axis] for axis in axes)
        own = np.random.default_rng(len(axes) * 100 + axes[-1])
        cells = np.ravel_multi_index(tuple(records[:, axis] for axis in axes), sizes)
        counts = np.bincount(cells, minlength=int(np.prod(sizes))).reshape(sizes)
        return counts + 10.0 * own.normal(size=sizes), np.full(sizes, 10.0)

    def sums(axis: int, vectors: Matrix) -> tuple[Matrix, Matrix]:
        values, errors = noisy_table((axis,))
        return vectors @ values, np.sqrt(vectors @ errors**2)

    found = posterior_tables.posterior_tables(wanted, shape, number, noisy_table, sums, draw)
    tables = dict(zip(wanted, found, strict=True))
    for axes, table in tables.items():
        assert table.min() >= 0
        assert table.sum() == pytest.approx(number)
        assert np.abs(table - noisy_table(axes)[0]).mean() < 10
    for one, other in itertools.combinations(wanted, 2):
        shared = tuple(axis for axis in one if axis in other)
        margins = [tables[s].sum(axis=tuple(p for p, axis in enumerate(s) if axis not in shared)) for s in (one, other)]
        assert np.abs(margins[0] - margins[1]).max() < 0.5


def test_the_mean_of_many_values_is_hardly_moved_since_they_are_halved() -> None:
    """A long tail of values that hardly anybody has: taken one by one they would all be pushed up, and the mean of the values with them."""
    size, number, error = 64, 10_000, 60.0
    counts = number * 0.85 ** np.arange(size) / (0.85 ** np.arange(size)).sum()
    codes, ones, apart = np.arange(size), np.full(size, error), list[tuple[float, float]]()
    for noise in range(20):
        values = counts + error * np.random.default_rng(noise).normal(size=size)

        def sums(vectors: Matrix, values: Matrix = values) -> tuple[Matrix, Matrix]:
            return vectors @ values, np.sqrt(vectors @ ones**2)

        halved = posterior_tables._attribute(size, number, sums, None)
        alone = posterior(values, ones, np.full(size, number / size))[0]
        apart.append((float(halved @ codes / halved.sum()), float(alone @ codes / alone.sum())))
    halving, single = np.abs(np.mean(apart, axis=0) - counts @ codes / number)
    assert halving < 0.25 * single


def test_large_cells_are_corrected_as_far_as_they_are_uncertain() -> None:
    """A sum that lies 10 too high comes off the uncertain cells, not off the large one."""
    table = fit_to_tables(np.array([1000.0, 20.0, 20.0]), np.array([1.0, 50.0, 50.0]), (0,), {(): np.array(1030.0)})
    assert table == pytest.approx([999.9, 15.05, 15.05], abs=0.05)


def test_cells_in_pieces_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    _, values, expected = drawn(4, 5.0)
    whole = posterior(values, np.full(CELLS, 5.0), expected)
    monkeypatch.setattr("dpdist.plugins.nonnegative_answers.posterior_tables.BLOCK_CELLS", 7)
    for one, other in zip(whole, posterior(values, np.full(CELLS, 5.0), expected), strict=True):
        assert one == pytest.approx(other, rel=1e-12)


def test_small_shapes_from_their_terms_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against SciPy's incomplete Gamma function, for values from next to nothing to far beyond every mean."""
    values = np.concatenate([[0.0], np.logspace(-8, 5, 200)])
    found = {form: posterior_tables._gamma_distribution(form, values) for form in (2.0, 10.0)}
    monkeypatch.setattr("dpdist.plugins.nonnegative_answers.posterior_tables.ERLANG", 1)
    for form, each in found.items():
        np.testing.assert_allclose(each, posterior_tables._gamma_distribution(form, values), rtol=0, atol=1e-14)
        assert not np.array_equal(each, posterior_tables._gamma_distribution(form, values))

"""Filters against their definitions, in the time and in the frequency domain."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from dpdist.domain import Attribute, Domain
from dpdist.errors import InvalidInput
from dpdist.operators.toeplitz import Toeplitz
from dpdist.workloads import filtered
from dpdist.workloads.time_filters import (
    Filter,
    baxter_king,
    coefficients,
    exponential,
    hodrick_prescott,
    polynomial,
    powers,
    running_sum,
    window,
)

X = np.random.default_rng(0).integers(0, 90, 200).astype(np.float64)


def applied(each: Filter, x: np.ndarray = X, **options: bool) -> np.ndarray:
    return np.asarray(filtered(x.size, "x0", [each], **options).unweighted.matvec(x))


def test_sums_windows_and_decays() -> None:
    np.testing.assert_allclose(applied(running_sum(200)), np.cumsum(X), atol=1e-9)
    slow = [X[max(0, t - 6) : t + 1].sum() for t in range(200)]
    np.testing.assert_allclose(applied(window(7)), slow, atol=1e-9)
    np.testing.assert_allclose(applied(window(7, mean=True)), np.array(slow) / 7, atol=1e-9)
    decay, level = [], 0.0
    for value in X:
        level = 0.9 * level + value
        decay.append(level)
    np.testing.assert_allclose(applied(exponential(0.9, 200)), decay, rtol=1e-9)
    slow = [sum(X[t - k] / (k + 1) ** 1.5 for k in range(t + 1)) for t in range(200)]
    np.testing.assert_allclose(applied(polynomial(1.5, 200)), slow, rtol=1e-9)
    np.testing.assert_allclose(applied(window(3), circular=True)[0], X[0] + X[-1] + X[-2])
    np.testing.assert_allclose(applied(window(999)), np.cumsum(X), atol=1e-9)  # coefficients beyond the series are cut


@pytest.mark.parametrize("rate", [0.1, 0.7, 0.97, 0.999999])
def test_powers_are_as_exact_as_their_type(rate: float) -> None:
    """Made of products that round alike on every processor; one power of the vector units of some differs from that of others."""
    found = powers(rate, 5000)
    assert (found[1:2] == rate).all()
    for place in (2, 3, 78, 1023, 4999):
        exact = Fraction(rate) ** place
        assert exact < 1e-300 or abs(Fraction(float(found[place])) / exact - 1) < 1e-15


def test_hodrick_prescott_inside_a_series() -> None:
    """Far from the ends, where the published filter is not a convolution, it solves (I + l D'D) trend = x."""
    second = np.diff(np.eye(200), 2, axis=0)
    exact = np.linalg.solve(np.eye(200) + 50.0 * second.T @ second, X)
    trend, cycle = (applied(hodrick_prescott(50.0, 200, component=part)) for part in ("trend", "cycle"))
    np.testing.assert_allclose(trend[80:120], exact[80:120], atol=1e-6)
    np.testing.assert_allclose(trend + cycle, X, atol=1e-6)
    np.testing.assert_allclose(hodrick_prescott(1600.0, 900).coefficients.sum(), 1.0, atol=1e-9)


def test_baxter_king_passes_its_band() -> None:
    coefficients = baxter_king(6, 32, 12)
    assert coefficients.coefficients.sum() == pytest.approx(0.0, abs=1e-12)
    assert coefficients.coefficients.size == 25
    assert coefficients.first_lag == -12
    published = [
        0.2777,
        0.2204,
        0.0838,
        -0.0521,
        -0.1184,
        -0.1012,
        -0.0422,
        0.0016,
        0.0015,
        -0.0279,
        -0.0501,
        -0.0423,
        -0.0119,
    ]
    np.testing.assert_allclose(coefficients.coefficients[12:], published, atol=5.1e-5)
    t = np.arange(400)
    for period, gain in ((12.0, 1.0), (3.0, 0.0)):
        wave = np.cos(2 * np.pi * t / period)
        found = applied(coefficients, wave)[50:350]
        assert np.abs(found).max() == pytest.approx(gain, abs=0.13)


def test_filters_by_group() -> None:
    domain = Domain((Attribute("sex", categories=("f", "m")), Attribute("hour", edges=tuple(range(6)))))
    workload = filtered(domain, "hour", [window(2), running_sum(5)], ("sex",))
    x = np.arange(10)
    found = workload.unweighted.matvec(x).reshape(2, 2, 5)
    np.testing.assert_array_equal(found[1], np.cumsum(x.reshape(2, 5), axis=1))
    np.testing.assert_array_equal(found[0][1], [5, 11, 13, 15, 17])
    assert workload.blocks[0].name == "sum of 2 steps by sex"
    assert workload.blocks[0].row_labels(0, 1) == [("f", "at 0")]


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: window(0), "at least 1"),
        (lambda: exponential(1.0, 5), "running sum"),
        (lambda: polynomial(-1.0, 5), "positive"),
        (lambda: hodrick_prescott(0.0, 5), "positive lambda"),
        (lambda: hodrick_prescott(5.0, 5, component="both"), "'trend' or 'cycle'"),
        (lambda: baxter_king(8, 8, 3), "shortest < longest"),
        (lambda: filtered(5, "x0", []), "at least one"),
        (lambda: filtered(5, "x0", [window(2), window(2)]), "distinct names"),
        (lambda: filtered(5, "x0", [coefficients(np.zeros(2))]), "all zero"),
        (lambda: filtered(Domain((Attribute("a", categories=("x", "y")),)), "a", [window(2)]), "have no order"),
        (lambda: filtered(5, "x0", [window(2)], ("x0",)), "twice"),
    ],
)
def test_refusals(build: object, match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        build()


def test_names_that_are_listed_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call for each of a million steps took as long as the names."""
    calls, plain = [], Toeplitz.row_names

    def record_range(self: Toeplitz, start: int, stop: int, *cells: Sequence[str]) -> list[str]:
        calls.append((start, stop))
        return plain(self, start, stop, *cells)

    monkeypatch.setattr(Toeplitz, "row_names", record_range)
    (block,) = filtered(5, "x0", [window(2)]).blocks
    assert calls == [(0, 5)]
    assert block.labels == (("at 0", "at 1", "at 2", "at 3", "at 4"),)

"""Error rates: each chi-square here is compared at 1e-9 per test with fixed keys; mutations miss by many orders more."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpdist.errors import InvalidInput
from dpdist.privacy import noise_distributions, sampler, sampler_kernels
from dpdist.privacy.noise import Noise, discrete_gaussian, discrete_laplace
from dpdist.privacy.noise_distributions import GAUSSIAN, LAPLACE, TABLE
from dpdist.privacy.sampler import exact_attempt
from tests.support.oracles import discrete_gaussian_pmf, discrete_laplace_pmf

KEY = hashlib.sha256(b"test key").digest()
SCALES = [
    Fraction(1, 3),
    Fraction(1),
    Fraction(7, 3),
    Fraction(10),
    Fraction(1000),
    Fraction(10**12 + 7, 8),
    Fraction(2**50),
]
DRAW = {GAUSSIAN: discrete_gaussian, LAPLACE: discrete_laplace}


@pytest.fixture(autouse=True)
def kernels_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few samples are asked for, a kernel decides: what is compared with the definition is never the definition itself."""
    monkeypatch.setattr(sampler, "EXACT_SAMPLES", 0)


def chi_square_p_value(samples: np.ndarray, pmf: np.ndarray) -> float:
    """P-value of observed counts against a symmetric pmf on -reach..reach, bins of fewer than 10 expected merged."""
    reach = pmf.size // 2
    observed = np.bincount(np.clip(samples, -reach, reach) + reach, minlength=pmf.size).astype(float)
    expected = pmf * samples.size
    kept = np.flatnonzero(expected >= 10)
    low, high = kept[0], kept[-1]
    observed = np.concatenate([[observed[: low + 1].sum()], observed[low + 1 : high], [observed[high:].sum()]])
    expected = np.concatenate([[expected[: low + 1].sum()], expected[low + 1 : high], [expected[high:].sum()]])
    expected *= samples.size / expected.sum()
    return float(stats.chi2.sf(((observed - expected) ** 2 / expected).sum(), observed.size - 1))


@pytest.mark.parametrize("scale", SCALES, ids=str)
@pytest.mark.parametrize("kind", [GAUSSIAN, LAPLACE])
def test_every_attempt_agrees_with_the_integer_reference(kind: str, scale: Fraction) -> None:
    for tile in (0, 5):
        plan = sampler._plan(kind, KEY, scale, 0, 1)
        counter, encryptor = sampler._stream(KEY, tile)
        raw = np.frombuffer(encryptor.update(bytes(noise_distributions.BATCH * 24)), dtype=np.uint64)
        words = raw.reshape(3, noise_distributions.BATCH)[:, :800]
        decided = (exact_attempt(tuple(int(w) for w in words[:, i]), plan, KEY, counter, i) for i in range(800))
        expected = [sample for sample in decided if sample is not None]
        found = DRAW[kind](KEY, scale, start=tile * sampler.TILE, count=len(expected))
        assert found.tolist() == expected


@pytest.mark.parametrize("kind", [GAUSSIAN, LAPLACE])
def test_offsets_that_some_words_would_reach_more_often_are_refused(kind: str) -> None:
    """2^64 words make offsets: the words whose product's low 64 bits lie below 2^64 mod offsets would make some once too often."""
    plan = sampler._plan(kind, KEY, Fraction(10**6 + 3), 0, 1)
    assert plan.rejection == 2**64 % plan.offsets > 0
    counter, _ = sampler._stream(KEY, 0)
    firsts = [-(-number * 2**64 // plan.offsets) for number in (0, 1, 2, plan.offsets // 2, plan.offsets - 1)]
    seen = set()
    for word in [near for first in firsts for near in (first, first + 1)]:
        decided = {exact_attempt((u, word, r), plan, KEY, counter, 0) for u in (2**40, 2**62) for r in (1, 2**63)}
        seen.add(refused := word * plan.offsets % 2**64 < plan.rejection)
        assert (decided == {None}) == refused
    assert seen == {True, False}


@pytest.mark.parametrize("kind", [GAUSSIAN, LAPLACE])
def test_few_samples_are_drawn_without_a_kernel_and_are_the_same(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Across the end of a batch, and from the head of a later tile; what the allowance does not cover is left to the kernel."""
    for scale in (Fraction(7, 3), Fraction(10**12 + 7, 8)):
        for start, count in ((0, 700), (noise_distributions.BATCH - 1400, 2000), (sampler.TILE, 5)):
            with monkeypatch.context() as patch:
                expected = DRAW[kind](KEY, scale, start=start, count=count)
                patch.setattr(sampler, "_ALLOWANCE", sampler._Allowance())
                patch.setattr(sampler, "EXACT_SAMPLES", start % sampler.TILE + count)
                patch.setattr(sampler, "_decide", None)
                assert DRAW[kind](KEY, scale, start=start, count=count).tolist() == expected.tolist()
                with pytest.raises(TypeError):
                    DRAW[kind](KEY, scale, start=start, count=1 + count)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 70_000), st.integers(0, 40_000), st.sampled_from(SCALES), st.sampled_from([GAUSSIAN, LAPLACE]))
def test_samples_depend_on_their_address_only(start: int, count: int, scale: Fraction, kind: str) -> None:
    whole = DRAW[kind](KEY, scale, count=110_000)
    np.testing.assert_array_equal(DRAW[kind](KEY, scale, start=start, count=count), whole[start : start + count])
    np.testing.assert_array_equal(DRAW[kind](KEY, scale, start=start, count=count, threads=3), whole[start : start + count])


@pytest.mark.parametrize("kind", [GAUSSIAN, LAPLACE])
def test_the_last_address_is_drawn_and_none_beyond_it(kind: str) -> None:
    """Beyond it the counter of AES would begin anew in bytes of another tile."""
    last = 2**74
    assert DRAW[kind](KEY, 5, start=last - 3, count=3).size == 3
    assert DRAW[kind](KEY, 5, start=last, count=0).size == 0
    for start, count in ((last - 3, 4), (last, 1), (last + 1, 0), (last - 2**40, 2**40 + 1), (-1, 1), (-3, 0), (0, -1)):
        with pytest.raises(InvalidInput, match=f"found start={start}, count={count}"):
            DRAW[kind](KEY, 5, start=start, count=count)


@pytest.mark.parametrize("scale", [Fraction(22, 7), Fraction(3 << 30)], ids=str)
@pytest.mark.parametrize("kind", [GAUSSIAN, LAPLACE])
def test_a_wide_margin_sends_draws_to_the_exact_path_and_changes_nothing(
    kind: str, scale: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel goes on behind each of them, within its piece of a batch and beyond; whole scales have a kernel of their own."""
    expected = DRAW[kind](KEY, scale, count=20_000)
    calls = []
    original = sampler.exact_attempt
    monkeypatch.setattr(sampler, "exact_attempt", lambda *a: calls.append(a) or original(*a))
    monkeypatch.setattr(sampler, "MARGIN", 2.0**-6)
    np.testing.assert_array_equal(DRAW[kind](KEY, scale, count=20_000), expected)
    assert len(calls) > 300


@pytest.mark.statistical
@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(1), Fraction(7, 3), Fraction(10)], ids=str)
@pytest.mark.parametrize("kind", [GAUSSIAN, LAPLACE])
def test_distribution_and_its_mutations(kind: str, scale: Fraction) -> None:
    samples = DRAW[kind](KEY, scale, count=2_000_000)
    pmf = discrete_gaussian_pmf if kind is GAUSSIAN else discrete_laplace_pmf
    reach = int(40 * float(scale)) + 5
    assert chi_square_p_value(samples, pmf(scale, reach)) > 1e-9
    for wrong in (Fraction(9, 10), Fraction(11, 10)):
        assert chi_square_p_value(samples, pmf(scale * wrong, reach)) < 1e-9


@pytest.mark.statistical
def test_large_scales_are_normal_and_laplace_on_coarse_cells() -> None:
    scale = 2**40
    gaussian = stats.norm.cdf(discrete_gaussian(KEY, scale, count=1_000_000) / scale)
    laplace = stats.laplace.cdf(discrete_laplace(KEY, scale, count=1_000_000) / scale)
    for uniform in (gaussian, laplace):
        assert stats.chisquare(np.bincount((uniform * 1000).astype(int), minlength=1000)).pvalue > 1e-9
    for factor in (0.9, 1.1):
        mutated = stats.norm.cdf(discrete_gaussian(KEY, scale, count=1_000_000) / (factor * scale))
        assert stats.chisquare(np.bincount((mutated * 1000).astype(int), minlength=1000)).pvalue < 1e-9


def test_keys_and_tiles_are_independent() -> None:
    other = hashlib.sha256(b"another key").digest()
    a, b = discrete_gaussian(KEY, 1000, count=200_000), discrete_gaussian(other, 1000, count=200_000)
    shifted = discrete_gaussian(KEY, 1000, start=sampler.TILE, count=200_000)
    for x, y in ((a, b), (a, shifted)):
        assert abs(np.corrcoef(x, y)[0, 1]) < 6 / np.sqrt(200_000)
    assert abs(np.corrcoef(a[1:], a[:-1])[0, 1]) < 6 / np.sqrt(200_000)


def test_the_float_exponential_is_far_inside_the_margin() -> None:
    points = np.concatenate([np.linspace(0, 30, 3001), np.random.default_rng(0).uniform(0, 199, 2000)])
    with mpmath.workprec(200):
        worst = max(
            abs(
                float(
                    (mpmath.mpf(sampler_kernels.exp_negative(float(e))) - mpmath.exp(-mpmath.mpf(e)))
                    / mpmath.exp(-mpmath.mpf(e))
                )
            )
            for e in points
        )
    assert worst < 2.0**-48


def test_the_tables_are_the_distributions() -> None:
    """Every threshold to its last bit."""
    with mpmath.workprec(2000):
        gaussian = [mpmath.exp(-mpmath.mpf(k * k) / 2) for k in range(40)]
        laplace = [mpmath.exp(-k) for k in range(40)]
        for kind, weights, total in (
            (GAUSSIAN, gaussian[:-1], sum(gaussian)),
            (LAPLACE, laplace, 1 / (1 - mpmath.exp(-1))),
        ):
            found = [mpmath.floor(mpmath.ldexp(sum(weights[: k + 1]) / total, 512)) for k in range(len(weights))]
            assert list(TABLE[kind]) == [int(each) for each in found]


DIGESTS = """
import hashlib, sys
from fractions import Fraction
from dpdist.privacy.noise import discrete_gaussian, discrete_laplace
key = hashlib.sha256(b"test key").digest()
for draw in (discrete_gaussian, discrete_laplace):
    for scale in (Fraction(1, 3), Fraction(22, 7), Fraction(2**31), Fraction(2**50)):
        print(hashlib.sha256(draw(key, scale, start=5, count=50_000).tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_the_same_bytes_with_the_compiler_s_optimisation_off() -> None:
    """Integers decide, so neither Numba's optimiser nor the processor's vector units can change a sample."""
    found = []
    for options in ({}, {"NUMBA_OPT": "0"}, {"NUMBA_CPU_NAME": "generic", "NUMBA_LOOP_VECTORIZE": "0"}):
        environment = {**os.environ, **options}
        done = subprocess.run([sys.executable, "-c", DIGESTS], capture_output=True, text=True, check=True, env=environment)
        found.append(done.stdout.split())
    assert len(found[0]) == len(set(found[0])) == 8
    assert found[0] == found[1] == found[2]


def test_deviation() -> None:
    for scale in (1, 2, 7):
        reach = 60 * scale
        values = np.arange(-reach, reach + 1)
        laplace = float((discrete_laplace_pmf(Fraction(scale), reach) * values**2).sum())
        assert Noise(LAPLACE, scale).deviation == pytest.approx(np.sqrt(laplace), rel=1e-12)
        gaussian = float((discrete_gaussian_pmf(Fraction(scale), reach) * values**2).sum())
        assert Noise(GAUSSIAN, scale).deviation == pytest.approx(np.sqrt(gaussian), rel=1e-6)
    assert Noise(LAPLACE, 2**31).deviation == pytest.approx(np.sqrt(2) * 2**31, rel=1e-12)
    np.testing.assert_array_equal(
        Noise(LAPLACE, 9).draw(KEY, start=3, count=50), discrete_laplace(KEY, 9, start=3, count=50)
    )
    np.testing.assert_array_equal(Noise(GAUSSIAN, 9).draw(KEY, count=50), discrete_gaussian(KEY, 9, count=50))


def two_sided_tail(width: float, variances: np.ndarray, gaussian: float = 0.0) -> float:
    """P(|X| > width) for a sum of Laplace draws and a normal one of these variances, by inverting the transform."""
    u = np.linspace(1e-9, 60, 20_001)
    transform = np.exp(-gaussian * u**2 / 2 - np.log1p(np.outer(variances / 2, u**2)).sum(axis=0))
    return float(1 - 2 / np.pi * np.trapezoid(transform * np.sin(u * width) / u, u))


def test_laplace_intervals_cover_what_they_say() -> None:
    state = np.random.default_rng(0)
    shapes = [(np.full(k, 1 / k), 0.0) for k in (1, 2, 3, 4, 5, 8, 16, 64)]
    shapes += [(np.array([w]), 1 - w) for w in (0.2, 0.5, 0.8, 0.95)]
    shapes += [(state.dirichlet(np.full(int(state.integers(2, 12)), a)), 0.0) for a in (0.1, 0.5, 2.0) for _ in range(15)]
    for variances, gaussian in shapes:
        width = float(Noise(LAPLACE, 2**30).half_width_95(float((variances**2).sum())))
        assert 0.046 < two_sided_tail(width, variances, gaussian) < 0.0501
    assert float(Noise(LAPLACE, 2**30).half_width_95(1.0)) == pytest.approx(np.log(20) / np.sqrt(2), rel=1e-12)
    assert float(Noise(GAUSSIAN, 2**30).half_width_95(0.3)) == pytest.approx(stats.norm.isf(0.025), rel=1e-12)


BOUNDED = """
import hashlib, resource, sys
from dpdist.privacy.noise import discrete_gaussian
key, count, block = hashlib.sha256(b"test key").digest(), int(sys.argv[1]), 2**22
discrete_gaussian(key, 2**30, count=block)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
digest = hashlib.sha256()
for start in range(0, count, block):
    digest.update(discrete_gaussian(key, 2**30, start=start, count=min(block, count - start)))
print(digest.hexdigest(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize("count", [50_000_000, pytest.param(1_000_000_000, marks=pytest.mark.large)])
def test_long_vectors_in_bounded_memory(count: int) -> None:
    """Samples are addressed, so a vector of any length is drawn block by block; 32 MiB a block."""
    done = subprocess.run([sys.executable, "-c", BOUNDED, str(count)], capture_output=True, text=True, check=True)
    digest, growth_kib = done.stdout.split()
    assert len(digest) == 64
    assert int(growth_kib) < 128 * 1024


@pytest.mark.parametrize(
    "call",
    [
        lambda: discrete_gaussian(b"short", 1, count=1),
        lambda: discrete_gaussian(KEY, 1.5, count=1),
        lambda: discrete_gaussian(KEY, 0, count=1),
        lambda: discrete_gaussian(KEY, 2**51, count=1),
        lambda: discrete_gaussian(KEY, Fraction(2**58, 2**58 - 1), count=1),
        lambda: discrete_laplace(KEY, 1, start=-1, count=1),
        lambda: discrete_laplace(KEY, 1, count=-1),
    ],
)
def test_refusals(call: object) -> None:
    with pytest.raises(InvalidInput):
        call()


@pytest.mark.statistical
@pytest.mark.large
@pytest.mark.parametrize("kind", [GAUSSIAN, LAPLACE])
def test_distribution_at_1e8(kind: str) -> None:
    pmf = (discrete_gaussian_pmf if kind is GAUSSIAN else discrete_laplace_pmf)(Fraction(10), 400)
    samples = np.concatenate([DRAW[kind](KEY, 10, start=i * 10**7, count=10**7) for i in range(10)])
    assert chi_square_p_value(samples, pmf) > 1e-9

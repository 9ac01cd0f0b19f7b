"""Known attacks, run against a naive float mechanism, where they must succeed, and against dpdist, where they must fail.

Every trial is one cell of a histogram in which a record is there or not. A whole release measures 400,000 such cells at
once under one key, through the code that every release runs (grid, exact noise, stored measurement, reader).

Error rates: advantages of dpdist are compared with what its epsilon allows plus six standard errors (1e-9 each).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy import special, stats

from dpdist.arrays.lazy_vector import ArrayVector
from dpdist.engine import inline
from dpdist.measurement.integer_measurement import NoisyVector
from dpdist.pipeline.measure import draw
from dpdist.privacy.accounting import Loss, gaussian_epsilon
from dpdist.privacy.keys import Secret
from dpdist.privacy.noise import Noise
from dpdist.storage.array_store import Store
from dpdist.strategies import identity
from dpdist.workloads import Workload, marginals
from tests.case_selection import slow_after_first
from tests.support.measurement_readers import measured as exact_values
from tests.support.measurement_readers import reader_of

CELLS = 400_000
GRAIN = 2.0**-53


@cache
def every_cell() -> Workload:
    """The queries of all releases: their 400,000 names are made once."""
    return marginals((CELLS,), (1,))


def released(folder: Path, count: int, budget: Loss, *, scale: float = 1.0) -> np.ndarray:
    """Answers to every cell of a histogram that holds ``count`` everywhere. ``scale`` shrinks the noise, as a defect would."""
    store, workload = Store(folder), every_cell()
    norm = "l1" if budget.pure else "l2"
    grid = identity(CELLS, norm=norm).measurement(workload, neighbours="add-remove", most_records=1)
    noise = grid.noise(budget)
    noise = Noise(noise.kind, round(noise.scale * scale))
    counts = store.put(f"counts-{count}", np.full(CELLS, count, dtype=np.int64))
    exact = ArrayVector(exact_values(store, inline(), grid, counts))
    key = Secret(hashlib.sha256(f"{count} {budget}".encode()).digest())
    measured = store.read_array(draw(store, f"measurement-{count}-{scale}", NoisyVector(exact, key, noise), {}))
    return reader_of(workload, grid, direct=False).estimate(measured)


def naive_laplace(state: np.random.Generator, count: int, scale: float) -> np.ndarray:
    """The textbook's inverse transform: sign * scale * ln U in floating point."""
    sign = state.choice([-1.0, 1.0], CELLS)
    return count + sign * scale * np.log(state.integers(1, 2**53, CELLS) * GRAIN)


def naive_gaussian(state: np.random.Generator, count: int, scale: float) -> np.ndarray:
    """Inverse transform of the normal distribution in floating point."""
    return count + scale * special.ndtri(state.integers(1, 2**53, CELLS) * GRAIN)


def mironov(outputs: np.ndarray, scale: float, *, gaussian: bool) -> np.ndarray:
    """Whether an output can come from a count of 0 under the naive sampler (Mironov 2012, "On significance of the least
    significant bits"): some U on the generator's lattice must give exactly these bits. True: it cannot, so the count is 1."""
    noise = outputs / scale
    guess = special.ndtr(noise) if gaussian else np.exp(-np.abs(noise))
    centre = np.rint(guess / GRAIN)
    reachable = np.zeros(outputs.size, dtype=bool)
    for step in range(-6, 7):
        u = np.clip(centre + step, 1, 2**53 - 1) * GRAIN
        again = scale * special.ndtri(u) if gaussian else np.sign(outputs) * -scale * np.log(u)
        reachable |= 0.0 + again == outputs
    return ~reachable


def haney(outputs: np.ndarray) -> np.ndarray:
    """Whether an output near zero carries fewer bits than noise of its size has (Haney et al. 2022, "Precision-based
    attacks and interval refining"): 1 + noise keeps the grain of 1, 0 + noise the noise's own. True: the count is 1."""
    near = np.abs(outputs) < 0.25
    grain = 2.0**-54
    return near & (np.rint(outputs / grain) * grain == outputs)


def advantage(attack: Callable[[np.ndarray], np.ndarray], zero: np.ndarray, one: np.ndarray) -> float:
    """How much more often the attack says 1 when the count is 1."""
    return abs(float(attack(one).mean() - attack(zero).mean()))


@pytest.mark.parametrize("gaussian", slow_after_first(1, [True, False]), ids=["gaussian", "laplace"])
def test_mironov(gaussian: bool, tmp_path: Path) -> None:
    scale, epsilon = 64.0, 1 / 64
    naive = naive_gaussian if gaussian else naive_laplace
    state = np.random.default_rng(1)

    def attack(outputs: np.ndarray) -> np.ndarray:
        return mironov(outputs, scale, gaussian=gaussian)

    assert advantage(attack, naive(state, 0, scale), naive(state, 1, scale)) > 0.25
    budget = Loss.gaussian(Fraction(1, 2 * 64**2)) if gaussian else Loss.laplace(Fraction(1, 64))
    ours = [released(tmp_path, count, budget) for count in (0, 1)]
    allowed = math.expm1(epsilon) + 6 * math.sqrt(0.5 / CELLS)
    assert advantage(attack, *ours) < allowed < 0.05


def test_haney(tmp_path: Path) -> None:
    scale = 2.0
    state = np.random.default_rng(2)
    zero, one = scale * state.standard_normal(CELLS), 1 + scale * state.standard_normal(CELLS)
    near = np.abs(one) < 0.25
    assert haney(one)[near].mean() > 0.95
    assert haney(zero)[np.abs(zero) < 0.25].mean() < 0.6
    ours = [released(tmp_path, count, Loss.gaussian(Fraction(1, 8))) for count in (0, 1)]
    for outputs in ours:
        assert haney(outputs)[np.abs(outputs) < 0.25].all()  # every output lies on one grid, whatever the count
        assert (outputs * 2.0**30 == np.rint(outputs * 2.0**30)).all()


def audited_epsilon(zero: np.ndarray, one: np.ndarray, delta: float) -> float:
    """A lower bound of epsilon that holds with probability 1 - 1e-9: the best of 41 thresholds, by Clopper-Pearson.

    For every event S: P1(S) <= e^epsilon P0(S) + delta.
    """
    error = 1e-9 / (2 * 41)
    best = 0.0
    for threshold in np.quantile(one, np.linspace(0.5, 0.9999, 41)):
        hits, false_hits = int((one > threshold).sum()), int((zero > threshold).sum())
        low = stats.beta.ppf(error, hits, one.size - hits + 1)
        high = stats.beta.ppf(1 - error, false_hits + 1, zero.size - false_hits)
        if low > delta:
            best = max(best, math.log((low - delta) / high))
    return best


@pytest.mark.statistical
@pytest.mark.parametrize("pure", [True, False], ids=["laplace", "gaussian"])
def test_the_audit_stays_below_the_claim_and_catches_half_the_noise(pure: bool, tmp_path: Path) -> None:
    delta = 0.0 if pure else 1e-4
    budget = Loss.laplace(Fraction(1)) if pure else Loss.gaussian(Fraction(1, 20))
    claimed = 1.0 if pure else gaussian_epsilon(1 / math.sqrt(2 / 20), delta)
    honest = [released(tmp_path / "honest", count, budget) for count in (0, 1)]
    broken = [released(tmp_path / "broken", count, budget, scale=0.5) for count in (0, 1)]
    found, caught = (audited_epsilon(none, one, delta) for none, one in (honest, broken))
    assert 0.4 * claimed < found <= claimed
    assert caught > claimed

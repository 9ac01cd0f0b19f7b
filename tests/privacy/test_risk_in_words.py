"""What is said about a loss is true of the best test there is, and changes with the loss and the unit."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from scipy import stats

from dpdist.privacy.accounting import Loss
from dpdist.privacy.privacy_unit import ProtectedPersons, ProtectedRecords
from dpdist.privacy.risk_in_words import describe_loss, detection_rate_bound

RECORD = ProtectedRecords("add-remove", 1)


@pytest.mark.parametrize("rho", [1e-4, 0.02, 0.1, 0.5, 2.0, 20.0])
@pytest.mark.parametrize("alarms", [0.001, 0.05, 0.3])
def test_gaussian_noise_against_the_most_powerful_test(rho: float, alarms: float) -> None:
    """Neyman and Pearson: a test between two normals that are sqrt(2 rho) apart finds Phi(Phi^-1(a) + sqrt(2 rho))."""
    truth = float(stats.norm.cdf(stats.norm.ppf(alarms) + math.sqrt(2 * rho)))
    found = detection_rate_bound(Loss.gaussian(Fraction(rho)), alarms)
    assert truth <= found <= 0.001 + alarms + 1.4 * (truth - alarms)


@pytest.mark.parametrize("epsilon", [Fraction(1, 100), Fraction(1, 2), Fraction(1), Fraction(3), Fraction(12)])
def test_pure_epsilon_against_the_most_powerful_test(epsilon: Fraction) -> None:
    """Randomised response attains the pure bound, so nothing less may be claimed; e^epsilon a, up to rounding."""
    e = float(epsilon)
    best = min(math.exp(e) * 0.05, 1 - math.exp(-e) * 0.95)
    assert best <= detection_rate_bound(Loss.laplace(epsilon)) <= best + 0.001


def test_nothing_spent_is_blind_guessing() -> None:
    assert detection_rate_bound(Loss()) == 0.05


def test_words_follow_epsilon_unit_and_relation() -> None:
    said = [describe_loss(Loss.laplace(Fraction(epsilon)), RECORD)["headline"] for epsilon in ("1/2", "2", "5/2", "12")]
    assert "hardly anything about whether any one record is in the data." in said[0]
    assert "no more than a hint" in said[1]
    assert "may well find out" in said[2]
    assert "may be almost sure" in said[3]
    loss = Loss.laplace(Fraction(1, 2))
    guess = describe_loss(loss, RECORD)["guess"]
    assert "at most 8.3 of 100 cases where it is yes. Blind guessing gets 5." in guess
    person = describe_loss(loss, ProtectedPersons("replace-one", 3, "email"))
    assert "any one person is in the data, or what their records say" in person["headline"]
    assert "whether a person is in the data" in person["guess"]
    assert (
        "any 4 records are in the data, or what they say"
        in describe_loss(loss, ProtectedRecords("replace-one", 4))["headline"]
    )

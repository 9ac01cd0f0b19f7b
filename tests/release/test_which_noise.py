"""Which noise: 'noise: auto' takes the kind with the least predicted error that the data set's cap allows, from the spec alone."""

from __future__ import annotations

from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist.errors import InvalidSpec
from dpdist.machine import engine
from dpdist.machine.store import Store
from dpdist.privacy.accounting import Cap, Loss
from dpdist.privacy.ledger import Ledger
from dpdist.release.context import Context, silent
from dpdist.release.plan import Plan, plan
from dpdist.spec import load
from tests import small
from tests.readers import errors_of

AGES = {"age": {"from": 0, "to": 11}}
BINS = {"age": {"from": 0, "to": 255}}
TABLE = [{"marginals": {"ways": [1]}}]
SUMS = [{"cdf": {"of": "age"}}]
CAP = {"dataset": "noise", "cap": {"epsilon": 4, "delta": 1e-6}}
TIGHT = {"dataset": "noise", "cap": {"rho": 0.05}}
KEYS = {"noise", "mechanism", "rmse", "worst", "rho", "rho_decimal", "share_of_cap", "chosen"}
"""What a certificate tells of a kind of noise: all of it follows from the spec."""
PURE = {"dataset": "noise", "cap": {"epsilon": 1}}


def asked(**changes: Any) -> dict[str, Any]:
    given = {"domain": AGES, "workload": TABLE, "budget": {"epsilon": 1, "delta": 1e-9}, "ledger": CAP, "noise": "auto"}
    return small.spec(**{**given, **changes})


def planned(folder: Path, **changes: Any) -> Plan:
    return plan(Context(folder, Store(folder / "store"), engine.inline(), silent), load(asked(**changes)))


@pytest.mark.parametrize(("delta", "gaussian"), [(1e-9, 5.495), (1e-6, 4.225)])
def test_a_histogram_is_better_off_with_laplace_noise(tmp_path: Path, delta: float, gaussian: float) -> None:
    """The figures of 256 bins at epsilon 1: the error of every bin is that of one draw."""
    found = planned(tmp_path, budget={"epsilon": 1, "delta": delta}, mechanism="identity", domain=BINS).certificate()
    rows = {row["noise"]: row for row in found["noises"]}
    assert rows["Gaussian"]["rmse"] == pytest.approx(gaussian, abs=1e-3)
    assert rows["Laplace"]["rmse"] == pytest.approx(2**0.5, rel=1e-3)
    assert (rows["Laplace"]["rho_decimal"], rows["Laplace"]["share_of_cap"]) == (0.5, 0.25)
    assert rows["Gaussian"]["share_of_cap"] < 0.1
    assert [row["chosen"] for row in found["noises"]] == [False, True]
    privacy = found["privacy"]
    assert (privacy["noise"], privacy["delta"], privacy["epsilon"]) == ("Laplace", 0.0, 1.0)
    assert privacy["definition"] == "pure differential privacy (epsilon-DP)"
    assert found["mechanism"]["rmse"] == rows["Laplace"]["rmse"]
    assert all(set(row) == KEYS for row in found["noises"])


def test_running_sums_are_better_off_with_gaussian_noise(tmp_path: Path) -> None:
    found = planned(tmp_path, workload=SUMS, domain=AGES, budget={"epsilon": 1, "delta": 0.01}).certificate()
    assert found["privacy"]["noise"] == "Gaussian"
    errors = {row["noise"]: row["rmse"] for row in found["noises"]}
    assert errors["Gaussian"] < errors["Laplace"]
    assert found["mechanism"]["name"] == "coa"


@pytest.mark.parametrize(
    ("changes", "noises"),
    [
        ({}, ["Gaussian", "Laplace"]),
        ({"ledger": TIGHT}, ["Gaussian"]),
        ({"ledger": PURE}, ["Laplace"]),
        ({"budget": {"rho": 0.01}, "ledger": {"dataset": "noise", "cap": {"rho": 4}}}, ["Gaussian"]),
        ({"budget": {"epsilon": 1}}, ["Laplace"]),
        ({"mechanism": "coa"}, ["Gaussian"]),
        ({"mechanism": "laplace"}, ["Laplace"]),
    ],
)
def test_only_what_mechanism_budget_and_cap_allow_is_compared(
    tmp_path: Path, changes: dict[str, Any], noises: list[str]
) -> None:
    assert [row["noise"] for row in planned(tmp_path, **changes).certificate()["noises"]] == noises


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"noise": "laplace", "budget": {"rho": 0.1}}, "Laplace noise needs an 'epsilon'"),
        ({"noise": "gaussian", "budget": {"epsilon": 1}}, "Gaussian noise needs a 'delta' or 'rho'"),
        ({"noise": "laplace", "mechanism": "coa"}, "'coa' uses Gaussian noise: set 'noise: gaussian'"),
        ({"noise": "gaussian", "mechanism": "laplace"}, "'laplace' uses Laplace noise: set 'noise: laplace'"),
        ({"noise": "laplace", "ledger": TIGHT}, "asks for rho=0.5, the data set's whole cap is rho=0.05"),
        ({"noise": "gaussian", "ledger": PURE}, "cap is a pure epsilon"),
        ({"noise": "normal"}, "'gaussian', 'laplace' or 'auto'"),
    ],
)
def test_noise_that_the_spec_cannot_have(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSpec, match=message):
        load(asked(**changes))


def test_the_default_keeps_its_identity_and_its_certificate(tmp_path: Path) -> None:
    given = asked()
    del given["noise"]
    assert load(given).digest == load(asked(noise="gaussian")).digest != load(asked()).digest
    assert "noises" not in planned(tmp_path, noise="gaussian").certificate()


def test_a_release_is_charged_the_epsilon_and_leaves_the_delta(home: Path) -> None:
    """The error of real releases is the predicted one: 12 bins, 100 releases; three standard errors of a mean of squares."""
    given = {**asked(release="small-1"), "budget": {"epsilon": 0.5, "delta": 1e-9}}
    done = small.run(small.write(home.parent / "data", **given), home)
    assert done.certificate["privacy"]["noise"] == "Laplace"
    with closing(Ledger.at(home)) as ledger:
        receipt = ledger.receipt("small-1")
    assert receipt is not None
    assert receipt.loss == Loss.laplace(Fraction(1, 2))
    ratio = np.mean(errors_of(done.plan, 100) ** 2) / done.certificate["mechanism"]["rmse"] ** 2
    assert abs(ratio - 1) < 3 * np.sqrt(5 / 1200)


def test_the_share_of_a_cap_follows_the_rule_of_the_first_charge() -> None:
    half = Loss.laplace(Fraction(1, 2))
    assert Cap(epsilon=Fraction(1)).share(half) == Fraction(1, 2)
    assert Cap(rho=Fraction(1)).share(half) == Fraction(1, 8)
    both = Cap(epsilon=Fraction(2), delta=Fraction(1, 10**6))
    assert both.share(Loss.gaussian(both.limit / 3)) == Fraction(1, 3)
    assert both.share(half) == Fraction(1, 4)

"""Which noise: 'noise: auto' takes the kind of less error at an equal share of the cap, and what the data set began with from then on."""

from __future__ import annotations

import math
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dpdist import engine
from dpdist.errors import InvalidInput, InvalidSpec
from dpdist.measurement.integer_measurement import IntegerMeasurement
from dpdist.pipeline.release_run import Release
from dpdist.planner.noise_selection import more_releases
from dpdist.planner.release_kinds import ReleasePlan
from dpdist.planner.release_plan import plan
from dpdist.privacy.accounting import Cap, Loss
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.privacy.noise_distributions import GAUSSIAN, Kind
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import Job, load
from dpdist.storage.array_store import Store
from dpdist.strategies import Strategy
from tests.support import small_release

AGES = {"age": {"from": 0, "to": 11}}
BINS = {"age": {"from": 0, "to": 255}}
TABLE = [{"marginals": {"ways": [1]}}]
SUMS = [{"cdf": {"of": "age"}}]
CAP = {"dataset": "noise", "cap": {"epsilon": 4, "delta": 1e-6}}
TIGHT = {"dataset": "noise", "cap": {"rho": 0.05}}
ERRORS = {"rmse", "rmse_at_least", "rmse_at_equal_share", "worst"}
KEYS = {"noise", "mechanism", *ERRORS, "rho", "rho_decimal", "share_of_cap", "releases", "chosen"}
"""What a certificate tells of a kind of noise: all of it follows from the spec."""
PURE = {"dataset": "noise", "cap": {"epsilon": 1}}


def spec_content(**changes: Any) -> dict[str, Any]:
    defaults = {"domain": AGES, "workload": TABLE, "budget": {"epsilon": 1, "delta": 1e-9}, "ledger": CAP, "noise": "auto"}
    return small_release.spec(**{**defaults, **changes})


def planned(folder: Path, **changes: Any) -> ReleasePlan:
    return plan(Context(folder, Store(folder / "store"), engine.inline(), ignore_progress), load(spec_content(**changes)))


def capped(releases: int | None = None, **cap: Any) -> dict[str, Any]:
    return {"dataset": "noise", "cap": {**cap, **({} if releases is None else {"releases": releases})}}


@pytest.mark.parametrize(("delta", "gaussian"), [(1e-9, 5.495), (1e-6, 4.225)])
def test_a_histogram_is_better_off_with_laplace_noise(tmp_path: Path, delta: float, gaussian: float) -> None:
    """The figures of 256 bins at epsilon 1: the error of every bin is that of one draw."""
    budget = {"epsilon": 1, "delta": delta}
    found = planned(tmp_path, budget=budget, ledger=capped(**budget), mechanism="identity", domain=BINS).certificate()
    rows = {row["noise"]: row for row in found["noises"]}
    assert rows["Gaussian"]["rmse"] == pytest.approx(gaussian, abs=1e-3)
    assert rows["Laplace"]["rmse"] == pytest.approx(2**0.5, rel=1e-3)
    assert (rows["Laplace"]["rho_decimal"], rows["Laplace"]["share_of_cap"]) == (0.5, 1.0)
    assert [row["chosen"] for row in found["noises"]] == [False, True]
    assert [row["releases"] for row in found["noises"]] == [1, 1]
    privacy = found["privacy"]
    assert (privacy["noise"], privacy["delta"], privacy["epsilon"]) == ("Laplace", 0.0, 1.0)
    assert privacy["definition"] == "pure differential privacy (epsilon-DP)"
    assert found["mechanism"]["rmse"] == rows["Laplace"]["rmse"]
    assert all(set(row) == KEYS for row in found["noises"])
    assert found["noise_choice"]["why"].startswith("at an equal share of the cap for each of 1 releases that the cap holds")


LAST = [(8, 1e-6, 13), (8, 1e-9, 20), (1, 1e-6, 8), (1, 1e-9, 15)]
"""Epsilon and delta of a cap, and up to how many releases a histogram has less error with Laplace noise."""


@pytest.mark.parametrize(("epsilon", "delta", "last"), LAST)
def test_a_histogram_takes_laplace_noise_up_to_some_releases(
    tmp_path: Path, epsilon: float, delta: float, last: int
) -> None:
    for releases, kind in ((last, "Laplace"), (last + 1, "Gaussian")):
        share = {
            "epsilon": math.floor(1e6 * epsilon / releases) / 1e6,
            "delta": delta,
        }  # of which the cap holds as many with either noise
        ledger = capped(releases, epsilon=epsilon, delta=delta)
        found = planned(tmp_path, budget=share, ledger=ledger, mechanism="identity", domain=AGES).certificate()
        assert found["privacy"]["noise"] == kind
        assert found["noise_choice"]["releases"] == releases
        assert found["noise_choice"]["announced"]


TEN = {letter: {"from": 0, "to": 9} for letter in "abcde"}


def test_ten_tables_take_gaussian_noise(tmp_path: Path) -> None:
    """All pairs of five attributes: one record is in ten tables, and its L1 distance is much longer than its L2 distance."""
    changes = {"domain": TEN, "workload": [{"marginals": {"ways": [2]}}], "budget": {"epsilon": 1, "delta": 1e-6}}
    found = planned(tmp_path, **changes, ledger=capped(4, epsilon=4, delta=1e-6)).certificate()
    assert found["privacy"]["noise"] == "Gaussian"


def test_without_a_number_the_cap_holds_as_many_releases_as_before(tmp_path: Path) -> None:
    """Laplace noise would have a third of the error, and take a quarter of the cap in place of a twelfth."""
    found = planned(tmp_path, budget={"epsilon": 1, "delta": 1e-6}).certificate()
    assert found["privacy"]["noise"] == "Gaussian"
    gaussian, laplace = found["noises"]
    assert (gaussian["releases"], laplace["releases"]) == (12, 4)
    assert laplace["mechanism"] == "p-identity"
    assert laplace["rmse"] == pytest.approx(2**0.5)
    assert laplace["rmse_at_least"] is None
    assert gaussian["rmse"] == pytest.approx(4.225, abs=1e-3)
    choice = found["noise_choice"]
    assert choice["why"] == "of the 12 releases that the cap holds with Gaussian noise, it holds 4 with Laplace noise"
    assert choice["announced"] is False
    named = planned(tmp_path, budget={"epsilon": 1, "delta": 1e-6}, ledger=capped(4, epsilon=4, delta=1e-6))
    assert named.certificate()["privacy"]["noise"] == "Laplace"


@pytest.mark.parametrize("epsilon", [0.05, 1, 4])
@pytest.mark.parametrize("kind", list(Kind))
def test_equal_shares_fill_the_cap_by_the_rule_of_the_ledger(epsilon: float, kind: Kind) -> None:
    cap = Cap(epsilon=Fraction(epsilon), delta=Fraction(1, 10**6))
    for releases in (1, 3, 40, 500):
        share = cap.equal_rho(releases) if kind is GAUSSIAN else cap.equal_epsilon(releases)
        below, above = (Fraction(share * factor).limit_denominator(10**12) for factor in (1 - 1e-4, 1 + 1e-4))
        loss = Loss.gaussian if kind == Kind.GAUSSIAN else Loss.laplace
        assert cap.remaining_releases(loss(above)) < releases <= cap.remaining_releases(loss(below))


def test_a_cap_has_room_for_what_it_allows() -> None:
    cap, loss = Cap(epsilon=Fraction(4), delta=Fraction(1, 10**6)), Loss.gaussian(Fraction(1, 40))
    spent = Loss.laplace(Fraction(1, 4))
    room = cap.remaining_releases(loss, spent, "exact")
    assert cap.allows(spent + loss.times(room))
    assert not cap.allows(spent + loss.times(room + 1))
    assert cap.remaining_releases(Loss.laplace(Fraction(5))) == 0
    assert cap.remaining_releases(loss) > room


@pytest.mark.parametrize(
    ("changes", "norms"),
    [
        ({}, ("l2", "l1")),
        ({"ledger": TIGHT}, ("l2",)),
        ({"ledger": PURE}, ("l1",)),
        ({"budget": {"rho": 0.01}, "ledger": {"dataset": "noise", "cap": {"rho": 4}}}, ("l2",)),
        ({"budget": {"epsilon": 1}}, ("l1",)),
        ({"mechanism": "coa"}, ("l2",)),
        ({"mechanism": "laplace"}, ("l1",)),
    ],
)
def test_only_what_mechanism_budget_and_cap_allow_is_compared(
    tmp_path: Path, changes: dict[str, Any], norms: tuple[str, ...]
) -> None:
    found = planned(tmp_path, **changes)
    assert found.job.norms == norms
    assert ("noises" in found.certificate()) == (len(norms) > 1)


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
        load(spec_content(**changes))


def test_the_default_keeps_its_identity_and_its_certificate(tmp_path: Path) -> None:
    given = spec_content()
    del given["noise"]
    assert load(given).digest == load(spec_content(noise="gaussian")).digest != load(spec_content()).digest
    assert load(given).guarantee.noise == "auto"
    assert "noises" not in planned(tmp_path, noise="gaussian").certificate()


@pytest.mark.parametrize("releases", [0, -3, 1.5])
def test_a_number_of_releases_is_a_positive_whole_number(releases: float) -> None:
    with pytest.raises(InvalidSpec, match="releases"):
        load(spec_content(ledger={"dataset": "noise", "cap": {"epsilon": 4, "delta": 1e-6, "releases": releases}}))


def test_more_releases_than_the_cap_holds_are_a_warning(tmp_path: Path) -> None:
    assert planned(tmp_path, ledger=capped(12, epsilon=4, delta=1e-6), budget={"epsilon": 1, "delta": 1e-6}).warnings == []
    (warning,) = planned(tmp_path, ledger=capped(52, epsilon=4, delta=1e-6), budget={"epsilon": 1, "delta": 1e-6}).warnings
    assert warning.startswith("52 releases are to share the cap (epsilon=4, delta=1e-06), which holds 12 like this one")


FOUR = {"epsilon": 4, "delta": 1e-6, "releases": 4}
BY_DEFAULT = {"domain": AGES, "workload": TABLE, "budget": {"epsilon": 1, "delta": 1e-6}}


def test_a_data_set_keeps_the_noise_that_it_began_with(home: Path) -> None:
    """Releases of one data set: the first decides by what is announced, later ones take its noise, whatever is announced then."""
    announced = {**CAP, "cap": FOUR}
    for number, ledger in enumerate((announced, CAP, announced)):
        done = _released(home, f"small-{number}", ledger=ledger)
        assert done.certificate["privacy"]["noise"] == "Laplace"
    assert done.certificate["noise_choice"]["why"] == "the data set began with Laplace noise, and keeps it"
    gaussian = next(row for row in done.certificate["noises"] if row["noise"] == "Gaussian")
    assert {gaussian[key] for key in ERRORS} == {None}  # not planned for, and no certificate of Laplace noise bounds it
    other = {**announced, "dataset": "other", "shared_records": True}
    assert _released(home, "other-0", ledger=other, noise="gaussian").certificate["privacy"]["noise"] == "Gaussian"
    assert _released(home, "other-1", ledger=other).certificate["privacy"]["noise"] == "Gaussian"


def test_a_release_that_was_begun_with_the_former_default_is_finished_with_it(home: Path) -> None:
    """'noise: gaussian' and no word on noise have one identity: what 1.0.0 charged without a word is Gaussian noise."""
    ledger = {**CAP, "cap": FOUR}
    before = _released(home, "small-0", ledger=ledger, noise="gaussian")
    again = _released(home, "small-0", ledger=ledger)
    assert not again.charged
    assert again.certificate["privacy"] == before.certificate["privacy"]
    assert again.certificate["noise_choice"]["why"] == "the release was charged with Gaussian noise before"
    with closing(open_ledger(home)) as known:
        assert more_releases(known, again.job, again.plan.options) == {"Gaussian": 11, "Laplace": 0}


def test_a_release_is_charged_as_announced_and_run_again_as_it_was(home: Path) -> None:
    ledger = {**CAP, "cap": FOUR}
    first, again = (_released(home, "small-0", ledger=ledger) for _ in range(2))
    assert (first.charged, again.charged) == (True, False)
    assert first.certificate == again.certificate
    with closing(open_ledger(home)) as known:
        assert more_releases(known, again.job, again.plan.options) == {"Gaussian": 0, "Laplace": 3}


def test_a_kind_that_cannot_be_post_processed_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All refusals of one kind leave the other; refusals of both are those of the first."""
    given: dict[str, Any] = {"budget": {"epsilon": 1, "delta": 1e-6}, "ledger": capped(**CAP["cap"], releases=1)}
    assert planned(tmp_path, **given).certificate()["privacy"]["noise"] == "Laplace"
    monkeypatch.setattr("dpdist.planner.release_plan._check_fit", _refuses_laplace)
    found = planned(tmp_path, **given).certificate()
    assert found["privacy"]["noise"] == "Gaussian"
    assert found["noise_choice"]["why"] == "Laplace noise cannot answer this release"


def test_a_data_set_whose_noise_cannot_answer_a_release_takes_the_other(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {"ledger": capped(4, epsilon=4, delta=1e-6), "budget": {"epsilon": 0.5, "delta": 1e-6}}
    assert _released(home, "small-0", **given).certificate["privacy"]["noise"] == "Laplace"
    monkeypatch.setattr("dpdist.planner.release_plan._check_fit", _refuses_laplace)
    first, again = (_released(home, "small-1", **given).certificate for _ in range(2))
    assert first["privacy"]["noise"] == "Gaussian"
    assert first["noise_choice"]["why"] == "the data set began with Laplace noise, which cannot answer this release"
    assert first == again


def _refuses_laplace(job: Job, strategy: Strategy, grid: IntegerMeasurement) -> None:
    del job, strategy
    if grid.norm == "l1":
        raise InvalidInput("no such fit")


def _released(home: Path, release: str, **changes: Any) -> Release:
    return small_release.run(
        small_release.write(home.parent / "data", **{**BY_DEFAULT, "release": release, **changes}), home
    )


def test_a_release_is_charged_the_epsilon_and_leaves_the_delta(home: Path) -> None:
    ledger = capped(8, epsilon=4, delta=1e-6)
    given = {**spec_content(release="small-1", ledger=ledger), "budget": {"epsilon": 0.5, "delta": 1e-9}}
    done = small_release.run(small_release.write(home.parent / "data", **given), home)
    assert done.certificate["privacy"]["noise"] == "Laplace"
    with closing(open_ledger(home)) as ledger_of_home:
        receipt = ledger_of_home.receipt("small-1")
    assert receipt is not None
    assert receipt.loss == Loss.laplace(Fraction(1, 2))


def test_the_share_of_a_cap_follows_the_rule_of_the_first_charge() -> None:
    half = Loss.laplace(Fraction(1, 2))
    assert Cap(epsilon=Fraction(1)).fraction_of_cap(half) == Fraction(1, 2)
    assert Cap(rho=Fraction(1)).fraction_of_cap(half) == Fraction(1, 8)
    both = Cap(epsilon=Fraction(2), delta=Fraction(1, 10**6))
    assert both.fraction_of_cap(Loss.gaussian(both.limit / 3)) == Fraction(1, 3)
    assert both.fraction_of_cap(half) == Fraction(1, 4)

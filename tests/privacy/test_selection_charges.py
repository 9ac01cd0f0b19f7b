"""What a selection of names costs in the ledger: its delta is a sum of its own, under a part of the cap that is set aside for it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from dpdist.errors import InvalidInput, LedgerError
from dpdist.privacy.accounting import Cap, Loss, pld_epsilon
from dpdist.privacy.ledger.budget_ledger import Ledger
from dpdist.privacy.ledger.serialization import cap_facts, cap_of, loss_of
from tests.privacy.test_budget_ledger import charge, commit, drawing, tamper

DELTA = Fraction(1, 10**7)
CAP = Cap(epsilon=Fraction(1), delta=Fraction(1, 10**6), selection=2 * DELTA)
SELECTION = replace(Loss.gaussian(Fraction(1, 1000)), failure=DELTA)


def test_deltas_of_selections_add_up_to_their_part_of_the_cap(ledger: Ledger) -> None:
    for name in ("a", "b"):
        ledger.reserve(charge(f"{name}~categories", loss=SELECTION, cap=CAP))
        ledger.reserve(charge(name, loss=Loss.gaussian(Fraction(1, 500)), cap=CAP))
    assert ledger.budgets()[0].spent.failure == 2 * DELTA
    assert ledger.budget_after("a").spent.failure == DELTA
    with pytest.raises(LedgerError, match=r"of the 2e-07 that the cap of 'people' sets aside for them 2e-07 is spent"):
        ledger.reserve(charge("c~categories", loss=SELECTION, cap=CAP))
    ledger.abort("b~categories")
    assert ledger.budgets()[0].spent.failure == DELTA
    ledger.reserve(charge("c~categories", loss=SELECTION, cap=CAP))
    drawing(ledger, "c~categories")
    commit(ledger, "c~categories")
    with pytest.raises(LedgerError, match="only a reserved release"):
        ledger.abort("c~categories")
    assert ledger.verify().releases == 5


def test_a_failure_is_counted_whatever_the_charge_is_called(ledger: Ledger) -> None:
    """A fourth third of the part that was set aside was charged, and the ledger was then refused by ``verify``."""
    for name in ("a", "b~categories"):
        ledger.reserve(charge(name, loss=SELECTION, cap=CAP))
    assert ledger.budgets()[0].spent.failure == 2 * DELTA
    for name in ("c", "d~categories"):
        with pytest.raises(LedgerError, match="sets aside for them 2e-07 is spent"):
            ledger.reserve(charge(name, loss=SELECTION, cap=CAP))
    assert ledger.verify().releases == 2


def test_a_cap_that_set_nothing_aside_allows_no_selection(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="of the 0 that the cap"):
        ledger.reserve(charge("a~categories", loss=SELECTION, cap=replace(CAP, selection=Fraction(0))))
    assert ledger.entries() == []


def test_a_row_that_spends_another_delta_is_found(ledger: Ledger, url: str) -> None:
    ledger.reserve(charge("a~categories", loss=SELECTION, cap=CAP))
    tamper(url, "UPDATE dpdist_releases SET facts = replace(facts, '1/10000000', '1/90000000')")
    with pytest.raises(LedgerError, match="was altered"):
        ledger.verify()


def test_a_cap_may_set_more_aside(ledger: Ledger) -> None:
    ledger.reserve(charge("a~categories", loss=SELECTION, cap=CAP))
    ledger.set_cap("people", cap=replace(CAP, selection=DELTA), why="fewer names")
    with pytest.raises(LedgerError, match="is spent"):
        ledger.rehearse(charge("b~categories", loss=SELECTION, cap=replace(CAP, selection=DELTA)))
    more = replace(CAP, selection=5 * DELTA)
    ledger.set_cap("people", cap=more, why="more names")
    ledger.reserve(charge("b~categories", loss=SELECTION, cap=more))
    ledger.verify()


def test_the_cap_keeps_its_whole_delta() -> None:
    """Sums at the limit of the account reach epsilon at the delta that the cap states, and no more."""
    spent = Loss(rho=CAP.limit, failure=CAP.selection)
    assert CAP.allows(spent)
    assert spent.epsilon(float(CAP.delta)) == pytest.approx(1.0, rel=2e-6)
    assert spent.epsilon(float(CAP.delta)) <= 1.0
    assert (
        Cap(epsilon=CAP.epsilon, delta=CAP.delta - CAP.selection).limit
        == CAP.limit
        < Cap(epsilon=CAP.epsilon, delta=CAP.delta).limit
    )
    assert spent.epsilon(float(CAP.selection)) == float("inf")
    assert not CAP.allows(replace(spent, failure=CAP.selection + Fraction(1, 10**30)))
    rho = Cap(rho=Fraction(1), selection=DELTA)
    assert rho.allows(Loss(rho=Fraction(1), failure=DELTA))
    assert not rho.allows(Loss(rho=Fraction(1, 2), failure=2 * DELTA))


def test_every_report_takes_the_delta_of_selections_off() -> None:
    pytest.importorskip("dp_accounting")
    plain, with_names = Loss.gaussian(Fraction(1, 50)), replace(Loss.gaussian(Fraction(1, 50)), failure=DELTA)
    assert pld_epsilon([with_names], 3e-7) == pytest.approx(pld_epsilon([plain], 2e-7), rel=1e-9)
    assert with_names.epsilon(3e-7) == pytest.approx(plain.epsilon(2e-7), rel=1e-9)
    assert pld_epsilon([with_names], 1e-7) == float("inf")


def test_facts_of_selections_are_read_back_and_absent_without_one() -> None:
    assert loss_of(SELECTION.facts) == SELECTION
    assert "failure" not in Loss.gaussian(Fraction(1, 10)).facts
    assert cap_of(cap_facts(CAP)) == CAP
    assert cap_of(cap_facts(CAP)).limits_hold()
    assert "selection" not in cap_facts(Cap(rho=Fraction(1)))
    assert str(CAP) == "epsilon=1, delta=1e-06 of which 2e-07 for selections"


def test_a_part_of_delta_is_less_than_the_delta() -> None:
    with pytest.raises(InvalidInput, match="sets a part of its delta aside"):
        Cap(epsilon=Fraction(1), delta=DELTA, selection=DELTA)


def test_a_pure_cap_has_a_delta_for_selections_alone() -> None:
    """Of (1, 2e-7): a selection of epsilon 0.25 and delta 1e-7 and what is pure go together, and no second delta like that and a third."""
    cap, delta = Cap(epsilon=Fraction(1), selection=Fraction(2, 10**7)), Fraction(1, 10**7)
    names = replace(Loss.laplace(Fraction(1, 4)), failure=delta)
    assert cap.allows(names + Loss.laplace(Fraction(3, 4)))
    assert not cap.allows(names + Loss.laplace(Fraction(76, 100)))
    assert cap.allows(names.times(2))
    assert not cap.allows(names.times(3))
    assert not cap.allows(Loss(failure=delta, rho=Fraction(1, 10**6)))
    assert cap_of(cap_facts(cap)) == cap
    assert loss_of(names.facts) == names
    assert str(cap) == "epsilon=1, 2e-07 for selections"
    assert (names.epsilon(1e-7), names.epsilon(0.99e-7)) == (0.25, float("inf"))
    assert Loss.laplace(Fraction(1, 4)).epsilon(1e-9) >= names.epsilon(1e-7 + 1e-9) > 0.2


def test_a_selection_is_not_converted_to_a_larger_change() -> None:
    with pytest.raises(InvalidInput, match="protects one change of its own unit"):
        SELECTION.for_group(2)
    assert SELECTION.for_group(1) == SELECTION

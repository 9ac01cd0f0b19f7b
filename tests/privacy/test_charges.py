"""What rows keep of charges is read back as it was; what receipts and budgets tell is what was charged."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from dpdist.errors import LedgerError, ReleaseConflict
from dpdist.privacy import database as db
from dpdist.privacy import derived
from dpdist.privacy.accounting import Cap, Loss, zcdp_epsilon
from dpdist.privacy.charges import (
    Budget,
    Part,
    Receipt,
    Records,
    cap_facts,
    cap_of,
    loss_facts,
    loss_of,
    protection_of,
)
from dpdist.privacy.ledger import Ledger, _same
from dpdist.privacy.protection import Protection
from tests.privacy.test_ledger import CAP, RECORDS, charge, commit, drawing, tamper

amounts = some.fractions(Fraction(1, 10**6), 10)
losses = some.one_of(
    some.builds(Loss.gaussian, amounts, some.fractions(0, Fraction(1, 10))),
    some.builds(Loss.laplace, amounts),
    some.just(Loss()),
)
caps = some.one_of(
    some.builds(Cap, rho=amounts, per=some.sampled_from(["total", "day", "week", "month"])),
    some.builds(
        Cap,
        epsilon=some.fractions(Fraction(1, 100), 10),
        delta=some.sampled_from([Fraction(0), Fraction(1, 10**9), Fraction(1, 10)]),
        per=some.sampled_from(["total", "week"]),
    ),
)


@given(losses, caps)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_rows_are_read_back_as_they_were(loss: Loss, cap: Cap) -> None:
    assert loss_of(loss_facts(loss)) == loss
    assert cap_of(cap_facts(cap)) == cap


def test_a_row_without_slack_leaves_only_the_conversion_of_zcdp() -> None:
    """Version 1 did not write it down: one unit of epsilon stands for unknown, and nothing does where no Gaussian was drawn."""
    old = loss_of({"rho": "1/8", "pure": "0"})
    assert old == Loss(rho=Fraction(1, 8), slack=Fraction(1))
    assert old.epsilon(1e-6) == zcdp_epsilon(0.125, 1e-6)
    assert loss_of({"rho": "0", "pure": "1/8"}) == Loss.laplace(Fraction(1, 8))


def test_a_row_without_protection_names_none() -> None:
    assert protection_of(None) is None
    assert protection_of(RECORDS.facts()) == RECORDS


def test_what_must_not_turn_up_again() -> None:
    assert Records("source", ("b", "a"), "a").seen == ("a", "b")
    assert Records("source", ("b", "a")).seen == ("a", "b")
    assert Records("source", (), "c").seen == ("c",)
    assert Records("source").seen == ()


RECEIPT = Receipt(
    "r", "people", "total", "reserved", 1, "b", Loss(), Loss(), RECORDS, "spec", "h", "source", "content", "root", None
)


@pytest.mark.parametrize(
    ("records", "same"),
    [
        (Records("source", key="root"), True),
        (Records("source", content="other", key="root"), True),  # the same bytes are the same records
        (Records("other", content="content", key="root"), True),  # stored in another way
        (Records("other", content="other", key="root"), False),
        (Records("other", key="root"), False),
        (Records("source", content="content", key="another root"), None),
        (Records("source", content="content"), None),
    ],
)
def test_a_release_knows_its_records(records: Records, same: bool | None) -> None:
    assert RECEIPT.is_of(records) is same
    if records.content is None:
        assert replace(RECEIPT, content=None).is_of(records) is same
        assert replace(RECEIPT, source=None, content=None).is_of(records) is None


def test_whether_this_call_charged_is_no_part_of_a_receipt() -> None:
    assert replace(RECEIPT, charged=True) == RECEIPT == replace(RECEIPT, charged=False)
    assert not RECEIPT.charged
    assert "salt" not in repr(replace(RECEIPT, salt=b"s" * 32))


def test_the_course_of_a_budget() -> None:
    """Shares that are left after each of the newest charges, behind those that are not listed."""
    charges = {"b": Loss.gaussian(Fraction(1, 10)), "c": Loss.gaussian(Fraction(1, 20))}
    budget = Budget("people", "total", CAP, RECORDS, "gaussian", Loss.gaussian(Fraction(1, 4)), 3, charges)
    assert [name for name, _ in budget.course] == ["b", "c"]
    assert [left for _, left in budget.course] == pytest.approx([1 / 3, 1 / 6], rel=1e-12)
    assert budget.left == Fraction(1, 20)
    assert replace(budget, spent=Loss.gaussian(Fraction(1))).left == 0


PART = Part("weeks", "digest", 0, 4)


@pytest.mark.parametrize(
    ("known", "asked", "what"),
    [
        ({"own": None, "loss": Loss(), "part": PART}, {"part": PART}, None),
        ({"own": None, "loss": Loss(), "part": PART}, {"part": replace(PART, stop=5)}, "steps"),
        ({"own": None, "loss": Loss.gaussian(Fraction(1, 5)), "part": PART}, {"part": PART}, "budget"),
        ({"own": Loss.gaussian(Fraction(1, 5)), "loss": Loss(), "part": PART}, {"part": PART}, "budget"),
        ({"own": Loss(rho=Fraction(1, 10), slack=Fraction(1))}, {}, None),
        ({"protection": None}, {}, None),
        ({"protection": Protection("add-remove", 2, None)}, {}, "unit"),
        ({"spec_digest": "other"}, {}, "spec"),
        ({"dataset": "others"}, {}, "data set"),
    ],
)
def test_an_id_is_compared_with_what_an_older_version_wrote(
    known: dict[str, object], asked: dict[str, object], what: str | None
) -> None:
    """Older versions left out the own loss, the slack and the protection: what they wrote is compared, and only that."""
    given = {"own": Loss.gaussian(Fraction(1, 10)), "loss": Loss.gaussian(Fraction(1, 10)), **known}
    receipt = replace(RECEIPT, salt=None, source=None, content=None, **given)
    if what is None:
        _same(receipt, charge("r", **asked))
        return
    with pytest.raises(ReleaseConflict, match=what):
        _same(receipt, charge("r", **asked))


@pytest.mark.parametrize("release", ["gone", "nobody"])
def test_records_that_stand_in_no_charged_name_are_found(ledger: Ledger, url: str, release: str) -> None:
    """Neither an aborted release nor one that never was holds records: they would refuse those of others."""
    ledger.reserve(charge("a", files=("f",)))
    ledger.reserve(charge("gone", files=("g",)))
    ledger.abort("gone")
    ledger.verify()
    tamper(url, f"INSERT INTO dpdist_records (release, commitment) VALUES ('{release}', 'x')")
    with pytest.raises(LedgerError, match="dpdist_records"):
        ledger.verify()


def test_more_files_than_are_written_at_once(ledger: Ledger) -> None:
    """Every one is guarded, whichever part it was written in; another data set may not have any of them."""
    files = tuple(f"file-{i:05d}" for i in range(2 * derived.PART_ROWS + 1))
    ledger.reserve(charge("a", files=files))
    for place in (0, 1, derived.PART_ROWS - 1, derived.PART_ROWS, 2 * derived.PART_ROWS):
        with pytest.raises(LedgerError, match="was counted by 'a'"):
            ledger.reserve(charge("b", dataset="others", files=("other", files[place])))
        with pytest.raises(LedgerError, match="was counted by 'a'"):
            ledger.reserve(charge("c", dataset="others", files=(*(f"x{i}" for i in range(place)), files[-1])))
    ledger.verify()
    parts = list(derived.in_parts(list(files)))
    assert [len(part) for part in parts] == [derived.PART_ROWS, derived.PART_ROWS, 1]
    assert [name for part in parts for name in part] == list(files)


def test_one_of_two_runs_is_told_that_it_charged(ledger: Ledger) -> None:
    """The first says so, whoever asks again is told no; a part of a stream that is paid was charged by nobody."""
    assert ledger.reserve(charge("a")).charged
    assert not ledger.reserve(charge("a")).charged
    assert ledger.reserve(charge("s-1", part=PART)).charged
    drawing(ledger, "s-1")
    commit(ledger, "s-1")
    assert not ledger.reserve(charge("s-2", part=replace(PART, start=4, stop=6))).charged


def test_a_lost_answer_still_says_charged(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """The transaction was done, its answer got lost, and the step is tried again: the same run charged."""
    whole = db.Database.transaction

    def twice(self: db.Database, work: object) -> object:
        whole(self, work)
        return whole(self, work)

    monkeypatch.setattr(db.Database, "transaction", twice)
    assert ledger.reserve(charge("a")).charged

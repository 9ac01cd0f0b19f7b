"""What rows keep of charges is read back as it was; what receipts and budgets tell is what was charged."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from dpdist.errors import LedgerError, ReleaseConflict
from dpdist.privacy.accounting import Cap, Loss
from dpdist.privacy.ledger import database as db
from dpdist.privacy.ledger import index_tables
from dpdist.privacy.ledger.budget_ledger import Ledger
from dpdist.privacy.ledger.charges import CountedRecords, StreamPart
from dpdist.privacy.ledger.receipts import DatasetBudget, KnownRecords, Receipt
from dpdist.privacy.ledger.rules.charge_rules import check_same
from dpdist.privacy.ledger.rules.ledger_commands import Reserve
from dpdist.privacy.ledger.serialization import cap_facts, cap_of, loss_of
from dpdist.privacy.privacy_unit import ProtectedRecords
from tests.privacy.test_budget_ledger import CAP, RECORDS, charge, commit, drawing, tamper

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
    assert loss_of(loss.facts) == loss
    assert cap_of(cap_facts(cap)) == cap


def test_what_must_not_turn_up_again() -> None:
    assert CountedRecords("source", ("b", "a"), "a").guarded_commitments == ("a", "b")
    assert CountedRecords("source", ("b", "a")).guarded_commitments == ("a", "b")
    assert CountedRecords("source", (), "c").guarded_commitments == ("c",)
    assert CountedRecords("source").guarded_commitments == ()


KNOWN = KnownRecords("source", "content", "root", "digest")
RECEIPT = Receipt("r", "people", "total", "reserved", 1, "b", 2, Loss(), Loss(), RECORDS, "spec", "h", KNOWN, "run", "s")


@pytest.mark.parametrize(
    ("records", "same"),
    [
        (CountedRecords("source", key="root"), True),
        (CountedRecords("source", content="other", key="root"), True),  # the same bytes are the same records
        (CountedRecords("other", content="content", key="root"), True),  # stored in another way
        (CountedRecords("other", content="other", key="root"), False),
        (CountedRecords("other", key="root"), False),
        (CountedRecords("source", content="content", key="another root"), None),
        (CountedRecords("source", content="content"), None),
    ],
)
def test_a_release_knows_its_records(records: CountedRecords, same: bool | None) -> None:
    assert RECEIPT.has_counted(records) is same
    if records.content is None:
        assert replace(RECEIPT, records=replace(KNOWN, content=None)).has_counted(records) is same


def test_whether_this_call_charged_is_no_part_of_a_receipt() -> None:
    assert replace(RECEIPT, charged=True) == RECEIPT == replace(RECEIPT, charged=False)
    assert not RECEIPT.charged
    assert "sss" not in repr(replace(RECEIPT, salt=b"s" * 32))


def test_the_course_of_a_budget() -> None:
    """Shares that are left after each of the newest charges, behind those that are not listed."""
    charges = {"b": Loss.gaussian(Fraction(1, 10)), "c": Loss.gaussian(Fraction(1, 20))}
    budget = DatasetBudget("people", "total", CAP, RECORDS, "exact", Loss.gaussian(Fraction(1, 4)), 3, charges)
    assert [name for name, _ in budget.remaining_by_release] == ["b", "c"]
    assert [left for _, left in budget.remaining_by_release] == pytest.approx([1 / 3, 1 / 6], rel=1e-12)
    assert budget.remaining == Fraction(1, 20)
    two_of_one = replace(budget, charges={"c~left-out": charges["b"], "c": charges["c"]})
    assert two_of_one.remaining_by_release == [("c", budget.remaining_by_release[-1][1])]  # readers count releases
    assert replace(budget, spent=Loss.gaussian(Fraction(1))).remaining == 0


PART = StreamPart("weeks", "digest", 0, 4)


@pytest.mark.parametrize(
    ("known", "asked", "what"),
    [
        ({}, {}, None),
        ({"stream_part": PART}, {"stream_part": PART}, None),
        ({"loss": Loss(), "stream_part": PART}, {"stream_part": PART}, None),  # a part that was paid is charged nothing
        ({"stream_part": PART}, {"stream_part": replace(PART, reaches=("2026-W01",))}, None),
        ({"stream_part": PART}, {"stream_part": replace(PART, stop=5)}, "steps"),
        ({"own_loss": Loss.gaussian(Fraction(1, 5))}, {}, "budget"),
        ({"own_loss": Loss(rho=Fraction(1, 10), slack=Fraction(1))}, {}, None),
        ({"protection": ProtectedRecords("add-remove", 2)}, {}, "unit"),
        ({"spec_digest": "other"}, {}, "spec"),
        ({"dataset": "others"}, {}, "data set"),
        ({"period": "2026-01"}, {}, "budget period"),
    ],
)
def test_an_id_is_bound_to_what_was_charged(known: dict[str, object], asked: dict[str, object], what: str | None) -> None:
    given = {"own_loss": Loss.gaussian(Fraction(1, 10)), "loss": Loss.gaussian(Fraction(1, 10)), **known}
    receipt = replace(RECEIPT, histogram_commitment="commitment", **given)
    command = Reserve(charge("r", **asked), "run", "name", "salt", "commitment", {})
    if what is None:
        check_same(receipt, command)
        return
    with pytest.raises(ReleaseConflict, match=what):
        check_same(receipt, command)


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
    files = tuple(f"file-{i:05d}" for i in range(2 * index_tables.BATCH_ROWS + 1))
    ledger.reserve(charge("a", files=files))
    for place in (0, 1, index_tables.BATCH_ROWS - 1, index_tables.BATCH_ROWS, 2 * index_tables.BATCH_ROWS):
        with pytest.raises(LedgerError, match="was counted by 'a'"):
            ledger.reserve(charge("b", dataset="others", files=("other", files[place])))
        with pytest.raises(LedgerError, match="was counted by 'a'"):
            ledger.reserve(charge("c", dataset="others", files=(*(f"x{i}" for i in range(place)), files[-1])))
    ledger.verify()
    parts = list(index_tables.in_batches(list(files)))
    assert [len(part) for part in parts] == [index_tables.BATCH_ROWS, index_tables.BATCH_ROWS, 1]
    assert [name for part in parts for name in part] == list(files)


def test_one_of_two_runs_is_told_that_it_charged(ledger: Ledger) -> None:
    """The first says so, whoever asks again is told no; a part of a stream that is paid was charged by nobody."""
    assert ledger.reserve(charge("a")).charged
    assert not ledger.reserve(charge("a")).charged
    assert ledger.reserve(charge("s-1", stream_part=PART)).charged
    drawing(ledger, "s-1")
    commit(ledger, "s-1")
    assert not ledger.reserve(charge("s-2", stream_part=replace(PART, start=4, stop=6))).charged


def test_a_lost_answer_still_says_charged(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """The transaction was done, its answer got lost, and the step is tried again: the same run charged."""
    whole = db.Database.transaction

    def twice(self: db.Database, work: object) -> object:
        whole(self, work)
        return whole(self, work)

    monkeypatch.setattr(db.Database, "transaction", twice)
    assert ledger.reserve(charge("a")).charged

from __future__ import annotations

import multiprocessing
import sqlite3
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from dpdist.errors import BudgetExceeded, InvalidInput, LedgerError, ReleaseConflict
from dpdist.privacy.accounting import Cap, Loss
from dpdist.privacy.ledger import Charge, Ledger

CAP = Cap(rho=Fraction(3, 10))


def charge(release: str, *, rho: Fraction = Fraction(1, 10), cap: Cap = CAP, **changes: str) -> Charge:
    facts = {"spec_digest": "spec", "histogram_digest": "histogram", "dataset": "people", **changes}
    return Charge(release=release, loss=Loss.gaussian(rho), cap=cap, **facts)  # type: ignore[arg-type]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    book = Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    yield book
    book.close()


def test_life_of_a_release(ledger: Ledger, tmp_path: Path) -> None:
    receipt = ledger.reserve(charge("r"))
    assert receipt.state == "reserved"
    assert receipt.salt is not None
    assert len(receipt.salt) == 32
    assert ledger.reserve(charge("r")) == receipt
    assert ledger.begin_drawing("r").salt == receipt.salt
    assert ledger.begin_drawing("r").state == "drawing"
    done = ledger.commit("r", "digest")
    assert ledger.begin_drawing("r") == done  # another process committed first: nothing to draw
    assert (done.state, done.salt, done.measurement_digest) == ("committed", None, "digest")
    assert ledger.commit("r", "digest") == done == ledger.reserve(charge("r")) == ledger.receipt("r")
    with pytest.raises(ReleaseConflict, match="measurement"):
        ledger.commit("r", "another")
    assert [e["event"] for e in ledger.entries()] == ["declared", "reserved", "drawing", "committed"]
    assert ledger.verify().rows == 4
    assert str(receipt.salt) not in repr(receipt)
    for file in tmp_path.iterdir():
        assert receipt.salt not in file.read_bytes()


@pytest.mark.parametrize("part", ["spec_digest", "histogram_digest", "dataset"])
def test_an_id_is_bound_to_its_content(ledger: Ledger, part: str) -> None:
    ledger.reserve(charge("r"))
    with pytest.raises(ReleaseConflict):
        ledger.reserve(charge("r", **{part: "other"}))
    with pytest.raises(ReleaseConflict, match="budget"):
        ledger.reserve(charge("r", rho=Fraction(1, 20)))


def test_cap_is_exact(ledger: Ledger) -> None:
    for name in "abc":
        ledger.reserve(charge(name))
    with pytest.raises(BudgetExceeded) as refusal:
        ledger.reserve(charge("d", rho=Fraction(1, 10**15)))
    assert refusal.value.left == 0
    budget = ledger.budgets()[0]
    assert (budget.spent.rho, budget.left, len(budget.charges)) == (Fraction(3, 10), 0, 3)
    assert ledger.receipt("d") is None


def test_abort_gives_back_only_what_was_not_drawn(ledger: Ledger) -> None:
    first = ledger.reserve(charge("r", rho=Fraction(3, 10)))
    assert ledger.abort("r").state == ledger.abort("r").state == "aborted"
    again = ledger.reserve(charge("r", rho=Fraction(2, 10)))
    assert again.salt != first.salt
    ledger.begin_drawing("r")
    with pytest.raises(LedgerError, match="drawing"):
        ledger.abort("r")
    with pytest.raises(LedgerError, match="unknown"):
        ledger.abort("nobody")
    assert ledger.budgets()[0].spent.rho == Fraction(2, 10)


def test_steps_out_of_order_are_refused(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="not charged"):
        ledger.begin_drawing("r")
    ledger.reserve(charge("r"))
    with pytest.raises(LedgerError, match="reserved"):
        ledger.commit("r", "digest")


def test_a_cap_does_not_change(ledger: Ledger) -> None:
    ledger.reserve(charge("r"))
    with pytest.raises(LedgerError, match="promise"):
        ledger.reserve(charge("s", cap=Cap(rho=Fraction(1))))


@pytest.mark.parametrize(
    ("per", "days", "keys"),
    [
        ("day", ("2026-11-01", "2026-11-02"), ("2026-11-01", "2026-11-02")),
        ("week", ("2026-12-31", "2027-01-04"), ("2026-W53", "2027-W01")),
        ("month", ("2026-11-30", "2026-12-01"), ("2026-11", "2026-12")),
    ],
)
def test_periods_have_budgets_of_their_own(ledger: Ledger, per: str, days: tuple[str, str], keys: tuple[str, str]) -> None:
    cap = Cap(rho=Fraction(1, 10), per=per)
    for day in days:
        ledger.reserve(charge(f"r-{day}", cap=cap, period=day))
    with pytest.raises(BudgetExceeded):
        ledger.reserve(charge("late", cap=cap, period=days[0]))
    assert tuple(b.period for b in ledger.budgets()) == keys
    with pytest.raises(InvalidInput, match="period"):
        ledger.reserve(charge("none", cap=cap))


def test_epsilon_caps(ledger: Ledger) -> None:
    cap = Cap(epsilon=Fraction(1), delta=Fraction(1, 10**6))
    ledger.reserve(charge("a", rho=cap.limit, cap=cap))
    with pytest.raises(BudgetExceeded):
        ledger.reserve(charge("b", rho=Fraction(1, 10**12), cap=cap))


def test_altered_rows_are_found(ledger: Ledger, tmp_path: Path) -> None:
    ledger.reserve(charge("a"))
    ledger.reserve(charge("b"))
    with sqlite3.connect(tmp_path / "ledger.db") as connection:
        connection.execute("UPDATE dpdist_entries SET facts = replace(facts, '1/10', '1/99') WHERE sequence = 2")
    with pytest.raises(LedgerError, match="row 2"):
        ledger.verify()
    with sqlite3.connect(tmp_path / "ledger.db") as connection:
        connection.execute("DELETE FROM dpdist_entries WHERE sequence = 2")
    with pytest.raises(LedgerError, match="row 3"):
        ledger.verify()


def test_unreadable_ledgers_stop_everything(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_bytes(b"this is not a database" * 100)
    with pytest.raises(LedgerError, match="nothing was changed"):
        Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    with pytest.raises(LedgerError, match="sqlite or postgresql"):
        Ledger("mysql://nobody@127.0.0.1/x")
    with pytest.raises(LedgerError, match="cannot be read"):
        Ledger("::")


def test_newer_schemas_are_refused(ledger: Ledger, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "ledger.db") as connection:
        connection.execute("UPDATE dpdist_schema SET version = 99")
    with pytest.raises(LedgerError, match="upgrade dpdist"):
        Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")


def _race(url: str, name: str, results: object) -> None:
    book = Ledger(url)
    try:
        book.reserve(charge(name))
        results.put("won")  # type: ignore[attr-defined]
    except BudgetExceeded:
        results.put("lost")  # type: ignore[attr-defined]


def test_processes_racing_for_the_last_charges(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    Ledger(url).close()
    spawn = multiprocessing.get_context("spawn")
    results = spawn.Queue()
    racers = [spawn.Process(target=_race, args=(url, f"r{i}", results)) for i in range(8)]
    for racer in racers:
        racer.start()
    outcomes = sorted(results.get(timeout=120) for _ in racers)
    for racer in racers:
        racer.join()
    assert outcomes == ["lost"] * 5 + ["won"] * 3
    book = Ledger(url)
    assert book.verify().rows == 4
    assert book.budgets()[0].spent.rho == Fraction(3, 10)

"""One contract for every backend of the ledger: SQLite, and a real PostgreSQL server on loopback."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import re
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from dpdist.errors import BudgetExceeded, DpdistError, InvalidInput, LedgerError, ReleaseConflict
from dpdist.privacy import keys
from dpdist.privacy.accounting import (
    RHO_DENOMINATOR,
    Calibration,
    Cap,
    Loss,
    Rule,
    budget_caps,
    gaussian_equivalent,
    rho_for,
)
from dpdist.privacy.keys import Secret
from dpdist.privacy.ledger import database, ledger_audit
from dpdist.privacy.ledger.budget_ledger import Charge, Counted, CountedRecords, Ledger, Receipt, StreamPart, open_ledger
from dpdist.privacy.ledger.charges import budget_period
from dpdist.privacy.ledger.ledger_audit import ReplayedState
from dpdist.privacy.ledger.rules.ledger_state import LedgerEvent
from dpdist.privacy.privacy_unit import ProtectedPersons, ProtectedRecords
from tests import HANGS
from tests.case_selection import slow_after_first
from tests.support.forked_programs import FORKED
from tests.support.loopback_ports import HeldPort
from tests.support.postgres_server import Server

CAP = Cap(rho=Fraction(3, 10))


def test_digests_of_rows_are_those_of_their_json() -> None:
    row = {name: f'{name} "é\\\n\U0001f600' for name in (column.name for column in database.entries.columns)}
    for number in (1, 10**18, True, None, 0.5):
        content = {**row, "sequence": number}
        written = json.dumps({name: value for name, value in content.items() if name != "digest"}, sort_keys=True)
        digest = hashlib.sha256(written.encode()).hexdigest()
        assert database.row_digest(content) == digest
        read = database.StoredRow(**{**content, "digest": digest})
        assert database.digest_of(read[:-1]) == read.digest


ROOT = Secret(bytes(range(32)))
RECORDS = ProtectedRecords("add-remove", 1)


def charge(
    release: str,
    *,
    rho: Fraction = Fraction(1, 10),
    cap: Cap = CAP,
    loss: Loss | None = None,
    histogram: str = "histogram",
    files: tuple[str, ...] = (),
    period: str | None = None,
    **changes: object,
) -> Charge:
    facts: dict[str, object] = {
        "spec_digest": "spec",
        "dataset": "people",
        "protection": RECORDS,
        "approval_digest": "asked",
        **changes,
    }
    content = None if cap.per == "total" else keys.counts_commitment(ROOT, histogram)
    records = CountedRecords(f"{release} of {histogram}", files, content, keys.identity(ROOT))
    return Charge(
        release=release,
        loss=loss or Loss.gaussian(rho),
        cap=cap,
        counted=Counted(partial(_committed, release, histogram), records),
        period=budget_period(cap.per, None if period is None else datetime.date.fromisoformat(period)),
        **facts,
    )


def _committed(release: str, histogram: str, salt: bytes) -> str:
    return keys.histogram_commitment(ROOT, salt=salt, release=release, histogram_digest=histogram)


def drawing(ledger: Ledger, release: str) -> Receipt:
    """Begin to draw whatever attempt of the release is reserved now."""
    known = ledger.receipt(release)
    assert known is not None
    return ledger.begin_drawing(release, known.attempt, known.binding)


def commit(ledger: Ledger, release: str, digest: str = "digest") -> Receipt:
    known = ledger.receipt(release)
    assert known is not None
    return ledger.commit(release, known.attempt, known.binding, digest)


def tamper(url: str, *statements: str) -> None:
    """Change the database behind the ledger's back."""
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))
    engine.dispose()


def test_life_of_a_release(ledger: Ledger) -> None:
    receipt = ledger.reserve(charge("r"))
    assert receipt.state == "reserved"
    assert receipt.salt is not None
    assert len(receipt.salt) == 32
    assert ledger.reserve(charge("r")) == receipt
    assert drawing(ledger, "r").salt == receipt.salt
    assert drawing(ledger, "r").state == "drawing"
    done = commit(ledger, "r", "digest")
    assert drawing(ledger, "r") == done  # another process committed first: nothing to draw
    assert (done.state, done.salt, done.measurement_digest) == ("committed", None, "digest")
    assert commit(ledger, "r", "digest") == done == ledger.reserve(charge("r")) == ledger.receipt("r")
    with pytest.raises(ReleaseConflict, match="measurement"):
        commit(ledger, "r", "another")
    assert [e["event"] for e in ledger.entries()] == ["declared", "reserved", "drawing", "committed"]
    audit = ledger.verify()
    assert (audit.rows, audit.releases, audit.running) == (4, 1, 0)
    assert audit.head == ledger.entries()[-1]["digest"]
    assert str(receipt.salt) not in repr(receipt)


def test_a_rehearsal_refuses_as_a_charge_does_and_changes_nothing(ledger: Ledger) -> None:
    ledger.rehearse(charge("r"))
    assert ledger.entries() == []
    assert ledger.receipt("r") is None
    ledger.reserve(charge("r", rho=Fraction(1, 4)))
    before = ledger.entries()
    for asked, expected in (
        (charge("s"), BudgetExceeded),
        (charge("r", rho=Fraction(1, 4), spec_digest="other"), ReleaseConflict),
        (charge("s", cap=Cap(rho=Fraction(1))), LedgerError),
    ):
        with pytest.raises(expected):
            ledger.rehearse(asked)
    ledger.rehearse(charge("r", rho=Fraction(1, 4)))
    ledger.rehearse(charge("s", rho=Fraction(1, 20)))
    assert ledger.entries() == before
    ledger.verify()


def test_erased_salts_are_in_no_file_of_the_database(request: pytest.FixtureRequest, url: str, tmp_path: Path) -> None:
    """Heap, free pages and journal. PostgreSQL's write-ahead log keeps them until its segments are recycled."""
    book = Ledger(url)
    salts = {}
    for name in ("first", "second", "kept"):
        salts[name] = book.reserve(charge(name)).salt
        drawing(book, name)
    book.close()

    def salts_on_disk() -> set[str]:
        if url.startswith("sqlite"):
            folder = tmp_path
        else:
            server: Server = request.getfixturevalue("postgres")
            server.execute("CHECKPOINT")
            ((number,),) = server.execute(f"SELECT oid FROM pg_database WHERE datname = '{url.rpartition('/')[2]}'")
            folder = server.data / "base" / str(number)
        files = [file.read_bytes() for file in folder.iterdir()]
        return {name for name, salt in salts.items() if any(salt in content for content in files)}

    assert salts_on_disk() == {"first", "second", "kept"}
    book = Ledger(url)
    commit(book, "first", "digest")
    book.abort(book.reserve(charge("aborted", rho=Fraction(1, 10**9), cap=CAP, dataset="others")).release)
    commit(book, "second", "digest")
    book.close()
    assert salts_on_disk() == {"kept"}


@pytest.mark.parametrize("part", ["spec_digest", "histogram", "dataset"])
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
    assert refusal.value.remaining == 0
    budget = ledger.budgets()[0]
    assert (budget.spent.rho, budget.remaining, budget.releases) == (Fraction(3, 10), 0, 3)
    assert ledger.receipt("d") is None


def test_abort_gives_back_only_what_was_not_drawn(ledger: Ledger) -> None:
    first = ledger.reserve(charge("r", rho=Fraction(3, 10)))
    assert ledger.abort("r").state == ledger.abort("r").state == "aborted"
    again = ledger.reserve(charge("r", rho=Fraction(2, 10)))
    assert again.salt != first.salt
    drawing(ledger, "r")
    with pytest.raises(LedgerError, match="drawing"):
        ledger.abort("r")
    with pytest.raises(LedgerError, match="unknown"):
        ledger.abort("nobody")
    assert ledger.budgets()[0].spent.rho == Fraction(2, 10)


def test_steps_out_of_order_are_refused(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="not charged"):
        ledger.begin_drawing("r", 1, "binding")
    ledger.reserve(charge("r"))
    with pytest.raises(LedgerError, match="reserved"):
        commit(ledger, "r", "digest")


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
        ledger.reserve(charge(f"r-{day}", cap=cap, period=day, histogram=day))
    with pytest.raises(BudgetExceeded):
        ledger.reserve(charge("late", cap=cap, period=days[0], histogram=days[0]))
    assert tuple(b.period for b in ledger.budgets()) == keys
    with pytest.raises(InvalidInput, match="period"):
        ledger.reserve(charge("none", cap=cap))


def test_epsilon_caps(ledger: Ledger) -> None:
    cap = Cap(epsilon=Fraction(1), delta=Fraction(1, 10**6))
    ledger.reserve(charge("a", rho=cap.limit, cap=cap))
    with pytest.raises(BudgetExceeded):
        ledger.reserve(charge("b", rho=cap.limit / 10**5, cap=cap))


def test_a_later_search_for_the_limit_changes_nothing_that_was_allowed(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later version finds a limit that is smaller in its last digit: the whole cap, spent under the old one, stays within it."""
    cap = Cap(epsilon=Fraction(1), delta=Fraction(1, 10**6))
    ledger.reserve(charge("a", rho=cap.limit / 2, cap=cap))
    search = budget_caps.rho_of_cap
    monkeypatch.setattr(budget_caps, "rho_of_cap", lambda *asked: search(*asked) - Fraction(1, RHO_DENOMINATOR))
    ledger.reserve(charge("b", rho=search(Fraction(1), Fraction(1, 10**6), "analytic") / 2, cap=cap))
    assert ledger.budgets()[0].remaining == 0
    ledger.verify()
    monkeypatch.setattr(budget_caps, "rho_of_cap", lambda *asked: search(*asked) * Fraction(9, 10))
    with pytest.raises(LedgerError, match="breaks the ledger's rules"):
        ledger.verify()  # the limit that stands in the row is not this cap's


def test_mixed_releases_compose_under_one_cap(ledger: Ledger) -> None:
    """Under an (epsilon, delta) cap a pure release counts as the Gaussian that dominates it: one filter, fixed beforehand."""
    cap = Cap(epsilon=Fraction(1), delta=Fraction(1, 10**6))
    losses = [Loss.gaussian(cap.limit / 4), Loss.laplace(Fraction(1, 10)), Loss.laplace(Fraction(1, 20))]
    for i, loss in enumerate(losses):
        ledger.reserve(charge(f"r{i}", loss=loss, cap=cap))
    (budget,) = ledger.budgets(charges=True)
    assert budget.spent == sum(losses, Loss())
    assert budget.spent.pure == Fraction(3, 20)
    assert list(budget.charges) == ["r0", "r1", "r2"]
    counted = cap.limit / 4 + gaussian_equivalent(Fraction(1, 10)) + gaussian_equivalent(Fraction(1, 20))
    assert budget.remaining == cap.limit - counted
    with pytest.raises(BudgetExceeded):
        ledger.reserve(charge("too much", rho=budget.remaining + Fraction(1, 10**12), cap=cap))
    ledger.reserve(charge("fits", rho=budget.remaining, cap=cap))
    assert ledger.budgets()[0].spent.epsilon(1e-6) <= 1
    ledger.verify()


def test_pure_releases_alone_add_up_under_an_epsilon_delta_cap(ledger: Ledger) -> None:
    cap = Cap(epsilon=Fraction(1), delta=Fraction(1, 10**6))
    ledger.reserve(charge("a", loss=Loss.laplace(Fraction(2, 3)), cap=cap))
    ledger.reserve(charge("b", loss=Loss.laplace(Fraction(1, 3)), cap=cap))
    for more in (Loss.laplace(Fraction(1, 10**6)), Loss.gaussian(Fraction(1, 10**9))):
        with pytest.raises(BudgetExceeded):
            ledger.reserve(charge("c", loss=more, cap=cap))
    ledger.verify()


def test_a_coarse_grid_makes_its_account_add_up_as_zcdp(ledger: Ledger) -> None:
    """A slack that exact Gaussian composition does not set aside: the first charge decides the account's rule, for good."""
    cap = Cap(epsilon=Fraction(1), delta=Fraction(1, 10**6), per="day")
    coarse = Loss.gaussian(cap.limit / 2, slack=Fraction(1, 100))
    for day in ("2026-11-01", "2026-11-02"):
        first = coarse if day.endswith("1") else Loss.gaussian(cap.limit / 2)
        ledger.reserve(charge(f"first {day}", loss=first, cap=cap, period=day, histogram=day))
    one, two = ledger.budgets()
    assert (one.rule, two.rule) == ("zcdp", "exact")
    assert one.remaining == rho_for(1.0, 1e-6, "zcdp") - cap.limit / 2
    with pytest.raises(BudgetExceeded):
        ledger.reserve(charge("more", loss=coarse, cap=cap, period="2026-11-02", histogram="2026-11-02"))
    ledger.reserve(charge("more", rho=one.remaining, cap=cap, period="2026-11-01", histogram="2026-11-01"))
    assert ledger.budgets()[0].remaining == 0
    ledger.verify()


@pytest.mark.parametrize("spent", [Loss.gaussian(Fraction(1, 50)), Loss.laplace(Fraction(1, 5))])
@pytest.mark.parametrize("kind", ["exact", "zcdp", "pure"])
def test_a_refusal_speaks_the_epsilon_of_the_cap_and_what_it_says_is_left_fits(spent: Loss, kind: str) -> None:
    cap, delta = Cap(epsilon=Fraction(2), delta=Fraction(1, 10**6)), 1e-6
    rule: Rule = "zcdp" if kind == "zcdp" else "exact"
    calibration: Calibration = "zcdp" if rule == "zcdp" else "analytic"

    def loss_of_epsilon(epsilon: float) -> Loss:
        exact = Fraction(epsilon).limit_denominator(10**9)
        return Loss.laplace(exact) if kind == "pure" else Loss.gaussian(rho_for(float(exact), delta, calibration))

    asked, left, at = cap.requested_and_remaining(loss_of_epsilon(1.9), spent, rule)
    assert asked == pytest.approx(1.9, rel=1e-6)
    assert at == (0.0 if kind == "pure" else delta)
    assert 0.1 < left < 1.9
    assert cap.allows(spent + loss_of_epsilon(left), rule)
    assert not cap.allows(spent + loss_of_epsilon(1.0001 * left), rule)
    error = BudgetExceeded("visits", asked, left, cap.written, at)
    assert str(error).startswith(
        "budget of 'visits': a charge of epsilon=1.9" + (" at delta=1e-06" if at else "") + " was refused"
    )
    assert "rho" not in str(error)


def test_pure_caps_admit_pure_releases_only(ledger: Ledger) -> None:
    cap = Cap(epsilon=Fraction(1))
    ledger.reserve(charge("a", loss=Loss.laplace(Fraction(2, 3)), cap=cap))
    with pytest.raises(BudgetExceeded, match=r"charge of epsilon=0\.4 was refused, epsilon=0\.333333 is left"):
        ledger.reserve(charge("b", loss=Loss.laplace(Fraction(2, 5)), cap=cap))
    with pytest.raises(BudgetExceeded):
        ledger.reserve(charge("c", rho=Fraction(1, 10**9), cap=cap))
    ledger.reserve(charge("d", loss=Loss.laplace(Fraction(1, 3)), cap=cap))
    assert ledger.budgets()[0].remaining == 0


def test_a_year_of_weekly_releases_in_one_cap(ledger: Ledger) -> None:
    """Design note: 52 weeks inside (1, 1e-6) at noise multiplier 30.5, where zCDP would need 32.7."""
    cap = Cap(epsilon=Fraction(1), delta=Fraction(1, 10**6))
    weekly = Loss.gaussian(Fraction(1, 2) / Fraction(3050, 100) ** 2, slack=Fraction(1, 10**9))
    for week in range(52):
        ledger.reserve(charge(f"week-{week}", loss=weekly, cap=cap))
    with pytest.raises(BudgetExceeded):
        ledger.reserve(charge("week-52", loss=weekly, cap=cap))
    assert ledger.verify().releases == 52


def test_altered_rows_are_found(ledger: Ledger, url: str) -> None:
    ledger.reserve(charge("a"))
    ledger.reserve(charge("b"))
    tamper(url, "UPDATE dpdist_rows SET facts = replace(facts, '1/10', '1/99') WHERE sequence = 2")
    with pytest.raises(LedgerError, match="row 2"):
        ledger.verify()
    tamper(url, "DELETE FROM dpdist_rows WHERE sequence = 2")
    with pytest.raises(LedgerError, match="row 3"):
        ledger.verify()


def test_removed_newest_rows_are_found_by_a_noted_head(ledger: Ledger, url: str) -> None:
    ledger.reserve(charge("a"))
    noted = ledger.verify().head
    ledger.reserve(charge("b"))
    ledger.verify(noted)
    tamper(
        url,
        "DELETE FROM dpdist_rows WHERE sequence >= 2",
        *(f"DELETE FROM dpdist_{table}" for table in ("salts", "releases", "accounts", "records")),
    )
    assert ledger.verify().rows == 1  # the chain alone cannot show it
    with pytest.raises(LedgerError, match="rows were removed or replaced"):
        ledger.verify(noted)


def test_a_clock_set_back_changes_nothing(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Order, states and budget periods come from the rows and the release's own date, never from the clock."""
    cap = Cap(rho=Fraction(1, 10), per="day")

    class Clock(datetime.datetime):
        moment = datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC)

        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            cls.moment -= datetime.timedelta(days=400)
            return cls.moment

    monkeypatch.setattr(database.datetime, "datetime", Clock)
    ledger.reserve(charge("a", cap=cap, period="2026-11-21"))
    drawing(ledger, "a")
    commit(ledger, "a", "digest")
    with pytest.raises(BudgetExceeded):
        ledger.reserve(charge("b", cap=cap, period="2026-11-21"))
    assert ledger.receipt("a").state == "committed"
    written = [entry["written_at"] for entry in ledger.entries()]
    assert written == sorted(written, reverse=True)
    assert ledger.verify().rows == 4


def test_unreadable_ledgers_stop_everything(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_bytes(b"this is not a database" * 100)
    with pytest.raises(LedgerError, match="nothing was changed"):
        Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    with pytest.raises(LedgerError, match="sqlite or postgresql"):
        Ledger("mysql://nobody@127.0.0.1/x")
    with pytest.raises(LedgerError, match="cannot be read"):
        Ledger("::")


@pytest.mark.parametrize("found", [database.FORMAT - 1, database.FORMAT + 1])
def test_ledgers_of_other_formats_are_refused(ledger: Ledger, url: str, found: int) -> None:
    tamper(url, f"UPDATE dpdist_schema SET version = {found}")
    later, earlier = "was written by a later version of dpdist", f"has format {found}, this version of dpdist reads format"
    with pytest.raises(LedgerError, match=later if found > database.FORMAT else earlier):
        Ledger(url)


RACERS = 8


def _race(url: str, name: str, start: object, results: object) -> None:
    book = Ledger(url)
    start.wait()
    try:
        book.reserve(charge(name))
        results.put("won")
    except BudgetExceeded:
        results.put("lost")
    except Exception as error:  # noqa: BLE001 - told to the test
        results.put(f"{type(error).__name__}: {error}")


def test_processes_racing_for_the_last_charges(url: str) -> None:
    Ledger(url).close()
    results, start = FORKED.Queue(), FORKED.Barrier(RACERS)
    racers = [FORKED.Process(target=_race, args=(url, f"r{i}", start, results)) for i in range(RACERS)]
    for racer in racers:
        racer.start()
    outcomes = sorted(results.get(timeout=HANGS) for _ in racers)
    for racer in racers:
        racer.join()
    assert outcomes == ["lost"] * (RACERS - 3) + ["won"] * 3
    book = Ledger(url)
    assert book.verify().rows == 4
    assert book.budgets()[0].spent.rho == Fraction(3, 10)
    assert book.budgets()[0].remaining == 0
    book.close()


def test_a_connection_lost_in_mid_transaction(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server ends the session after the row was inserted, before the commit: the step is done again, once."""
    url = postgres.database()
    book = Ledger(url)
    original, lost = database.append, []

    def cut(connection: sa.Connection, event: LedgerEvent) -> object:
        row = original(connection, event)
        if event.kind not in lost:
            lost.append(event.kind)
            pid = connection.execute(sa.text("SELECT pg_backend_pid()")).scalar()
            postgres.execute(f"SELECT pg_terminate_backend({pid})")
        return row

    monkeypatch.setattr(database, "append", cut)
    assert book.reserve(charge("r")).charged
    drawing(book, "r")
    commit(book, "r", "digest")
    assert lost == ["declared", "reserved", "drawing", "committed"]
    assert book.verify().rows == 4
    assert book.budgets()[0].spent.rho == Fraction(1, 10)
    book.close()


def test_a_server_stopped_in_mid_transaction(shaky: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "OUTAGE_SECONDS", 0.2)
    url = shaky.database()
    book = Ledger(url)
    book.reserve(charge("first"))
    original = database.append

    def stop(*arguments: object) -> object:
        row = original(*arguments)
        monkeypatch.setattr(database, "append", original)
        shaky.stop()
        return row

    monkeypatch.setattr(database, "append", stop)
    with pytest.raises(LedgerError, match="went away.*run again when it is back"):
        book.reserve(charge("second"))
    shaky.start()
    assert book.receipt("second") is None
    assert book.verify().rows == 2
    assert book.reserve(charge("second")).state == "reserved"
    assert book.budgets()[0].spent.rho == Fraction(2, 10)
    book.close()


def stream_charge(
    release: str,
    start: int,
    stop: int,
    *,
    digest: str = "way",
    stream: str = "hours",
    extends: str | None = None,
    **changes: object,
) -> Charge:
    whole = charge(release, **changes)
    return replace(whole, stream_part=StreamPart(stream, digest, start, stop, extends))


def finished(ledger: Ledger, made: Charge) -> None:
    ledger.reserve(made)
    drawing(ledger, made.release)
    commit(ledger, made.release, f"measured {made.release}")


def test_a_stream_is_charged_once(ledger: Ledger) -> None:
    """The whole loss with the first part, nothing with those that go on; every other release still pays."""
    for number, (start, stop) in enumerate(((0, 5), (5, 6), (6, 20))):
        finished(ledger, stream_charge(f"r{number}", start, stop))
    assert [r.stream_part.stop for r in ledger.stream("people", "hours") if r.stream_part] == [5, 6, 20]
    assert [r.loss.rho for r in ledger.stream("people", "hours")] == [Fraction(1, 10), 0, 0]
    (budget,) = ledger.budgets()
    assert budget.spent.rho == Fraction(1, 10)
    again = ledger.reserve(stream_charge("r1", 5, 6))
    assert (again.state, again.loss.rho) == ("committed", 0)
    finished(ledger, charge("other"))
    finished(ledger, stream_charge("b0", 0, 9, stream="days"))
    assert ledger.budgets()[0].remaining == 0
    with pytest.raises(BudgetExceeded):
        ledger.reserve(stream_charge("c0", 0, 9, stream="months"))
    finished(ledger, stream_charge("b1", 9, 10, stream="days"))  # paid long ago, though nothing is left
    assert ledger.verify().releases == 6


def test_an_extended_stream_is_charged_the_rest(ledger: Ledger) -> None:
    """With the first part over the longer horizon; only where the stream went on as it was, and in the unit of the cap."""
    finished(ledger, stream_charge("r0", 0, 5))
    longer = Fraction(13, 100)
    for wrong in (
        stream_charge("r1", 5, 9, digest="long", extends="another", rho=longer),
        stream_charge("r1", 5, 9, digest="long", rho=longer),
        stream_charge("r1", 0, 9, digest="long", extends="way", rho=longer, stream="days"),
        stream_charge("r1", 5, 9, digest="way", extends="way", rho=longer),
        stream_charge("r1", 5, 9, digest="long", extends="way"),
    ):
        with pytest.raises(LedgerError, match="measured in another way|can be extended once it has begun"):
            ledger.reserve(wrong)
    with pytest.raises(BudgetExceeded):
        ledger.reserve(stream_charge("r1", 5, 9, digest="long", extends="way", rho=Fraction(9, 10)))
    ledger.reserve(stream_charge("r1", 5, 9, digest="long", extends="way", rho=longer))
    assert ledger.budgets()[0].spent.rho == longer
    ledger.verify()
    ledger.abort("r1")
    assert ledger.budgets()[0].spent.rho == Fraction(1, 10)
    finished(ledger, stream_charge("r2", 5, 9, digest="long", extends="way", rho=longer))
    finished(ledger, stream_charge("r3", 9, 12, digest="long", rho=longer))
    finished(ledger, stream_charge("r4", 12, 14, digest="longer", extends="long", rho=Fraction(14, 100)))
    assert [r.loss.rho * 100 for r in ledger.stream("people", "hours")] == [10, 3, 0, 1]
    assert ledger.reserve(stream_charge("r2", 5, 9, digest="long", extends="way", rho=longer)).state == "committed"
    with pytest.raises(LedgerError, match="measured in another way"):
        ledger.reserve(stream_charge("r5", 14, 15, digest="long", rho=longer))
    assert ledger.verify().releases == 5


def test_a_stream_under_a_cap_per_period_is_not_extended(ledger: Ledger) -> None:
    cap = Cap(rho=Fraction(2, 10), per="month")
    finished(ledger, stream_charge("a", 0, 1, cap=cap, period="2026-01-05"))
    with pytest.raises(LedgerError, match="under a cap on all releases together"):
        ledger.reserve(
            stream_charge("b", 1, 2, digest="long", extends="way", rho=Fraction(15, 100), cap=cap, period="2026-01-20")
        )


def test_a_stream_pays_in_every_budget_period(ledger: Ledger) -> None:
    cap = Cap(rho=Fraction(1, 10), per="month")
    for release, start, stop, day in (("a", 0, 1, "2026-01-05"), ("b", 1, 2, "2026-01-20"), ("c", 2, 3, "2026-02-01")):
        finished(ledger, stream_charge(release, start, stop, cap=cap, period=day))
    assert [(b.period, b.spent.rho) for b in ledger.budgets()] == [
        ("2026-01", Fraction(1, 10)),
        ("2026-02", Fraction(1, 10)),
    ]
    ledger.verify()


def test_a_stream_measures_no_steps_of_periods_that_have_not_paid(ledger: Ledger) -> None:
    """Records of a week whose budget others spent: a stream that begins later, or passes over a week, is charged for none of them."""
    cap = Cap(rho=Fraction(1, 10), per="week")

    def charge_of_day(release: str, start: int, stop: int, day: str, *reaches: str, shared: bool = False) -> Charge:
        plain = stream_charge(release, start, stop, cap=cap, period=day)
        return replace(plain, stream_part=replace(plain.stream_part, reaches=reaches), allows_shared_records=shared)

    ledger.reserve(charge("all of week 2", cap=cap, period="2026-01-05", histogram="2"))
    with pytest.raises(
        LedgerError, match="steps of period 2026-W02, whose budget has not paid for it: release them first, with"
    ):
        ledger.reserve(charge_of_day("a", 0, 2, "2026-01-12", "2026-W02", "2026-W03"))
    finished(ledger, charge_of_day("b", 0, 1, "2026-01-12", "2026-W03"))
    with pytest.raises(LedgerError, match="2026-W04"):
        ledger.rehearse(charge_of_day("c", 1, 3, "2026-01-26", "2026-W04", "2026-W05"))
    finished(
        ledger, charge_of_day("d", 1, 2, "2026-01-19", "2026-W03", "2026-W04")
    )  # a step that begins in a week that has paid
    finished(ledger, charge_of_day("e", 2, 4, "2026-02-02", "2026-W05", "2026-W06", shared=True))
    assert [(b.period, b.spent.rho) for b in ledger.budgets()] == [
        (week, Fraction(1, 10)) for week in ("2026-W02", "2026-W03", "2026-W04", "2026-W06")
    ]
    assert ledger.reserve(charge_of_day("e", 2, 4, "2026-02-02", "2026-W05", "2026-W06", shared=True)).state == "committed"
    ledger.verify()


def test_persons_of_one_cap_are_told_apart_in_one_way(ledger: Ledger) -> None:
    """Also after a row that does not say how, as older versions wrote them; the ledger replays what it allowed."""
    number, text, unsaid = (ProtectedPersons("add-remove", 1, "who", type=kind) for kind in ("integer", "text", None))
    ledger.reserve(charge("a", protection=number))
    ledger.reserve(charge("b", protection=unsaid))
    with pytest.raises(
        LedgerError, match="persons apart as text, the cap of 'people' as whole numbers: .*'records.person.type: integer'"
    ):
        ledger.reserve(charge("c", protection=text))
    assert ledger.reserve(charge("b", protection=text)).release == "b"
    ledger.reserve(charge("d", protection=number))
    assert ledger.verify().releases == 3


def test_parts_follow_each_other(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="released up to step 0"):
        ledger.reserve(stream_charge("r", 3, 5))
    ledger.reserve(stream_charge("first", 0, 5))
    with pytest.raises(LedgerError, match="'first' is not finished"):
        ledger.reserve(stream_charge("second", 5, 9))
    with pytest.raises(ReleaseConflict, match="steps of its stream"):
        ledger.reserve(stream_charge("first", 0, 6))
    ledger.abort("first")
    finished(ledger, stream_charge("again", 0, 4))
    assert ledger.receipt("again").loss.rho == Fraction(1, 10)
    for start, stop in ((0, 4), (3, 9), (5, 9), (4, 4)):
        with pytest.raises(LedgerError, match="released up to step 4"):
            ledger.reserve(stream_charge("second", start, stop))
    with pytest.raises(LedgerError, match="measured in another way"):
        ledger.reserve(stream_charge("second", 4, 9, digest="another way"))
    ledger.reserve(stream_charge("second", 4, 9))
    ledger.abort("second")
    finished(ledger, charge("second"))  # the id again, for something else
    finished(ledger, stream_charge("third", 4, 9))
    assert ledger.receipt("third").loss.rho == 0
    assert ledger.budgets()[0].spent.rho == Fraction(2, 10)
    ledger.verify()


def reserve_part(url: str, number: int) -> bool:
    book = Ledger(url)
    try:
        book.reserve(stream_charge(f"racer-{number}", 5, 9))
    except LedgerError:
        return False
    finally:
        book.close()
    return True


def test_processes_racing_for_the_next_part(url: str) -> None:
    book = Ledger(url)
    finished(book, stream_charge("first", 0, 5))
    with FORKED.Pool(4) as pool:
        won = pool.starmap(reserve_part, [(url, number) for number in range(8)])
    assert sum(won) == 1
    book.verify()
    book.close()


def test_a_replaced_attempt_draws_and_commits_nothing(ledger: Ledger) -> None:
    """Run A reserves and is suspended; the operator aborts; a corrected spec reserves the same id; A resumes."""
    first = ledger.reserve(charge("r", rho=Fraction(2, 10)))
    ledger.abort("r")
    for step in (
        lambda: ledger.begin_drawing("r", first.attempt, first.binding),
        lambda: ledger.commit("r", first.attempt, first.binding, "digest"),
    ):
        with pytest.raises(LedgerError, match="is aborted"):
            step()
    second = ledger.reserve(charge("r", rho=Fraction(1, 100), spec_digest="corrected"))
    for step in (
        lambda: ledger.begin_drawing("r", first.attempt, first.binding),
        lambda: ledger.commit("r", first.attempt, first.binding, "digest"),
    ):
        with pytest.raises(LedgerError, match=r"attempt 1\) was given back.*draws and publishes nothing"):
            step()
    ledger.begin_drawing("r", second.attempt, second.binding)
    with pytest.raises(LedgerError, match="given back"):
        ledger.commit("r", first.attempt, first.binding, "digest")
    assert ledger.commit("r", second.attempt, second.binding, "digest").state == "committed"
    ledger.verify()


def test_an_abort_amid_begin_drawing(ledger: Ledger, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the read and the write of begin_drawing: either the abort is refused, or nothing is drawn."""
    reserved = ledger.reserve(charge("r"))
    original, outcome, threads = database.append, [], []

    def abort() -> None:
        other = Ledger(url)
        try:
            other.abort("r")
            outcome.append("aborted")
        except LedgerError:
            outcome.append("refused")
        other.close()

    def raced(connection: sa.Connection, event: LedgerEvent) -> object:
        if event.kind == "drawing" and not threads:
            threads.append(threading.Thread(target=abort))
            threads[0].start()
            threads[0].join(timeout=0.5)
        return original(connection, event)

    monkeypatch.setattr(database, "append", raced)
    try:
        drawn = ledger.begin_drawing("r", reserved.attempt, reserved.binding).state == "drawing"
    except LedgerError:
        drawn = False
    threads[0].join()
    assert (drawn, outcome) in ((True, ["refused"]), (False, ["aborted"]))
    ledger.verify()


def test_charges_of_another_unit_are_converted_or_refused(ledger: Ledger) -> None:
    cap = Cap(rho=Fraction(1))
    three = ProtectedRecords("add-remove", 3)
    ledger.reserve(charge("declares", cap=cap, protection=three))
    one = ProtectedRecords("add-remove", 1)
    ledger.reserve(charge("one", cap=cap, rho=Fraction(1, 100), protection=one))  # three steps: nine times rho
    replaced = ProtectedRecords("replace-one", 1)
    ledger.reserve(charge("replaced", cap=cap, rho=Fraction(1, 100), protection=replaced))
    person = ProtectedPersons("add-remove", 1, "email")
    ledger.reserve(charge("person", cap=cap, rho=Fraction(1, 100), protection=person))  # a record is two persons' change
    assert {name: loss.rho for name, loss in ledger.charges("people", "total").items()} == {
        "declares": Fraction(1, 10),
        "one": Fraction(9, 100),
        "replaced": Fraction(9, 100),
        "person": Fraction(36, 100),
    }
    ledger.reserve(charge("persons", cap=cap, dataset="persons", protection=person))
    with pytest.raises(LedgerError, match="no number of the first changes is sure to make the second"):
        ledger.reserve(charge("records", cap=cap, dataset="persons", protection=one))
    ledger.verify()


def test_records_may_not_stand_under_another_name(ledger: Ledger) -> None:
    ledger.reserve(charge("a", files=("f1", "f2")))
    with pytest.raises(LedgerError, match="was counted by 'a' of data set 'people'.*shared_records: true"):
        ledger.reserve(charge("b", dataset="others", files=("f2",)))
    ledger.reserve(charge("b", files=("f2",)))  # the same data set adds up
    ledger.reserve(charge("c", dataset="others", files=("f2",), allows_shared_records=True))
    ledger.verify()


def test_a_changed_cap_whose_answer_was_lost_is_not_told_as_unchanged(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction is committed, the connection dies before the answer, and the step is done again."""
    ledger.reserve(charge("a"))
    once = ledger._database.transaction
    monkeypatch.setattr(ledger._database, "transaction", lambda work: (once(work), once(work))[1])
    assert ledger.set_cap("people", cap=Cap(rho=Fraction(3)), why="asked for").cap == Cap(rho=Fraction(3))
    monkeypatch.undo()
    assert [row["event"] for row in ledger.entries()].count("capped") == 1
    with pytest.raises(LedgerError, match="nothing was changed"):
        ledger.set_cap("people", cap=Cap(rho=Fraction(3)), why="asked again")
    ledger.verify()


def test_caps_change_with_who_and_why(ledger: Ledger, url: str) -> None:
    ledger.reserve(charge("a"))
    with pytest.raises(LedgerError, match="dpdist ledger cap people --why"):
        ledger.reserve(charge("b", cap=Cap(rho=Fraction(1))))
    with pytest.raises(LedgerError, match="say why"):
        ledger.set_cap("people", cap=Cap(rho=Fraction(1)), why=" ")
    ledger.set_cap("people", cap=Cap(rho=Fraction(1)), why="the board agreed")
    row = ledger.entries()[-1]
    assert (row["event"], row["facts"]["why"], bool(row["facts"]["who"])) == ("capped", "the board agreed", True)
    ledger.reserve(charge("b", cap=Cap(rho=Fraction(1)), rho=Fraction(1, 2)))
    low = Cap(rho=Fraction(1, 10))
    ledger.set_cap("people", cap=low, why="a promise to spend no more")  # below what is spent: stops new charges
    assert ledger.budgets()[0].remaining == 0
    with pytest.raises(BudgetExceeded):
        ledger.reserve(charge("c", cap=low, rho=Fraction(1, 10**9)))
    with pytest.raises(LedgerError, match="declare another data set"):
        ledger.set_cap("people", cap=Cap(rho=Fraction(1), per="day"), why="no")
    with pytest.raises(LedgerError, match="no cap yet"):
        ledger.set_cap("nobody", cap=low, why="no")
    assert ledger.budget_after("a").cap == CAP  # a finished release tells the cap it was charged under
    ledger.verify()
    tamper(url, "UPDATE dpdist_caps SET facts = replace(facts, '1/10', '9')")
    with pytest.raises(LedgerError, match="dpdist_caps"):
        ledger.verify()


def test_a_server_that_starts_late_is_waited_for(shaky: Server) -> None:
    """Errors while connecting: refused, and 'the database system is starting up'."""
    url = shaky.database()
    lines: list[str] = []
    book = Ledger(url, tell=lines.append)
    shaky.stop()
    starter = threading.Timer(1.0, shaky.start)
    starter.start()
    assert book.reserve(charge("r")).charged
    starter.join()
    assert lines == [f"the ledger's database is away; trying again for up to {database.OUTAGE_SECONDS:g} s"]
    book.verify()
    book.close()


@pytest.mark.parametrize("way", ["DPDIST_LEDGER", "DPDIST_LEDGER_FILE"])
def test_a_server_that_is_named_and_away_is_told_and_waited_for(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as is asked for, and the state folder's own ledger is not taken in its place."""
    port, lines = HeldPort(), list[str]()
    url = f"postgresql+psycopg://dpdist@127.0.0.1:{port.number}/ledger"
    (tmp_path / "url").write_text(f"{url}\n")
    monkeypatch.setenv(way, url if way == "DPDIST_LEDGER" else str(tmp_path / "url"))
    with pytest.raises(LedgerError, match=r"went away .* and did not come back in 0\.2 s"):
        open_ledger(tmp_path / "home", lines.append, patience=0.2)
    assert lines == ["the ledger's database is away; trying again for up to 0.2 s"]
    assert not (tmp_path / "home").exists()
    port.release()


def test_a_url_in_a_file_that_is_not_there_is_no_embedded_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPDIST_LEDGER_FILE", str(tmp_path / "nowhere"))
    with pytest.raises(LedgerError, match="cannot be read from .*nowhere: No such file or directory; mount it"):
        open_ledger(tmp_path / "home")
    assert not (tmp_path / "home").exists()


def test_what_was_not_counted_is_not_charged(tmp_path: Path) -> None:
    """It may be asked for, and leaves no row; what nobody charged has no budget after it."""
    with open_ledger(tmp_path) as ledger:
        uncounted = replace(charge("r"), counted=None)
        ledger.rehearse(uncounted)
        with pytest.raises(LedgerError, match="'r' has not counted its records yet"):
            ledger.reserve(uncounted)
        with pytest.raises(LedgerError, match="'r' is not charged"):
            ledger.budget_after("r")
        assert (ledger.entries(), ledger.budgets(), ledger.receipt("r")) == ([], [], None)


def test_other_databases_are_refused(tmp_path: Path) -> None:
    for url, message in (
        (f"mysql+pymysql://{tmp_path}/x", "on sqlite or postgresql, found 'mysql'"),
        ("ledger.db", "cannot be read"),
    ):
        with pytest.raises(LedgerError, match=message):
            Ledger(url)
    deep = tmp_path / "a" / "b"
    Ledger(f"sqlite:///{deep / 'ledger.db'}").close()  # its folder is made, for nobody else
    assert deep.stat().st_mode & 0o777 == 0o700


def test_a_wrong_password_is_not_waited_for() -> None:
    error = sa.exc.OperationalError("", {}, Exception('connection failed: FATAL:  role "nobody" does not exist'))
    assert not database.is_unreachable(error)
    refused = sa.exc.OperationalError("", {}, Exception("connection failed: Connection refused"))
    assert database.is_unreachable(refused)


def _charged(url: str, start: object, results: object) -> None:
    book = Ledger(url)
    start.wait()
    try:
        results.put(book.reserve(charge("one")).charged)
    except Exception as error:  # noqa: BLE001 - told to the test
        results.put(f"{type(error).__name__}: {error}")
    book.close()


def test_one_of_a_race_says_charged(url: str) -> None:
    Ledger(url).close()
    assert raced(_charged, url) == [False] * (RACERS - 1) + [True]


def raced(target: object, url: str, *arguments: object) -> list[object]:
    """What as many processes as race say, sorted; they begin together."""
    results, start = FORKED.Queue(), FORKED.Barrier(RACERS)
    racers = [FORKED.Process(target=target, args=(url, start, results, *arguments)) for _ in range(RACERS)]
    for racer in racers:
        racer.start()
    said = [results.get(timeout=HANGS) for _ in racers]
    for racer in racers:
        racer.join()
    return sorted(said, key=str)


def _charged_amid(url: str, start: object, results: object, stopped: object, told: object) -> None:
    """Charges before the server is away, and again when it is."""
    book = Ledger(url, tell=lambda _: told.release())
    cap = Cap(rho=Fraction(1))
    start.wait()
    name = os.getpid()
    try:
        book.reserve(charge(f"before-{name}", cap=cap, rho=Fraction(1, 1000)))
        stopped.wait()
        results.put(book.reserve(charge(f"amid-{name}", cap=cap, rho=Fraction(1, 1000))).charged)
    except Exception as error:  # noqa: BLE001 - told to the test
        results.put(f"{type(error).__name__}: {error}")
    book.close()


def test_a_short_outage_fails_no_charge(shaky: Server) -> None:
    url = shaky.database()
    book = Ledger(url)
    stopped, told = FORKED.Barrier(RACERS + 1), FORKED.Semaphore(0)

    def stop_and_start() -> None:
        while sum(budget.releases for budget in book.budgets()) < RACERS:
            time.sleep(0.05)
        shaky.stop()
        stopped.wait()
        for _ in range(RACERS):
            told.acquire(timeout=HANGS)
        shaky.start()

    outage = threading.Thread(target=stop_and_start)
    outage.start()
    assert raced(_charged_amid, url, stopped, told) == [True] * RACERS
    outage.join()
    assert book.budgets()[0].releases == 2 * RACERS
    assert book.verify().running == 2 * RACERS
    book.close()


def test_a_home_with_signs_of_urls_keeps_its_ledger(tmp_path: Path) -> None:
    for name in ("what?", "a#b", "100%", "x?mode=memory"):
        home = tmp_path / name
        open_ledger(home).close()
        assert (home / "ledger.db").exists()


def test_a_rotated_root_key_leaves_finished_releases_alone(ledger: Ledger) -> None:
    finished(ledger, charge("r"))
    other = Counted(lambda _: "another", CountedRecords("another commitment", key="another key"))
    under_another = replace(charge("r"), counted=other)
    assert ledger.reserve(under_another).state == "committed"
    with pytest.raises(ReleaseConflict, match="set of records"):
        ledger.reserve(charge("r", histogram="other"))


def test_verify_keeps_little_of_releases_that_no_row_in_hand_names(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Receipts of a page of rows alone, and where records stand only if other releases have them too; all else is read again."""
    for number in range(9):
        ledger.reserve(charge(f"r{number}", rho=Fraction(1, 100), files=("all" if number < 3 else f"f{number}",)))
    for step in (drawing, commit):
        for number in range(9):
            step(ledger, f"r{number}")
    held: list[tuple[int, set[str]]] = []
    turn_to = ledger_audit._load_page

    def watched(connection: sa.Connection, page: Sequence[database.StoredRow], known: ReplayedState) -> None:
        held.append((len(known.receipts), {*known.standing}))
        turn_to(connection, page, known)

    monkeypatch.setattr(ledger_audit, "_PAGE_ROWS", 2)
    monkeypatch.setattr(ledger_audit, "_load_page", watched)
    assert ledger.verify().releases == 9
    assert max(receipts for receipts, _ in held) <= 2
    assert set.union(*(standing for _, standing in held)) == {"all"}


@pytest.mark.parametrize("rows", [1, 1000])
def test_an_attempt_that_was_given_back_stands_nowhere(ledger: Ledger, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Its records may be charged in another period, by the same release, too: whether or not one page of rows has both attempts."""
    weekly = partial(charge, files=("f", "g"), cap=Cap(rho=Fraction(3, 10), per="week"), histogram="others")
    ledger.reserve(weekly("r", period="2026-01-05"))
    ledger.abort("r")
    for release in "rs":
        ledger.reserve(weekly(release, period="2026-01-12"))
    drawing(ledger, "r")
    monkeypatch.setattr(ledger_audit, "_PAGE_ROWS", rows)
    assert ledger.verify().running == 2


def test_verify_takes_few_calls_a_row(tmp_path: Path) -> None:
    """241 calls of functions a row before rows were unpacked at once, 211 since: a ledger of 100,000 rows is read in seconds.

    Calls are counted, not seconds: they do not depend on the machine.
    """

    def calls_of(rows: int) -> int:
        book = Ledger(f"sqlite:///{tmp_path / f'{rows}.db'}")
        for number in range(rows):
            book.reserve(charge(f"r{number}", rho=Fraction(1, 10**9)))
        book.verify()
        events: list[str] = []
        sys.setprofile(lambda frame, event, argument: events.append(event))
        try:
            book.verify()
        finally:
            sys.setprofile(None)
        book.close()
        return sum(event in ("call", "c_call") for event in events)

    assert (calls_of(60) - calls_of(10)) / 50 < 225
    assert (calls_of(60) - calls_of(10)) / 50 < 250


def test_a_restart_of_the_database_while_a_process_waits_for_the_lock_is_waited_for(postgres: Server) -> None:
    """15 of 32 processes that opened a new ledger ended in the database's own error."""
    url = postgres.database()
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    waiting = sa.text("SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
    with ThreadPoolExecutor(1) as pool, engine.connect() as holder:  # the lock ends first, should the test fail
        holder.execute(sa.select(sa.func.pg_advisory_lock(database.CREATION_LOCK)))
        said: list[str] = []
        opening = pool.submit(lambda: Ledger(url, tell=said.append))
        until = time.monotonic() + HANGS
        while not (pids := holder.execute(waiting).scalars().all()) and time.monotonic() < until:
            time.sleep(0.01)
        for pid in pids:  # as a restart ends every session
            assert holder.execute(
                sa.select(sa.func.pg_terminate_backend(pid, HANGS * 1000))
            ).scalar()  # waits until it is gone
        while not (again := holder.execute(waiting).scalars().all()) and not opening.done() and time.monotonic() < until:
            time.sleep(0.01)
        assert again != pids
        holder.execute(sa.select(sa.func.pg_advisory_unlock(database.CREATION_LOCK)))
        ledger = opening.result(HANGS)
    assert said == ["the ledger's database is away; trying again for up to 120 s"]
    ledger.reserve(charge("r"))
    assert ledger.verify().rows == 2
    ledger.close()
    engine.dispose()


DAMAGED = [
    *(table.c.facts for table in (database.entries, database.caps, database.releases)),
    *(database.accounts.c[name] for name in ("rule", "rho", "slack")),
]


NAMED = re.compile(
    r"(the row of )?release '(first|second)'|the cap of 'people'|the sums of 'people', total|(ledger )?row \d+|a row of the ledger"
)
"""How what is damaged is called."""


@pytest.mark.parametrize("column", DAMAGED, ids=str)
@pytest.mark.parametrize("damaged", slow_after_first(2, ["", "{", "[]", '{"cap": 1}', "1/0"]))
def test_damaged_tables_are_told_in_the_ledgers_own_words(
    ledger: Ledger, url: str, column: sa.Column[str], damaged: str
) -> None:
    """As by a flipped bit: whatever is asked then answers, or says what to do, in one line."""
    finished(ledger, charge("first"))
    ledger.reserve(charge("second"))
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.update(column.table).values({column.name: damaged}))
    engine.dispose()
    refused = []
    for ask in (
        lambda: ledger.rehearse(charge("third")),
        lambda: ledger.receipt("second"),
        lambda: ledger.budgets(charges=True),
        lambda: ledger.budget_after("first"),
        lambda: ledger.entries(),
        lambda: ledger.name(),
        lambda: ledger.verify(),
    ):
        try:
            ask()
        except DpdistError as error:
            refused.append(str(error))
    assert refused
    assert not any("\n" in text or "Error" in text for text in refused)
    assert all(NAMED.match(text) for text in refused), refused


@pytest.mark.parametrize("table", [database.accounts, database.caps, database.entries], ids=lambda table: table.name)
def test_no_row_that_charges_are_decided_by_lacks_a_value(table: sa.Table) -> None:
    """The database refuses it, whoever writes."""
    engine = sa.create_engine("sqlite://")
    table.metadata.create_all(engine)
    whole: dict[str, Any] = {each.name: "1" if isinstance(each.type, sa.String) else 1 for each in table.columns}
    with engine.connect() as connection:
        for name in (each.name for each in table.columns if not each.primary_key):
            with pytest.raises(sa.exc.IntegrityError):
                connection.execute(table.insert().values({**whole, name: None}))

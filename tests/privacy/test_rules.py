"""The ledger's state machine against an independent auditor, over random sequences of commands: in memory, and in a database."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from dpdist.errors import DpdistError
from dpdist.privacy.accounting import Cap, Loss
from dpdist.privacy.ledger import index_tables, ledger_audit
from dpdist.privacy.ledger.budget_ledger import Ledger
from dpdist.privacy.ledger.charges import Charge, Counted, CountedRecords, StreamPart
from dpdist.privacy.ledger.ledger_audit import ReplayedState
from dpdist.privacy.ledger.receipts import Receipt
from dpdist.privacy.ledger.rules import apply, decide
from dpdist.privacy.ledger.rules.ledger_commands import Abort, BeginDrawing, ChangeCap, Command, Commit, Reserve
from dpdist.privacy.ledger.rules.ledger_state import LedgerEvent, LedgerRow
from dpdist.privacy.privacy_unit import ProtectedRecords
from tests.privacy.auditor import Ask, Auditor, totals

TENTHS = some.integers(1, 4).map(lambda tenths: Fraction(tenths, 10))
RELEASES = some.sampled_from(["r", "s", "t", "u", "v"])
DATASETS = some.sampled_from(["people", "people", "others", "weeks", "weeks"])
WEEKS = some.sampled_from(["2026-W01", "2026-W02"])
CAPS = some.sampled_from([(Fraction(1), Fraction(1, 10)), (Fraction(1, 2), Fraction(0)), (Fraction(3), Fraction(2, 10))])


@some.composite
def reserves(draw: Callable[..., Any]) -> Ask:
    """A charge, often of a part of a stream that goes on where the parts of other charges end."""
    dataset, part, reaches = draw(DATASETS), None, ()
    period = draw(WEEKS) if dataset == "weeks" else "total"
    if draw(some.booleans()):
        digest, start = draw(some.sampled_from(["a", "a", "b"])), draw(some.integers(0, 2))
        extends = draw(some.sampled_from([None, None, "a"]))
        part = ("hours", digest, start, start + draw(some.sampled_from([0, 1, 2, 2])), extends)
        reaches = tuple(draw(some.sets(WEEKS, max_size=1))) if dataset == "weeks" else ()
    return Ask(
        "reserve",
        draw(RELEASES),
        dataset,
        draw(TENTHS),
        draw(some.sampled_from([Fraction(0), Fraction(0), Fraction(1, 20)])) if part is None else Fraction(0),
        draw(some.sampled_from([1, 1, 2])),
        draw(some.sampled_from([period] * 9 + ["total"])),
        part,
        reaches,
        frozenset(draw(some.sets(some.sampled_from("xyz"), max_size=1))),
        draw(some.sampled_from([False, False, True])),
        draw(some.sampled_from(["counts", "counts", "others"])),
        cap=draw(some.sampled_from([None] * 6 + [(Fraction(2), Fraction(0))])),
    )


@some.composite
def steps(draw: Callable[..., Any]) -> Ask:
    """Any other step."""
    what = draw(some.sampled_from(["draw", "draw", "commit", "commit", "abort", "cap"]))
    if what == "cap":
        return Ask("cap", dataset=draw(DATASETS), cap=draw(CAPS))
    digest = draw(some.sampled_from(["counts", "counts", "others"]))
    return Ask(what, draw(RELEASES), counts=digest, attempt=draw(some.sampled_from([0, 0, 0, 0, 1])))


@some.composite
def lives(draw: Callable[..., Any]) -> list[Ask]:
    """Steps of which many are allowed: parts mostly go on where their stream ends, and a charge is mostly drawn or given back."""
    out: list[Ask] = []
    auditor = Auditor()

    def step(ask: Ask) -> None:
        out.append(ask)
        auditor.accepts(ask)

    for asked in draw(some.lists(some.one_of(reserves(), reserves(), reserves(), steps()), min_size=1, max_size=12)):
        ask = asked
        if ask.what == "reserve" and draw(some.sampled_from([True, True, False])):
            ask = replace(ask, release=f"new {len(out)}", part=_continuing_part(auditor, ask))
        step(ask)
        for what in draw(
            some.sampled_from([(), ("draw", "commit"), ("draw", "commit"), ("abort",), ("draw",), ("draw", "abort")])
        ):
            if ask.what == "reserve":
                step(Ask(what, ask.release))
        if ask.what == "reserve" and draw(some.sampled_from([True, False, False])):
            step(replace(ask, counts=draw(some.sampled_from(["counts", "others"]))))
    return out


def _continuing_part(auditor: Auditor, ask: Ask) -> tuple[str, str, int, int, str | None] | None:
    """The part with the start, and mostly the digest, that its stream has come to."""
    if ask.part is None:
        return None
    stream, digest, start, stop, extends = ask.part
    of_stream = (one.ask.part for one in auditor.charged() if one.ask.dataset == ask.dataset and one.ask.part is not None)
    last = next(reversed([part for part in of_stream if part[0] == stream]), None)
    begins, was = (0, "a") if last is None else (last[3], last[1])
    if extends is None:
        return stream, was if digest == "a" else digest, begins, begins + stop - start, None
    return stream, f"{was}+", begins, begins + stop - start, was


def charge_of(ask: Ask, cap: tuple[Fraction, Fraction]) -> Charge:
    rho, selection = cap
    return Charge(
        release=ask.release,
        dataset=ask.dataset,
        loss=replace(Loss.gaussian(ask.rho), failure=ask.failure),
        cap=Cap(rho=rho, selection=selection, per="week" if ask.dataset == "weeks" else "total"),
        protection=ProtectedRecords("add-remove", ask.most_records),
        spec_digest="spec",
        approval_digest="asked",
        counted=Counted(lambda _: ask.counts, CountedRecords(f"{ask.counts} {sorted(ask.files)}", tuple(sorted(ask.files)))),
        period=ask.period,
        stream_part=None if ask.part is None else StreamPart(*ask.part, ask.reaches),
        allows_shared_records=ask.shared,
    )


class InMemory:
    """The two functions over dictionaries, as ``verify`` keeps them."""

    def __init__(self) -> None:
        self.records: dict[str, tuple[int | None, list[str]]] = {}
        self.known, self.rows, self.commands = ReplayedState(shared_commitments="xyz"), [], 0
        self.known.records = self.records

    def takes(self, ask: Ask, cap: tuple[Fraction, Fraction]) -> None:
        """Raises: DpdistError when the step is refused."""
        receipt = self.known.receipts.get(ask.release)
        command, facts = self._command(ask, cap, receipt)
        event = LedgerEvent("reserved" if ask.what == "reserve" else "aborted", ask.dataset, ask.release, 0, facts)
        if ask.what not in ("reserve", "cap") and receipt is not None:
            event = event._replace(dataset=receipt.dataset)
        if ask.what == "reserve":
            self.records[ask.release], before = (0, sorted(ask.files)), self.records.get(ask.release)
        state = self.known._state_before(event, self.known._commitments_of(event) or ())
        try:
            events = decide(state, command)
        finally:
            if ask.what == "reserve":
                self.records[ask.release] = before or (None, [])
        for decided in events:
            if decided.kind == "reserved":
                self.records[ask.release] = decided.attempt, sorted(ask.files)
            if decided.kind == "aborted":
                self._forget(ask.release)
            written = LedgerRow(decided, len(self.rows) + 1, f"row {len(self.rows) + 1}")
            state = apply(state, written)
            self.rows.append(
                {"event": decided.kind, "dataset": decided.dataset, "release": decided.release, "facts": decided.facts}
            )
            self.known._take(written, state, self.known._commitments_of(decided))

    def _forget(self, release: str) -> None:
        for file, others in self.known.standing.items():
            self.known.standing[file] = tuple(other for other in others if other.release != release)
        live = [other for other, receipt in self.known.receipts.items() if receipt.state != "aborted" and other != release]
        for other in live:  # which stood behind it
            receipt = self.known.receipts[other]
            for file in self.records[other][1]:
                self.known._stand(file, receipt)

    def _command(self, ask: Ask, cap: tuple[Fraction, Fraction], receipt: Receipt | None) -> tuple[Command, dict[str, Any]]:
        self.commands += 1
        charge = charge_of(ask, cap)
        if ask.what == "reserve":
            assert charge.counted is not None
            records = charge.counted.records.facts()
            part = {} if charge.stream_part is None else {"part": charge.stream_part.facts()}
            facts = {"period": ask.period, "records": records, **part}
            return Reserve(charge, str(self.commands), "name", "salt", ask.counts, records), facts
        attempt, binding = (1, "") if receipt is None else (receipt.attempt - ask.attempt, receipt.binding)
        if ask.what == "cap":
            return ChangeCap(ask.dataset, charge.cap, "asked for", "somebody", str(self.commands)), {}
        if ask.what == "abort":
            return Abort(ask.release), {}
        if ask.what == "draw":
            return BeginDrawing(ask.release, attempt, binding), {}
        return Commit(ask.release, attempt, binding, ask.counts), {}

    def sums(self) -> dict[tuple[str, str], tuple[Fraction, Fraction, int]]:
        accounts = self.known.accounts.items()
        return {where: (one.spent.rho, one.spent.failure, one.releases) for where, one in accounts if one.releases}


class InDatabase:
    """The ledger itself."""

    def __init__(self, url: str) -> None:
        self.ledger = Ledger(url)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return self.ledger.entries()

    def takes(self, ask: Ask, cap: tuple[Fraction, Fraction]) -> None:
        """Raises: DpdistError when the step is refused."""
        charge, receipt = charge_of(ask, cap), self.ledger.receipt(ask.release)
        attempt, binding = (1, "") if receipt is None else (receipt.attempt - ask.attempt, receipt.binding)
        if ask.what == "reserve":
            self.ledger.reserve(charge)
        elif ask.what == "cap":
            self.ledger.set_cap(ask.dataset, cap=charge.cap, why="asked for")
        elif ask.what == "abort":
            self.ledger.abort(ask.release)
        elif ask.what == "draw":
            self.ledger.begin_drawing(ask.release, attempt, binding)
        else:
            self.ledger.commit(ask.release, attempt, binding, ask.counts)

    def sums(self) -> dict[tuple[str, str], tuple[Fraction, Fraction, int]]:
        self.ledger.verify()
        found = ((one.dataset, one.period, one.spent, one.releases) for one in self.ledger.budgets())
        return {(dataset, period): (spent.rho, spent.failure, number) for dataset, period, spent, number in found if number}


def lived(world: InMemory | InDatabase, life: list[Ask]) -> None:
    """Every step is accepted or refused as the auditor says, and the sums are those of the raw rows."""
    auditor = Auditor()
    for number, ask in enumerate(life):
        cap = auditor.cap_of(ask)
        expected = auditor.accepts(ask)
        try:
            world.takes(ask, cap)
            accepted = True
        except DpdistError:
            accepted = False
        assert accepted == expected, f"step {number}: {ask} was {'accepted' if accepted else 'refused'}"
    expected_sums: dict[tuple[str, str], tuple[Fraction, Fraction, int]] = {}
    for kept in auditor.charged():
        account = kept.ask.dataset, kept.ask.period
        rho, failure, releases = expected_sums.get(account, (Fraction(0), Fraction(0), 0))
        expected_sums[account] = rho + kept.charged, failure + kept.ask.failure, releases + 1
    assert world.sums() == totals(world.rows) == expected_sums


@given(lives())
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
def test_the_rules_agree_with_an_independent_auditor(life: list[Ask]) -> None:
    lived(InMemory(), life)


@given(lives())
@settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
def test_the_ledger_agrees_with_an_independent_auditor(life: list[Ask]) -> None:
    """The same over SQLite: what is loaded for each command is what the rules need, and every ledger is verified."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger_audit, "_PAGE_ROWS", 2)  # a release goes on in another page of rows than it began in
        patch.setattr(index_tables, "BATCH_ROWS", 1)
        world = InDatabase(f"sqlite:///{folder}/ledger.db")
        lived(world, life)
        world.ledger.close()


@pytest.mark.slow
@given(lives())
@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_rules_agree_with_an_independent_auditor_in_many_lives(life: list[Ask]) -> None:
    lived(InMemory(), life)


@pytest.mark.large
@given(lives())
@settings(max_examples=10_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_rules_agree_with_an_independent_auditor_in_very_many_lives(life: list[Ask]) -> None:
    lived(InMemory(), life)

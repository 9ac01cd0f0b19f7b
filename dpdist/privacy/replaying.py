"""The replay of a ledger: its rules, asked again at every row, over dictionaries of all that the rows before came to."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from dpdist.errors import DpdistError
from dpdist.privacy import database as db
from dpdist.privacy.approvals import Approvers
from dpdist.privacy.charges import Charge, StreamPart, digest_of_seen
from dpdist.privacy.facts import cap_of, loss_of, protection_of
from dpdist.privacy.receipts import RUNNING, Publication, Receipt, Stage
from dpdist.privacy.rules import apply, commands, decide
from dpdist.privacy.rules.state import (
    NOT_BEGUN,
    UNUSED,
    Account,
    Approval,
    DataSet,
    LedgerEvent,
    LedgerRow,
    Standing,
    State,
    StreamSoFar,
)


@dataclass(frozen=True, slots=True)
class ReleaseSoFar:
    """What is kept of a release for longer than a page of rows: what the tables must say of it, and the row that says the rest.

    Attributes:
        sequence: number of the row that reserved its newest attempt.
        salt_right: whether the salt that the table keeps is the one that the row names; None where the table keeps none.
        records_right: whether the records that the table keeps are those that the row names.
    """

    sequence: int
    period: str
    stream: str | None
    state: Stage
    measurement_digest: str | None
    salt_right: bool | None
    records_right: bool

    @property
    def runs(self) -> bool:
        """Whether it is charged and not finished."""
        return self.state in RUNNING


class Known:
    """Everything that the rows so far came to, in parts.

    Args:
        shared: the commitments to records that may stand in the names of several releases: no others need to be remembered.

    Attributes:
        receipts: of the releases that the rows in hand name.
        salts: of those that they reserve, as the table keeps them.
        records: of the same, the attempt and the commitments of the records that stand in its name.
    """

    def __init__(self, shared: Collection[str] = ()) -> None:
        self.shared = shared
        self.receipts: dict[str, Receipt] = {}
        self.salts: Mapping[str, bytes | None] = {}
        self.records: Mapping[str, tuple[int | None, Sequence[str]]] = {}
        self.datasets: dict[str, DataSet] = {}
        self.accounts: dict[tuple[str, str], Account] = {}
        self.releases: dict[str, ReleaseSoFar] = {}
        self.streams: dict[tuple[str, str | None], StreamSoFar] = {}
        self.approvals: dict[str, tuple[Approval, ...]] = {}
        self.signers: tuple[str, ...] = ()
        self.publications: dict[str, tuple[Publication, ...]] = {}
        self.standing: dict[str, tuple[Standing, ...]] = {}
        self._periods: dict[str, str] = {}  # each is kept once, although every row has its own text of it

    def follows(self, row: db.StoredRow) -> bool:
        """Whether a row is what the ledger's rules lead to; it is taken then."""
        try:
            event = LedgerEvent(row.event, row.dataset, row.release, row.attempt, json.loads(row.facts))
            command, seen = self._command(event), self._seen_by(event)
            part = self._part(event, seen or ())
            if command is None or decide(part, command) != (event,):
                return False
            self._take(event, apply(part, LedgerRow(event, row.sequence, row.digest)), seen)
        except (KeyError, TypeError, ValueError, AttributeError, DpdistError):
            return False
        return True

    def _command(self, event: LedgerEvent) -> commands.Command | None:
        """What was asked for when an event was written; None for no event of the ledger."""
        facts, known = event.facts, self.receipts.get(event.release)
        if event.kind == "reserved":
            return self._reserve(event)
        if event.kind in _COMMANDS:
            return _COMMANDS[event.kind](event)
        if known is None or event.kind not in ("drawing", "committed"):
            return None
        attempt = event.release, event.attempt, known.binding
        if event.kind == "drawing":
            return commands.BeginDrawing(*attempt)
        return commands.Commit(*attempt, facts["measurement_digest"])

    def _reserve(self, event: LedgerEvent) -> commands.Reserve | None:
        """The charge that a row reserves: under the cap that its data set had then."""
        facts, dataset = event.facts, self.datasets.get(event.dataset)
        if dataset is None:
            return None
        charge = Charge(
            event.release,
            event.dataset,
            loss_of(facts["own"]),
            dataset.cap,
            protection_of(facts["protection"]),
            facts["spec_digest"],
            facts["asked"],
            None,
            facts["period"],
            StreamPart.from_facts(facts["part"]) if "part" in facts else None,
            facts.get("shared", False),
        )
        return commands.Reserve(charge, facts["run"], "", facts["salt"], facts["histogram_commitment"], facts["records"])

    def _part(self, event: LedgerEvent, seen: Sequence[str]) -> State:
        known, facts = self.receipts.get(event.release), event.facts
        period, stream = facts.get("period", ""), facts.get("part", {}).get("stream")
        if known is not None and event.kind != "reserved":
            period, stream = known.period, known.stream
        return State(
            self.datasets.get(event.dataset),
            self.accounts.get((event.dataset, period), UNUSED),
            known,
            self.streams.get((event.dataset, stream), NOT_BEGUN),
            self.approvals.get(event.release, ()),
            tuple(chain.from_iterable(self.standing.get(commitment, ()) for commitment in seen)),
            self.signers,
            self.publications.get(event.release, ()),
        )

    def _seen_by(self, event: LedgerEvent) -> Sequence[str] | None:
        """The records that an attempt is charged for; None where others are kept, as those of one that was given back are not."""
        if event.kind != "reserved":
            return ()
        attempt, seen = self.records.get(event.release, (event.attempt, ()))
        right = attempt == event.attempt and digest_of_seen(seen) == event.facts["records"]["digest"]
        return seen if right else None

    def _take(self, event: LedgerEvent, part: State, seen: Sequence[str] | None) -> None:
        if part.dataset is not None:
            self.datasets[event.dataset] = part.dataset
        if event.kind == "approved":
            self.approvals[event.release] = part.approvals
        if event.kind == "published":
            self.publications[event.release] = part.publications
        self.signers = part.signers
        if part.release is None or event.kind not in ("reserved", "drawing", "committed", "aborted"):
            return
        receipt = part.release
        self.receipts[event.release] = receipt
        self.releases[event.release] = self._reserved(receipt, seen) if event.kind == "reserved" else self._moved(receipt)
        self.accounts[event.dataset, receipt.period] = part.account
        if receipt.part:
            self.streams[event.dataset, receipt.stream] = part.stream
        for commitment in seen or ():
            if commitment in self.shared:
                self._stand(commitment, receipt)

    def _reserved(self, receipt: Receipt, seen: Sequence[str] | None) -> ReleaseSoFar:
        salt = self.salts.get(receipt.release)
        salt_right = None if salt is None else db.salt_digest(salt) == receipt.salt_digest
        period = self._periods.setdefault(receipt.period, receipt.period)
        return ReleaseSoFar(receipt.sequence, period, receipt.stream, receipt.state, None, salt_right, seen is not None)

    def _moved(self, receipt: Receipt) -> ReleaseSoFar:
        known = self.releases[receipt.release]
        return replace(known, state=receipt.state, measurement_digest=receipt.measurement_digest)

    def _stand(self, commitment: str, receipt: Receipt) -> None:
        """Let records stand in a release's name, unless another one has them in the same period of its data set."""
        others, mine = self.standing.get(commitment, ()), (receipt.dataset, receipt.period)
        if mine not in [(each.dataset, each.period) for each in others]:
            self.standing[commitment] = (*others, Standing(*mine, receipt.release, commitment))


def _declare(event: LedgerEvent) -> commands.Command:
    facts = event.facts
    return commands.Declare(
        event.dataset, cap_of(facts["cap"]), protection_of(facts["protection"]), facts["run"], facts["ledger"]
    )


def _change_cap(event: LedgerEvent) -> commands.Command:
    facts = event.facts
    return commands.ChangeCap(event.dataset, cap_of(facts["cap"]), facts["why"], facts["who"], facts["run"])


def _name_approvers(event: LedgerEvent) -> commands.Command:
    facts = event.facts
    return commands.NameApprovers(event.dataset, Approvers.of(facts), facts["why"], facts["who"])


def _approve(event: LedgerEvent) -> commands.Command:
    facts = event.facts
    return commands.Approve(event.dataset, event.release, facts["spec"], facts["key"], facts["signature"])


_COMMANDS: Mapping[str, Callable[[LedgerEvent], commands.Command]] = {
    "declared": _declare,
    "capped": _change_cap,
    "approvers": _name_approvers,
    "approved": _approve,
    "aborted": lambda event: commands.Abort(event.release),
    "signer": lambda event: commands.NameSigner(event.facts["key"]),
    "published": lambda event: commands.Publish(event.release, Publication.of(event.facts)),
}
"""What was asked for when an event was written, where the event alone tells."""

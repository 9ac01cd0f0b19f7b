"""What a ledger has come to, as far as one command needs it: a data set, one of its periods, a release, a stream.

States are values. ``decide`` reads one, ``apply`` returns the next; neither knows where it is kept. The ledger loads the part that a
command needs from the tables of its database, by index; ``verify`` keeps all parts in dictionaries. What ``verify`` makes for every row is
a named tuple, which takes a third of a frozen dataclass's time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from dpdist.privacy.accounting import NOTHING, Cap, Loss, Rule
from dpdist.privacy.ledger.approvals import NO_APPROVERS, Approvers
from dpdist.privacy.ledger.receipts import Publication, Receipt
from dpdist.privacy.privacy_unit import Protection


class LedgerEvent(NamedTuple):
    """What happened: a row of the ledger before it has a place there.

    Attributes:
        dataset: empty for events of the whole ledger.
        release: its id; of a budget's events, a name that no release can have.
        attempt: counts the events of one kind and name, from 1: of two steps that write the same one, the database refuses the second.
    """

    kind: str
    dataset: str
    release: str
    attempt: int
    facts: Mapping[str, Any]


class LedgerRow(NamedTuple):
    """An event and its place in the ledger: its number, and the digest that binds it to all rows before."""

    event: LedgerEvent
    sequence: int
    digest: str


@dataclass(frozen=True, slots=True)
class DataSet:
    """What was promised for a data set.

    Attributes:
        caps, named: how many rows declared or changed the cap, and named approvers.
        run: which call wrote the newest of the caps.
    """

    cap: Cap
    protection: Protection
    caps: int
    run: str
    approvers: Approvers = NO_APPROVERS
    named: int = 0


class Account(NamedTuple):
    """The charges of a data set in one budget period.

    Attributes:
        rule: how they add up, chosen by the first of them.
    """

    rule: Rule | None = None
    spent: Loss = NOTHING
    releases: int = 0


UNUSED = Account()


@dataclass(frozen=True, slots=True)
class StreamState:
    """The releases of a stream that were not given back: the last of them, and the stream before it.

    Attributes:
        paid: the budget periods that were charged.
        spent: all charges together.
    """

    last_receipt: Receipt | None = None
    paid: frozenset[str] = frozenset()
    spent: Loss = NOTHING
    before: StreamState | None = None

    @property
    def stop(self) -> int:
        """The steps that are measured."""
        return self.last_receipt.stream_part.stop if self.last_receipt and self.last_receipt.stream_part else 0

    def add_release(self, receipt: Receipt) -> StreamState:
        """The stream with one more release."""
        paid = self.paid if receipt.period in self.paid else self.paid | {receipt.period}
        return StreamState(receipt, paid, self.spent + receipt.loss, self)

    def update_release(self, receipt: Receipt) -> StreamState:
        """The stream after the next step of its last release: without it, if its charge was given back."""
        return self.before or EMPTY_STREAM if receipt.state == "aborted" else replace(self, last_receipt=receipt)


EMPTY_STREAM = StreamState()


@dataclass(frozen=True, slots=True)
class Approval:
    """Whose signature of which spec of a release stands in the ledger."""

    dataset: str
    spec: str
    key: str


@dataclass(frozen=True, slots=True)
class Standing:
    """Where records of a charge are charged already: a data set and a period, with one release and one of the records."""

    dataset: str
    period: str
    release: str
    commitment: str


class State(NamedTuple):
    """The part of a ledger that a command is about.

    Attributes:
        dataset: None before its cap was declared.
        account: of the command's budget period.
        release: the newest attempt of the command's release.
        stream: of the stream that the command's release is a part of, the releases so far.
        approvals: of the release, oldest first.
        standing: where the records of a charge are charged now.
        signers: the public keys that sign certificates, oldest first.
        publications: of the release, oldest first.
    """

    dataset: DataSet | None = None
    account: Account = UNUSED
    release: Receipt | None = None
    stream: StreamState = EMPTY_STREAM
    approvals: tuple[Approval, ...] = ()
    standing: tuple[Standing, ...] = ()
    signers: tuple[str, ...] = ()
    publications: tuple[Publication, ...] = ()

    def signed(self, dataset: str, spec: str) -> set[str]:
        """The keys that approved a spec of a data set."""
        return {approval.key for approval in self.approvals if (approval.dataset, approval.spec) == (dataset, spec)}

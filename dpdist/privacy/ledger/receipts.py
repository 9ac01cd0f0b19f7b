"""What the ledger gives: receipts, budgets, what ``verify`` found, checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

from dpdist.privacy.accounting import Cap, Loss, Rule
from dpdist.privacy.ledger.charges import CountedRecords, StreamPart
from dpdist.privacy.privacy_unit import Protection

Stage = Literal["reserved", "drawing", "committed", "aborted"]
"""How far a release has come."""
RUNNING = ("reserved", "drawing")
OF_RECORDS = ("histogram", "set of records")
"""What a repeated release may have another one of because its records are others."""


@dataclass(frozen=True, slots=True)
class KnownRecords:
    """What a row says of the records of a release; see ``CountedRecords``."""

    source: str
    content: str | None
    key: str | None
    digest: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof that a release's budget is charged, and how far the release has come.

    Attributes:
        attempt: how often the id was reserved: an aborted id may be used again.
        binding: digest of the ledger row that reserved this attempt; a draw and a commit must name it.
        sequence: number of that row.
        loss: what was charged, in the cap's unit of protection.
        own_loss: what the release reveals of its own unit's change.
        records: what tells its records from others.
        run: which call reserved it.
        salt_digest: by which an altered salt is found.
        salt: of an attempt that runs, where the receipt comes from a ledger; it is gone once the release is committed.
        charged: whether the call that returned the receipt charged the budget.
    """

    release: str
    dataset: str
    period: str
    state: Stage
    attempt: int
    binding: str
    sequence: int
    loss: Loss
    own_loss: Loss
    protection: Protection
    spec_digest: str
    histogram_commitment: str
    records: KnownRecords
    run: str = field(compare=False)
    salt_digest: str
    stream_part: StreamPart | None = None
    measurement_digest: str | None = None
    salt: bytes | None = field(repr=False, default=None)
    charged: bool = field(compare=False, default=False)

    @property
    def stream(self) -> str | None:
        """The stream that it is a part of."""
        return self.stream_part.stream if self.stream_part else None

    @property
    def runs(self) -> bool:
        """Whether it is charged and not finished."""
        return self.state in RUNNING

    def has_counted(self, records: CountedRecords) -> bool | None:
        """Whether the release counted these records; None when another root key leaves nothing to tell it by."""
        recorded = self.records
        if recorded.key != records.key:
            return None
        return recorded.source == records.source or (recorded.content is not None and recorded.content == records.content)


@dataclass(frozen=True)
class DatasetBudget:
    """One data set in one period: its cap and what was charged.

    Attributes:
        cap, protection: the most that may be revealed, of which change.
        rule: how the account adds up under a cap in (epsilon, delta).
        spent, releases: all charges together, and how many.
        charges: the newest of them, oldest first, where they were asked for.
    """

    dataset: str
    period: str
    cap: Cap
    protection: Protection
    rule: Rule
    spent: Loss
    releases: int
    charges: dict[str, Loss] = field(default_factory=dict)

    @property
    def remaining(self) -> Fraction:
        """What releases may still spend, in the cap's unit (never negative)."""
        return self.cap.remaining(self.spent, self.rule)

    def describe_remaining(self, loss: Loss) -> str:
        """The largest release of the kind of a loss that still fits, in the words of the cap."""
        _, remaining_amount, delta = self.cap.requested_and_remaining(loss, self.spent, self.rule)
        return f"{self.cap.written}={remaining_amount:.6g}" + (f" at delta={delta:g}" if delta else "")

    @property
    def remaining_by_release(self) -> list[tuple[str, float]]:
        """Each release with the share of the budget that was left after all its charges, in the order in which they began."""
        whole = self.cap.remaining(Loss(), self.rule)
        spent = self.spent - sum(self.charges.values(), Loss())
        releases: dict[str, Loss] = {}
        for charged, loss in self.charges.items():
            release = charged.partition("~")[0]
            releases[release] = releases.get(release, Loss()) + loss
        remaining_shares = []
        for release, loss in releases.items():
            spent = spent + loss
            remaining_shares.append((release, float(self.cap.remaining(spent, self.rule) / whole)))
        return remaining_shares


@dataclass(frozen=True, slots=True)
class Publication:
    """Files of a release as they were published: another version of dpdist, or another folder, make another publication.

    Attributes:
        certificate: SHA-256 of release.json, which names the digests of all other files.
        key: public half of the key that signed it.
        location: where it was published.
        tables: of warehouses that got its rows, by kind and name.
    """

    certificate: str
    key: str
    location: str
    tables: tuple[tuple[str, str], ...] = ()

    def facts(self) -> dict[str, Any]:
        """As a row keeps it."""
        return {
            "certificate": self.certificate,
            "key": self.key,
            "place": self.location,
            "tables": [list(table) for table in self.tables],
        }

    @staticmethod
    def of(facts: Mapping[str, Any]) -> Publication:
        """The publication that a row names."""
        tables = tuple((str(kind), str(name)) for kind, name in facts["tables"])
        return Publication(facts["certificate"], facts["key"], facts["place"], tables)


@dataclass(frozen=True)
class Audit:
    """What ``verify`` found.

    Attributes:
        head: digest of the newest row. Noted elsewhere, it proves later that no row was removed.
        running: releases that are charged and not finished.
    """

    rows: int
    head: str
    releases: int
    running: int


@dataclass(frozen=True)
class Checkpoint:
    """Which ledger, and how far: digest of its first row, number and digest of its newest. By default one without rows."""

    first: str = ""
    sequence: int = 0
    head: str = ""

"""What a ledger is asked to do. Whatever is random or comes from outside stands in the command, so that deciding is a function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpdist.privacy.accounting import Cap
from dpdist.privacy.ledger.approvals import Approvers
from dpdist.privacy.ledger.charges import Charge
from dpdist.privacy.ledger.receipts import Publication
from dpdist.privacy.privacy_unit import Protection


@dataclass(frozen=True, slots=True)
class Declare:
    """Declare a data set's cap.

    Attributes:
        run: which call asks, should its answer get lost.
        name: random; the first row's names the ledger.
    """

    dataset: str
    cap: Cap
    protection: Protection
    run: str
    name: str


@dataclass(frozen=True, slots=True)
class ChangeCap:
    """Change a data set's cap; who does, and why."""

    dataset: str
    cap: Cap
    reason: str
    changed_by: str
    run: str


@dataclass(frozen=True, slots=True)
class NameApprovers:
    """Say whose approvals a data set's releases need from now on."""

    dataset: str
    approvers: Approvers
    reason: str
    changed_by: str


@dataclass(frozen=True, slots=True)
class Approve:
    """Keep an approver's signature of a release's spec."""

    dataset: str
    release: str
    spec: str
    key: str
    signature: str


@dataclass(frozen=True, slots=True)
class Reserve:
    """Charge a release.

    Attributes:
        run: which call asks, should its answer get lost.
        name: random; names the ledger if it is empty.
        salt: the digest of the new attempt's salt.
        commitment: to the counts, under the salt of the running attempt if there is one, else under the new one.
        records: what a row says of the records (``CountedRecords.facts``).
    """

    charge: Charge
    run: str
    name: str
    salt: str
    commitment: str
    records: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BeginDrawing:
    """Say that noise may be drawn for an attempt."""

    release: str
    attempt: int
    binding: str


@dataclass(frozen=True, slots=True)
class Commit:
    """Say that the measurement of an attempt is stored whole."""

    release: str
    attempt: int
    binding: str
    measurement: str


@dataclass(frozen=True, slots=True)
class Abort:
    """Give the charge of a release back."""

    release: str


@dataclass(frozen=True, slots=True)
class NameSigner:
    """Say with which key certificates are signed from now on, too."""

    key: str


@dataclass(frozen=True, slots=True)
class Publish:
    """Say that the files of a committed release are published."""

    release: str
    publication: Publication


Request = Declare | ChangeCap | NameApprovers | Approve | Reserve | BeginDrawing | Commit | Abort | Publish
"""What callers ask of a ledger."""
Command = Request | NameSigner
"""What rules decide: a signer is named by the publication that it signed first."""

"""What the ledger takes and gives: charges, receipts, budgets."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any

from dpdist.errors import InvalidInput
from dpdist.privacy.accounting import Cap, Loss, Rule
from dpdist.privacy.protection import Protection

SELECTION = "~categories"
"""Ends the id of the charge for a selection of names: no release's id can hold it."""


@dataclass(frozen=True)
class Part:
    """Some steps of a stream: one mechanism over a series that grows, charged once to every budget period it reaches.

    Attributes:
        digest: SHA-256 of everything that decides what the whole stream measures and with how much noise.
        start, stop: the steps start..stop are measured now, those before were by earlier releases.
        extends: the digest that the stream had before this part, which is the first after an extension of its horizon.
    """

    stream: str
    digest: str
    start: int
    stop: int
    extends: str | None = None

    def facts(self) -> dict[str, Any]:
        """What rows keep; ``Part(**facts)`` reads it back."""
        known = {"stream": self.stream, "digest": self.digest, "start": self.start, "stop": self.stop}
        return known | ({} if self.extends is None else {"extends": self.extends})


@dataclass(frozen=True)
class Records:
    """Which records a release counts, as commitments under the root key: they outlive the release and mean nothing without the key.

    Attributes:
        source: of the files' bytes and how they are read, and of the release: no two releases have the same.
        files: of each file's bytes: the same in every release that reads the file.
        key: which root key made them (``keys.identity``): under another one nothing can be compared.
        names: of the files, for messages; they are not kept.
        content: of the counts, the same however the records are stored. It stands under caps per period only: whoever holds the root
            key can test guesses of the counts against it.
    """

    source: str
    files: tuple[str, ...] = ()
    content: str | None = None
    key: str | None = None
    names: tuple[str, ...] = field(default=(), compare=False)

    @property
    def seen(self) -> tuple[str, ...]:
        """What must not turn up under another data set's name, or in another period of a cap per period."""
        return tuple(sorted({*self.files, *([] if self.content is None else [self.content])}))


@dataclass(frozen=True)
class Charge:
    """What a release asks for.

    Attributes:
        release: its id; one charge each, ever.
        loss: what the release reveals of one change that ``protection`` names; of a stream, the whole stream.
        spec_digest: public; what is measured and with how much noise.
        histogram: the commitment to the exact counts under a salt (``keys.histogram_commitment``).
        records: which records are counted. Both are None where nothing was counted yet: such a charge can only be rehearsed.
        period: the calendar day the release stands for (ISO date), which decides the budget period it is charged to.
        asked: the digest of the spec, which approvers sign.
        reaches: of a part of a stream under a cap per period, the budget periods that its new steps lie in, as far as they are known.
        shared: the spec says that the records may stand under another data set's name or in another period, too.
    """

    release: str
    dataset: str
    loss: Loss
    cap: Cap
    protection: Protection
    spec_digest: str
    histogram: Callable[[bytes], str] | None = field(compare=False, repr=False)
    records: Records | None
    period: str | None = None
    part: Part | None = None
    shared: bool = False
    asked: str | None = None
    reaches: tuple[str, ...] = ()

    @property
    def period_key(self) -> str:
        """The budget period: 'total', a day, an ISO week or a month. It follows the release's date, not the clock."""
        if self.cap.per == "total":
            return "total"
        if self.period is None:
            raise InvalidInput(f"a budget per {self.cap.per} needs the release's date: set 'period: YYYY-MM-DD' in the spec")
        return period_of(datetime.date.fromisoformat(self.period), self.cap.per)


def period_of(day: datetime.date, per: str) -> str:
    """The budget period that a day lies in, of a cap per day, week or month."""
    if per == "day":
        return day.isoformat()
    if per == "week":
        year, week, _ = day.isocalendar()
        return f"{year}-W{week:02d}"
    return f"{day.year}-{day.month:02d}"


@dataclass(frozen=True)
class Receipt:
    """Proof that a release's budget is charged. The salt is gone once the release is committed.

    Attributes:
        attempt: how often the id was reserved: an aborted id may be used again.
        binding: digest of the ledger row that reserved this attempt; a draw and a commit must name it.
        loss: what was charged, in the cap's unit of protection.
        own: what the release reveals of its own unit's change; None where an older version did not write it down.
        root: which root key made the commitments to its records.
        charged: whether the call that returned the receipt charged the budget.
    """

    release: str
    dataset: str
    period: str
    state: str
    attempt: int
    binding: str
    loss: Loss
    own: Loss | None
    protection: Protection | None
    spec_digest: str
    histogram_commitment: str | None
    source: str | None
    content: str | None
    root: str | None
    measurement_digest: str | None
    part: Part | None = None
    salt: bytes | None = field(repr=False, default=None)
    charged: bool = field(compare=False, default=False)

    def is_of(self, records: Records) -> bool | None:
        """Whether the release counted these records; None when an older version or another root key left nothing to tell it by."""
        if (self.source is None and self.content is None) or self.root != records.key:
            return None
        return self.source == records.source or (self.content is not None and self.content == records.content)


@dataclass(frozen=True)
class Budget:
    """One data set in one period: its cap and what was charged.

    Attributes:
        cap, protection: the most that may be revealed, of which change; None in ledgers of older versions that did not say.
        rule: how the account adds up under a cap in (epsilon, delta).
        spent, releases: all charges together, and how many.
        charges: the newest of them, oldest first, where they were asked for.
    """

    dataset: str
    period: str
    cap: Cap
    protection: Protection | None
    rule: Rule
    spent: Loss
    releases: int
    charges: dict[str, Loss] = field(default_factory=dict)

    @property
    def left(self) -> Fraction:
        """What releases may still spend, in the cap's unit (never negative)."""
        return self.cap.left(self.spent, self.rule)

    @property
    def course(self) -> list[tuple[str, float]]:
        """Each release with the share of the budget that was left after it, in the order they were charged."""
        whole = self.cap.left(Loss(), self.rule)
        spent = self.spent - sum(self.charges.values(), Loss())
        out = []
        for release, loss in self.charges.items():
            spent = spent + loss
            out.append((release, float(self.cap.left(spent, self.rule) / whole)))
        return out


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
class Mark:
    """Which ledger, and how far: digest of its first row, number and digest of its newest. By default one without rows."""

    first: str = ""
    sequence: int = 0
    head: str = ""


def price_of_extension(whole: Loss, paid: Loss) -> Loss | None:
    """What an extended stream is charged beside what was paid for it: both together are no less than the whole. None if nothing is due.

    The rho of Gaussian noise of one scale is proportional to the squared distance that it hides, so the rest of it is due. The slack of
    the grid is charged whole once more.
    """
    due = whole.rho - paid.rho
    return Loss.gaussian(due, whole.slack) if due > 0 and whole.pure == paid.pure == 0 else None


def loss_facts(loss: Loss) -> dict[str, str]:
    """A release's loss as rows keep it."""
    failure = {"failure": str(loss.failure)} if loss.failure else {}
    return {"rho": str(loss.rho), "pure": str(loss.pure), "slack": str(loss.slack), **failure}


def loss_of(facts: Mapping[str, str]) -> Loss:
    """A release's loss. Version 1 kept no slack: 1 stands for unknown and leaves only the zCDP conversion."""
    return _loss(facts["rho"], facts["pure"], facts.get("slack"), facts.get("failure", "0"))


@lru_cache(maxsize=1024)  # releases of a data set mostly reveal the same; half of ``verify`` was this without it
def _loss(rho: str, pure: str, slack: str | None, failure: str) -> Loss:
    known, epsilon = Fraction(rho), Fraction(pure)
    noisy = Loss.laplace(epsilon) if epsilon else Loss()
    unknown = Fraction(1 if known else 0)
    return noisy + Loss(rho=known, slack=unknown if slack is None else Fraction(slack), failure=Fraction(failure))


def cap_facts(cap: Cap) -> dict[str, Any]:
    """A cap as rows keep it, with its limits where these are computed: what was allowed once stays so."""
    amounts = {"rho": cap.rho} if cap.rho is not None else {"epsilon": cap.epsilon, "delta": cap.delta}
    amounts |= {"selection": cap.selection} if cap.selection else {}
    limits = {rule: str(limit) for rule, limit in cap.with_limits().kept}
    return {"per": cap.per, **{key: str(value) for key, value in amounts.items()}, **({"limits": limits} if limits else {})}


def cap_of(facts: Mapping[str, Any]) -> Cap:
    """The cap that ``cap_facts`` describes. Rows that were written before limits were kept have none."""
    selection = Fraction(facts.get("selection", 0))
    if "rho" in facts:
        return Cap(rho=Fraction(facts["rho"]), per=facts["per"], selection=selection)
    kept = tuple((rule, Fraction(limit)) for rule, limit in facts.get("limits", {}).items())
    epsilon, delta = Fraction(facts["epsilon"]), Fraction(facts["delta"])
    return Cap(epsilon=epsilon, delta=delta, per=facts["per"], selection=selection, kept=kept)


def protection_of(facts: Mapping[str, Any] | None) -> Protection | None:
    """The protection that a row names, None where it names none."""
    return None if facts is None else Protection.from_facts(facts)

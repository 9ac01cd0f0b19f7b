"""A second, simple implementation of the ledger's rules for charges: everything is counted anew from what was accepted, at every step.

It shares nothing with ``dpdist.privacy.ledger.rules`` and knows caps in rho, records as the unit, streams, budgets per period and
selections.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any


@dataclass(frozen=True)
class Ask:
    """A step that somebody asks for.

    Attributes:
        what: "reserve", "draw", "commit", "abort" or "cap".
        attempt: of a draw or a commit, how many attempts before the newest one is meant.
        cap: rho and the part of delta for selections; None: as the data set has it, or (1, 1/10).
        part: stream, digest, start, stop and the digest that it extends.
    """

    what: str
    release: str = "r"
    dataset: str = "people"
    rho: Fraction = Fraction(1, 10)
    failure: Fraction = Fraction(0)
    most_records: int = 1
    period: str = "total"
    part: tuple[str, str, int, int, str | None] | None = None
    reaches: tuple[str, ...] = ()
    files: frozenset[str] = frozenset()
    shared: bool = False
    counts: str = "counts"
    attempt: int = 0
    cap: tuple[Fraction, Fraction] | None = None


@dataclass
class AuditedCharge:
    """A release that was charged."""

    ask: Ask
    charged: Fraction
    state: str = "reserved"
    digest: str = ""


@dataclass
class Auditor:
    """What was accepted so far."""

    caps: dict[str, tuple[Fraction, Fraction]] = field(default_factory=dict)
    units: dict[str, int] = field(default_factory=dict)
    attempts: dict[str, list[AuditedCharge]] = field(default_factory=dict)
    order: list[AuditedCharge] = field(default_factory=list)

    def cap_of(self, ask: Ask) -> tuple[Fraction, Fraction]:
        """The cap that the spec of a charge says."""
        return ask.cap or self.caps.get(ask.dataset, (Fraction(1), Fraction(1, 10)))

    def charged(self) -> list[AuditedCharge]:
        """Every charge that was not given back, in order."""
        return [kept for kept in self.order if kept.state != "aborted"]

    def newest(self, release: str) -> AuditedCharge | None:
        """The newest attempt of a release."""
        return self.attempts[release][-1] if release in self.attempts else None

    def accepts(self, ask: Ask) -> bool:
        """Whether a step is allowed; it is taken then."""
        known = self.newest(ask.release)
        if ask.what == "cap":
            if ask.dataset not in self.caps or self.cap_of(ask) == self.caps[ask.dataset]:
                return False
            self.caps[ask.dataset] = self.cap_of(ask)
            return True
        if ask.what == "reserve":
            return self._reserves(ask)
        if known is None:
            return False
        if ask.what == "abort":
            allowed = known.state in ("reserved", "aborted")
            known.state = "aborted" if allowed else known.state
            return allowed
        if ask.attempt:
            return False  # of an attempt that was replaced, or never was
        if ask.what == "draw":
            allowed = known.state in ("reserved", "drawing", "committed")
            known.state = "drawing" if known.state == "reserved" else known.state
            return allowed
        if known.state == "drawing":
            known.state, known.digest = "committed", ask.counts
            return True
        return known.state == "committed" and known.digest == ask.counts

    def _reserves(self, ask: Ask) -> bool:
        known = self.newest(ask.release)
        if known is not None and known.state != "aborted":
            return self._again(known, ask)
        if ask.dataset in self.caps and self.caps[ask.dataset] != self.cap_of(ask):
            return False
        if (ask.period == "total") != (ask.dataset != "weeks"):
            return False
        unit = self.units.get(ask.dataset, ask.most_records)
        group = -(-unit // ask.most_records)
        if ask.failure and group > 1:
            return False
        due = self._due(ask, ask.rho * group**2)
        if due is None or self._elsewhere(ask):
            return False
        account = [one for one in self.charged() if (one.ask.dataset, one.ask.period) == (ask.dataset, ask.period)]
        rho, failure = self.cap_of(ask)
        if due or ask.failure:
            if sum(one.charged for one in account) + due > rho:
                return False
            if sum(one.ask.failure for one in account) + ask.failure > failure:
                return False
        self.caps.setdefault(ask.dataset, self.cap_of(ask))
        self.units.setdefault(ask.dataset, unit)
        kept = AuditedCharge(ask, due)
        self.attempts.setdefault(ask.release, []).append(kept)
        self.order.append(kept)
        return True

    @staticmethod
    def _again(known: AuditedCharge, ask: Ask) -> bool:
        """Whether a release that is charged is asked for as it was."""
        names = ("dataset", "period", "rho", "failure", "most_records", "part")
        same = all(getattr(known.ask, name) == getattr(ask, name) for name in names)
        if known.state == "committed":
            return same and (known.ask.counts, known.ask.files) == (ask.counts, ask.files)
        return same and known.ask.counts == ask.counts

    def _due(self, ask: Ask, whole: Fraction) -> Fraction | None:
        """What a charge costs, None where a part of a stream may not be measured."""
        if ask.part is None:
            return whole
        stream, digest, start, stop, extends = ask.part
        parts = [
            one for one in self.charged() if one.ask.part and (one.ask.dataset, one.ask.part[0]) == (ask.dataset, stream)
        ]
        if parts and (parts[-1].state != "committed" or parts[-1].ask.part[1] != (extends or digest)):
            return None
        if start != (parts[-1].ask.part[3] if parts else 0) or stop <= start:
            return None
        paid = {one.ask.period for one in parts}
        if not ask.shared and any(period not in paid and period != ask.period for period in ask.reaches):
            return None
        if extends is not None:
            due = whole - sum(one.charged for one in parts)
            return due if parts and due > 0 and extends != digest and ask.period == "total" else None
        return Fraction(0) if ask.period in paid else whole

    def _elsewhere(self, ask: Ask) -> bool:
        """Whether records are charged to another data set, or in another period."""
        if ask.shared:
            return False
        for other in self.charged():
            if other.ask.files & ask.files:
                if other.ask.dataset != ask.dataset:
                    return True
                if ask.part is None and other.ask.period != ask.period:
                    return True
        return False


def totals(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], tuple[Fraction, Fraction, int]]:
    """Of each data set and period, rho, failure and number of the releases that raw rows charge and do not give back."""
    live: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        if row["event"] == "reserved":
            live[row["release"]] = row
        elif row["event"] == "aborted":
            del live[row["release"]]
    out: dict[tuple[str, str], tuple[Fraction, Fraction, int]] = {}
    for row in live.values():
        loss, account = row["facts"]["loss"], (row["dataset"], row["facts"]["period"])
        rho, failure, number = out.get(account, (Fraction(0), Fraction(0), 0))
        more = Fraction(loss["rho"]), Fraction(loss.get("failure", 0))
        out[account] = rho + more[0], failure + more[1], number + 1
    return out

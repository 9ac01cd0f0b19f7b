"""The ledger's rules, applied to its rows from the first to the last: what ``verify`` does."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dpdist.errors import InvalidInput, LedgerError
from dpdist.privacy import database as db
from dpdist.privacy import keys
from dpdist.privacy.accounting import Cap, Loss, Rule
from dpdist.privacy.approvals import Approvers, is_signed
from dpdist.privacy.charges import Audit, Part, cap_of, loss_of, price_of_extension, protection_of
from dpdist.privacy.derived import digest_of_seen, spent_of
from dpdist.privacy.keys import Secret
from dpdist.privacy.protection import Protection

_NOTHING = Loss()
_COLUMNS = tuple(column.name for column in db.entries.columns)
_BEFORE = {"reserved": (None, "aborted"), "drawing": ("reserved",), "committed": ("drawing",), "aborted": ("reserved",)}


class Replay:
    """What the rows taken so far amount to.

    Args:
        head: a digest that must turn up.
        root: recognises a head from before the ledger was brought to version 4.
    """

    def __init__(self, connection: Connection, head: str | None, root: Secret | None) -> None:
        migrated = sa.select(db.entries.c.sequence).where(db.entries.c.event == "migrated").limit(1)
        self.old_until: int = connection.execute(migrated).scalar() or 0
        self.sought, self.root = head, root
        self.rows, self.last = 0, ""
        self.states: dict[str, dict[str, Any]] = {}
        self.caps: dict[str, tuple[Cap, Protection | None]] = {}
        self.cap_rows: dict[str, int] = {}
        self.spent: dict[tuple[str, str], Loss] = {}
        self.counts: dict[tuple[str, str], int] = {}
        self.rules: dict[tuple[str, str], Rule] = {}
        self.parts: dict[tuple[str, str], list[tuple[str, str, Part]]] = {}
        self.paid: dict[tuple[str, str], Counter[str]] = {}
        self.streamed: dict[tuple[str, str], Loss] = {}
        self.approvers: dict[str, Approvers] = {}
        self.approved: dict[tuple[str, str, str], set[str]] = {}

    def take(self, row: Any) -> None:
        """The next row. Raises: LedgerError when it does not continue the chain or breaks a rule."""
        if (
            row.sequence != self.rows + 1
            or row.previous != self.last
            or row.digest != db.row_digest(dict(zip(_COLUMNS, row, strict=True)))
        ):
            raise LedgerError(f"ledger row {row.sequence} does not continue the chain: rows were altered; restore a backup")
        self.rows, self.last = row.sequence, row.digest
        if row.digest == self.sought:
            self.sought = None
        try:
            allowed = self._allowed(row, json.loads(row.facts))
        except (KeyError, TypeError, ValueError, InvalidInput):
            allowed = False
        if not allowed:
            raise LedgerError(
                f"ledger row {row.sequence}: {row.event!r} of {row.release!r} breaks the ledger's rules; it was not written by "
                "dpdist: restore a backup"
            )

    def audit(self, connection: Connection) -> Audit:
        """What was found, after the last row. Raises: LedgerError when another table says something else than the rows."""
        if self.sought is not None:
            raise LedgerError(
                f"no ledger row has the digest {self.sought}: rows were removed or replaced; restore a backup. (A head that was noted "
                "before the ledger was brought to version 4 is recognised with the root key only)"
            )
        salts = {row.release: bytes(row.salt) for row in connection.execute(sa.select(db.salts))}
        kept = set(salts)
        running = {release for release, known in self.states.items() if known["state"] in ("reserved", "drawing")}
        if kept != running:
            wrong = sorted(kept ^ running)[0]
            raise LedgerError(
                f"release {wrong!r}: its salt must be there exactly while it is reserved or drawing; the ledger was altered: "
                "restore a backup"
            )
        for release, salt in salts.items():
            noted = json.loads(self.states[release]["facts"]).get("salt")
            if noted not in (None, db.salt_digest(salt)):  # rows of older versions do not say
                raise LedgerError(
                    f"release {release!r}: its salt was altered, so its noise cannot be drawn; restore a backup"
                )
        self._same_releases(connection)
        self._same_accounts(connection)
        self._same_records(connection)
        return Audit(self.rows, self.last, len(self.states), len(running))

    def _allowed(self, row: Any, facts: dict[str, Any]) -> bool:
        if row.event == "declared":
            return self._declares(row, facts)
        if row.event == "capped":
            return self._caps(row, facts)
        if row.event == "approvers":
            return self._names_approvers(row, facts)
        if row.event == "approved":
            return self._approves(row, facts)
        if row.event == "migrated":
            if self.root is not None and self.sought is not None:
                noted = keys.commitment(self.root, "migrated head", self.sought)
                self.sought = None if noted == facts["old_head"] else self.sought
            return bool(row.sequence == self.old_until)
        return self._moves(row, facts)

    def _declares(self, row: Any, facts: dict[str, Any]) -> bool:
        protection = protection_of(facts.get("protection"))
        if row.dataset in self.caps or (protection is None) != (row.sequence < self.old_until):
            return False
        cap = cap_of(facts["cap"])
        self.caps[row.dataset], self.cap_rows[row.dataset] = (cap, protection), 1
        return cap.limits_hold()

    def _caps(self, row: Any, facts: dict[str, Any]) -> bool:
        cap, protection = cap_of(facts["cap"]), protection_of(facts["protection"])
        known = self.caps.get(row.dataset)
        if (
            known is None
            or not cap.limits_hold()
            or cap.per != known[0].per
            or (known[1] is not None and protection != known[1])
        ):
            return False
        if not facts["why"] or not facts["who"]:
            return False
        self.caps[row.dataset] = cap, protection
        self.cap_rows[row.dataset] += 1
        return True

    def _names_approvers(self, row: Any, facts: dict[str, Any]) -> bool:
        self.approvers[row.dataset] = Approvers.of(facts)
        return (
            row.dataset in self.caps and row.release == f"approvers of {row.dataset}" and bool(facts["why"] and facts["who"])
        )

    def _approves(self, row: Any, facts: dict[str, Any]) -> bool:
        """Whether an approver signed. The signature is checked, whoever wrote the row."""
        approvers = self.approvers.get(row.dataset)
        self.approved.setdefault((row.dataset, row.release, facts["spec"]), set()).add(facts["key"])
        return approvers is not None and facts["key"] in approvers.keys and is_signed(facts, row.dataset, row.release)

    def _is_approved(self, row: Any, facts: dict[str, Any]) -> bool:
        """Whether a charge has the approvals that its data set asked for then."""
        approvers = self.approvers.get(row.dataset)
        if approvers is None or not approvers.needed:
            return True
        signed = self.approved.get((row.dataset, row.release, facts["asked"]), set())
        return approvers.count(signed) >= approvers.needed

    def _moves(self, row: Any, facts: dict[str, Any]) -> bool:
        """Whether the event may follow the release's last one, within its cap; and what it changes."""
        known = self.states.get(row.release)
        if row.event not in _BEFORE or (None if known is None else known["state"]) not in _BEFORE[row.event]:
            return False
        if row.event == "reserved":
            return self._charges(row, facts, 1 if known is None else known["attempt"] + 1)
        assert known is not None
        if (row.attempt, row.dataset) != (known["attempt"], known["dataset"]):
            return False
        known["state"] = row.event
        known["measurement_digest"] = facts.get("measurement_digest")
        if row.event == "aborted":
            self.spent[known["account"]] -= known["loss"]
            self.counts[known["account"]] -= 1
            known["seen"] = None
            if known["stream"] is not None:
                self.parts[row.dataset, known["stream"]].pop()  # only the last part can be reserved
                self.paid[row.dataset, known["stream"]][known["period"]] -= 1
                self.streamed[row.dataset, known["stream"]] -= known["loss"]
        return True

    def _charges(self, row: Any, facts: dict[str, Any], attempt: int) -> bool:
        if row.dataset not in self.caps or row.attempt != attempt or not self._is_approved(row, facts):
            return False
        account, loss = (row.dataset, facts["period"]), loss_of(facts["loss"])
        cap, protection = self.caps[row.dataset]
        part = Part(**facts["part"]) if "part" in facts else None
        self.states[row.release] = {
            "state": "reserved",
            "dataset": row.dataset,
            "period": facts["period"],
            "attempt": row.attempt,
            "sequence": row.sequence,
            "binding": row.digest,
            "facts": row.facts,
            "stream": None if part is None else part.stream,
            "measurement_digest": None,
            "account": account,
            "loss": loss,
            "seen": (facts.get("records") or {}).get("digest"),
        }
        paid = False if part is None else self._continues(row, facts["period"], part)
        if paid is None or (loss == _NOTHING) != paid:
            return False
        old = row.sequence < self.old_until
        before = None if part is None or part.extends is None else self.streamed[row.dataset, part.stream]
        if not old and not paid and not self._converted(facts, loss, protection, before):
            return False
        if part is not None:
            self.streamed[row.dataset, part.stream] = self.streamed.get((row.dataset, part.stream), _NOTHING) + loss
        self.spent[account] = self.spent.get(account, _NOTHING) + loss
        self.counts[account] = self.counts.get(account, 0) + 1
        if account not in self.rules:
            self.rules[account] = cap.rule_for(loss)
        if old and cap.rule_for(self.spent[account]) == "zcdp":
            self.rules[account] = "zcdp"
        if loss == _NOTHING:
            return True
        if old:
            return cap.allowed_before_schema_4(self.spent[account])
        return cap.allowed(self.spent[account], self.rules[account])

    @staticmethod
    def _converted(facts: dict[str, Any], loss: Loss, protection: Protection | None, before: Loss | None) -> bool:
        """Whether a charge is what its release reveals of the change that the cap protects, beyond what was paid for its stream before."""
        own = facts["protection"]
        if own is None or protection is None:
            return False
        steps = _steps(json.dumps(own, sort_keys=True), protection, protection.type)
        if steps is None:
            return False
        whole = loss_of(facts["own"]).for_group(steps)
        return loss == (whole if before is None else price_of_extension(whole, before))

    def _continues(self, row: Any, period: str, part: Part) -> bool | None:
        """Whether a part of a stream is paid already; None when it does not go on where the stream ended."""
        stream = self.parts.setdefault((row.dataset, part.stream), [])
        paid = self.paid.setdefault((row.dataset, part.stream), Counter())
        whole, stop = True, 0
        if stream:  # the last part stands for all: each one followed a committed part of the same digest
            release, _, last = stream[-1]
            whole = self.states[release]["state"] == "committed" and (part.extends or part.digest) == last.digest
            stop = last.stop
        if part.extends is not None:
            whole = whole and bool(stream) and period == "total" and part.extends != part.digest
        stream.append((row.release, period, part))
        paid[period] += 1
        if not whole or not part.start == stop < part.stop:
            return None
        return paid[period] > 1 and part.extends is None

    def _same_releases(self, connection: Connection) -> None:
        compared = ("dataset", "period", "attempt", "state", "sequence", "binding", "facts", "measurement_digest", "stream")
        found = {row.release: row for row in connection.execute(sa.select(db.releases))}
        for release in found.keys() | self.states.keys():
            row, known = found.get(release), self.states.get(release)
            if row is None or known is None or any(getattr(row, name) != known[name] for name in compared):
                raise _differs("dpdist_releases", f"release {release!r}")

    def _same_accounts(self, connection: Connection) -> None:
        found = {(row.dataset, row.period): row for row in connection.execute(sa.select(db.accounts))}
        for account in found.keys() | self.spent.keys():
            row = found.get(account)
            if row is None or (spent_of(row), row.releases, row.rule) != (
                None if account not in self.spent else replace(self.spent[account], failure=Fraction(0)),
                self.counts.get(account),
                self.rules.get(account),
            ):
                raise _differs("dpdist_accounts", f"the sums of {account[0]!r}, {account[1]}")
        held = list(connection.execute(sa.select(db.caps).order_by(db.caps.c.sequence)))
        last, rows = {row.dataset: json.loads(row.facts) for row in held}, Counter(row.dataset for row in held)
        for dataset in last.keys() | self.caps.keys():
            facts = last.get(dataset)
            if facts is None or rows[dataset] != self.cap_rows.get(dataset):
                raise _differs("dpdist_caps", f"the cap of {dataset!r}")
            cap, protection = self.caps[dataset]
            found_cap = cap_of(facts["cap"])
            if (found_cap, found_cap.kept, protection_of(facts["protection"])) != (cap, cap.kept, protection):
                raise _differs("dpdist_caps", f"the cap of {dataset!r}")

    def _same_records(self, connection: Connection) -> None:
        seen: dict[str, list[str]] = {}
        for row in connection.execute(sa.select(db.records)):
            seen.setdefault(row.release, []).append(row.commitment)
        for release in seen.keys() | self.states.keys():
            known = self.states.get(release)
            expected = None if known is None else known["seen"]
            if (digest_of_seen(seen.get(release, ())) if expected or release in seen else None) != expected:
                raise _differs("dpdist_records", f"the records of {release!r}")


@lru_cache(maxsize=64)
def _steps(own: str, protection: Protection, of_cap: str | None) -> int | None:
    """``steps_to`` from the facts of a release's protection, as JSON: it tells 1 from true, which are equal in Python."""
    del of_cap  # protections that differ in it alone are equal, and would share an entry of the cache
    return Protection.from_facts(json.loads(own)).steps_to(protection)


def _differs(table: str, what: str) -> LedgerError:
    return LedgerError(f"{what}: table {table} does not say what the ledger's rows say; it was altered: restore a backup")

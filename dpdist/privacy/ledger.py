"""The budget ledger: what has been charged, by which release, and what is left. SQLite or PostgreSQL.

Append-only rows, chained by hashes. A release goes reserved -> drawing -> committed, or reserved -> aborted. Charging
happens in ``reserve``, before any draw; ``abort`` gives the charge back only while no draw can have begun. A crash
leaves the last state: the same release resumes with the same key, or stays charged. The per-release salt is erased when
the release commits: from then on nobody can derive its noise again. What binds rows to records are commitments, never plain
digests (docs/ledger.md).
"""

from __future__ import annotations

import json
import os
import pwd
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dpdist.errors import ApprovalsMissing, BudgetExceeded, LedgerError, ReleaseConflict
from dpdist.privacy import database as db
from dpdist.privacy import keys
from dpdist.privacy.accounting import Cap, Loss, Rule
from dpdist.privacy.approvals import Approvers, is_signed
from dpdist.privacy.charges import (
    SELECTION,
    Audit,
    Budget,
    Charge,
    Mark,
    Part,
    Receipt,
    Records,
    cap_facts,
    cap_of,
    loss_facts,
    loss_of,
    price_of_extension,
    protection_of,
)
from dpdist.privacy.derived import (
    add_to_account,
    digest_of_seen,
    failures_of,
    in_parts,
    set_cap,
    set_records,
    set_release,
    spent_of,
)
from dpdist.privacy.heads import Heads
from dpdist.privacy.keys import Secret
from dpdist.privacy.migration import migrate
from dpdist.privacy.protection import TOLD_APART, Protection
from dpdist.privacy.replay import Replay
from dpdist.process.private import private_file

__all__ = ["Audit", "Budget", "Charge", "Ledger", "Mark", "Part", "Receipt", "Records", "opened"]


_T = TypeVar("_T")


class _Rehearsed(Exception):
    """Ends a transaction that must change nothing."""


NAME_BYTES = 16
"""Of a ledger's name, which certificates tell: as many random bits say nothing of what the ledger holds."""
NEWEST_CHARGES = 1000
"""Charges that a budget's course shows at most."""


class Ledger:
    """A ledger at a SQLAlchemy URL, ``sqlite:////path`` or ``postgresql+psycopg://...``.

    Args:
        root: gives the root key, which a ledger of an older version asks for once, when it is brought to this one.
        tell: called with a line while the database is away.
        blank: bring an older ledger to this version without a root key: its finished releases forget their records.
        patience: seconds for which a database that is away is waited for; default ``OUTAGE_SECONDS`` of the database.
    """

    def __init__(
        self,
        url: str | sa.engine.URL,
        *,
        root: Callable[[], Secret] | None = None,
        tell: db.Tell | None = None,
        blank: bool = False,
        patience: float | None = None,
    ) -> None:
        try:
            parsed = sa.engine.make_url(url)
        except sa.exc.ArgumentError:
            raise LedgerError(
                "the ledger URL cannot be read; use sqlite:////path/ledger.db or postgresql+psycopg://..."
            ) from None
        if parsed.get_backend_name() not in ("sqlite", "postgresql"):
            raise LedgerError(f"the ledger runs on sqlite or postgresql, found {parsed.get_backend_name()!r}")
        if parsed.get_backend_name() == "sqlite" and parsed.database:
            Path(parsed.database).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(OSError):  # SQLite tells why it cannot be opened; it gives its journal the same mode
                private_file(Path(parsed.database))
        self._database = db.Database(parsed, tell or _on_stderr, patience)
        self._heads = Heads(self.mark, self.marks)
        migrate(self._database, root, blank=blank)

    @staticmethod
    def at(home: Path, *, tell: db.Tell | None = None, blank: bool = False, patience: float | None = None) -> Ledger:
        """The embedded ledger of a state folder, or the one named by ``DPDIST_LEDGER``, or in the file ``DPDIST_LEDGER_FILE``.

        The arguments are those of the class.
        """
        embedded = sa.engine.URL.create("sqlite", database=str(home.resolve() / "ledger.db"))
        url = os.environ.get("DPDIST_LEDGER") or _named_in_file() or embedded
        return Ledger(url, root=lambda: keys.load(home), tell=tell, blank=blank, patience=patience)

    def reserve(self, charge: Charge) -> Receipt:
        """Charge a release before anything is drawn; asking again for the same release returns the same receipt.

        Raises: BudgetExceeded; ReleaseConflict when the id is bound to another spec, histogram, data set or amount;
            LedgerError when the data set was declared with another cap, when the charge's protection does not cover the cap's, or
            when the records stand under another data set's name or in another period.
        """
        run = uuid.uuid4().hex  # says whose charge it is, should the answer get lost
        if charge.histogram is None or charge.records is None:
            raise LedgerError(
                f"release {charge.release!r} has not counted its records yet, so its charge can be checked but not made"
            )
        return self._step(lambda connection: self._reserve(connection, charge, run))

    def rehearse(self, charge: Charge) -> None:
        """Reserve and take it back in one transaction: raises what ``reserve`` would raise, and changes nothing."""

        def work(connection: Connection) -> None:
            self._reserve(connection, charge, "")
            raise _Rehearsed

        self._heads.check()
        with suppress(_Rehearsed):
            self._database.transaction(work)

    def begin_drawing(self, release: str, attempt: int, binding: str) -> Receipt:
        """Record that a draw may begin from now on: the charge can no longer be given back. Idempotent.

        A release that another process has committed meanwhile comes back as committed, without its salt.

        Args:
            attempt, binding: of the receipt that ``reserve`` gave: of a replaced attempt nothing is drawn.
        """

        def work(connection: Connection) -> Receipt:
            receipt = self._need(connection, release, attempt, binding, ("reserved", "drawing", "committed"))
            if receipt.state == "reserved":
                self._move(connection, receipt, "drawing", {})
            return self._need(connection, release, attempt, binding, ("drawing", "committed"))

        return self._step(work)

    def drawing(self, release: str, attempt: int, binding: str) -> Receipt:
        """The receipt, with its salt, of an attempt whose noise may be drawn now; changes nothing.

        Raises: LedgerError for an attempt that was given back or replaced, that has not begun to draw, or is finished.
        """
        return self._database.transaction(lambda connection: self._need(connection, release, attempt, binding, ("drawing",)))

    def commit(self, release: str, attempt: int, binding: str, measurement_digest: str) -> Receipt:
        """Record that the measurement is stored whole, and erase the salt. Idempotent for the same measurement."""

        def work(connection: Connection) -> Receipt:
            receipt = self._need(connection, release, attempt, binding, ("drawing", "committed"))
            if receipt.state == "committed":
                if receipt.measurement_digest != measurement_digest:
                    raise ReleaseConflict(release, "measurement")
                return receipt
            self._move(connection, receipt, "committed", {"measurement_digest": measurement_digest})
            return self._need(connection, release, attempt, binding, ("committed",))

        return self._step(work, erasing=True)

    def abort(self, release: str) -> Receipt:
        """Give a charge back. Possible only while no draw can have begun; afterwards the charge stays."""

        def work(connection: Connection) -> Receipt:
            receipt = self._receipt(connection, release)
            if receipt is None or receipt.state not in ("reserved", "aborted"):
                state = "unknown" if receipt is None else receipt.state
                raise LedgerError(
                    f"release {release!r} is {state}: only a reserved release, of which nothing was drawn, can be aborted"
                )
            if receipt.state == "reserved":
                row = self._move(connection, receipt, "aborted", {})
                set_records(connection, release, ())
                account = self._account(connection, receipt.dataset, receipt.period, None)
                add_to_account(connection, row, receipt.period, Loss() - receipt.loss, account.rule, -1)
            aborted = self._receipt(connection, release)
            assert aborted is not None
            return aborted

        return self._step(work, erasing=True)

    def set_cap(self, dataset: str, *, cap: Cap | None = None, protection: Protection | None = None, why: str) -> Budget:
        """Change a data set's cap, or say what the cap of an older ledger protects: an event in the chain, with who and why.

        A cap below what is spent takes nothing back: it stops new charges.

        Raises: LedgerError for a data set without a cap, another period, another protection than the one that charges were
            converted to, or when nothing would change.
        """

        run = uuid.uuid4().hex  # says whose change it is, should the answer get lost

        def work(connection: Connection) -> Budget:
            known = self._cap(connection, dataset)
            if known is None:
                raise LedgerError(
                    f"data set {dataset!r} has no cap yet: its first release declares it, with 'ledger: cap:' of its spec"
                )
            new = cap or known[0]
            for rule in ("gaussian", "zcdp"):
                new.limit_by(rule)  # refuses an (epsilon, delta) that buys nothing, which no listing could show
            if new.per != known[0].per:
                raise LedgerError(
                    f"the cap of {dataset!r} is {known[0]}: charges stand in its periods, which do not change; keep "
                    f"'per {known[0].per}', or declare another data set"
                )
            if known[1] is not None and protection not in (None, known[1]):
                raise LedgerError(
                    f"the cap of {dataset!r} protects {known[1].unit} ({known[1].sentence}), and its charges were counted so: this does "
                    "not change; declare another data set for another protection"
                )
            protects = protection or known[1]
            if (new, protects) == known and self._cap_was_set_by(connection, dataset, run):
                return self._account(connection, dataset, "total", new)  # the answer of the first try got lost
            if (new, protects) == known:
                raise LedgerError(f"the cap of {dataset!r} is already {new}: nothing was changed")
            facts: dict[str, Any] = {"cap": cap_facts(new), "why": why, "who": _who(), "run": run}
            facts["protection"] = None if protects is None else protects.facts()
            number = len(list(connection.execute(sa.select(db.caps.c.sequence).where(db.caps.c.dataset == dataset))))
            if new.selection:
                _raise_version(connection, db.SELECTIONS_VERSION)
            row = db.append(connection, "capped", dataset, f"budget of {dataset}", number + 1, facts)
            set_cap(connection, row, facts)
            return self._account(connection, dataset, "total", new)

        if not why.strip():
            raise LedgerError("a cap is a promise to the people in the data: say why it changes, with --why")
        return self._step(work)

    def declare(self, dataset: str, cap: Cap, protection: Protection) -> bool:
        """Declare a data set's cap ahead of its first release; whether that was new. Where roles are apart, its owner must.

        Raises: LedgerError when it was declared otherwise.
        """

        def work(connection: Connection) -> bool:
            known = self._cap(connection, dataset)
            if known is None:
                self._declared(connection, dataset, cap, protection)
            elif known != (cap, protection):
                said = "nothing in particular" if known[1] is None else known[1].sentence
                raise LedgerError(
                    f"data set {dataset!r} was declared with the budget {known[0]}, protecting {said}: change it with 'dpdist ledger cap "
                    f"{dataset} --why ...', or declare another data set"
                )
            return known is None

        return self._step(work)

    def set_approvers(self, dataset: str, approvers: Approvers, why: str) -> None:
        """From now on releases of a data set need approvals, or other ones, or none: an event in the chain, with who and why.

        Raises: LedgerError for a data set without a cap, or without a reason.
        """

        def work(connection: Connection) -> None:
            if self._cap(connection, dataset) is None:
                raise LedgerError(
                    f"data set {dataset!r} has no cap yet: declare it first, with 'dpdist ledger declare SPEC'"
                )
            if self._approvers(connection, dataset) == approvers:
                return  # the answer of the first try got lost, or nothing changes
            number = self._events(connection, f"approvers of {dataset}", "approvers")
            facts = {"keys": list(approvers.keys), "needed": approvers.needed, "why": why, "who": _who()}
            db.append(connection, "approvers", dataset, f"approvers of {dataset}", len(number) + 1, facts)
            _raise_version(connection, db.APPROVALS_VERSION)

        if not why.strip():
            raise LedgerError("approvals are a promise to the people in the data: say why they change, with --why")
        self._step(work)

    def approve(self, dataset: str, release: str, spec: str, *, key: str, signature: str) -> tuple[int, int]:
        """Keep an approver's signature of a spec (its digest); how many approvals it has then, and how many it needs. Idempotent.

        Raises: LedgerError for a data set that needs none, a key that is no approver's, or a wrong signature.
        """

        def work(connection: Connection) -> tuple[int, int]:
            approvers = self._approvers(connection, dataset)
            if approvers is None or not approvers.needed:
                raise LedgerError(
                    f"releases of {dataset!r} need no approval; its ledger's owner can ask for some with 'dpdist ledger approvers'"
                )
            if key not in approvers.keys:
                raise LedgerError(
                    f"the key {key} is no approver's of {dataset!r}; its owner names them: 'dpdist ledger approvers'"
                )
            facts = {"spec": spec, "key": key, "signature": signature}
            if not is_signed(facts, dataset, release):
                raise LedgerError(
                    f"the signature of {release!r} is not of the key {key}, data set, release and spec: sign it again"
                )
            known = self._events(connection, release, "approved")
            signed = _signed(known, dataset, spec)
            if key not in signed:
                db.append(connection, "approved", dataset, release, len(known) + 1, facts)
            return approvers.count((*signed, key)), approvers.needed

        return self._step(work)

    def approvers(self, dataset: str) -> Approvers | None:
        """Whose approvals a data set's releases need, None where nobody ever asked for some."""
        return self._database.transaction(lambda connection: self._approvers(connection, dataset))

    def _approvers(self, connection: Connection, dataset: str) -> Approvers | None:
        found = self._events(connection, f"approvers of {dataset}", "approvers")
        return Approvers.of(found[-1]) if found else None

    @staticmethod
    def _events(connection: Connection, release: str, event: str) -> list[dict[str, Any]]:
        """The data sets and facts of a release's events of a kind, oldest first."""
        mine = sa.and_(db.entries.c.release == release, db.entries.c.event == event)
        rows = connection.execute(sa.select(db.entries).where(mine).order_by(db.entries.c.sequence))
        return [{**json.loads(row.facts), "dataset": row.dataset} for row in rows]

    def _approved(self, connection: Connection, charge: Charge) -> bool:
        """Whether the release needs approvals, and has them. Raises: LedgerError when some are missing."""
        approvers = self._approvers(connection, charge.dataset)
        if approvers is None or not approvers.needed:
            return False
        signed = _signed(self._events(connection, charge.release, "approved"), charge.dataset, charge.asked)
        found = approvers.count(signed)
        if found < approvers.needed:
            waiting = tuple(f"{key[:8]}..." for key in approvers.keys if key not in signed)
            raise ApprovalsMissing(charge.release, approvers.needed, found, waiting)
        return True

    def grant(self, application: str, noise: str | None = None) -> None:
        """Give a database role what publishing needs, and another what noise workers need. Raises: LedgerError (``roles``)."""
        from dpdist.privacy import roles

        roles.grant(self._database, application, noise)

    def receipt(self, release: str) -> Receipt | None:
        """The receipt of a release, None if it was never charged."""
        return self._database.transaction(lambda connection: self._receipt(connection, release))

    def committed(self) -> list[str]:
        """The ids of all committed releases, in the order of their charges."""
        query = sa.select(db.releases.c.release).where(db.releases.c.state == "committed").order_by(db.releases.c.sequence)
        return self._database.transaction(lambda connection: list(connection.execute(query).scalars()))

    def stream(self, dataset: str, name: str) -> list[Receipt]:
        """The releases of a stream, first steps first; aborted ones left out."""
        return self._database.transaction(lambda connection: self._parts(connection, dataset, name))

    def budgets(self, dataset: str | None = None, *, charges: bool = False) -> list[Budget]:
        """Every data set and period with a charge or a cap, in order of first use; or those of one data set.

        Args:
            charges: whether each budget comes with its newest charges.
        """

        def work(connection: Connection) -> list[Budget]:
            out: list[Budget] = []
            known: dict[str, list[Any]] = {}
            query = sa.select(db.accounts).order_by(db.accounts.c.sequence)
            for row in connection.execute(query if dataset is None else query.where(db.accounts.c.dataset == dataset)):
                known.setdefault(row.dataset, []).append(row)
            for name, (cap, protection) in self._caps(connection, dataset).items():
                found = [_budget(connection, row, cap, protection) for row in known.get(name, ())]
                unused = Budget(
                    name, "total" if cap.per == "total" else f"no {cap.per} yet", cap, protection, "gaussian", Loss(), 0
                )
                out.extend(found or [unused])
            return [self._with_charges(connection, budget) for budget in out] if charges else out

        return self._database.transaction(work)

    def states(self) -> dict[tuple[str, str], int]:
        """How many releases of each data set are in each state."""
        columns = db.releases.c.dataset, db.releases.c.state
        query = sa.select(*columns, sa.func.count()).group_by(*columns).order_by(*columns)
        return self._database.transaction(lambda connection: {(row[0], row[1]): row[2] for row in connection.execute(query)})

    def released(self) -> dict[str, tuple[str, frozenset[str]]]:
        """Of each data set: when its cap was declared (ISO), and the budget periods in which a release of it was finished."""

        def work(connection: Connection) -> dict[str, tuple[str, frozenset[str]]]:
            first = sa.select(sa.func.min(db.caps.c.sequence)).group_by(db.caps.c.dataset)
            declared = sa.select(db.entries.c.dataset, db.entries.c.written_at).where(db.entries.c.sequence.in_(first))
            finished = sa.select(db.releases.c.dataset, db.releases.c.period).distinct()
            finished = finished.where(db.releases.c.state == "committed", ~db.releases.c.release.endswith(SELECTION))
            done: dict[str, set[str]] = {}
            for dataset, period in connection.execute(finished):
                done.setdefault(dataset, set()).add(period)
            return {
                row.dataset: (row.written_at, frozenset(done.get(row.dataset, ()))) for row in connection.execute(declared)
            }

        return self._database.transaction(work)

    def budget_after(self, release: str) -> Budget:
        """The budget that a release was charged to, as it was then, with the charges up to its own.

        Raises: LedgerError for a release that is not charged.
        """

        def work(connection: Connection) -> Budget:
            own = connection.execute(sa.select(db.releases).where(db.releases.c.release == release)).first()
            if own is None or own.state == "aborted":
                raise LedgerError(f"release {release!r} is not charged")
            known = self._cap(connection, own.dataset, before=own.sequence)
            assert known is not None
            account = self._account(connection, own.dataset, own.period, known[0])
            later = self._charged(connection, own.dataset, own.period, db.releases.c.sequence > own.sequence)
            spent = account.spent - sum((loss_of(json.loads(row.facts)["loss"]) for row in later), Loss())
            then = replace(account, spent=spent, releases=account.releases - len(later))
            return self._with_charges(connection, then, until=own.sequence)

        return self._database.transaction(work)

    def charges(self, dataset: str, period: str) -> dict[str, Loss]:
        """All that was charged to a data set in a period, in order."""
        return self._database.transaction(
            lambda connection: {
                row.release: loss_of(json.loads(row.facts)["loss"])
                for row in reversed(self._charged(connection, dataset, period, sa.true()))
            }
        )

    def entries(self, release: str | None = None) -> list[dict[str, Any]]:
        """All rows as plain values, oldest first, or those of a release. They hold commitments and amounts, no secret and no count."""

        def work(connection: Connection) -> list[dict[str, Any]]:
            query = sa.select(db.entries).order_by(db.entries.c.sequence)
            rows = connection.execute(query if release is None else query.where(db.entries.c.release == release))
            return [{**row._asdict(), "facts": json.loads(row.facts)} for row in rows]

        return self._database.transaction(work)

    def verify(self, head: str | None = None, *, root: Secret | None = None) -> Audit:
        """Replay the whole ledger: its hash chain, the order of every release's events, every cap, running sums and erased salts.

        Args:
            head: digest of a row noted earlier, somewhere else: proves that no row up to it was removed or replaced. The
                chain alone cannot show that its newest rows are missing.
            root: recognises a head that was noted before the ledger was brought to version 4.
        Raises: LedgerError naming the first row that was altered, removed, inserted or not allowed.
        """

        def work(connection: Connection) -> Audit:
            replay = Replay(connection, head, root)
            for row in connection.execute(sa.select(db.entries).order_by(db.entries.c.sequence)):
                replay.take(row)
            return replay.audit(connection)

        return self._database.transaction(work)

    def mark(self) -> Mark:
        """Which ledger this is and how far it has come, to be kept elsewhere."""

        def work(connection: Connection) -> Mark:
            last = db.newest(connection)
            return Mark() if last is None else Mark(self._digest_of(connection, 1) or "", last.sequence, last.digest)

        return self._database.transaction(work)

    def marks(self, start: int) -> list[Mark]:
        """What ``mark`` was after each row from a number on; after row 0 the ledger was empty."""

        def work(connection: Connection) -> list[Mark]:
            first = self._digest_of(connection, 1) or ""
            query = sa.select(db.entries.c.sequence, db.entries.c.digest).where(db.entries.c.sequence >= start)
            rows = connection.execute(query.order_by(db.entries.c.sequence))
            return [*([] if start else [Mark()]), *(Mark(first, row.sequence, row.digest) for row in rows)]

        return self._database.transaction(work)

    def name(self) -> str | None:
        """What its first row calls this ledger, at random: all copies of it have the same name, and no other ledger has."""

        def work(connection: Connection) -> str | None:
            facts = connection.execute(sa.select(db.entries.c.facts).where(db.entries.c.sequence == 1)).scalar()
            return None if facts is None else json.loads(facts).get("ledger")

        return self._database.transaction(work)

    def digest_of(self, sequence: int) -> str | None:
        """The digest of a row, None when there is no such row."""
        return self._database.transaction(lambda connection: self._digest_of(connection, sequence))

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    def _step(self, work: Callable[[Connection], _T], *, erasing: bool = False) -> _T:
        """Write rows: once those that are noted elsewhere were compared, and before anything is done that rests on the new ones."""
        self._heads.check()
        done = self._database.transaction(work)
        if erasing:
            self._forget_deleted_rows()
        self._heads.note()
        return done

    def _reserve(self, connection: Connection, charge: Charge, run: str) -> Receipt:
        period = charge.period_key
        known = self._receipt(connection, charge.release)
        if known is not None and known.state != "aborted":
            _same(known, charge)
            return replace(known, charged=self._run(connection, charge.release) == run and known.loss != Loss())
        cap, protection = self._declare(connection, charge)
        steps = charge.protection.steps_to(protection)
        if steps is None:
            raise LedgerError(_not_covered(charge, protection))
        whole = charge.loss.for_group(steps)
        loss = whole if charge.part is None else self._due(connection, charge, charge.part, whole)
        self._not_seen(connection, charge, period)
        approved = self._approved(connection, charge)
        account = self._account(connection, charge.dataset, period, cap)
        rule = self._rule(connection, charge.dataset, period) or cap.rule_for(loss)
        if loss != Loss() and not cap.allows(account.spent + loss, rule):
            if loss.failure and account.spent.failure + loss.failure > cap.selection:
                raise LedgerError(_no_delta(charge, cap, account.spent.failure))
            asked = cap.amount(loss, rule)
            raise BudgetExceeded(charge.dataset, float(asked), float(replace(account, rule=rule).left), cap.unit)
        salt = _new_salt()
        facts = {
            "period": period,
            "loss": loss_facts(loss),
            "own": loss_facts(charge.loss),
            "protection": charge.protection.facts(),
            "spec_digest": charge.spec_digest,
            "histogram_commitment": None if charge.histogram is None else charge.histogram(salt),
            "records": _records_facts(charge.records or Records("")),
            "run": run,
            "salt": db.salt_digest(salt),
            **({"shared": True} if charge.shared else {}),
            **({"asked": charge.asked} if approved else {}),
            **({} if charge.part is None else {"part": charge.part.facts()}),
        }
        if charge.protection.participations is not None or (charge.part is not None and charge.part.extends is not None):
            _raise_version(connection, db.STREAMS_VERSION)
        attempt = 1 if known is None else known.attempt + 1
        row = db.append(connection, "reserved", charge.dataset, charge.release, attempt, facts)
        connection.execute(db.salts.insert().values(release=charge.release, salt=salt))
        set_release(connection, row, facts)
        set_records(connection, charge.release, () if charge.records is None else charge.records.seen)
        add_to_account(connection, row, period, loss, rule, 1)
        receipt = self._receipt(connection, charge.release)
        assert receipt is not None
        return replace(receipt, charged=loss != Loss())

    @staticmethod
    def _digest_of(connection: Connection, sequence: int) -> str | None:
        return connection.execute(sa.select(db.entries.c.digest).where(db.entries.c.sequence == sequence)).scalar()

    def _parts(self, connection: Connection, dataset: str, name: str) -> list[Receipt]:
        """Releases of a stream, in the order of their steps."""
        found = sa.and_(db.releases.c.dataset == dataset, db.releases.c.stream == name, db.releases.c.state != "aborted")
        receipts = [self._received(connection, row) for row in connection.execute(sa.select(db.releases).where(found))]
        return sorted(receipts, key=lambda receipt: 0 if receipt.part is None else receipt.part.start)

    def _due(self, connection: Connection, charge: Charge, part: Part, whole: Loss) -> Loss:
        """What a part of a stream is charged: the whole loss, or nothing where its budget period has paid for the stream.

        The first part after an extension of the horizon is charged what the longer stream reveals beyond what was paid.

        Raises: LedgerError unless the part goes on where the last one, committed, ended, with the same mechanism.
        """
        earlier = self._parts(connection, charge.dataset, part.stream)
        stop, digest = 0, None
        for receipt in earlier:
            assert receipt.part is not None
            if receipt.state != "committed":
                raise LedgerError(f"stream {part.stream!r}: release {receipt.release!r} is not finished; run it again first")
            stop, digest = receipt.part.stop, receipt.part.digest
        if earlier and digest != (part.extends or part.digest):
            raise LedgerError(
                f"stream {part.stream!r}: release {earlier[-1].release!r} was measured in another way; domain, filter, budget and "
                "neighbours stay the same from the first release to the last, and only the end of the domain may be extended, with "
                "'extended_from': correct the spec, or begin another stream"
            )
        if part.start != stop or part.stop <= part.start:
            raise LedgerError(
                f"stream {part.stream!r} was released up to step {stop}, the next release measures from there on; asked for were "
                f"steps {part.start} to {part.stop}"
            )
        paid = {receipt.period for receipt in earlier}
        unpaid = sorted({*charge.reaches} - paid - {charge.period_key})
        if unpaid and not charge.shared:
            raise LedgerError(
                f"stream {part.stream!r}: the release measures steps of period {unpaid[0]}, whose budget has not paid for it: release them "
                f"first, with a 'period' of {unpaid[0]}; or, if no other release counts their records, set 'ledger: shared_records: true'"
            )
        if part.extends is not None:
            due = price_of_extension(whole, sum((receipt.loss for receipt in earlier), Loss()))
            if due is None or not earlier or part.extends == part.digest or charge.cap.per != "total":
                raise LedgerError(
                    f"stream {part.stream!r} can be extended once it has begun, by more steps, and under a cap on all releases together "
                    "('per: total'); this is no such extension: correct the spec, or begin another stream"
                )
            return due
        return Loss() if charge.period_key in paid else whole

    def _not_seen(self, connection: Connection, charge: Charge, period: str) -> None:
        """A cap covers all releases of the same records: they may not stand under another name, nor in another period of its caps.

        A stream is charged in every period that it is released in, and may read its past.
        """
        if charge.shared or charge.records is None:
            return
        content = [] if charge.records.content is None else [[charge.records.content]]
        for part in (*in_parts(list(charge.records.files)), *content):
            query = sa.select(db.releases.c.release, db.releases.c.dataset, db.releases.c.period, db.records.c.commitment)
            query = query.join(db.records, db.records.c.release == db.releases.c.release)
            query = query.where(db.records.c.commitment.in_(part))
            other_period = sa.and_(db.releases.c.dataset == charge.dataset, db.releases.c.period != period)
            another = db.releases.c.dataset != charge.dataset
            query = query.where(another if charge.part is not None else sa.or_(another, other_period)).limit(1)
            other = connection.execute(query).first()
            if other is not None:
                raise LedgerError(_seen(charge, period, other))

    def _declare(self, connection: Connection, charge: Charge) -> tuple[Cap, Protection]:
        """The data set's cap, with the limits that the ledger keeps, and what it protects; its first release declares it."""
        dataset = charge.dataset
        known = self._cap(connection, dataset)
        if known is None:
            self._declared(connection, dataset, charge.cap, charge.protection)
            return charge.cap.with_limits(), charge.protection
        cap, protection = known
        if cap != charge.cap:
            raise LedgerError(
                f"data set {dataset!r} was declared with the budget {cap}, the spec says {charge.cap}; a cap is a promise to the people in "
                f"the data and does not change with a spec: correct the spec, or say why with 'dpdist ledger cap {dataset} --why ...'"
            )
        if protection is None:
            person = "" if charge.protection.person is None else f" --person {charge.protection.person}"
            raise LedgerError(
                f"the cap of {dataset!r} was declared by an older version, which did not write down what it protects, and charges of "
                f"different kinds may not be added up: if all its releases were like this one, run 'dpdist ledger cap {dataset} "
                f"--neighbours {charge.protection.neighbours} --most-records {charge.protection.most_records}{person} --why ...'"
            )
        return cap, protection

    @staticmethod
    def _declared(connection: Connection, dataset: str, cap: Cap, protection: Protection) -> None:
        if cap.selection:
            _raise_version(connection, db.SELECTIONS_VERSION)
        if protection.participations is not None:
            _raise_version(connection, db.STREAMS_VERSION)
        facts: dict[str, Any] = {"cap": cap_facts(cap), "protection": protection.facts()}
        if db.newest(connection) is None:
            facts["ledger"] = _new_salt()[:NAME_BYTES].hex()
        row = db.append(connection, "declared", dataset, f"budget of {dataset}", 1, facts)
        set_cap(connection, row, facts)

    def _cap(
        self, connection: Connection, dataset: str, *, before: int | None = None
    ) -> tuple[Cap, Protection | None] | None:
        """A data set's cap and what it protects, now or before a row."""
        query = sa.select(db.caps.c.facts).where(db.caps.c.dataset == dataset)
        query = query if before is None else query.where(db.caps.c.sequence < before)
        found = connection.execute(query.order_by(db.caps.c.sequence.desc()).limit(1)).scalar()
        return None if found is None else _cap_and_protection(found)

    @staticmethod
    def _cap_was_set_by(connection: Connection, dataset: str, run: str) -> bool:
        """Whether the newest change of a data set's cap is this run's."""
        mine = sa.and_(db.entries.c.dataset == dataset, db.entries.c.event == "capped")
        query = sa.select(db.entries.c.facts).where(mine).order_by(db.entries.c.sequence.desc()).limit(1)
        facts = connection.execute(query).scalar()
        return facts is not None and json.loads(facts).get("run") == run

    def _caps(self, connection: Connection, dataset: str | None) -> dict[str, tuple[Cap, Protection | None]]:
        """Every data set's cap, in the order they were declared."""
        query = sa.select(db.caps).order_by(db.caps.c.sequence)
        rows = connection.execute(query if dataset is None else query.where(db.caps.c.dataset == dataset))
        return {row.dataset: _cap_and_protection(row.facts) for row in rows}

    def _account(self, connection: Connection, dataset: str, period: str, cap: Cap | None) -> Budget:
        known = self._cap(connection, dataset)
        assert known is not None
        wanted = sa.and_(db.accounts.c.dataset == dataset, db.accounts.c.period == period)
        row = connection.execute(sa.select(db.accounts).where(wanted)).first()
        if row is None:
            return Budget(dataset, period, cap or known[0], known[1], "gaussian", Loss(), 0)
        return _budget(connection, row, cap or known[0], known[1])

    @staticmethod
    def _rule(connection: Connection, dataset: str, period: str) -> Rule | None:
        """The rule that an account's first charge chose."""
        wanted = sa.and_(db.accounts.c.dataset == dataset, db.accounts.c.period == period)
        rule: Rule | None = connection.execute(sa.select(db.accounts.c.rule).where(wanted)).scalar()
        return rule

    def _charged(self, connection: Connection, dataset: str, period: str, where: Any) -> list[Any]:
        """Releases that are charged to an account, newest first."""
        account = sa.and_(db.releases.c.dataset == dataset, db.releases.c.period == period, db.releases.c.state != "aborted")
        query = sa.select(db.releases).where(account, where).order_by(db.releases.c.sequence.desc())
        return list(connection.execute(query))

    def _with_charges(self, connection: Connection, budget: Budget, until: int | None = None) -> Budget:
        account = sa.and_(
            db.releases.c.dataset == budget.dataset,
            db.releases.c.period == budget.period,
            db.releases.c.state != "aborted",
            sa.true() if until is None else db.releases.c.sequence <= until,
        )
        query = sa.select(db.releases).where(account).order_by(db.releases.c.sequence.desc()).limit(NEWEST_CHARGES)
        newest = list(connection.execute(query))
        return replace(budget, charges={row.release: loss_of(json.loads(row.facts)["loss"]) for row in reversed(newest)})

    def _receipt(self, connection: Connection, release: str) -> Receipt | None:
        row = connection.execute(sa.select(db.releases).where(db.releases.c.release == release)).first()
        return None if row is None else self._received(connection, row)

    @staticmethod
    def _received(connection: Connection, row: Any) -> Receipt:
        facts = json.loads(row.facts)
        salt = connection.execute(sa.select(db.salts.c.salt).where(db.salts.c.release == row.release)).scalar()
        known = facts.get("records") or {}
        return Receipt(
            row.release,
            row.dataset,
            row.period,
            row.state,
            row.attempt,
            row.binding,
            loss_of(facts["loss"]),
            loss_of(facts["own"]) if "own" in facts else None,
            protection_of(facts.get("protection")),
            facts["spec_digest"],
            facts.get("histogram_commitment"),
            known.get("source"),
            known.get("content"),
            known.get("key"),
            row.measurement_digest,
            Part(**facts["part"]) if "part" in facts else None,
            None if salt is None else bytes(salt),
        )

    @staticmethod
    def _run(connection: Connection, release: str) -> str | None:
        facts = connection.execute(sa.select(db.releases.c.facts).where(db.releases.c.release == release)).scalar()
        run = None if facts is None else json.loads(facts).get("run")
        return None if run is None else str(run)

    def _need(self, connection: Connection, release: str, attempt: int, binding: str, states: tuple[str, ...]) -> Receipt:
        """The receipt of an attempt in one of some states. Raises: LedgerError, also when another attempt has replaced it."""
        receipt = self._receipt(connection, release)
        if receipt is not None and (receipt.attempt, receipt.binding) != (attempt, binding):
            raise LedgerError(
                f"release {release!r}: the charge that this run reserved (attempt {attempt}) was given back, and the id was reserved "
                f"again (attempt {receipt.attempt}): this run draws and publishes nothing; only the newer one goes on"
            )
        if receipt is None or receipt.state not in states:
            state = "not charged" if receipt is None else receipt.state
            raise LedgerError(f"release {release!r} is {state}; this step needs {' or '.join(states)}")
        return receipt

    def _move(self, connection: Connection, receipt: Receipt, event: str, facts: dict[str, Any]) -> sa.Row[Any]:
        """The next event of a release. The salt dies with its last one."""
        row = db.append(connection, event, receipt.dataset, receipt.release, receipt.attempt, facts)
        mine = db.releases.c.release == receipt.release
        connection.execute(db.releases.update().where(mine).values(state=event, **facts))
        if event in ("committed", "aborted"):
            connection.execute(db.salts.delete().where(db.salts.c.release == receipt.release))
        return row

    def _forget_deleted_rows(self) -> None:
        """PostgreSQL keeps deleted rows in its files: rewrite the small table. SQLite overwrites them at once (secure_delete)."""
        if self._database.sqlite:
            return
        try:
            self._database.alone("VACUUM FULL dpdist_salts")
        except LedgerError as error:
            raise LedgerError(
                f"the step is done, but the release's salt may remain in PostgreSQL's files: run VACUUM FULL dpdist_salts ({error})"
            ) from None


def _signed(approvals: list[dict[str, Any]], dataset: str, spec: str | None) -> list[str]:
    """The keys that approved a spec of a data set."""
    return [one["key"] for one in approvals if (one["dataset"], one["spec"]) == (dataset, spec)]


def _new_salt() -> bytes:
    """Fresh entropy from the operating system, for one release."""
    return os.urandom(db.SALT_BYTES)


def _on_stderr(line: str) -> None:
    sys.stderr.write(f"ledger: {line}\n")


def _who() -> str:
    """The account that runs this, as the system knows it: variables of the environment could say anything."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a container's user without a name
        return f"uid {os.geteuid()}"


def _records_facts(records: Records) -> dict[str, Any]:
    """What a row says of its records: those that may turn up elsewhere stand in a table of their own, under this digest."""
    return {
        "source": records.source,
        "content": records.content,
        "key": records.key,
        "files": len(records.files),
        "digest": digest_of_seen(records.seen),
    }


def _cap_and_protection(text: str) -> tuple[Cap, Protection | None]:
    facts = json.loads(text)
    return cap_of(facts["cap"]), protection_of(facts["protection"])


def _budget(connection: Connection, row: Any, cap: Cap, protection: Protection | None) -> Budget:
    spent = spent_of(row) + Loss(failure=failures_of(connection, row.dataset, row.period))
    return Budget(row.dataset, row.period, cap, protection, row.rule, spent, row.releases)


def _raise_version(connection: Connection, version: int) -> None:
    """From now on programs that do not know this version do not charge the ledger."""
    connection.execute(db.version.update().where(db.version.c.version < version).values(version=version))


OF_RECORDS = ("histogram", "set of records")
"""What a repeated release may have another one of because its records are others."""


def _same(known: Receipt, charge: Charge) -> None:
    for what, have, want in (
        ("data set", known.dataset, charge.dataset),
        ("budget period", known.period, charge.period_key),
        ("spec", known.spec_digest, charge.spec_digest),
        ("unit of protection", known.protection or charge.protection, charge.protection),
        ("budget", _amounts(known.own or known.loss), _amounts(charge.loss)),
        ("steps of its stream", known.part, charge.part),
    ):
        if what == "budget" and known.own is None and known.loss == Loss():
            continue  # an older version charged nothing to a part of a paid stream; its digest binds the noise
        if have != want:
            raise ReleaseConflict(charge.release, what)
    if charge.histogram is None or charge.records is None:
        return
    if known.salt is not None and known.histogram_commitment is not None:
        if known.histogram_commitment != charge.histogram(known.salt):
            raise ReleaseConflict(charge.release, OF_RECORDS[0])
    elif known.is_of(charge.records) is False:
        raise ReleaseConflict(charge.release, OF_RECORDS[1])


def _amounts(loss: Loss) -> tuple[Fraction, Fraction, Fraction]:
    """What tells two losses apart. Version 1 did not keep the slack."""
    return loss.rho, loss.pure, loss.failure


def _not_covered(charge: Charge, protection: Protection) -> str:
    if protection.type is not None and charge.protection.type is not None and charge.protection.differs_in_type(protection):
        return (
            f"release {charge.release!r} tells persons apart as {TOLD_APART[charge.protection.type]}, the cap of {charge.dataset!r} as "
            f"{TOLD_APART[protection.type]}: one person of the cap may be several here; set 'records.person.type: {protection.type}', or "
            "declare another data set"
        )
    return (
        f"release {charge.release!r} protects {charge.protection.unit} ({charge.protection.sentence}), the cap of {charge.dataset!r} "
        f"protects {protection.unit} ({protection.sentence}), and no number of the first changes is sure to make the second: give the "
        "release the cap's neighbours, person column and kind of records, or another data set with a cap of its own"
    )


def _no_delta(charge: Charge, cap: Cap, spent: Fraction) -> str:
    return (
        f"the selection of names for {charge.release.removesuffix(SELECTION)!r} needs a delta of {float(charge.loss.failure):g}; of the "
        f"{float(cap.selection):g} that the cap of {charge.dataset!r} sets aside for them {float(spent):g} is spent: lower "
        f"the selection's delta, or give the cap more with 'dpdist ledger cap {charge.dataset} --selection ... --why ...'"
    )


def _seen(charge: Charge, period: str, other: Any) -> str:
    assert charge.records is not None
    named = dict(zip(charge.records.files, charge.records.names, strict=False))
    if other.commitment == charge.records.content:
        what = "the same counts as this release's were measured"
    else:
        what = f"{named.get(other.commitment, 'a file of these records')} was counted"
    if other.dataset != charge.dataset:
        return (
            f"{what} by {other.release!r} of data set {other.dataset!r}: a cap covers all releases of the same records; "
            f"charge 'ledger: dataset: {other.dataset}', or, if two caps are meant, set 'ledger: shared_records: true'"
        )
    return (
        f"{what} in period {other.period} by {other.release!r}: a budget per {charge.cap.per} is for records of one "
        f"{charge.cap.per} only; give the records of {period}, or, if these are meant, set 'ledger: shared_records: true'"
    )


def _named_in_file() -> str | None:
    """The URL in ``DPDIST_LEDGER_FILE``: a file keeps its password out of the environment. Raises: LedgerError if unreadable."""
    path = os.environ.get("DPDIST_LEDGER_FILE")
    if not path:
        return None
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise LedgerError(
            f"the ledger's URL cannot be read from {path}: {error.strerror}; mount it, or unset the variable"
        ) from None


@contextmanager
def opened(home: Path, tell: db.Tell | None = None, *, patience: float | None = None) -> Iterator[Ledger]:
    """The ledger of a state folder, closed at the end; see ``Ledger.at``."""
    ledger = Ledger.at(home, tell=tell, patience=patience)
    try:
        yield ledger
    finally:
        ledger.close()

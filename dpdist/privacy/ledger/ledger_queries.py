"""What a ledger tells: receipts, budgets, rows, checkpoints. Nothing here writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dpdist.errors import LedgerError
from dpdist.privacy.accounting import Loss
from dpdist.privacy.ledger import database as db
from dpdist.privacy.ledger import index_tables
from dpdist.privacy.ledger.approvals import Approvers
from dpdist.privacy.ledger.charges import PRELIMINARIES
from dpdist.privacy.ledger.ledger_audit import verify
from dpdist.privacy.ledger.receipts import Audit, Checkpoint, DatasetBudget, Publication, Receipt
from dpdist.privacy.ledger.rules.decision import require_state
from dpdist.privacy.ledger.rules.ledger_state import UNUSED, Account, DataSet
from dpdist.privacy.ledger.serialization import loss_of, reading

_T = TypeVar("_T")
NEWEST_CHARGES = 1000
"""Charges that a budget's course shows at most."""


class LedgerReader:
    """The questions that a ledger answers."""

    def __init__(self, database: db.Database) -> None:
        self._database = database

    def _run_query(self, work: Callable[[Connection], _T]) -> _T:
        return self._database.transaction(work)

    def receipt(self, release: str) -> Receipt | None:
        """The receipt of a release, None if it was never charged."""
        return self._run_query(lambda connection: index_tables.receipt(connection, release))

    def states_of(self, releases: Sequence[str]) -> list[str]:
        """The states of those among some releases that were charged."""
        query = sa.select(db.releases.c.state).where(db.releases.c.release.in_(releases))
        return self._run_query(lambda connection: list(connection.execute(query).scalars()))

    def drawing(self, release: str, attempt: int, binding: str) -> Receipt:
        """The receipt, with its salt, of an attempt whose noise may be drawn now.

        Raises: LedgerError for an attempt that was given back or replaced, that has not begun to draw, or is finished.
        """
        return require_state(self.receipt(release), release, attempt, binding, ("drawing",))

    def committed(self) -> list[str]:
        """The ids of all committed releases, in the order of their charges."""
        query = sa.select(db.releases.c.release).where(db.releases.c.state == "committed").order_by(db.releases.c.sequence)
        return self._run_query(lambda connection: list(connection.execute(query).scalars()))

    def signers(self) -> tuple[str, ...]:
        """The public keys that have signed certificates of this ledger's releases, oldest first."""
        return self._run_query(index_tables.signers)

    def publications(self, release: str) -> tuple[Publication, ...]:
        """How a release was published, oldest first; none where it was not."""
        return self._run_query(lambda connection: index_tables.publications(connection, release))

    def published(self) -> dict[str, str]:
        """The release of every certificate that was published, by the SHA-256 of its bytes."""
        query = sa.select(db.entries.c.release, db.entries.c.facts).where(db.entries.c.event == "published")
        rows = self._run_query(lambda connection: list(connection.execute(query)))
        with reading("a row of a publication"):
            return {json.loads(row.facts)["certificate"]: row.release for row in rows}

    def stream(self, dataset: str, name: str) -> list[Receipt]:
        """The releases of a stream, first steps first; aborted ones left out."""
        return self._run_query(lambda connection: index_tables.stream_receipts(connection, dataset, name))

    def first(self, dataset: str) -> Receipt | None:
        """The release that a data set's charges begin with, of those that stand; None where nothing is charged."""
        standing = sa.and_(db.releases.c.dataset == dataset, db.releases.c.state != "aborted")
        query = sa.select(db.releases.c.release).where(standing).order_by(db.releases.c.sequence).limit(1)

        def work(connection: Connection) -> Receipt | None:
            name = connection.execute(query).scalar()
            return None if name is None else index_tables.receipt(connection, name)

        return self._run_query(work)

    def approvers(self, dataset: str) -> Approvers | None:
        """Whose approvals a data set's releases need, None where nobody ever asked for some."""
        declared_dataset = self._run_query(lambda connection: index_tables.dataset_of(connection, dataset))
        return declared_dataset.approvers if declared_dataset is not None and declared_dataset.named else None

    def budgets(self, dataset: str | None = None, *, charges: bool = False) -> list[DatasetBudget]:
        """Every data set and period with a charge or a cap, in order of first use; or those of one data set.

        Args:
            charges: whether each budget comes with its newest charges.
        """

        def work(connection: Connection) -> list[DatasetBudget]:
            caps, accounts = sa.select(db.caps), sa.select(db.accounts)
            if dataset is not None:
                caps, accounts = caps.where(db.caps.c.dataset == dataset), accounts.where(db.accounts.c.dataset == dataset)
            accounts_by_dataset: dict[str, list[tuple[str, Account]]] = {}
            for row in connection.execute(accounts.order_by(db.accounts.c.sequence)):
                accounts_by_dataset.setdefault(row.dataset, []).append((row.period, index_tables.account_in(row)))
            declared = {
                row.dataset: index_tables.declared_by(row.dataset, row.facts)
                for row in connection.execute(caps.order_by(db.caps.c.sequence))
            }
            dataset_budgets = []
            for name, declared_dataset in declared.items():
                unused = "total" if declared_dataset.cap.per == "total" else f"no {declared_dataset.cap.per} yet"
                dataset_budgets += [
                    _budget(name, period, declared_dataset, sums)
                    for period, sums in accounts_by_dataset.get(name, [(unused, UNUSED)])
                ]
            return [_with_charges(connection, budget) for budget in dataset_budgets] if charges else dataset_budgets

        return self._run_query(work)

    def budget_after(self, release: str) -> DatasetBudget:
        """The budget that a release was charged to, as it was then, with the charges up to its own.

        Raises: LedgerError for a release that is not charged.
        """

        def work(connection: Connection) -> DatasetBudget:
            receipt = index_tables.receipt(connection, release)
            if receipt is None or receipt.state == "aborted":
                raise LedgerError(f"release {release!r} is not charged")
            then = sa.and_(db.caps.c.dataset == receipt.dataset, db.caps.c.sequence < receipt.sequence)
            cap = sa.select(db.caps.c.facts).where(then).order_by(db.caps.c.sequence.desc()).limit(1)
            declared_dataset = index_tables.declared_by(receipt.dataset, connection.execute(cap).scalar() or "")
            account = index_tables.account_of(connection, receipt.dataset, receipt.period)
            later_charges = _charges_of(
                connection, receipt.dataset, receipt.period, db.releases.c.sequence > receipt.sequence
            )
            spent = account.spent - sum(later_charges.values(), Loss())
            sums = account._replace(spent=spent, releases=account.releases - len(later_charges))
            return _with_charges(
                connection, _budget(receipt.dataset, receipt.period, declared_dataset, sums), until=receipt.sequence
            )

        return self._run_query(work)

    def charges(self, dataset: str, period: str) -> dict[str, Loss]:
        """All that was charged to a data set in a period, in order."""
        return self._run_query(lambda connection: _charges_of(connection, dataset, period, sa.true()))

    def states(self) -> dict[tuple[str, str], int]:
        """How many releases of each data set are in each state."""
        columns = db.releases.c.dataset, db.releases.c.state
        query = sa.select(*columns, sa.func.count()).group_by(*columns).order_by(*columns)
        return self._run_query(lambda connection: {(row[0], row[1]): row[2] for row in connection.execute(query)})

    def released(self) -> dict[str, tuple[str, frozenset[str]]]:
        """Of each data set: when its cap was declared (ISO), and the budget periods in which a release of it was finished."""

        def work(connection: Connection) -> dict[str, tuple[str, frozenset[str]]]:
            first_caps = sa.select(sa.func.min(db.caps.c.sequence)).group_by(db.caps.c.dataset)
            declared = sa.select(db.entries.c.dataset, db.entries.c.written_at).where(db.entries.c.sequence.in_(first_caps))
            finished = sa.select(db.releases.c.dataset, db.releases.c.period).distinct()
            main_releases = (~db.releases.c.release.endswith(suffix) for suffix in PRELIMINARIES)
            finished = finished.where(db.releases.c.state == "committed", *main_releases)
            finished_periods: dict[str, set[str]] = {}
            for dataset, period in connection.execute(finished):
                finished_periods.setdefault(dataset, set()).add(period)
            return {
                row.dataset: (row.written_at, frozenset(finished_periods.get(row.dataset, ())))
                for row in connection.execute(declared)
            }

        return self._run_query(work)

    def entries(self, release: str | None = None) -> list[dict[str, Any]]:
        """All rows as plain values, oldest first, or those of a release. They hold commitments and amounts, no secret and no count."""

        def work(connection: Connection) -> list[dict[str, Any]]:
            query = sa.select(db.entries).order_by(db.entries.c.sequence)
            rows = connection.execute(query if release is None else query.where(db.entries.c.release == release))
            return [{**row._asdict(), "facts": _facts_in(row)} for row in rows]

        return self._run_query(work)

    def verify(self, head: str | None = None) -> Audit:
        """Replay the whole ledger: its hash chain, every rule at every row, running sums and erased salts.

        Args:
            head: digest of a row noted earlier, somewhere else: proves that no row up to it was removed or replaced. The
                chain alone cannot show that its newest rows are missing.
        Raises: LedgerError naming the first row that was altered, removed, inserted or not allowed.
        """
        return self._run_query(lambda connection: verify(connection, head))

    def checkpoint(self) -> Checkpoint:
        """Which ledger this is and how far it has come, to be kept elsewhere."""

        def work(connection: Connection) -> Checkpoint:
            newest_row = db.newest(connection)
            return (
                Checkpoint()
                if newest_row is None
                else Checkpoint(_digest(connection, 1) or "", newest_row.sequence, newest_row.digest)
            )

        return self._run_query(work)

    def checkpoints(self, start: int) -> list[Checkpoint]:
        """What ``checkpoint`` was after each row from a number on; after row 0 the ledger was empty."""

        def work(connection: Connection) -> list[Checkpoint]:
            first_digest = _digest(connection, 1) or ""
            query = sa.select(db.entries.c.sequence, db.entries.c.digest).where(db.entries.c.sequence >= start)
            rows = connection.execute(query.order_by(db.entries.c.sequence))
            return [
                *([] if start else [Checkpoint()]),
                *(Checkpoint(first_digest, row.sequence, row.digest) for row in rows),
            ]

        return self._run_query(work)

    def name(self) -> str | None:
        """What its first row calls this ledger, at random: all copies of it have the same name, and no other ledger has."""

        def work(connection: Connection) -> str | None:
            first_row = connection.execute(sa.select(db.entries).where(db.entries.c.sequence == 1)).first()
            return None if first_row is None else _facts_in(first_row).get("ledger")

        return self._run_query(work)

    def digest_of(self, sequence: int) -> str | None:
        """The digest of a row, None when there is no such row."""
        return self._run_query(lambda connection: _digest(connection, sequence))


def _digest(connection: Connection, sequence: int) -> str | None:
    return connection.execute(sa.select(db.entries.c.digest).where(db.entries.c.sequence == sequence)).scalar()


def _budget(dataset: str, period: str, declared_dataset: DataSet, account: Account) -> DatasetBudget:
    rule = account.rule or "exact"
    return DatasetBudget(
        dataset, period, declared_dataset.cap, declared_dataset.protection, rule, account.spent, account.releases
    )


def _charges_of(
    connection: Connection, dataset: str, period: str, condition: Any, newest: int | None = None
) -> dict[str, Loss]:
    """Releases that are charged to an account with what they were charged, in order; or the newest of them."""
    account = sa.and_(db.releases.c.dataset == dataset, db.releases.c.period == period, db.releases.c.state != "aborted")
    query = sa.select(db.releases.c.release, db.releases.c.facts).where(account, condition)
    rows = connection.execute(query.order_by(db.releases.c.sequence.desc()).limit(newest))
    return {row.release: _charge_in(row) for row in reversed(list(rows))}


def _charge_in(row: Any) -> Loss:
    with reading(f"the row of release {row.release!r}"):
        return loss_of(json.loads(row.facts)["loss"])


def _facts_in(row: Any) -> dict[str, Any]:
    with reading(f"row {row.sequence}"):
        return dict(json.loads(row.facts))


def _with_charges(connection: Connection, budget: DatasetBudget, until: int | None = None) -> DatasetBudget:
    condition = sa.true() if until is None else db.releases.c.sequence <= until
    return replace(budget, charges=_charges_of(connection, budget.dataset, budget.period, condition, NEWEST_CHARGES))

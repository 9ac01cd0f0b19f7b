"""The budget ledger: what has been charged, by which release, and what is left. SQLite or PostgreSQL.

Append-only rows, chained by hashes. A release goes reserved -> drawing -> committed, or reserved -> aborted. Charging
happens in ``reserve``, before any draw; ``abort`` gives the charge back only while no draw can have begun. A crash
leaves the last state: the same release resumes with the same key, or stays charged. The per-release salt is erased when
the release commits: from then on nobody can derive its noise again. What binds rows to records are commitments, never plain
digests (docs/ledger.md).

What is allowed, and what follows from it, is decided in ``dpdist.privacy.ledger.rules``. Here a command's part of the state is loaded under
the database's lock, the events are written, and what they led to is kept.
"""

from __future__ import annotations

import os
import pwd
import sys
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dpdist.errors import LedgerError
from dpdist.privacy.accounting import Cap
from dpdist.privacy.ledger import database as db
from dpdist.privacy.ledger import index_tables
from dpdist.privacy.ledger.approvals import Approvers
from dpdist.privacy.ledger.charges import Charge, Counted, CountedRecords, StreamPart
from dpdist.privacy.ledger.checkpoints import Checkpoints
from dpdist.privacy.ledger.ledger_queries import LedgerReader
from dpdist.privacy.ledger.receipts import Audit, Checkpoint, DatasetBudget, Publication, Receipt
from dpdist.privacy.ledger.rules import apply, decide, ledger_commands
from dpdist.privacy.ledger.rules.ledger_state import State
from dpdist.privacy.privacy_unit import Protection
from dpdist.process.durable_files import private_file

__all__ = [
    "Audit",
    "Charge",
    "Checkpoint",
    "Counted",
    "CountedRecords",
    "DatasetBudget",
    "Ledger",
    "Publication",
    "Receipt",
    "StreamPart",
    "open_ledger",
]

_T = TypeVar("_T")


class _Rehearsed(Exception):
    """Ends a transaction that must change nothing."""


NAME_BYTES = 16
"""Of a ledger's name, which certificates tell: as many random bits say nothing of what the ledger holds."""


class Ledger(LedgerReader):
    """A ledger at a SQLAlchemy URL, ``sqlite:////path`` or ``postgresql+psycopg://...``; a context that closes it at its end.

    One ledger serves a whole command: between two steps it holds no lock, and with SQLite no connection.

    Args:
        tell: called with a line while the database is away.
        patience: seconds for which a database that is away is waited for; default ``OUTAGE_SECONDS`` of the database.
    Raises: LedgerError for a database that cannot be used, or a ledger of another format.
    """

    def __init__(
        self, url: str | sa.engine.URL, *, tell: db.ReportOutage | None = None, patience: float | None = None
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
        super().__init__(db.Database(parsed, tell or _on_stderr, patience))
        self._checkpoints = Checkpoints(self.checkpoint, self.checkpoints)
        self._database.prepare()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    def reserve(self, charge: Charge) -> Receipt:
        """Charge a release before anything is drawn; asking again for the same release returns the same receipt.

        Raises: BudgetExceeded; ReleaseConflict when the id is bound to another spec, histogram, data set or amount;
            LedgerError when the data set was declared with another cap, when the charge's protection does not cover the cap's, or
            when the records stand under another data set's name or in another period.
        """
        run = uuid.uuid4().hex  # says whose charge it is, should the answer get lost
        if charge.counted is None:
            raise LedgerError(
                f"release {charge.release!r} has not counted its records yet, so its charge can be checked but not made"
            )
        receipt = self._step(lambda connection: _charge_release(connection, charge, run))
        return replace(receipt, charged=receipt.run == run and not receipt.loss.nothing)

    def rehearse(self, charge: Charge) -> None:
        """Reserve and take it back in one transaction: raises what ``reserve`` would raise, and changes nothing."""

        def work(connection: Connection) -> None:
            _charge_release(connection, charge, "")
            raise _Rehearsed

        self._checkpoints.check()
        with suppress(_Rehearsed):
            self._database.transaction(work)

    def begin_drawing(self, release: str, attempt: int, binding: str) -> Receipt:
        """Record that a draw may begin from now on: the charge can no longer be given back. Idempotent.

        A release that another process has committed meanwhile comes back as committed, without its salt.

        Args:
            attempt, binding: of the receipt that ``reserve`` gave: of a replaced attempt nothing is drawn.
        """
        return self._move_release(ledger_commands.BeginDrawing(release, attempt, binding))

    def commit(self, release: str, attempt: int, binding: str, measurement_digest: str) -> Receipt:
        """Record that the measurement is stored whole, and erase the salt. Idempotent for the same measurement."""
        return self._move_release(ledger_commands.Commit(release, attempt, binding, measurement_digest), erasing=True)

    def abort(self, release: str) -> Receipt:
        """Give a charge back. Possible only while no draw can have begun; afterwards the charge stays."""
        return self._move_release(ledger_commands.Abort(release), erasing=True)

    def declare(self, dataset: str, cap: Cap, protection: Protection) -> bool:
        """Declare a data set's cap ahead of its first release; whether that was new. Where roles are apart, its owner must.

        Raises: LedgerError when it was declared otherwise.
        """
        run = uuid.uuid4().hex
        command = ledger_commands.Declare(dataset, cap.with_limits(), protection, run, _new_name())
        declared_dataset = self._step(lambda connection: _apply_command(connection, command)).dataset
        return declared_dataset is not None and declared_dataset.run == run

    def set_cap(self, dataset: str, *, cap: Cap, why: str) -> DatasetBudget:
        """Change a data set's cap: an event in the chain, with who and why.

        A cap below what is spent takes nothing back: it stops new charges.

        Raises: LedgerError for a data set without a cap, another period, or when nothing would change.
        """
        command = ledger_commands.ChangeCap(dataset, cap, why, _account_name(), uuid.uuid4().hex)
        self._step(lambda connection: _apply_command(connection, command))
        return self.budgets(dataset)[0]

    def set_approvers(self, dataset: str, approvers: Approvers, why: str) -> None:
        """From now on releases of a data set need approvals, or other ones, or none: an event in the chain, with who and why.

        Raises: LedgerError for a data set without a cap, or without a reason.
        """
        command = ledger_commands.NameApprovers(dataset, approvers, why, _account_name())
        self._step(lambda connection: _apply_command(connection, command))

    def approve(self, dataset: str, release: str, spec: str, *, key: str, signature: str) -> tuple[int, int]:
        """Keep an approver's signature of a spec (its digest). Idempotent.

        Returns: the number of approvals that the spec has then, and the number that it needs.
        Raises: LedgerError for a data set that needs none, a key that is no approver's, or a wrong signature.
        """
        command = ledger_commands.Approve(dataset, release, spec, key, signature)
        state = self._step(lambda connection: _apply_command(connection, command))
        assert state.dataset is not None
        return state.dataset.approvers.count(state.signed(dataset, spec)), state.dataset.approvers.required_count

    def publish(self, release: str, publication: Publication) -> None:
        """Record that files of a committed release are published, before anybody can see them. Idempotent.

        A key that signs for the first time is named in a row of its own before. Raises: LedgerError for a release that is not committed.
        """
        self._step(lambda connection: _apply_command(connection, ledger_commands.Publish(release, publication)))

    def grant(self, application: str, noise: str | None = None, metrics: str | None = None) -> None:
        """Give database roles what publishing, noise workers and the exporter of metrics need. Raises: LedgerError (``roles``)."""
        from dpdist.privacy.ledger import roles

        roles.grant(self._database, application, noise, metrics)

    def _move_release(
        self,
        command: ledger_commands.BeginDrawing | ledger_commands.Commit | ledger_commands.Abort,
        *,
        erasing: bool = False,
    ) -> Receipt:
        receipt = self._step(lambda connection: _apply_command(connection, command), erasing=erasing).release
        assert receipt is not None
        return receipt

    def _step(self, work: Callable[[Connection], _T], *, erasing: bool = False) -> _T:
        """Write rows: once those that are noted elsewhere were compared, and before anything is done that rests on the new ones."""
        self._checkpoints.check()
        result = self._database.transaction(work)
        if erasing:
            self._forget_deleted_rows()
        self._checkpoints.note()
        return result

    def _forget_deleted_rows(self) -> None:
        """PostgreSQL keeps deleted rows in its files: rewrite the small table. SQLite overwrites them at once (secure_delete)."""
        if self._database.sqlite:
            return
        try:
            self._database.run_statement("VACUUM FULL dpdist_salts")
        except LedgerError as error:
            raise LedgerError(
                f"the step is done, but the release's salt may remain in PostgreSQL's files: run VACUUM FULL dpdist_salts ({error})"
            ) from None


def _apply_command(connection: Connection, command: ledger_commands.Request) -> State:
    """The state after a command: its events are written, and what they led to is kept."""
    state = index_tables.load(connection, command)
    for event in decide(state, command):
        written = db.append(connection, event)
        state = apply(state, written)
        index_tables.write_state(connection, state, written)
    return state


def _charge_release(connection: Connection, charge: Charge, run: str) -> Receipt:
    """The receipt of a charge, with its salt while it runs. Without counts nothing is known of the records, and nothing kept."""
    earlier_receipt, fresh, counted = index_tables.receipt(connection, charge.release), _new_salt(), charge.counted
    salt = fresh if earlier_receipt is None or earlier_receipt.salt is None else earlier_receipt.salt
    commitment = "" if counted is None else counted.histogram(salt)
    records = (CountedRecords("") if counted is None else counted.records).facts()
    command = ledger_commands.Reserve(charge, run, _new_name(), db.salt_digest(salt), commitment, records)
    receipt = _apply_command(connection, command).release
    assert receipt is not None
    if receipt is earlier_receipt or receipt == earlier_receipt:
        return receipt
    index_tables.keep_secrets(
        connection, charge.release, fresh, () if counted is None else counted.records.guarded_commitments
    )
    return replace(receipt, salt=fresh)


def _new_salt() -> bytes:
    """Fresh entropy from the operating system, for one release."""
    return os.urandom(db.SALT_BYTES)


def _new_name() -> str:
    """A name for the ledger, should the command's row be its first."""
    return _new_salt()[:NAME_BYTES].hex()


def _on_stderr(message: str) -> None:
    sys.stderr.write(f"ledger: {message}\n")


def _account_name() -> str:
    """The account that runs this, as the system knows it: variables of the environment could say anything."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a container's user without a name
        return f"uid {os.geteuid()}"


def _url_from_file() -> str | None:
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


def open_ledger(home: Path, tell: db.ReportOutage | None = None, *, patience: float | None = None) -> Ledger:
    """The embedded ledger of a state folder, or the one named by ``DPDIST_LEDGER``, or in the file ``DPDIST_LEDGER_FILE``.

    It is a context that closes the ledger at its end. The arguments are those of the class.
    """
    embedded = sa.engine.URL.create("sqlite", database=str(home.resolve() / "ledger.db"))
    return Ledger(os.environ.get("DPDIST_LEDGER") or _url_from_file() or embedded, tell=tell, patience=patience)

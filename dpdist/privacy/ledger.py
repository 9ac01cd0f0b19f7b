"""The budget ledger: what has been charged, by which release, and what is left. SQLite or PostgreSQL.

Append-only rows, chained by hashes. A release goes reserved -> drawing -> committed, or reserved -> aborted. Charging
happens in ``reserve``, before any draw; ``abort`` gives the charge back only while no draw can have begun. A crash
leaves the last state: the same release resumes with the same key, or stays charged. The per-release salt is erased when
the release commits: from then on nobody can derive its noise again.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from dpdist.errors import BudgetExceeded, InvalidInput, LedgerError, ReleaseConflict
from dpdist.privacy.accounting import Cap, Loss

SCHEMA_VERSION = 1
SALT_BYTES = 32
RETRIES = 40

_metadata = sa.MetaData()
_version = sa.Table("dpdist_schema", _metadata, sa.Column("version", sa.Integer, nullable=False))
_entries = sa.Table(
    "dpdist_entries",
    _metadata,
    sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("event", sa.String(16), nullable=False),
    sa.Column("dataset", sa.String(200), nullable=False),
    sa.Column("release", sa.String(200), nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("facts", sa.Text, nullable=False),
    sa.Column("written_at", sa.String(40), nullable=False),
    sa.Column("previous", sa.String(64), nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.UniqueConstraint("release", "attempt", "event"),
)
_salts = sa.Table(
    "dpdist_salts",
    _metadata,
    sa.Column("release", sa.String(200), primary_key=True),
    sa.Column("salt", sa.LargeBinary(SALT_BYTES), nullable=False),
)

_T = TypeVar("_T")


@dataclass(frozen=True)
class Charge:
    """What a release asks for.

    Attributes:
        release: its id; one charge each, ever.
        period: the calendar day the release stands for (ISO date), which decides the budget period it is charged to.
        spec_digest, histogram_digest: what the noise key is bound to.
    """

    release: str
    dataset: str
    loss: Loss
    cap: Cap
    spec_digest: str
    histogram_digest: str
    period: str | None = None

    @property
    def period_key(self) -> str:
        """The budget period: 'total', a day, an ISO week or a month. It follows the release's date, not the clock."""
        if self.cap.per == "total":
            return "total"
        if self.period is None:
            raise InvalidInput(f"a budget per {self.cap.per} needs the release's date: set 'period: YYYY-MM-DD' in the spec")
        day = datetime.date.fromisoformat(self.period)
        if self.cap.per == "day":
            return day.isoformat()
        if self.cap.per == "week":
            year, week, _ = day.isocalendar()
            return f"{year}-W{week:02d}"
        return f"{day.year}-{day.month:02d}"


@dataclass(frozen=True)
class Receipt:
    """Proof that a release's budget is charged. The salt is gone once the release is committed."""

    release: str
    dataset: str
    state: str
    loss: Loss
    spec_digest: str
    histogram_digest: str
    measurement_digest: str | None
    salt: bytes | None = field(repr=False, default=None)


@dataclass(frozen=True)
class Budget:
    """One data set in one period: its cap, what is charged and by how many releases."""

    dataset: str
    period: str
    cap: Cap
    spent: Loss
    releases: int

    @property
    def left(self) -> Fraction:
        """Rho that Gaussian releases may still spend (never negative)."""
        return max(Fraction(0), self.cap.as_rho - self.spent.zcdp)


class Ledger:
    """A ledger at a SQLAlchemy URL, ``sqlite:////path`` or ``postgresql+psycopg://...``."""

    def __init__(self, url: str) -> None:
        try:
            parsed = sa.engine.make_url(url)
        except sa.exc.ArgumentError:
            raise LedgerError(
                "the ledger URL cannot be read; use sqlite:////path/ledger.db or postgresql+psycopg://..."
            ) from None
        if parsed.get_backend_name() not in ("sqlite", "postgresql"):
            raise LedgerError(f"the ledger runs on sqlite or postgresql, found {parsed.get_backend_name()!r}")
        self._sqlite = parsed.get_backend_name() == "sqlite"
        if self._sqlite and parsed.database:
            Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
        self._engine = _engine(parsed, sqlite=self._sqlite)
        self._migrate()

    @staticmethod
    def at(home: Path) -> Ledger:
        """The embedded ledger of a state folder, or the one named by ``DPDIST_LEDGER``."""
        return Ledger(os.environ.get("DPDIST_LEDGER") or f"sqlite:///{home.resolve() / 'ledger.db'}")

    def reserve(self, charge: Charge) -> Receipt:
        """Charge a release before anything is drawn; asking again for the same release returns the same receipt.

        Raises: BudgetExceeded; ReleaseConflict when the id is bound to another spec, histogram, data set or amount;
            LedgerError when the data set was declared with another cap.
        """
        period = charge.period_key

        def work(connection: Connection) -> Receipt:
            known = self._receipt(connection, charge.release)
            if known is not None and known.state != "aborted":
                _same(known, charge)
                return known
            self._declare(connection, charge.dataset, charge.cap)
            spent, _ = self._spent(connection, charge.dataset, period)
            if not charge.cap.allows(spent + charge.loss):
                left = max(Fraction(0), charge.cap.as_rho - spent.zcdp)
                raise BudgetExceeded(charge.dataset, float(charge.loss.zcdp), float(left))
            attempt = self._attempts(connection, charge.release) + 1
            facts = {
                "period": period,
                "loss": _loss_facts(charge.loss),
                "spec_digest": charge.spec_digest,
                "histogram_digest": charge.histogram_digest,
            }
            self._append(connection, "reserved", charge.dataset, charge.release, attempt, facts)
            connection.execute(_salts.insert().values(release=charge.release, salt=os.urandom(SALT_BYTES)))
            receipt = self._receipt(connection, charge.release)
            assert receipt is not None
            return receipt

        return self._transaction(work)

    def begin_drawing(self, release: str) -> Receipt:
        """Record that a draw may begin from now on: the charge can no longer be given back. Idempotent.

        A release that another process has committed meanwhile comes back as committed, without its salt.
        """

        def work(connection: Connection) -> Receipt:
            receipt = self._need(connection, release, ("reserved", "drawing", "committed"))
            if receipt.state == "reserved":
                self._append(connection, "drawing", receipt.dataset, release, self._attempts(connection, release), {})
            return self._need(connection, release, ("drawing", "committed"))

        return self._transaction(work)

    def commit(self, release: str, measurement_digest: str) -> Receipt:
        """Record that the measurement is stored whole, and erase the salt. Idempotent for the same measurement."""

        def work(connection: Connection) -> Receipt:
            receipt = self._need(connection, release, ("drawing", "committed"))
            if receipt.state == "committed":
                if receipt.measurement_digest != measurement_digest:
                    raise ReleaseConflict(release, "measurement")
                return receipt
            facts = {"measurement_digest": measurement_digest}
            self._append(connection, "committed", receipt.dataset, release, self._attempts(connection, release), facts)
            connection.execute(_salts.delete().where(_salts.c.release == release))
            return self._need(connection, release, ("committed",))

        receipt = self._transaction(work)
        self._forget_deleted_rows()
        return receipt

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
                self._append(connection, "aborted", receipt.dataset, release, self._attempts(connection, release), {})
                connection.execute(_salts.delete().where(_salts.c.release == release))
            aborted = self._receipt(connection, release)
            assert aborted is not None
            return aborted

        receipt = self._transaction(work)
        self._forget_deleted_rows()
        return receipt

    def receipt(self, release: str) -> Receipt | None:
        """The receipt of a release, None if it was never charged."""
        return self._transaction(lambda connection: self._receipt(connection, release))

    def budgets(self) -> list[Budget]:
        """Every data set and period with a charge or a cap, in order of first use."""

        def work(connection: Connection) -> list[Budget]:
            out = []
            for dataset, cap in self._caps(connection).items():
                periods = dict.fromkeys(
                    facts["period"]
                    for row, facts in self._rows(connection)
                    if row.dataset == dataset and row.event == "reserved"
                )
                for period in periods or {"total" if cap.per == "total" else f"no {cap.per} yet": None}:
                    spent, releases = self._spent(connection, dataset, period)
                    out.append(Budget(dataset, period, cap, spent, releases))
            return out

        return self._transaction(work)

    def entries(self) -> list[dict[str, Any]]:
        """All rows as plain values, oldest first. They hold digests and amounts, no secret and no count."""

        def work(connection: Connection) -> list[dict[str, Any]]:
            return [{**row._asdict(), "facts": facts} for row, facts in self._rows(connection)]

        return self._transaction(work)

    def verify(self) -> int:
        """Check the hash chain from the first row to the last; returns the number of rows.

        Raises: LedgerError naming the first row that was altered, removed or inserted.
        """

        def work(connection: Connection) -> int:
            previous, count = "", 0
            for row in connection.execute(sa.select(_entries).order_by(_entries.c.sequence)):
                count += 1
                if row.sequence != count or row.previous != previous or row.digest != _digest(row._asdict()):
                    raise LedgerError(
                        f"ledger row {row.sequence} does not continue the chain: rows were altered; restore a backup"
                    )
                previous = row.digest
            return count

        return self._transaction(work)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def _declare(self, connection: Connection, dataset: str, cap: Cap) -> None:
        known = self._caps(connection).get(dataset)
        if known is None:
            facts = {"cap": _cap_facts(cap)}
            self._append(connection, "declared", dataset, f"budget of {dataset}", 1, facts)
        elif known != cap:
            raise LedgerError(
                f"data set {dataset!r} was declared with the budget {_cap_text(known)}, the spec says {_cap_text(cap)}; "
                "a cap is a promise to the people in the data and does not change: correct the spec"
            )

    def _caps(self, connection: Connection) -> dict[str, Cap]:
        return {row.dataset: _cap_of(facts["cap"]) for row, facts in self._rows(connection) if row.event == "declared"}

    def _spent(self, connection: Connection, dataset: str, period: str) -> tuple[Loss, int]:
        charged: dict[str, Loss] = {}
        for row, facts in self._rows(connection):
            if row.dataset != dataset:
                continue
            if row.event == "reserved" and facts["period"] == period:
                charged[row.release] = _loss_of(facts["loss"])
            elif row.event == "aborted":
                charged.pop(row.release, None)
        total = Loss()
        for loss in charged.values():
            total = total + loss
        return total, len(charged)

    def _attempts(self, connection: Connection, release: str) -> int:
        query = sa.select(sa.func.max(_entries.c.attempt)).where(_entries.c.release == release)
        return int(connection.execute(query).scalar() or 0)

    def _receipt(self, connection: Connection, release: str) -> Receipt | None:
        rows = [(row, facts) for row, facts in self._rows(connection, release) if row.event != "declared"]
        if not rows:
            return None
        last = rows[-1][0]
        reserved = next(facts for row, facts in reversed(rows) if row.event == "reserved")
        salt = connection.execute(sa.select(_salts.c.salt).where(_salts.c.release == release)).scalar()
        return Receipt(
            release,
            last.dataset,
            last.event,
            _loss_of(reserved["loss"]),
            reserved["spec_digest"],
            reserved["histogram_digest"],
            rows[-1][1].get("measurement_digest"),
            None if salt is None else bytes(salt),
        )

    def _need(self, connection: Connection, release: str, states: tuple[str, ...]) -> Receipt:
        receipt = self._receipt(connection, release)
        if receipt is None or receipt.state not in states:
            state = "not charged" if receipt is None else receipt.state
            raise LedgerError(f"release {release!r} is {state}; this step needs {' or '.join(states)}")
        return receipt

    def _rows(self, connection: Connection, release: str | None = None) -> Iterator[tuple[Any, dict[str, Any]]]:
        query = sa.select(_entries).order_by(_entries.c.sequence)
        if release is not None:
            query = query.where(_entries.c.release == release)
        for row in connection.execute(query).fetchall():
            yield row, json.loads(row.facts)

    def _append(
        self, connection: Connection, event: str, dataset: str, release: str, attempt: int, facts: dict[str, Any]
    ) -> None:
        last = connection.execute(sa.select(_entries).order_by(_entries.c.sequence.desc()).limit(1)).first()
        row = {
            "sequence": 1 if last is None else last.sequence + 1,
            "event": event,
            "dataset": dataset,
            "release": release,
            "attempt": attempt,
            "facts": json.dumps(facts, sort_keys=True),
            "written_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "previous": "" if last is None else last.digest,
        }
        connection.execute(_entries.insert().values(**row, digest=_digest(row)))

    def _transaction(self, work: Callable[[Connection], _T]) -> _T:
        """Run ``work`` serialisably; conflicts between processes are retried, everything else is reported."""
        for attempt in range(RETRIES):
            try:
                with self._engine.begin() as connection:
                    return work(connection)
            except (sa.exc.OperationalError, sa.exc.IntegrityError) as error:
                if attempt == RETRIES - 1 or not _is_conflict(error):
                    raise LedgerError(f"the ledger cannot be used, nothing was changed: {_reason(error)}") from None
                time.sleep(random.uniform(0.0, 0.02 * (attempt + 1)))
            except sa.exc.DatabaseError as error:
                raise LedgerError(f"the ledger cannot be used, nothing was changed: {_reason(error)}") from None
        raise AssertionError("unreachable")

    def _forget_deleted_rows(self) -> None:
        """PostgreSQL keeps deleted rows until a vacuum; SQLite overwrites them at once (secure_delete)."""
        if not self._sqlite:
            with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.execute(sa.text("VACUUM dpdist_salts"))

    def _migrate(self) -> None:
        """Create the tables, or bring an older ledger to this version; rows are never rewritten."""

        def work(connection: Connection) -> None:
            if not sa.inspect(connection).has_table(_version.name):
                _metadata.create_all(connection)
                connection.execute(_version.insert().values(version=SCHEMA_VERSION))
                return
            found = int(connection.execute(sa.select(_version.c.version)).scalar_one())
            if found > SCHEMA_VERSION:
                raise LedgerError(f"the ledger has schema {found}, this dpdist knows {SCHEMA_VERSION}: upgrade dpdist")
            for step in range(found, SCHEMA_VERSION):
                _MIGRATIONS[step](connection)
            if found < SCHEMA_VERSION:
                connection.execute(_version.update().values(version=SCHEMA_VERSION))

        self._transaction(work)


_MIGRATIONS: dict[int, Callable[[Connection], None]] = {}
"""From each older schema version to the next."""


def _engine(url: sa.engine.URL, *, sqlite: bool) -> Engine:
    if not sqlite:
        return sa.create_engine(url, isolation_level="SERIALIZABLE", pool_pre_ping=True, hide_parameters=True)
    engine = sa.create_engine(url, hide_parameters=True, poolclass=sa.pool.NullPool, connect_args={"timeout": 30})

    @sa.event.listens_for(engine, "connect")
    def configure(connection: Any, _: Any) -> None:
        connection.isolation_level = None
        for pragma in ("secure_delete=ON", "synchronous=FULL", "journal_mode=TRUNCATE"):
            connection.execute(f"PRAGMA {pragma}")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _is_conflict(error: sa.exc.DBAPIError) -> bool:
    text = str(error.orig).lower()
    code = getattr(error.orig, "sqlstate", None)
    return isinstance(error, sa.exc.IntegrityError) or "locked" in text or code in ("40001", "40P01")


def _reason(error: sa.exc.DBAPIError) -> str:
    return str(error.orig).splitlines()[0] if error.orig is not None else type(error).__name__


def _same(known: Receipt, charge: Charge) -> None:
    for what, have, want in (
        ("data set", known.dataset, charge.dataset),
        ("spec", known.spec_digest, charge.spec_digest),
        ("histogram", known.histogram_digest, charge.histogram_digest),
        ("budget", known.loss, charge.loss),
    ):
        if have != want:
            raise ReleaseConflict(charge.release, what)


def _digest(row: dict[str, Any]) -> str:
    content = {key: value for key, value in row.items() if key != "digest"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _loss_facts(loss: Loss) -> dict[str, str]:
    return {"rho": str(loss.rho), "pure": str(loss.pure), "pure_as_rho": str(loss.pure_as_rho)}


def _loss_of(facts: dict[str, str]) -> Loss:
    return Loss(Fraction(facts["rho"]), Fraction(facts["pure"]), Fraction(facts["pure_as_rho"]))


def _cap_facts(cap: Cap) -> dict[str, str]:
    amounts = {"rho": cap.rho} if cap.rho is not None else {"epsilon": cap.epsilon, "delta": cap.delta}
    return {"per": cap.per, **{key: str(value) for key, value in amounts.items()}}


def _cap_of(facts: dict[str, str]) -> Cap:
    if "rho" in facts:
        return Cap(rho=Fraction(facts["rho"]), per=facts["per"])
    return Cap(epsilon=Fraction(facts["epsilon"]), delta=Fraction(facts["delta"]), per=facts["per"])


def _cap_text(cap: Cap) -> str:
    if cap.rho is not None:
        return f"rho={float(cap.rho):g} per {cap.per}"
    return f"epsilon={float(cap.epsilon or 0):g}, delta={float(cap.delta):g} per {cap.per}"


@contextmanager
def opened(home: Path) -> Iterator[Ledger]:
    """The ledger of a state folder, closed at the end."""
    ledger = Ledger.at(home)
    try:
        yield ledger
    finally:
        ledger.close()

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
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from dpdist.errors import BudgetExceeded, InvalidInput, LedgerError, ReleaseConflict
from dpdist.privacy.accounting import Cap, Loss

SCHEMA_VERSION = 3
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
    sa.Index("dpdist_entries_dataset", "dataset", "sequence"),
)
_salts = sa.Table(
    "dpdist_salts",
    _metadata,
    sa.Column("release", sa.String(200), primary_key=True),
    sa.Column("salt", sa.LargeBinary(SALT_BYTES), nullable=False),
)

_T = TypeVar("_T")


@dataclass(frozen=True)
class Part:
    """Some steps of a stream: one mechanism over a series that grows, charged once to every budget period it reaches.

    Attributes:
        digest: SHA-256 of everything that decides what the whole stream measures and with how much noise.
        start, stop: the steps start..stop are measured now, those before were by earlier releases.
    """

    stream: str
    digest: str
    start: int
    stop: int


@dataclass(frozen=True)
class Charge:
    """What a release asks for.

    Attributes:
        release: its id; one charge each, ever.
        period: the calendar day the release stands for (ISO date), which decides the budget period it is charged to.
        spec_digest, histogram_digest: what the noise key is bound to.
        part: of a stream; ``loss`` is then that of the whole stream.
    """

    release: str
    dataset: str
    loss: Loss
    cap: Cap
    spec_digest: str
    histogram_digest: str
    period: str | None = None
    part: Part | None = None

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
    part: Part | None = None
    salt: bytes | None = field(repr=False, default=None)


@dataclass(frozen=True)
class Budget:
    """One data set in one period: its cap and what each release has charged."""

    dataset: str
    period: str
    cap: Cap
    charges: dict[str, Loss]

    @property
    def spent(self) -> Loss:
        """All charges together."""
        return sum(self.charges.values(), Loss())

    @property
    def left(self) -> Fraction:
        """What releases may still spend, in the cap's unit (never negative)."""
        return self.cap.left(self.spent)

    @property
    def course(self) -> list[tuple[str, float]]:
        """Each release with the share of the budget that was left after it, in the order they were charged."""
        spent, whole = Loss(), self.cap.left(Loss())
        out = []
        for release, loss in self.charges.items():
            spent = spent + loss
            out.append((release, float(self.cap.left(spent) / whole)))
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


class _Rehearsed(Exception):
    """Ends a transaction that must change nothing."""


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
        """The embedded ledger of a state folder, or the one named by ``DPDIST_LEDGER``, or in the file ``DPDIST_LEDGER_FILE``."""
        return Ledger(os.environ.get("DPDIST_LEDGER") or _named_in_file() or f"sqlite:///{home.resolve() / 'ledger.db'}")

    def reserve(self, charge: Charge) -> Receipt:
        """Charge a release before anything is drawn; asking again for the same release returns the same receipt.

        Raises: BudgetExceeded; ReleaseConflict when the id is bound to another spec, histogram, data set or amount;
            LedgerError when the data set was declared with another cap.
        """
        return self._transaction(lambda connection: self._reserve(connection, charge))

    def rehearse(self, charge: Charge) -> None:
        """Reserve and take it back in one transaction: raises what ``reserve`` would raise, and changes nothing."""

        def work(connection: Connection) -> None:
            self._reserve(connection, charge)
            raise _Rehearsed

        with suppress(_Rehearsed):
            self._transaction(work)

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

    def stream(self, dataset: str, name: str) -> list[Receipt]:
        """The releases of a stream, first steps first; aborted ones left out."""
        return self._transaction(lambda connection: [receipt for receipt, _ in self._parts(connection, dataset, name)])

    def budgets(self) -> list[Budget]:
        """Every data set and period with a charge or a cap, in order of first use."""

        def work(connection: Connection) -> list[Budget]:
            out: list[Budget] = []
            for dataset, cap in self._caps(connection).items():
                rows = self._rows(connection, _entries.c.dataset == dataset)
                periods = dict.fromkeys(facts["period"] for row, facts in rows if row.event == "reserved")
                if not periods:
                    periods = {"total" if cap.per == "total" else f"no {cap.per} yet": None}
                out.extend(Budget(dataset, p, cap, self._charges(connection, dataset, p)) for p in periods)
            return out

        return self._transaction(work)

    def entries(self) -> list[dict[str, Any]]:
        """All rows as plain values, oldest first. They hold digests and amounts, no secret and no count."""

        def work(connection: Connection) -> list[dict[str, Any]]:
            return [{**row._asdict(), "facts": facts} for row, facts in self._rows(connection)]

        return self._transaction(work)

    def verify(self, head: str | None = None) -> Audit:
        """Replay the whole ledger: its hash chain, the order of every release's events, every cap, and erased salts.

        Args:
            head: digest of a row noted earlier, somewhere else: proves that no row up to it was removed or replaced. The
                chain alone cannot show that its newest rows are missing.
        Raises: LedgerError naming the first row that was altered, removed, inserted or not allowed.
        """

        def work(connection: Connection) -> Audit:
            replay = _Replay()
            for row in connection.execute(sa.select(_entries).order_by(_entries.c.sequence)):
                replay.take(row)
            if head is not None and head not in replay.digests:
                raise LedgerError(f"no ledger row has the digest {head}: rows were removed or replaced; restore a backup")
            kept = set(connection.execute(sa.select(_salts.c.release)).scalars())
            running = {release for release, state in replay.states.items() if state in ("reserved", "drawing")}
            if kept != running:
                wrong = sorted(kept ^ running)[0]
                raise LedgerError(f"release {wrong!r}: its salt must be there exactly while it is reserved or drawing")
            last = next(reversed(replay.digests), "")
            return Audit(len(replay.digests), last, len(replay.states), len(running))

        return self._transaction(work)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def _reserve(self, connection: Connection, charge: Charge) -> Receipt:
        period = charge.period_key
        known = self._receipt(connection, charge.release)
        if known is not None and known.state != "aborted":
            _same(known, charge)
            return known
        self._declare(connection, charge.dataset, charge.cap)
        budget = Budget(charge.dataset, period, charge.cap, self._charges(connection, charge.dataset, period))
        loss = charge.loss if charge.part is None else self._due(connection, charge, charge.part)
        if not charge.cap.allows(budget.spent + loss):
            asked = charge.cap.amount(loss)
            raise BudgetExceeded(charge.dataset, float(asked), float(budget.left), charge.cap.unit)
        attempt = self._attempts(connection, charge.release) + 1
        facts = {
            "period": period,
            "loss": _loss_facts(loss),
            "spec_digest": charge.spec_digest,
            "histogram_digest": charge.histogram_digest,
            **({} if charge.part is None else {"part": asdict(charge.part)}),
        }
        self._append(connection, "reserved", charge.dataset, charge.release, attempt, facts)
        connection.execute(_salts.insert().values(release=charge.release, salt=_new_salt()))
        receipt = self._receipt(connection, charge.release)
        assert receipt is not None
        return receipt

    def _parts(self, connection: Connection, dataset: str, name: str) -> list[tuple[Receipt, str]]:
        """Releases of a stream with the budget period that each was charged to, in the order of their steps."""
        periods: dict[str, str] = {}
        for row, facts in self._rows(connection, _entries.c.dataset == dataset):
            if row.event == "reserved" and facts.get("part", {}).get("stream") == name:
                periods[row.release] = facts["period"]
        parts: list[tuple[int, Receipt, str]] = []
        for release, period in periods.items():
            receipt = self._receipt(connection, release)
            # an aborted id may have been used again, for something else
            if (
                receipt is not None
                and receipt.state != "aborted"
                and receipt.part is not None
                and receipt.part.stream == name
            ):
                parts.append((receipt.part.start, receipt, period))
        return [(receipt, period) for _, receipt, period in sorted(parts, key=lambda entry: entry[0])]

    def _due(self, connection: Connection, charge: Charge, part: Part) -> Loss:
        """What a part of a stream is charged: the whole loss, or nothing where its budget period has paid for the stream.

        Raises: LedgerError unless the part goes on where the last one, committed, ended, with the same mechanism.
        """
        earlier = self._parts(connection, charge.dataset, part.stream)
        stop = 0
        for receipt, _ in earlier:
            assert receipt.part is not None
            if receipt.state != "committed":
                raise LedgerError(f"stream {part.stream!r}: release {receipt.release!r} is not finished; run it again first")
            if receipt.part.digest != part.digest:
                raise LedgerError(
                    f"stream {part.stream!r}: release {receipt.release!r} was measured in another way; domain, filter, budget and "
                    "neighbours stay the same from the first release to the last: correct the spec, or begin another stream"
                )
            stop = receipt.part.stop
        if part.start != stop or part.stop <= part.start:
            raise LedgerError(
                f"stream {part.stream!r} was released up to step {stop}, the next release measures from there on; asked for were "
                f"steps {part.start} to {part.stop}"
            )
        return Loss() if charge.period_key in {period for _, period in earlier} else charge.loss

    def _declare(self, connection: Connection, dataset: str, cap: Cap) -> None:
        known = self._caps(connection).get(dataset)
        if known is None:
            facts = {"cap": _cap_facts(cap)}
            self._append(connection, "declared", dataset, f"budget of {dataset}", 1, facts)
        elif known != cap:
            raise LedgerError(
                f"data set {dataset!r} was declared with the budget {known}, the spec says {cap}; "
                "a cap is a promise to the people in the data and does not change: correct the spec"
            )

    def _caps(self, connection: Connection) -> dict[str, Cap]:
        rows = self._rows(connection, _entries.c.event == "declared")
        return {row.dataset: _cap_of(facts["cap"]) for row, facts in rows}

    def _charges(self, connection: Connection, dataset: str, period: str) -> dict[str, Loss]:
        charged: dict[str, Loss] = {}
        for row, facts in self._rows(connection, _entries.c.dataset == dataset):
            if row.event == "reserved" and facts["period"] == period:
                charged[row.release] = _loss_of(facts["loss"])
            elif row.event == "aborted":
                charged.pop(row.release, None)
        return charged

    def _attempts(self, connection: Connection, release: str) -> int:
        query = sa.select(sa.func.max(_entries.c.attempt)).where(_entries.c.release == release)
        return int(connection.execute(query).scalar() or 0)

    def _receipt(self, connection: Connection, release: str) -> Receipt | None:
        rows = list(self._rows(connection, sa.and_(_entries.c.release == release, _entries.c.event != "declared")))
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
            Part(**reserved["part"]) if "part" in reserved else None,
            None if salt is None else bytes(salt),
        )

    def _need(self, connection: Connection, release: str, states: tuple[str, ...]) -> Receipt:
        receipt = self._receipt(connection, release)
        if receipt is None or receipt.state not in states:
            state = "not charged" if receipt is None else receipt.state
            raise LedgerError(f"release {release!r} is {state}; this step needs {' or '.join(states)}")
        return receipt

    def _rows(self, connection: Connection, where: Any = None) -> Iterator[tuple[Any, dict[str, Any]]]:
        query = sa.select(_entries).order_by(_entries.c.sequence)
        for row in connection.execute(query if where is None else query.where(where)).fetchall():
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
        """Run ``work`` serialisably. Conflicts between processes and lost connections are retried: every step is idempotent."""
        lost = False
        for attempt in range(RETRIES):
            try:
                with self._engine.begin() as connection:
                    return work(connection)
            except (sa.exc.OperationalError, sa.exc.IntegrityError) as error:
                lost = lost or error.connection_invalidated
                if attempt == RETRIES - 1 or not (lost or _is_conflict(error)):
                    raise LedgerError(_told(error, lost=lost)) from None
                time.sleep(random.uniform(0.0, 0.02 * (attempt + 1)))
            except sa.exc.DatabaseError as error:
                raise LedgerError(_told(error, lost=False)) from None
        raise AssertionError("unreachable")

    def _forget_deleted_rows(self) -> None:
        """PostgreSQL keeps deleted rows in its files: rewrite the small table. SQLite overwrites them at once (secure_delete)."""
        if self._sqlite:
            return
        try:
            with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.execute(sa.text("VACUUM FULL dpdist_salts"))
        except sa.exc.OperationalError as error:
            raise LedgerError(
                f"the release is committed, but its salt may remain in PostgreSQL's files ({_reason(error)}): run "
                "VACUUM FULL dpdist_salts"
            ) from None

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


def _index_data_sets(connection: Connection) -> None:
    """Version 2 finds the rows of a data set by an index."""
    next(index for index in _entries.indexes if index.name == "dpdist_entries_dataset").create(connection)


def _know_streams(connection: Connection) -> None:
    """Version 3 has parts of streams in its rows: older programs, which would not keep them in order, must not write any more."""
    del connection


_MIGRATIONS: dict[int, Callable[[Connection], None]] = {1: _index_data_sets, 2: _know_streams}
"""From each older schema version to the next. Rows are never rewritten: the hash chain covers them."""


_BEFORE = {"reserved": (None, "aborted"), "drawing": ("reserved",), "committed": ("drawing",), "aborted": ("reserved",)}


class _Replay:
    """The ledger's rules, applied to its rows from the first to the last."""

    def __init__(self) -> None:
        self.digests: dict[str, int] = {}
        self.states: dict[str, str] = {}
        self.caps: dict[str, Cap] = {}
        self.spent: dict[tuple[str, str], Loss] = {}
        self.charged: dict[str, tuple[tuple[str, str], Loss]] = {}
        self.parts: dict[tuple[str, str], list[tuple[str, str, Part]]] = {}

    def take(self, row: Any) -> None:
        previous = next(reversed(self.digests), "")
        if row.sequence != len(self.digests) + 1 or row.previous != previous or row.digest != _digest(row._asdict()):
            raise LedgerError(f"ledger row {row.sequence} does not continue the chain: rows were altered; restore a backup")
        self.digests[row.digest] = row.sequence
        facts = json.loads(row.facts)
        allowed = row.dataset not in self.caps if row.event == "declared" else self._moves(row, facts)
        if not allowed:
            raise LedgerError(
                f"ledger row {row.sequence}: {row.event!r} of {row.release!r} breaks the ledger's rules; it was not written by "
                "dpdist: restore a backup"
            )
        if row.event == "declared":
            self.caps[row.dataset] = _cap_of(facts["cap"])

    def _moves(self, row: Any, facts: dict[str, Any]) -> bool:
        """Whether the event may follow the release's last one, within its cap; and what it changes."""
        if (
            row.event not in _BEFORE
            or self.states.get(row.release) not in _BEFORE[row.event]
            or row.dataset not in self.caps
        ):
            return False
        self.states[row.release] = row.event
        if row.event == "reserved":
            account, loss = (row.dataset, facts["period"]), _loss_of(facts["loss"])
            self.spent[account] = self.spent.get(account, Loss()) + loss
            self.charged[row.release] = (account, loss)
            paid = self._continues(row, facts["period"], Part(**facts["part"])) if "part" in facts else False
            if paid is None or (loss == Loss()) != paid:
                return False
            return self.caps[row.dataset].allows(self.spent[account])
        if row.event == "aborted":
            account, loss = self.charged.pop(row.release)
            for stream in self.parts.values():
                stream[:] = [entry for entry in stream if entry[0] != row.release]
            remaining = [other for place, other in self.charged.values() if place == account]
            self.spent[account] = sum(remaining, Loss())
        return True

    def _continues(self, row: Any, period: str, part: Part) -> bool | None:
        """Whether a part of a stream is paid already; None when it does not go on where the stream ended."""
        stream = self.parts.setdefault((row.dataset, part.stream), [])
        stop = stream[-1][2].stop if stream else 0
        whole = all(self.states[release] == "committed" and part.digest == earlier.digest for release, _, earlier in stream)
        paid = period in {charged for _, charged, _ in stream}
        stream.append((row.release, period, part))
        return paid if whole and part.start == stop < part.stop else None


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


def _new_salt() -> bytes:
    """Fresh entropy from the operating system, for one release."""
    return os.urandom(SALT_BYTES)


def _is_conflict(error: sa.exc.DBAPIError) -> bool:
    text = str(error.orig).lower()
    code = getattr(error.orig, "sqlstate", None)
    return isinstance(error, sa.exc.IntegrityError) or "locked" in text or code in ("40001", "40P01")


def _told(error: sa.exc.DBAPIError, *, lost: bool) -> str:
    if lost:
        return f"the ledger's database went away ({_reason(error)}): run again when it is back, every step is safe to repeat"
    return f"the ledger cannot be used, nothing was changed: {_reason(error)}"


def _reason(error: sa.exc.DBAPIError) -> str:
    return str(error.orig).splitlines()[0] if error.orig is not None else type(error).__name__


def _same(known: Receipt, charge: Charge) -> None:
    for what, have, want in (
        ("data set", known.dataset, charge.dataset),
        ("spec", known.spec_digest, charge.spec_digest),
        ("histogram", known.histogram_digest, charge.histogram_digest),
        ("budget", (known.loss.rho, known.loss.epsilons), (charge.loss.rho, charge.loss.epsilons)),
        ("steps of its stream", known.part, charge.part),
    ):
        if what == "budget" and known.part is not None and known.loss == Loss():
            continue  # paid by an earlier release of its stream, whose digest binds the noise
        if have != want:
            raise ReleaseConflict(charge.release, what)


def _digest(row: dict[str, Any]) -> str:
    content = {key: value for key, value in row.items() if key != "digest"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _loss_facts(loss: Loss) -> dict[str, str]:
    return {"rho": str(loss.rho), "pure": str(loss.pure), "slack": str(loss.slack)}


def _loss_of(facts: dict[str, str]) -> Loss:
    """A release's loss. Version 1 kept no slack: 1 stands for unknown and leaves only the zCDP conversion."""
    rho, pure = Fraction(facts["rho"]), Fraction(facts["pure"])
    return Loss(rho, (pure,) if pure else (), Fraction(facts.get("slack", 1 if rho else 0)))


def _cap_facts(cap: Cap) -> dict[str, str]:
    amounts = {"rho": cap.rho} if cap.rho is not None else {"epsilon": cap.epsilon, "delta": cap.delta}
    return {"per": cap.per, **{key: str(value) for key, value in amounts.items()}}


def _cap_of(facts: dict[str, str]) -> Cap:
    if "rho" in facts:
        return Cap(rho=Fraction(facts["rho"]), per=facts["per"])
    return Cap(epsilon=Fraction(facts["epsilon"]), delta=Fraction(facts["delta"]), per=facts["per"])


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
def opened(home: Path) -> Iterator[Ledger]:
    """The ledger of a state folder, closed at the end."""
    ledger = Ledger.at(home)
    try:
        yield ledger
    finally:
        ledger.close()

"""The ledger's tables and transactions, on SQLite or PostgreSQL. Rows are chained by hashes; other tables follow from them."""

from __future__ import annotations

import datetime
import hashlib
import json
import random
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from dpdist.errors import LedgerError
from dpdist.privacy.ledger.rules.ledger_state import LedgerEvent, LedgerRow
from dpdist.privacy.ledger.serialization import UNREADABLE, unreadable_error

FORMAT = 8
"""Of the ledger's tables and rows. A ledger of another format is refused, not changed."""
SALT_BYTES = 32
CREATION_LOCK = 0x64706469  # of PostgreSQL's advisory locks: any number that nobody else in the database takes
RETRIES = 40
"""Conflicts between processes that a step is tried again after."""
FORBIDDEN = "42501"
"""PostgreSQL's code for what a role may not do."""
OUTAGE_SECONDS = 120.0
"""How long a database that is away is waited for."""

SUMS = ("rho", "pure", "squares", "as_gaussian", "slack", "failure")
"""The parts of a loss, each of which adds up."""

metadata = sa.MetaData()
version = sa.Table("dpdist_schema", metadata, sa.Column("version", sa.Integer, nullable=False))
entries = sa.Table(
    "dpdist_rows",
    metadata,
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
salts = sa.Table(
    "dpdist_salts",
    metadata,
    sa.Column("release", sa.String(200), primary_key=True),
    sa.Column("salt", sa.LargeBinary(SALT_BYTES), nullable=False),
)
# The tables below say again what the rows say, so that no step reads all rows. ``verify`` compares them.
caps = sa.Table(
    "dpdist_caps",
    metadata,
    sa.Column("dataset", sa.String(200), primary_key=True),
    sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("facts", sa.Text, nullable=False),
)
accounts = sa.Table(
    "dpdist_accounts",
    metadata,
    sa.Column("dataset", sa.String(200), primary_key=True),
    sa.Column("period", sa.String(40), primary_key=True),
    sa.Column("sequence", sa.Integer, nullable=False),
    sa.Column("rule", sa.String(16), nullable=False),
    sa.Column("releases", sa.Integer, nullable=False),
    *(sa.Column(name, sa.Text, nullable=False) for name in SUMS),
    sa.Column("applied", sa.Integer, nullable=False, server_default="0"),  # the newest row that triggers have seen added
)
releases = sa.Table(
    "dpdist_releases",
    metadata,
    sa.Column("release", sa.String(200), primary_key=True),
    sa.Column("dataset", sa.String(200), nullable=False),
    sa.Column("period", sa.String(40), nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("sequence", sa.Integer, nullable=False),
    sa.Column("binding", sa.String(64), nullable=False),
    sa.Column("facts", sa.Text, nullable=False),
    sa.Column("measurement_digest", sa.String(64)),
    sa.Column("stream", sa.String(200)),
    sa.Index("dpdist_releases_account", "dataset", "period", "sequence"),
    sa.Index("dpdist_releases_stream", "dataset", "stream"),
)
records = sa.Table(
    "dpdist_records",
    metadata,
    sa.Column("release", sa.String(200), primary_key=True),
    sa.Column("commitment", sa.String(64), primary_key=True),
    sa.Index("dpdist_records_commitment", "commitment"),
)


class StoredRow(NamedTuple):
    """A row of the ledger as it is read: what its digest is of, in the order of the names, and the digest."""

    attempt: int
    dataset: str
    event: str
    facts: str
    previous: str
    release: str
    sequence: int
    written_at: str
    digest: str


_T = TypeVar("_T")
ReportOutage = Callable[[str], None]
"""Called with a line when the database is waited for."""


class Database:
    """Transactions on the ledger's database that are tried again: every step of the ledger is idempotent."""

    def __init__(self, url: sa.engine.URL, report_outage: ReportOutage, patience: float | None = None) -> None:
        self.patience = OUTAGE_SECONDS if patience is None else patience
        self.sqlite = url.get_backend_name() == "sqlite"
        engine_options = {"isolation_level": "SERIALIZABLE", "pool_pre_ping": True, "hide_parameters": True}
        self._engine = _sqlite(url) if self.sqlite else sa.create_engine(url, **engine_options)
        self._report_outage = report_outage

    def transaction(self, work: Callable[[Connection], _T]) -> _T:
        """Run ``work`` serialisably, again after a conflict, and again while the database is away."""

        def attempt() -> _T:
            with self._engine.begin() as connection:
                return work(connection)

        try:
            return self._retry(attempt)
        except UNREADABLE as error:
            raise unreadable_error("a row of the ledger") from error

    def run_statement(self, statement: str) -> None:
        """Run a statement outside of a transaction, such as VACUUM."""

        def attempt() -> None:
            with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.exec_driver_sql(statement)

        self._retry(attempt)

    def run_locked(self, work: Callable[[], _T]) -> _T:
        """work() under the ledger's one lock for changes of its tables, again after an outage; SQLite's transactions exclude each other."""
        if self.sqlite:
            return work()

        def attempt() -> _T:
            with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.execute(sa.select(sa.func.pg_advisory_lock(CREATION_LOCK)))
                try:
                    return work()
                finally:
                    with suppress(sa.exc.DBAPIError):  # a session that has ended holds no lock
                        connection.execute(sa.select(sa.func.pg_advisory_unlock(CREATION_LOCK)))

        return self._retry(attempt)

    def prepare(self) -> None:
        """Create the tables where there are none. Raises: LedgerError for a ledger of another format."""
        if not self.transaction(_is_ready):
            self.run_locked(
                lambda: self.transaction(_create)
            )  # of several programs that start together one creates, the others wait

    def close(self) -> None:
        """Close all connections; with SQLite's none is open between transactions."""
        if not self.sqlite:
            self._engine.dispose()

    def _retry(self, attempt: Callable[[], _T]) -> _T:
        conflicts, outages, since = 0, 0, 0.0
        while True:
            try:
                return attempt()
            except sa.exc.DBAPIError as error:
                if _is_conflict(error):
                    conflicts += 1
                    if conflicts >= RETRIES:
                        raise LedgerError(f"the ledger cannot be used, nothing was changed: {reason(error)}") from None
                    time.sleep(random.uniform(0.0, 0.02 * conflicts))
                elif is_unreachable(error):
                    outages += 1
                    since = since or time.monotonic()
                    if time.monotonic() - since >= self.patience:
                        raise LedgerError(
                            f"the ledger's database went away ({reason(error)}) and did not come back in {self.patience:g} s: run "
                            "again when it is back, every step is safe to repeat"
                        ) from None
                    if outages == 1:
                        self._report_outage(f"the ledger's database is away; trying again for up to {self.patience:g} s")
                    time.sleep(random.uniform(0.5, 1.0) * min(2.0, 0.05 * 2**outages))
                elif getattr(error.orig, "sqlstate", None) == FORBIDDEN:
                    raise LedgerError(
                        f"this login may not do that, nothing was changed ({reason(error)}): tables and caps are the ledger owner's; run "
                        "'dpdist ledger migrate', 'dpdist ledger declare SPEC' or 'dpdist ledger cap' with the owner's URL"
                    ) from None
                else:
                    raise LedgerError(f"the ledger cannot be used, nothing was changed: {reason(error)}") from None


def append(connection: Connection, event: LedgerEvent) -> LedgerRow:
    """Write an event as the new newest row."""
    newest_row = newest(connection)
    sequence: int = 1 if newest_row is None else newest_row.sequence + 1
    content = {
        "sequence": sequence,
        "event": event.kind,
        "dataset": event.dataset,
        "release": event.release,
        "attempt": event.attempt,
        "facts": json.dumps(event.facts, sort_keys=True),
        "written_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "previous": "" if newest_row is None else newest_row.digest,
    }
    digest = row_digest(content)
    connection.execute(entries.insert().values(**content, digest=digest))
    return LedgerRow(event, sequence, digest)


def _is_ready(connection: Connection) -> bool:
    """Whether the tables are there. Raises: LedgerError for those of another format."""
    if not sa.inspect(connection).has_table(version.name):
        return False
    stored_format = connection.execute(sa.select(version.c.version)).scalar_one()
    if stored_format > FORMAT:
        raise LedgerError(
            f"the ledger was written by a later version of dpdist (its form is {stored_format}, this version reads {FORMAT}): use that "
            "version"
        )
    if stored_format != FORMAT:
        raise LedgerError(
            f"the ledger has format {stored_format}, this version of dpdist reads format {FORMAT} only: use the version that wrote it, "
            "or name "
            "another ledger (DPDIST_LEDGER, DPDIST_HOME)"
        )
    return True


def _create(connection: Connection) -> None:
    if not _is_ready(connection):
        metadata.create_all(connection, checkfirst=False)
        connection.execute(version.insert().values(version=FORMAT))


def newest(connection: Connection) -> sa.Row[Any] | None:
    """The newest row, None in an empty ledger."""
    return connection.execute(sa.select(entries).order_by(entries.c.sequence.desc()).limit(1)).first()


def salt_digest(salt: bytes) -> str:
    """What a row says of its release's salt, by which an altered one is found: as many random bits cannot be guessed from it."""
    return hashlib.sha256(b"dpdist salt\n" + salt).hexdigest()


def row_digest(row: Mapping[str, Any]) -> str:
    """SHA-256 of a row's content, which holds the digest of the row before."""
    return digest_of([row[name] for name in _HASHED])


def digest_of(values: Iterable[object]) -> str:
    """``row_digest`` of a row's values in the order of ``StoredRow``, without the digest."""
    return hashlib.sha256((_CONTENT % tuple(map(_json, values))).encode()).hexdigest()


def _json(value: object) -> str:
    """A value as ``json.dumps`` writes it, in a quarter of the time."""
    return (
        encode_basestring_ascii(value) if isinstance(value, str) else str(value) if type(value) is int else json.dumps(value)
    )


_HASHED = tuple(sorted(column.name for column in entries.columns if column.name != "digest"))
_CONTENT = "{" + ", ".join(f'"{name}": %s' for name in _HASHED) + "}"


UNOPENED = "unable to open database file"
"""What SQLite says of a path above 512 bytes, too."""


def reason(error: sa.exc.DBAPIError) -> str:
    """The database's own words, one line."""
    words = str(error.orig).splitlines()[0] if error.orig is not None else "its driver says no more"
    return f"{words}: its path is too long, missing, or closed to this user" if words == UNOPENED else words


def is_unreachable(error: sa.exc.DBAPIError) -> bool:
    """Whether the database cannot be reached for now: it was stopped, is starting, or the connection was lost or refused."""
    state = getattr(error.orig, "sqlstate", None)
    if error.connection_invalidated or (state is not None and (state.startswith("08") or state in _AWAY_STATES)):
        return True
    text = str(error.orig).lower()
    return state is None and isinstance(error, sa.exc.OperationalError) and any(sign in text for sign in _AWAY_SIGNS)


_AWAY_STATES = ("57P01", "57P02", "57P03", "53300")
"""Shut down by an administrator, crashed, cannot connect now, too many connections."""
_AWAY_SIGNS = (
    "connection refused",
    "connection reset",
    "connection timed out",
    "connection timeout",
    "no route to host",
    "network is unreachable",
    "temporary failure in name resolution",
    "server closed the connection",
    "terminating connection",
    "the database system is",
    "too many clients",
    "remaining connection slots",
    "consuming input failed",
    "no such file or directory",  # the socket of a local server that is not there yet
)
"""Failures to connect come without a code: psycopg tells them in libpq's words only."""


@lru_cache(maxsize=16)
def _sqlite(url: sa.engine.URL) -> Engine:
    """The engine of a file, one for all ledgers on it: it holds statements that were compiled, and no connection."""
    engine = sa.create_engine(url, hide_parameters=True, poolclass=sa.pool.NullPool, connect_args={"timeout": 30})

    @sa.event.listens_for(engine, "connect")
    def configure(connection: Any, _: Any) -> None:
        connection.isolation_level = None
        for pragma in ("secure_delete=ON", "synchronous=FULL", "journal_mode=TRUNCATE"):
            connection.execute(f"PRAGMA {pragma}")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _is_conflict(error: sa.exc.DBAPIError) -> bool:
    text = str(error.orig).lower()
    code = getattr(error.orig, "sqlstate", None)
    return (
        isinstance(error, sa.exc.IntegrityError) or "locked" in text or code in ("40001", "40P01", "42P07")
    )  # 42P07: made by another process

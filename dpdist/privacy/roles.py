"""Least privilege in PostgreSQL: who may do what with the ledger's tables.

The owner of the tables makes them, and declares and changes caps. The application charges releases and reads. Noise workers
read the salts of releases in flight. Whoever exports metrics reads budgets and states. Row-level security keeps caps and history out of
the application's reach, and triggers hold its running sums to the rows that it writes.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from dpdist.errors import LedgerError
from dpdist.privacy import database as db
from dpdist.privacy import triggers

CHARGING = ("reserved", "drawing", "committed", "aborted", "approved", "signer", "published")
"""Events that the application writes (an approval carries its own signature); those that change what may be spent are the owner's."""


READ = {"noise": (db.version, db.salts, db.releases), "metrics": (db.version, db.entries, db.caps, db.accounts, db.releases)}
"""Tables that roles read who write none."""


def statements(application: str, noise: str | None = None, metrics: str | None = None) -> list[str]:
    """SQL that grants existing roles what publishing, drawing and exporting metrics need; again, it changes nothing.

    It is run by the owner of the tables, who must be a member of the application's role: the application owns the table of salts, since
    only an owner may rewrite it (VACUUM FULL), which erases them.
    """
    quote = postgresql.dialect().identifier_preparer.quote_identifier
    app = quote(application)
    tables = ", ".join(table.name for table in db.metadata.sorted_tables)
    events = ", ".join(f"'{event}'" for event in CHARGING)
    out = [
        *triggers.STATEMENTS,
        f"REVOKE ALL ON {tables} FROM PUBLIC",
        f"GRANT USAGE, CREATE ON SCHEMA public TO {app}",
        f"ALTER TABLE dpdist_salts OWNER TO {app}",
        f"REVOKE CREATE ON SCHEMA public FROM {app}",
        f"GRANT SELECT ON {tables} TO {app}",
        f"GRANT INSERT ON dpdist_rows, dpdist_accounts, dpdist_releases, dpdist_records TO {app}",
        f"GRANT UPDATE (releases, {', '.join(db.SUMS)}) ON dpdist_accounts TO {app}",
        f"GRANT UPDATE (state, measurement_digest) ON dpdist_releases TO {app}",
        f"GRANT DELETE ON dpdist_releases, dpdist_records TO {app}",
        *_policies("dpdist_rows", app, {"INSERT": f"WITH CHECK (event IN ({events}))"}),
        *_policies(
            "dpdist_releases",
            app,
            {
                "INSERT": "WITH CHECK (state = 'reserved')",
                "UPDATE": "USING (state IN ('reserved', 'drawing')) WITH CHECK (true)",
                "DELETE": "USING (state = 'aborted')",
            },
        ),
    ]
    for role, read in ((noise, READ["noise"]), (metrics, READ["metrics"])):
        if role is not None:
            out += [
                f"GRANT USAGE ON SCHEMA public TO {quote(role)}",
                f"GRANT SELECT ON {', '.join(table.name for table in read)} TO {quote(role)}",
            ]
    return out


def grant(database: db.Database, application: str, noise: str | None = None, metrics: str | None = None) -> None:
    """Run the statements in one transaction. Raises: LedgerError on SQLite, or when the login may not."""
    if database.sqlite:
        raise LedgerError(
            "an embedded ledger (SQLite) has no roles, because whoever may write its file may change everything; use PostgreSQL"
        )

    def work(connection: sa.Connection) -> None:
        for statement in statements(application, noise, metrics):
            connection.exec_driver_sql(statement)

    database.transaction(work)


def _policies(table: str, role: str, allowed: dict[str, str]) -> list[str]:
    """Every role that has a grant reads; the role writes what is allowed; the owner is not bound by policies."""
    out = [f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY"]
    for name, policy in {"SELECT": "USING (true)", **allowed}.items():
        of = "" if name == "SELECT" else f" TO {role}"
        out += [
            f"DROP POLICY IF EXISTS dpdist_{name.lower()} ON {table}",
            f"CREATE POLICY dpdist_{name.lower()} ON {table} FOR {name}{of} {policy}",
        ]
    return out

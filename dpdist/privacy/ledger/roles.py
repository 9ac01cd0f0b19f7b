"""Least privilege in PostgreSQL: who may do what with the ledger's tables.

The owner of the tables makes them, and declares and changes caps. The application charges releases and reads. Noise workers
read the salts of releases in flight. Whoever exports metrics reads budgets and states. Row-level security keeps caps and history out of
the application's reach, and triggers hold its running sums to the rows that it writes.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from dpdist.errors import LedgerError
from dpdist.privacy.ledger import database as db

STATEMENTS = (
    # whether two sums, written as 'numerator/denominator', differ by a loss times a sign
    """
CREATE OR REPLACE FUNCTION dpdist_moved(old text, new text, loss text, sign integer) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  a numeric := split_part(old, '/', 1); b numeric := coalesce(nullif(split_part(old, '/', 2), ''), '1');
  c numeric := split_part(loss, '/', 1); d numeric := coalesce(nullif(split_part(loss, '/', 2), ''), '1');
  e numeric := split_part(new, '/', 1); f numeric := coalesce(nullif(split_part(new, '/', 2), ''), '1');
BEGIN
  RETURN b > 0 AND d > 0 AND f > 0 AND c >= 0 AND e >= 0 AND (a * d + sign * c * b) * f = e * b * d;
END $$
""",
    # the square of a rational
    """
CREATE OR REPLACE FUNCTION dpdist_square(value text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE a numeric := split_part(value, '/', 1); b numeric := coalesce(nullif(split_part(value, '/', 2), ''), '1');
BEGIN
  RETURN (a * a)::text || '/' || (b * b)::text;
END $$
""",
    # rho of the Gaussian that dominates a pure epsilon, 2 Phi^-1(p)^2: Acklam's approximation of the normal quantile, to nine digits
    """
CREATE OR REPLACE FUNCTION dpdist_as_gaussian(epsilon double precision) RETURNS double precision
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE q double precision; r double precision; x double precision;
BEGIN
  IF epsilon < 3.69 THEN
    q := tanh(epsilon / 2) / 2; r := q * q;
    x := (((((-3.969683028665376e+01*r + 2.209460984245205e+02)*r - 2.759285104469687e+02)*r + 1.383577518672690e+02)*r
          - 3.066479806614716e+01)*r + 2.506628277459239e+00) * q /
         (((((-5.447609879822406e+01*r + 1.615858368580409e+02)*r - 1.556989798598866e+02)*r + 6.680131188771972e+01)*r
          - 1.328068155288572e+01)*r + 1);
  ELSE
    q := sqrt(2 * (epsilon + ln(1 + exp(-epsilon))));
    x := (((((-7.784894002430293e-03*q - 3.223964580411365e-01)*q - 2.400758277161838e+00)*q - 2.549732539343734e+00)*q
          + 4.374664141464968e+00)*q + 2.938163982698783e+00) /
         ((((7.784695709041462e-03*q + 3.224671290700398e-01)*q + 2.445134137142996e+00)*q + 3.754408661907416e+00)*q + 1);
  END IF;
  RETURN 2 * x * x;
END $$
""",
    # a rational as a floating-point number
    """
CREATE OR REPLACE FUNCTION dpdist_float(value text) RETURNS double precision
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT (split_part(value, '/', 1)::numeric / coalesce(nullif(split_part(value, '/', 2), ''), '1')::numeric)::double precision
$$
""",
    """
CREATE OR REPLACE FUNCTION dpdist_follow_rows() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
  row dpdist_rows; facts jsonb; sign integer := 1; expected double precision; moved double precision;
BEGIN
  SELECT * INTO row FROM dpdist_rows ORDER BY sequence DESC LIMIT 1;
  IF row.event = 'aborted' THEN
    sign := -1;
    SELECT r.facts::jsonb INTO facts FROM dpdist_rows r
      WHERE r.release = row.release AND r.attempt = row.attempt AND r.event = 'reserved' AND r.dataset = row.dataset;
    IF EXISTS (SELECT FROM dpdist_rows r WHERE r.release = row.release AND r.attempt = row.attempt AND r.event IN ('drawing', 'committed'))
    THEN facts := NULL; END IF;
  ELSIF row.event = 'reserved' THEN
    facts := row.facts::jsonb;
  END IF;
  IF facts IS NULL OR row.dataset <> NEW.dataset OR facts->>'period' <> NEW.period THEN
    RAISE insufficient_privilege USING MESSAGE = 'the sums of dpdist_accounts follow the newest row, which is of something else';
  END IF;
  IF TG_OP = 'INSERT' THEN
    OLD := NEW; OLD.applied := 0; OLD.releases := 0;
    OLD.rho := '0'; OLD.pure := '0'; OLD.squares := '0'; OLD.as_gaussian := '0'; OLD.slack := '0'; OLD.failure := '0';
    NEW.applied := 0;
  END IF;
  moved := sign * (dpdist_float(NEW.as_gaussian) - dpdist_float(OLD.as_gaussian));
  expected := dpdist_as_gaussian(dpdist_float(facts->'loss'->>'pure'));
  IF OLD.applied >= row.sequence OR NEW.releases <> OLD.releases + sign
    OR NOT dpdist_moved(OLD.rho, NEW.rho, facts->'loss'->>'rho', sign)
    OR NOT dpdist_moved(OLD.pure, NEW.pure, facts->'loss'->>'pure', sign)
    OR NOT dpdist_moved(OLD.squares, NEW.squares, dpdist_square(facts->'loss'->>'pure'), sign)
    OR NOT dpdist_moved(OLD.slack, NEW.slack, facts->'loss'->>'slack', sign)
    OR NOT dpdist_moved(OLD.failure, NEW.failure, coalesce(facts->'loss'->>'failure', '0'), sign)
    OR abs(moved - expected) > 1e-6 * expected + 1e-11 + 1e-12 * dpdist_float(OLD.as_gaussian)
  THEN
    RAISE insufficient_privilege USING MESSAGE = 'the sums of dpdist_accounts follow the newest row, by its loss and once';
  END IF;
  NEW.applied := row.sequence;
  RETURN NEW;
END $$
""",
    "DROP TRIGGER IF EXISTS dpdist_follow_rows ON dpdist_accounts",
    "CREATE TRIGGER dpdist_follow_rows BEFORE INSERT OR UPDATE OF releases, rho, pure, squares, as_gaussian, slack, failure "
    "ON dpdist_accounts FOR EACH ROW EXECUTE FUNCTION dpdist_follow_rows()",
    """
CREATE OR REPLACE FUNCTION dpdist_continue_chain() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
  IF NOT (NEW.sequence = 1 AND NEW.previous = '')
    AND NOT EXISTS (SELECT FROM dpdist_rows r WHERE r.sequence = NEW.sequence - 1 AND r.digest = NEW.previous)
  THEN
    RAISE serialization_failure USING MESSAGE = 'a new row of the ledger continues the chain after its newest one';
  END IF;
  RETURN NEW;
END $$
""",
    "DROP TRIGGER IF EXISTS dpdist_continue_chain ON dpdist_rows",
    "CREATE TRIGGER dpdist_continue_chain AFTER INSERT ON dpdist_rows FOR EACH ROW EXECUTE FUNCTION dpdist_continue_chain()",
)


CHARGING = ("reserved", "drawing", "committed", "aborted", "approved", "signer", "published")
"""Events that the application writes (an approval carries its own signature); those that change what may be spent are the owner's."""


READ_TABLES = {
    "noise": (db.version, db.salts, db.releases),
    "metrics": (db.version, db.entries, db.caps, db.accounts, db.releases),
}
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
    sql = [
        *STATEMENTS,
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
    for role, read_tables in ((noise, READ_TABLES["noise"]), (metrics, READ_TABLES["metrics"])):
        if role is not None:
            sql += [
                f"GRANT USAGE ON SCHEMA public TO {quote(role)}",
                f"GRANT SELECT ON {', '.join(table.name for table in read_tables)} TO {quote(role)}",
            ]
    return sql


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
    sql = [f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY"]
    for name, policy in {"SELECT": "USING (true)", **allowed}.items():
        role_clause = "" if name == "SELECT" else f" TO {role}"
        sql += [
            f"DROP POLICY IF EXISTS dpdist_{name.lower()} ON {table}",
            f"CREATE POLICY dpdist_{name.lower()} ON {table} FOR {name}{role_clause} {policy}",
        ]
    return sql

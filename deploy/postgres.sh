#!/bin/sh
# Run once, when the database of deploy/compose.yaml is made: two databases, and logins that can do no more than they need.
# dpdist_owner: tables and caps of the ledger. dpdist: publishes. dpdist_noise: reads salts. dpdist_metrics: reads
# budgets and states. prefect: Prefect's database, nothing else.
set -eu
for login in dpdist_owner dpdist dpdist_noise dpdist_metrics prefect; do
  printf "CREATE ROLE %s LOGIN PASSWORD '%s';\n" "$login" "$(cat "/run/secrets/$login-password")"
done | psql -v ON_ERROR_STOP=1 --quiet --username "$POSTGRES_USER" --dbname postgres
psql -v ON_ERROR_STOP=1 --quiet --username "$POSTGRES_USER" --dbname postgres <<'SQL'
GRANT dpdist TO dpdist_owner;
CREATE DATABASE ledger OWNER dpdist_owner;
CREATE DATABASE prefect OWNER prefect;
REVOKE CONNECT ON DATABASE ledger FROM PUBLIC;
REVOKE CONNECT ON DATABASE prefect FROM PUBLIC;
GRANT CONNECT ON DATABASE ledger TO dpdist, dpdist_noise, dpdist_metrics;
\connect ledger
ALTER SCHEMA public OWNER TO dpdist_owner;
\connect prefect
ALTER SCHEMA public OWNER TO prefect;
SQL

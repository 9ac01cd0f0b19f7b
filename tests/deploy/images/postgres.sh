#!/bin/sh
# Debian's PostgreSQL behind the interface of the image postgres, as far as deploy/compose.yaml and the chart use it: "$@" is postgres and its options.
set -eu
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  initdb --pgdata "$PGDATA" --username "$POSTGRES_USER" --auth-local trust --auth-host scram-sha-256 --encoding UTF8 --locale C.UTF-8 \
    --no-instructions >/dev/null
  echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
  shift
  pg_ctl --pgdata "$PGDATA" --wait --options "$* -c listen_addresses=''" start >/dev/null
  psql --quiet --username "$POSTGRES_USER" --dbname postgres \
    --command "ALTER USER \"$POSTGRES_USER\" PASSWORD '$(cat "$POSTGRES_PASSWORD_FILE")'"
  if [ -n "${POSTGRES_DB:-}" ]; then createdb --username "$POSTGRES_USER" "$POSTGRES_DB"; fi
  for script in /docker-entrypoint-initdb.d/*.sh; do
    [ ! -e "$script" ] || sh "$script"
  done
  pg_ctl --pgdata "$PGDATA" --wait stop >/dev/null
  set -- postgres "$@"
fi
exec "$@" -D "$PGDATA" -c "listen_addresses=*"

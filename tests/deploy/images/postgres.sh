#!/bin/sh
# Debian's PostgreSQL behind the interface of the image postgres:16, as far as deploy/compose.yaml uses it.
set -eu
bin=$(echo /usr/lib/postgresql/*/bin)
data=$PGDATA
export PATH="$bin:$PATH"
if [ ! -s "$data/PG_VERSION" ]; then
  initdb --pgdata "$data" --username "$POSTGRES_USER" --auth-local trust --auth-host scram-sha-256 --encoding UTF8 --locale C.UTF-8 \
    --no-instructions >/dev/null
  echo "host all all all scram-sha-256" >> "$data/pg_hba.conf"
  pg_ctl --pgdata "$data" --wait --options "-c listen_addresses=''" start >/dev/null
  psql --quiet --username "$POSTGRES_USER" --dbname postgres \
    --command "ALTER USER \"$POSTGRES_USER\" PASSWORD '$(cat "$POSTGRES_PASSWORD_FILE")'"
  for script in /docker-entrypoint-initdb.d/*.sh; do
    sh "$script"
  done
  pg_ctl --pgdata "$data" --wait stop >/dev/null
fi
exec postgres -D "$data" -c "listen_addresses=*"

#!/bin/sh
# Make the secrets and the folders of deploy/compose.yaml, both outside the checkout: deploy/secrets.sh ../dpdist-secrets ../dpdist-data
# Secrets: the root key, a password and URL for every database login, Prefect's login, and certificates for PostgreSQL and for Dask.
# Folders: specs and records are yours to fill; releases are published into releases; the others belong to the installation (in run lies
# the measuring service's socket).
set -eu
secrets=${1:?"give a new folder for secrets outside this checkout, for example ../dpdist-secrets"}
data=${2:?"give a folder for specs, records, releases and state outside this checkout, for example ../dpdist-data"}
for folder in "$secrets" "$data"; do
  case "$(realpath -m "$folder")/" in
    "$(realpath "$(dirname "$0")/..")"/*) echo "$folder lies inside the checkout, from which the image is built; name one outside" >&2; exit 1 ;;
  esac
done
[ ! -e "$secrets" ] || { echo "$secrets exists; secrets are never overwritten: name a new folder" >&2; exit 1; }
umask 077
data=$(realpath -m "$data")
for folder in specs records releases dpdist/records dpdist/observed store prefect run; do
  mkdir -p "$data/$folder"
done
mkdir -p "$secrets"
cd "$secrets"
openssl rand -hex 32 > root.key
for login in dpdist_owner dpdist dpdist_noise dpdist_metrics prefect; do
  openssl rand -hex 24 > "$login-password"
done
openssl rand -hex 24 > postgres-password
for login in dpdist_owner dpdist dpdist_noise dpdist_metrics; do
  echo "postgresql+psycopg://$login:$(cat "$login-password")@postgres:5432/ledger" > "$login-url"
done
echo "postgresql+asyncpg://prefect:$(cat prefect-password)@postgres:5432/prefect" > prefect-url
echo "operator:$(openssl rand -hex 12)" > prefect-login
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 -subj /CN=dpdist-dask \
  -keyout dask.key -out dask.crt 2>/dev/null
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj /CN=postgres -addext subjectAltName=DNS:postgres \
  -keyout postgres.key -out postgres.crt 2>/dev/null
owner="$(id -u):$(id -g)"
[ "$owner" != 0:0 ] || { owner=10001:10001; chown -R "$owner" . "$data"; }
cat > env <<ENV
DPDIST_SECRETS=$(pwd)
DPDIST_DATA=$data
DPDIST_USER=$owner
ENV
echo "made $(pwd) and $data: back up root.key; the login of Prefect's UI is in prefect-login; put specs and records into $data"

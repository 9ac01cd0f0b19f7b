#!/bin/sh
# Make the secrets of deploy/compose.yaml in a new folder outside the checkout: deploy/secrets.sh ../dpdist-secrets
# The root key, a password and URL for every database login, the object store's credentials, and a certificate for Dask.
set -eu
folder=${1:?"give a new folder outside this checkout, for example ../dpdist-secrets"}
case "$(realpath -m "$folder")/" in
  "$(realpath "$(dirname "$0")/..")"/*) echo "$folder lies inside the checkout, from which the image is built; name one outside" >&2; exit 1 ;;
esac
[ ! -e "$folder" ] || { echo "$folder exists; secrets are never overwritten: name a new folder" >&2; exit 1; }
umask 077
mkdir -p "$folder"
cd "$folder"
openssl rand -hex 32 > root.key
for login in dpdist_owner dpdist dpdist_noise prefect; do
  openssl rand -hex 24 > "$login-password"
done
openssl rand -hex 24 > postgres-password
for login in dpdist_owner dpdist dpdist_noise; do
  echo "postgresql+psycopg://$login:$(cat "$login-password")@postgres:5432/ledger" > "$login-url"
done
echo "postgresql+asyncpg://prefect:$(cat prefect-password)@postgres:5432/prefect" > prefect-url
echo "operator:$(openssl rand -hex 12)" > prefect-login
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 -subj /CN=dpdist-dask \
  -keyout dask.key -out dask.crt 2>/dev/null
owner="$(id -u):$(id -g)"
[ "$owner" != 0:0 ] || { owner=10001:10001; chown -R "$owner" .; }
cat > env <<ENV
DPDIST_SECRETS=$(pwd)
DPDIST_USER=$owner
STORE_USER=dpdist
STORE_PASSWORD=$(openssl rand -hex 24)
ENV
echo "made $(pwd): back up root.key; the login of Prefect's UI is in prefect-login"

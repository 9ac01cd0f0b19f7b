#!/bin/sh
# Stand-ins for python:3.11-slim and postgres:16 from Debian's packages, for machines that reach no registry (podman, mmdebstrap, root).
# A CA bundle and a pip.conf of the machine go into the first where they exist, so that pip works behind a proxy.
set -eu
here=$(dirname "$(realpath "$0")")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for name in python postgres; do
  case $name in
    python) tag=docker.io/library/python:3.11-slim packages=python3,python3-pip,python3-venv ;;
    postgres) tag=docker.io/library/postgres:16 packages=postgresql ;;
  esac
  podman image exists "$tag" && continue
  rm -rf "$folder/context"
  mkdir "$folder/context"
  mmdebstrap --quiet --variant=minbase --include="$packages,ca-certificates" bookworm "$folder/context/base.tar"
  (
    cd /
    tar --append --dereference --file "$folder/context/base.tar" etc/ssl/certs/ca-certificates.crt
    [ ! -f etc/pip.conf ] || tar --append --file "$folder/context/base.tar" etc/pip.conf
  )
  cp "$here/postgres.sh" "$folder/context"
  podman build --network host --quiet --tag "$tag" --file "$here/$name.Dockerfile" "$folder/context"
done

#!/bin/sh
# Stand-ins from Debian's packages for the images that the shipped files name, on machines that reach no registry (podman, mmdebstrap, root):
# each line of stand-ins.txt is an image, the packages that it holds and the Dockerfile beside it. They bear the very names of the shipped
# files, and a label by which the tests say that they are none of the real ones. A CA bundle and a pip.conf of the machine go into the
# first where they exist, so that pip works behind a proxy.
set -eu
here=$(dirname "$(realpath "$0")")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
while read -r image packages name; do
  tag=docker.io/library/$image
  podman image exists "$tag" && continue
  rm -rf "$folder/context"
  mkdir "$folder/context"
  mmdebstrap --quiet --variant=minbase --include="$packages,ca-certificates" bookworm "$folder/context/base.tar" </dev/null
  (
    cd /
    tar --append --dereference --file "$folder/context/base.tar" etc/ssl/certs/ca-certificates.crt
    [ ! -f etc/pip.conf ] || tar --append --file "$folder/context/base.tar" etc/pip.conf
  )
  cp "$here/postgres.sh" "$folder/context"
  podman build --network host --quiet --label dpdist.stand-in=true --tag "$tag" --file "$here/$name.Dockerfile" "$folder/context" </dev/null
done < "$here/stand-ins.txt"

#!/usr/bin/env bash
# Runs the Dockerfile's steps in a root file system of debootstrap's, without Docker; needs root and debootstrap.
#   docker/check.sh FOLDER [pip arguments that get PyTorch]
set -euo pipefail
root=$(mkdir -p "$1" && cd "$1" && pwd)
torch=${2:-torch --index-url https://download.pytorch.org/whl/cpu}
source=$(cd "$(dirname "$0")/.." && pwd)

inside() { chroot "$root" env -i HOME=/root PATH=/opt/sirtaki/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"; }
cleanup() { umount "$root/dev" "$root/proc" 2>/dev/null || true; }
trap cleanup EXIT

[ -x "$root/bin/sh" ] || debootstrap --variant=minbase bookworm "$root"
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
cp /etc/resolv.conf "$root/etc/resolv.conf"
for file in /etc/apt/sources.list /etc/pip.conf; do
  if [ -f "$file" ]; then cp "$file" "$root$file"; fi
done

# The Dockerfile's steps, in its order.
inside apt-get update -q
inside apt-get install -q -y --no-install-recommends \
  g++ openssh-client openssh-server python3 python3-dev python3-venv
rm -f "$root"/etc/ssh/ssh_host_*
# Behind a proxy this machine may trust more than Debian does.
mkdir -p "$root/etc/ssl/certs"
cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
mkdir -p "$root/usr/src/sirtaki"
git -C "$source" archive HEAD | tar -x -C "$root/usr/src/sirtaki"
inside python3 -m venv /opt/sirtaki
# shellcheck disable=SC2086
inside /opt/sirtaki/bin/pip install --no-cache-dir $torch
inside /opt/sirtaki/bin/pip install --no-cache-dir /usr/src/sirtaki
mkdir -p "$root/run/sshd" "$root/root/.ssh" "$root/work"
chmod 700 "$root/root/.ssh"
cp "$source/docker/sshd_config" "$root/etc/ssh/sshd_config"
cp "$source/docker/entrypoint.sh" "$root/usr/local/bin/sirtaki-entrypoint"

# A worker that trains; what it started, its sshd among it, ends with it.
unshare --pid --fork --kill-child --mount-proc="$root/proc" chroot "$root" \
  env -i HOME=/root PATH=/opt/sirtaki/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  sh /usr/local/bin/sirtaki-entrypoint horovodrun -np 2 \
  python /usr/src/sirtaki/examples/pytorch_cifar10.py --epochs 1
echo "the steps of the Dockerfile work"

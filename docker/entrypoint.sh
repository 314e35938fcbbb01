#!/bin/sh
# Starts sshd, then the command; without one, stays until it is stopped. Without sshd, which needs root and a writable
# /root/.ssh, a command may still train on this host.
set -eu
if [ "$(id -u)" = 0 ] && [ -w /root/.ssh ]; then
  if [ ! -f /root/.ssh/host_key ]; then
    ssh-keygen -q -t ed25519 -N "" -f /root/.ssh/host_key
  fi
  if [ -f /keys/id_ed25519 ]; then
    # ssh refuses a key that others may read, as a mounted one often is.
    install -m 600 /keys/id_ed25519 /root/.ssh/id_ed25519
  fi
  mkdir -p /run/sshd
  if [ "$#" -eq 0 ]; then
    exec /usr/sbin/sshd -D -e
  fi
  /usr/sbin/sshd
elif [ "$#" -eq 0 ]; then
  echo "sirtaki: sshd needs root and a writable /root/.ssh: start the container with both, or give it a command" >&2
  exit 1
fi
exec "$@"

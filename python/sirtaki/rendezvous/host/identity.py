"""What says that two ranks share a host: more than a name, which several machines may have."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

from sirtaki.records import dataclass
from sirtaki.rendezvous.trust import digests

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NETWORK = Path("/proc/self/ns/net")


@dataclass(frozen=True)
class HostIdentity:
    """Where a rank runs.

    host: equal for ranks that share memory and Unix sockets. machine: equal for ranks that share
    the loopback interface. boot: equal for ranks that share processor cores. name: for people.
    """

    host: str
    machine: str
    boot: str
    name: str


def host_identity(name: str, host_id: str = "") -> HostIdentity:
    """Return this process's. name: of the host, by the launcher. host_id: sets hosts apart."""
    boot = socket.gethostname()
    with contextlib.suppress(OSError):
        boot = _BOOT_ID.read_text().strip()
    network = 0
    with contextlib.suppress(OSError):
        network = _NETWORK.stat().st_ino
    machine = f"{boot} {network}"
    host = f"{machine} {os.geteuid()} {name} {host_id}"
    return HostIdentity(_digest(host), _digest(machine), _digest(boot), name)


def _digest(text: str) -> str:
    return digests.sha256(text.encode()).hex()[:32]

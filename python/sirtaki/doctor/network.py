"""The network as this host sees it: interfaces, their MTU, and signs of a firewall."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from sirtaki.doctor.finding import NOTE, OK, WARNING, Finding
from sirtaki.doctor.limits import number_of
from sirtaki.rendezvous.host.control_groups import text_of
from sirtaki.rendezvous.network.interfaces import interfaces

_ETHERNET_MTU = 1500
_FAST_MBITS = 10_000
_SECONDS = 5.0
_SIOCGIFMTU = 0x8921
_HEX = re.compile(r"[0-9A-Fa-f]{8}")
# The columns of network, gateway and mask in a line of /proc/net/route.
_ADDRESSES = (1, 2, 7)
_ROUTE_WORDS = 8
_LET_THROUGH = (
    "let the hosts of a job reach each other at every port, such as `ufw allow from 10.0.0.0/24` "
    "or `firewall-cmd --zone=trusted --add-source=10.0.0.0/24`"
)
# Kernel modules that are loaded if packets are filtered.
_FILTERS = ("iptable_filter", "ip6table_filter", "nft_reject", "nft_reject_inet", "ipt_REJECT")


@dataclass(frozen=True)
class Link:
    """A network interface that is up. mbits: its speed, None if the driver reports none."""

    name: str
    addresses: tuple[str, ...]
    mtu: int
    mbits: int | None = None


def findings(proc: Path, sysfs: Path) -> list[Finding]:
    """Check the interfaces of this host, and look for a firewall."""
    try:
        found = links(sysfs)
    except OSError as error:
        return [Finding("interfaces", WARNING, f"the interfaces cannot be listed: {error}")]
    others = [link for link in found if link.name != "lo" and link.addresses]
    if not others:
        alone = "no interface but lo has an address: jobs run on this host alone"
        return [Finding("interfaces", NOTE, alone), *firewall(proc, Path("/"))]
    names = ", ".join(f"{link.name} ({' '.join(link.addresses)})" for link in others)
    return [
        Finding("interfaces", OK, names),
        *(mtu(link) for link in others),
        *firewall(proc, Path("/")),
    ]


def links(sysfs: Path) -> list[Link]:
    """Return the interfaces that are up. Raises OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        return [
            # A driver without a speed reports -1, or nothing.
            Link(
                each.name,
                each.addresses,
                _mtu_of(asked, each.name),
                number_of(sysfs / "class/net" / each.name / "speed") or None,
            )
            for each in interfaces()
        ]


def _mtu_of(asked: socket.socket, name: str) -> int:
    """Return the MTU by a socket: /sys may show the interfaces of another namespace."""
    found = fcntl.ioctl(asked, _SIOCGIFMTU, struct.pack("16si16x", os.fsencode(name), 0))
    return int(struct.unpack_from("16si", found)[1])


def mtu(link: Link) -> Finding:
    """Judge the largest packet of an interface."""
    check = f"mtu {link.name}"
    speed = f" at {link.mbits / 1000:g} Gbit/s" if link.mbits else ""
    what = f"packets of {link.mtu} bytes{speed}"
    if 0 < link.mtu < _ETHERNET_MTU:
        return Finding(
            check,
            NOTE,
            f"{what}, less than Ethernet's {_ETHERNET_MTU}, as in tunnels; large messages hang if "
            "something on the way drops what does not fit",
            "`sirtaki doctor --hosts` tries it; let ICMP through, or set the same MTU on all hosts",
        )
    if link.mtu == _ETHERNET_MTU and (link.mbits or 0) >= _FAST_MBITS:
        return Finding(
            check,
            NOTE,
            f"{what}: the processor handles each of them",
            f"ip link set {link.name} mtu 9000, if all hosts and switches on the way have it",
        )
    return Finding(check, OK, what)


def firewall(proc: Path, root: Path) -> list[Finding]:
    """Report readable signs of a firewall. root: of /etc and /run."""
    signs = []
    if "ENABLED=yes" in text_of(root / "etc/ufw/ufw.conf").splitlines():
        signs.append("ufw is enabled")
    if (root / "run/firewalld").exists():
        signs.append("firewalld runs")
    loaded = {line.split(" ")[0] for line in text_of(proc / "modules").splitlines()}
    if used := [name for name in _FILTERS if name in loaded]:
        signs.append(f"the kernel has loaded {', '.join(used)}")
    if os.geteuid() == 0:
        signs += _dropping()
    check = "firewall"
    if not signs:
        seen = "no sign of a firewall" if os.geteuid() == 0 else "no sign that a user can read"
        return [Finding(check, OK, f"{seen} (`sirtaki doctor --hosts` tries connections)")]
    return [Finding(check, NOTE, "; ".join(signs), _LET_THROUGH)]


def _dropping() -> list[str]:
    """Return the firewalls whose rules, which only root may read, drop packets."""
    found = []
    for command in (["iptables", "-S", "INPUT"], ["nft", "list", "ruleset"]):
        if shutil.which(command[0]) is None:
            continue
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if drops(done.stdout):
            found.append(f"`{' '.join(command)}` has rules that drop what comes in")
    return found


def drops(rules: str) -> bool:
    """Return whether rules printed by iptables or nft drop or reject incoming packets."""
    incoming = False
    for line in map(str.strip, rules.splitlines()):
        if line.startswith(("-P INPUT ", "-A INPUT ")):
            if line.endswith((" DROP", " REJECT")) or " -j DROP" in line or " -j REJECT" in line:
                return True
        elif line.startswith("chain "):
            incoming = False
        elif "hook input" in line:
            incoming = True
            if "policy drop" in line:
                return True
        elif incoming and {"drop", "reject"} & set(line.split()):
            return True
    return False


def routes_of(table: str) -> list[dict[str, str]]:
    """Parse the IPv4 routes of /proc/net/route, whose addresses are in native byte order."""
    found = []
    for line in table.splitlines()[1:]:
        words = line.split()
        if len(words) < _ROUTE_WORDS or not all(_HEX.fullmatch(words[at]) for at in _ADDRESSES):
            continue
        target, gateway, mask = (int(words[at], 16) for at in _ADDRESSES)
        bits = mask.bit_count()
        found.append(
            {
                "interface": words[0],
                "network": "default" if not mask else f"{_dotted(target)}/{bits}",
                "gateway": _dotted(gateway) if gateway else "",
            }
        )
    return found


def _dotted(number: int) -> str:
    return socket.inet_ntoa(number.to_bytes(4, sys.byteorder))

"""Lists of hosts with slots, and which rank goes where."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path

from sirtaki.launch.errors import LaunchError
from sirtaki.records import dataclass
from sirtaki.rendezvous.network.interfaces import is_loopback, routes

# Nothing that a shell or ssh could take for something else, such as an option.
_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_ADDRESS = r"\[([0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?)\]"
# Strings, which `re` compiles at their first use: most jobs start without it.
_HOST = rf"(?:({_NAME})|{_ADDRESS})(?::([0-9]{{1,7}}))?"
_HOSTFILE_LINE = rf"(?:({_NAME})|{_ADDRESS})(?:(?:\s+slots\s*=\s*|:)([0-9]{{1,7}}))?"


@dataclass(frozen=True)
class Host:
    """A host and how many ranks it may take."""

    name: str
    slots: int


@dataclass(frozen=True)
class Slot:
    """The place of one rank: on its host, and among the ranks of equal local rank (cross)."""

    rank: int
    size: int
    host: str
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int


def parse_hosts(text: str) -> list[Host]:
    """Read "name[:slots][,name[:slots]…]", an IPv6 address in brackets; slots are 1 if not given.

    A repeated name adds its slots. Raises LaunchError.
    """
    hosts = []
    for part in text.split(","):
        host = _read(_HOST, part.strip())
        if host is None:
            raise LaunchError(
                f"cannot read the host {part.strip()!r} in {text!r}: "
                "expected name:slots, for example node-a:4,192.168.11.5:4,[fe80::1]:2"
            )
        hosts.append(host)
    return merged(hosts)


def _read(form: str, text: str) -> Host | None:
    found = re.fullmatch(form, text)
    if found is None:
        return None
    name, address, slots = found.groups()
    if address is not None:
        try:
            ipaddress.IPv6Address(address)
        except ValueError:
            return None
    return Host(name or address, 1 if slots is None else int(slots))


def read_hostfile(path: str) -> list[Host]:
    """Read lines "name slots=N" or "name:N", 1 if only a name; skips blank lines and # comments.

    Raises LaunchError naming the file and the line.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise LaunchError(f"cannot read the hostfile {path!r}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise LaunchError(f"the hostfile {path!r} is not a text file") from None
    hosts = []
    for number, line in enumerate(lines, start=1):
        content = line.partition("#")[0].strip()
        if not content:
            continue
        host = _read(_HOSTFILE_LINE, content)
        if host is None:
            raise LaunchError(
                f"cannot read line {number} of the hostfile {path!r}: {content!r}; "
                "expected: name slots=N"
            )
        hosts.append(host)
    if not hosts:
        raise LaunchError(f"the hostfile {path!r} names no host")
    return merged(hosts)


def merged(hosts: Iterable[Host]) -> list[Host]:
    """Return each host once, with the slots of all places where it is named."""
    slots: dict[str, int] = {}
    for host in hosts:
        slots[host.name] = slots.get(host.name, 0) + host.slots
    return [Host(name, count) for name, count in slots.items()]


def allocate(hosts: Sequence[Host], size: int) -> list[Slot]:
    """Give `size` ranks their places, host by host in the order listed; extra slots stay free.

    Returns one slot a rank, in rank order. Raises LaunchError when there are too few slots.
    """
    available = sum(host.slots for host in hosts)
    if available < size:
        raise LaunchError(
            f"Requested more processes ({size}) than there are available slots ({available})"
        )
    counts: list[tuple[str, int]] = []
    left = size
    for host in hosts:
        taken = min(host.slots, left)
        if taken:
            counts.append((host.name, taken))
        left -= taken
    slots: list[Slot] = []
    for index, (name, local_size) in enumerate(counts):
        for local_rank in range(local_size):
            # Hosts too small to have this local rank do not count across.
            across = [position for position, (_, count) in enumerate(counts) if count > local_rank]
            slots.append(
                Slot(
                    rank=len(slots),
                    size=size,
                    host=name,
                    local_rank=local_rank,
                    local_size=local_size,
                    cross_rank=across.index(index),
                    cross_size=len(across),
                )
            )
    return slots


def is_local(name: str) -> bool:
    """Whether `name` means this machine: localhost, its own name, or one of its addresses."""
    if name == "localhost" or name.startswith("127.") or name == socket.gethostname():
        return True
    # What goes to an address of our own comes from that address, or within 127.0.0.0/8 from another
    # there. Binding tells nothing where the system allows addresses that are not its own.
    return any(source == target or is_loopback(source) for target, source in routes(name))


def join_local(hosts: Sequence[Host]) -> list[Host]:
    """Join the hosts that are this machine, where the first of them stands and under its name."""
    local = [host for host in hosts if is_local(host.name)]
    if not local:
        return list(hosts)
    joined = Host(local[0].name, sum(host.slots for host in local))
    return [
        joined if host == local[0] else host
        for host in hosts
        if host == local[0] or host not in local
    ]

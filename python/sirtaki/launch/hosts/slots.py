"""Lists of hosts with slots, and the placement of ranks on them."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from sirtaki.launch.errors import LaunchError
from sirtaki.rendezvous.network.interfaces import is_loopback, routes
from sirtaki.schedulers import table
from sirtaki.schedulers.scheduler import NAME

_ADDRESS = r"\[([0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?)\]"
# Strings, because `re` compiles them at first use, and most jobs need none.
_HOST = rf"(?:({NAME})|{_ADDRESS})(?::([0-9]{{1,7}}))?(?:@([0-9]{{1,5}}))?"
# The rest of a line of Grid Engine's $PE_HOSTFILE: slots, the queue, and processors.
_OF_GRID_ENGINE = r"\s+([0-9]{1,7})\s+\S+@\S+\s+\S+"
# The fields that may follow the name in a line of a hostfile, each at most once.
_FIELD = r"\s+(slots|max[_-]slots|port)\s*=\s*([0-9]{1,7})"
_MOST_SLOTS = 9999999
_MOST_PORT = 65535


class Host(NamedTuple):
    """A host, its number of slots, and ssh's port there, None for the job's default."""

    name: str
    slots: int
    port: int | None = None


class Slot(NamedTuple):
    """The place of one rank: on its host (local), and among equal local ranks (cross)."""

    rank: int
    size: int
    host: str
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int


def parse_hosts(text: str) -> list[Host]:
    """Parse "name[:slots][@port][,…]", an IPv6 address in brackets; slots are 1 if not given.

    A repeated name adds its slots. Raises LaunchError.
    """
    hosts = []
    for part in text.split(","):
        host = _read(part.strip())
        if host is None:
            raise LaunchError(
                f"cannot read the host {part.strip()!r} in {text!r}: expected name:slots or "
                "name:slots@port, for example node-a:4,192.168.11.5:4@2222,[fe80::1]:2"
            )
        hosts.append(host)
    return merged(hosts)


def _read(text: str, unsaid_slots: int = 1) -> Host | None:
    found = re.fullmatch(_HOST, text)
    if found is None:
        return None
    name, address, slots, port = found.groups()
    if address is not None and not _is_ipv6(address):
        return None
    if port is not None and not 0 < int(port) <= _MOST_PORT:
        return None
    return Host(
        name or address,
        unsaid_slots if slots is None else int(slots),
        None if port is None else int(port),
    )


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


# What pipes, such as those of <(command), have contained: they can be read only once.
_piped: dict[Path, str] = {}


def _text_of(path: Path) -> str:
    if path in _piped:
        return _piped[path]
    text = path.read_text(encoding="utf-8-sig")
    if not path.is_file():
        _piped[path] = text
    return text


def read_hostfile(path: str) -> list[Host]:
    """Read lines "name slots=N" or "name:N", 1 if only a name; skips blank lines and # comments.

    "port=P" is ssh's port there. "max_slots=M", as in Open MPI, limits the slots. An IPv6 address
    needs no brackets. The lists of PBS (a line a slot) and Grid Engine ("name N queue processors")
    can be read too. Raises LaunchError naming the file and the line.
    """
    try:
        lines = _text_of(Path(path)).splitlines()
    except OSError as error:
        raise LaunchError(f"cannot read the hostfile {path!r}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise LaunchError(f"the hostfile {path!r} is not a text file") from None
    hosts = []
    for number, line in enumerate(lines, start=1):
        content = line.partition("#")[0].strip()
        if not content:
            continue
        host = _read_line(content)
        if host is None:
            raise LaunchError(
                f"cannot read line {number} of the hostfile {path!r}: {content!r}; expected: name "
                "slots=N, and port=P or max_slots=M where you need them"
            )
        hosts.append(host)
    if not hosts:
        raise LaunchError(f"the hostfile {path!r} names no host")
    return merged(hosts)


def _read_line(content: str) -> Host | None:
    """Parse a line of a hostfile; None if it is invalid."""
    name, *rest = content.split(maxsplit=1)
    text = f" {rest[0]}" if rest else ""
    if found := re.fullmatch(_OF_GRID_ENGINE, text):
        return None if ":" in name else _read(name, int(found[1]))
    pairs = re.findall(_FIELD, text)
    fields = {field.replace("-", "_"): int(value) for field, value in pairs}
    if len(fields) < len(pairs) or re.sub(_FIELD, "", text):
        return None
    most = fields.get("max_slots", _MOST_SLOTS)
    unsaid = fields.get("slots", most if "max_slots" in fields else 1)
    host = _read(f"[{name}]" if ":" in name and _is_ipv6(name) else name, unsaid)
    if host is None or host.slots != fields.get("slots", host.slots):
        return None
    port = fields.get("port", host.port)
    if port is not None and not 0 < port <= _MOST_PORT:
        return None
    return Host(host.name, min(host.slots, most), port)


def merged(hosts: Iterable[Host]) -> list[Host]:
    """Return each host once, with the sum of its slots.

    Raises LaunchError for a host with two ports.
    """
    slots: dict[str, int] = {}
    ports: dict[str, int] = {}
    for host in hosts:
        slots[host.name] = slots.get(host.name, 0) + host.slots
        if host.port is not None and ports.setdefault(host.name, host.port) != host.port:
            raise LaunchError(
                f"host {host.name} is named with the ports {ports[host.name]} and {host.port}; "
                "name one"
            )
    return [Host(name, count, ports.get(name)) for name, count in slots.items()]


def ports_of(hosts: Iterable[Host]) -> dict[str, int]:
    """Return ssh's port at each host that has one of its own."""
    return {host.name: host.port for host in hosts if host.port is not None}


def refuse_ports(hosts: Iterable[Host], where: str) -> None:
    """Raise LaunchError if hosts have ports of their own, which cannot be used here.

    where: what connects to the hosts, for the message.
    """
    if ports := ports_of(hosts):
        name, port = next(iter(ports.items()))
        raise LaunchError(
            f"host {name} has the port {port}, and {where} knows one for all: write 'Port {port}' "
            f"under 'Host {name}' in ~/.ssh/config, or give --ssh-port"
        )


def allocate(hosts: Sequence[Host], size: int) -> list[Slot]:
    """Place `size` ranks host by host in the order listed; extra slots stay free.

    Returns one slot per rank, in rank order. Raises LaunchError when there are too few slots.
    """
    available = sum(host.slots for host in hosts)
    if available < size:
        name = hosts[0].name if hosts else "localhost"
        raise LaunchError(
            f"Requested more processes ({size}) than there are available slots ({available}): add "
            f"hosts, raise the slots of one (-H {name}:{size}, or slots={size} in the "
            f"host file), or give -np {available}"
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
            # Hosts without this local rank are not part of its cross ranks.
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
    """Return whether `name` means this machine: localhost, its name, or one of its addresses."""
    if name == "localhost" or name.startswith("127.") or name == socket.gethostname():
        return True
    # Traffic to an own address has that address as its source, or another in 127.0.0.0/8. A test
    # by bind is useless where the system allows addresses that are not its own.
    return any(source == target or is_loopback(source) for target, source in routes(name))


def join_local(hosts: Sequence[Host]) -> list[Host]:
    """Join the hosts that are this machine, at the position and with the name of the first."""
    local = [host for host in hosts if is_local(host.name)]
    if not local:
        return list(hosts)
    joined = Host(local[0].name, sum(host.slots for host in local), local[0].port)
    return [
        joined if host == local[0] else host
        for host in hosts
        if host == local[0] or host not in local
    ]


def mounted_hostfile(environ: Mapping[str, str]) -> str | None:
    """Return the file of hosts that an operator has mounted into this launcher, if any."""
    return next(filter(None, (each.hostfile(environ) for each in table.here(environ))), None)

"""This host's addresses, and those of them that other hosts can reach."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import struct
import time
from collections.abc import Sequence
from typing import NamedTuple

from sirtaki.rendezvous.network import tcp_socket
from sirtaki.rendezvous.network.lookup import Lookup, unanswered
from sirtaki.rendezvous.network.tcp_socket import Endpoint

_MESSAGE = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_ADDRESS = struct.Struct("=BBBBI")  # family, prefix length, flags, scope, interface index
_LINK = struct.Struct("=BxHiII")  # family, type, index, flags, change
_ATTRIBUTE = struct.Struct("=HH")  # length, type
_NEW_LINK, _GET_LINK = 16, 18
_NEW_ADDRESS, _GET_ADDRESS = 20, 22
_ERROR, _DONE = 2, 3
_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_IFLA_IFNAME = 3
_IFF_UP = 1
_RECEIVE_BYTES = 1 << 16
_NETLINK_SECONDS = 5.0
_ANY_PORT = 9
_LOOK_SECONDS = 0.1


class Interface(NamedTuple):
    """A network interface that is up, with its numeric addresses."""

    name: str
    addresses: tuple[str, ...]


def interfaces() -> list[Interface]:
    """Return the interfaces that are up, as the kernel lists them. Raises OSError."""
    names = {}
    for payload in _dump(_GET_LINK, _NEW_LINK):
        _family, _type, index, flags, _change = _LINK.unpack_from(payload)
        name = _attributes(payload[_LINK.size :]).get(_IFLA_IFNAME, b"")
        if flags & _IFF_UP:
            names[index] = name.rstrip(b"\0").decode(errors="replace")
    found: dict[int, list[str]] = {index: [] for index in names}
    for payload in _dump(_GET_ADDRESS, _NEW_ADDRESS):
        family, _prefix, _flags, _scope, index = _ADDRESS.unpack_from(payload)
        attributes = _attributes(payload[_ADDRESS.size :])
        # On a point-to-point link IFA_ADDRESS is the other end's.
        raw = attributes.get(_IFA_LOCAL) or attributes.get(_IFA_ADDRESS)
        if index in found and raw and family in (socket.AF_INET, socket.AF_INET6):
            found[index].append(socket.inet_ntop(family, raw))
    return [Interface(names[index], tuple(addresses)) for index, addresses in found.items()]


def _dump(question: int, answer: int) -> list[bytes]:
    """Ask the kernel for a table; return the payloads of its messages of type `answer`."""
    payloads: list[bytes] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0) as sock:
        sock.settimeout(_NETLINK_SECONDS)
        body = bytes(_LINK.size)
        sock.sendto(_MESSAGE.pack(_MESSAGE.size + len(body), question, _DUMP, 1, 0) + body, (0, 0))
        while True:
            for kind, payload in _messages(sock.recv(_RECEIVE_BYTES)):
                if kind == _DONE:
                    return payloads
                if kind == _ERROR:
                    (code,) = struct.unpack_from("=i", payload)
                    raise OSError(-code, "the kernel does not list the network interfaces")
                if kind == answer:
                    payloads.append(payload)


def _messages(data: bytes) -> list[tuple[int, bytes]]:
    found = []
    while len(data) >= _MESSAGE.size:
        length, kind, _flags, _sequence, _port = _MESSAGE.unpack_from(data)
        if length < _MESSAGE.size:
            break
        found.append((kind, data[_MESSAGE.size : length]))
        data = data[_aligned(length) :]
    return found


def _attributes(data: bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    while len(data) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(data)
        if length < _ATTRIBUTE.size:
            break
        found.setdefault(kind, data[_ATTRIBUTE.size : length])
        data = data[_aligned(length) :]
    return found


def _aligned(length: int) -> int:
    return (length + 3) & ~3


def candidates(
    towards: Sequence[Endpoint] = (), only: Sequence[str] = (), deadline: float = float("inf")
) -> list[str]:
    """Return this host's addresses at which others may reach it, the most likely first.

    towards: known endpoints of the others; the result has our source addresses on the routes to
    them. If it is empty, or resolves to loopback here but not for others, as a host's own name
    often does, the result has all addresses that leave the host. only: names of interfaces to use
    instead, with addresses of the family that leads to `towards`; hosts may have different ones.
    deadline: a time of time.monotonic(). Raises ValueError when this host has none of the
    interfaces, TimeoutError when no name server has resolved `towards` by then, OSError.
    """
    present = interfaces()
    theirs = dict.fromkeys(host for host, _port in towards)
    routed = list(
        dict.fromkeys(
            source
            for host in theirs
            for _target, source in routes(host, deadline)
            if not _is_link_local(source)
        )
    )
    if only:
        found = _of_named(present, only)
        kinds = {":" in address for address in routed}
        return [address for address in found if (":" in address) in kinds] or found
    if routed and (all(map(tcp_socket.is_loopback, theirs)) or any(map(_leaves_the_host, routed))):
        return routed
    others = [a for i in present for a in i.addresses if _leaves_the_host(a)]
    # IPv4 first: an IPv6 address may belong to a network without a route.
    others.sort(key=lambda address: ":" in address)
    found = list(dict.fromkeys(routed + others))
    return found or [a for i in present for a in i.addresses if is_loopback(a)]


def _of_named(present: Sequence[Interface], only: Sequence[str]) -> list[str]:
    by_name = {interface.name: interface for interface in present}
    known = [by_name[name] for name in only if name in by_name]
    if not known:
        raise ValueError(
            f"there is no network interface {' or '.join(map(repr, only))} that is up on "
            f"{socket.gethostname()}. It has {describe(present)}"
        )
    found = [a for interface in known for a in interface.addresses if not _is_link_local(a)]
    if not found:
        raise ValueError(
            f"no address on {', '.join(only)} of {socket.gethostname()}. It has {describe(present)}"
        )
    return found


def describe(present: Sequence[Interface]) -> str:
    """Format interfaces with their addresses for a message."""
    return ", ".join(f"{i.name} ({' '.join(i.addresses) or 'no address'})" for i in present)


def routes(host: str, deadline: float = float("inf")) -> list[tuple[str, str]]:
    """Return a host's addresses, each with our source address on the route to it.

    Nothing is sent: connecting a datagram socket only asks the system for the route. An unknown
    name has no addresses. Raises TimeoutError when no name server has answered by `deadline`, a
    time of time.monotonic().
    """
    lookup = Lookup(host)
    while not lookup.wait(min(_LOOK_SECONDS, deadline - time.monotonic())):
        if time.monotonic() >= deadline:
            raise TimeoutError(unanswered(host))
    found = []
    with contextlib.suppress(OSError):
        for family, address in lookup.addresses(_ANY_PORT):
            with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as sock:
                sock.connect(address)
                found.append((str(address[0]), str(sock.getsockname()[0])))
    return found


def _leaves_the_host(address: str) -> bool:
    return not is_loopback(address) and not _is_link_local(address)


def is_loopback(address: str) -> bool:
    """Return whether an address leads back to the host itself."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _is_link_local(address: str) -> bool:
    # Only IPv6: there such an address is meaningless without the dialer's interface.
    return ":" in address and ipaddress.ip_address(address.partition("%")[0]).is_link_local

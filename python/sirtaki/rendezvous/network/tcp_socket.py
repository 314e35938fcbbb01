"""TCP sockets: endpoints, listening, and the detection of lost peers."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import struct
from collections.abc import Sequence

_BACKLOG = 4096
_PORT_ATTEMPTS = 50
_KEEPALIVE_PROBES = 2
_LONGEST_KEEPALIVE_SECONDS = 32767
_MOST_MILLISECONDS = 2**31 - 1
SILENT_SECONDS = 4.0
# A host is lost once the leader of its ranks has been silent for longer. A connection should fail
# before that, with the better reason, but not before some seconds of silence.
_SILENT_SHARE = 0.8
_LEAST_SILENT_SECONDS = 2.0
_TCP_RTO_MAX_MS = 44
_LONGEST_RETRY_MILLISECONDS = 120_000
# Fields of struct tcp_info: unanswered probes of a closed window, unacknowledged segments, and
# milliseconds since the last acknowledgement.
_TCP_INFO = struct.Struct("=3xB20xI28xI")
_PROBES = 2

Endpoint = tuple[str, int]


def parse_endpoints(text: str) -> list[Endpoint]:
    """Parse "HOST[,HOST...]:PORT", IPv6 addresses in brackets. Raises ValueError."""
    hosts, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"{text!r} does not end in a port: expected HOST[,HOST...]:PORT")
    return [(_host(part, text), int(port)) for part in hosts.split(",")]


def _host(part: str, text: str) -> str:
    bracketed = part.startswith("[") and part.endswith("]")
    host = part[1:-1] if bracketed else part
    strange = not host or any(c.isspace() or c in "[]/" or not c.isprintable() for c in host)
    if strange or (":" in host) != bracketed:
        raise ValueError(
            f"{part!r} in {text!r} is not a host: expected a name, an IPv4 address or an IPv6 "
            "address in brackets"
        )
    return host


def format_endpoint(endpoint: Endpoint) -> str:
    """Format one endpoint for people."""
    host, port = endpoint
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def format_endpoints(hosts: Sequence[str], port: int) -> str:
    """Format several addresses of one server for `parse_endpoints`."""
    return ",".join(f"[{host}]" if ":" in host else host for host in hosts) + f":{port}"


def is_loopback(host: str) -> bool:
    """Return whether an address reaches only its own machine."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def listen(host: str, port: int = 0) -> socket.socket:
    """Listen on one address of this machine; port 0 is any free port. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((host, port))
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        raise OSError(
            error.errno, f"cannot listen on {format_endpoint((host, port))}: {error.strerror}"
        ) from None
    except BaseException:
        sock.close()
        raise
    return sock


def listen_together(hosts: Sequence[str], port: int = 0) -> tuple[list[socket.socket], int]:
    """Listen on several addresses of this machine at one port; 0: any that is free on all.

    Returns the sockets and the port. Raises OSError.
    """
    for attempt in range(_PORT_ATTEMPTS):
        with contextlib.ExitStack() as undo:
            listeners: list[socket.socket] = []
            chosen = port
            try:
                for host in hosts:
                    listeners.append(undo.enter_context(listen(host, chosen)))
                    chosen = listeners[0].getsockname()[1]
            except OSError:
                if port or not listeners or attempt == _PORT_ATTEMPTS - 1:
                    raise
                continue
            undo.pop_all()
            return listeners, chosen
    raise AssertionError("the last attempt returns or raises")


def silent_seconds(host_timeout: float) -> float:
    """Return how long a connection may be silent if a host may for `host_timeout` seconds."""
    return max(_LEAST_SILENT_SECONDS, _SILENT_SHARE * host_timeout) if host_timeout else 0.0


def tune(
    sock: socket.socket, unsent_seconds: float, silent_seconds: float = SILENT_SECONDS
) -> None:
    """Set the options of every connection of a job.

    A silent peer is noticed within about `silent_seconds` (0: never) while nothing is in flight,
    and within `unsent_seconds` while bytes are in flight, including those that the peer does not
    read. With `unsent_seconds` 0 the peer may read late; then use `is_silent` while bytes are in
    flight.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, silent_seconds > 0)
    # Half of the time until the first probe, a quarter for the answer to each.
    for option, share in ((socket.TCP_KEEPIDLE, 2), (socket.TCP_KEEPINTVL, 4)):
        seconds = min(max(1, int(silent_seconds / share)), _LONGEST_KEEPALIVE_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, option, seconds)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_PROBES)
    milliseconds = min(int(unsent_seconds * 1000), _MOST_MILLISECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
    with contextlib.suppress(OSError):
        # Otherwise a peer that does not read for long is probed less and less often.
        # Kernels before 6.15 lack the option.
        if silent_seconds:
            longest = min(max(1000, int(silent_seconds * 1000 / 4)), _LONGEST_RETRY_MILLISECONDS)
            sock.setsockopt(socket.IPPROTO_TCP, _TCP_RTO_MAX_MS, longest)


def is_silent(sock: socket.socket, silent_seconds: float = SILENT_SECONDS) -> bool:
    """Return whether the other host has not acknowledged anything for `silent_seconds`.

    With 0 it never is silent. A host whose process does not read still acknowledges.
    """
    probes, unacknowledged, quiet = _tcp_info(sock)
    asked = unacknowledged > 0 or probes >= _PROBES
    return asked and 0 < silent_seconds * 1000 <= quiet


def all_acknowledged(sock: socket.socket) -> bool:
    """Return whether all sent bytes are acknowledged."""
    probes, unacknowledged, _quiet = _tcp_info(sock)
    return probes == 0 and unacknowledged == 0


def _tcp_info(sock: socket.socket) -> tuple[int, ...]:
    return _TCP_INFO.unpack(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size))

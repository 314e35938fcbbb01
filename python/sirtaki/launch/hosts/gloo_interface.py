"""The network interface that PyTorch's Gloo needs where a host's name misleads it."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence

from sirtaki.rendezvous.network.interfaces import candidates, interfaces, is_loopback, routes
from sirtaki.rendezvous.stores.tcp_store import endpoints_of

VARIABLE = "GLOO_SOCKET_IFNAME"
_LOOKUP_SECONDS = 5.0


def gloo_interface(store: str, only: Sequence[str] = ()) -> str:
    """Return the interface that leads to a job's other hosts if the host's name does not.

    Gloo listens at the address of the host's name. Debian sets that to 127.0.1.1, which no other
    host can reach.

    Args:
        store: The store's address, as in SIRTAKI_RENDEZVOUS.
        only: Interfaces that were chosen.

    Returns:
        "" if the name leads to other hosts, all ranks are on this host, or nothing is known.
    """
    try:
        towards = endpoints_of(store)
        if not _name_means_loopback():
            return ""
        deadline = time.monotonic() + _LOOKUP_SECONDS
        own = candidates(towards, only, deadline)
        return next((one.name for one in interfaces() if own[0] in one.addresses), "")
    except (ValueError, OSError, IndexError):
        return ""  # a store on this host, or a network error that the ranks will report


def _name_means_loopback() -> bool:
    try:
        found = routes(socket.gethostname(), time.monotonic() + _LOOKUP_SECONDS)
    except TimeoutError:
        return True
    return not found or is_loopback(found[0][0])

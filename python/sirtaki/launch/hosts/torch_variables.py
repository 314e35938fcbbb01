"""The variables of torch.distributed and Gloo, set beside ours for programs that use them."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from sirtaki.launch.hosts.slots import Slot
from sirtaki.rendezvous.network.interfaces import candidates, interfaces, is_loopback, routes
from sirtaki.schedulers.start import PLACE_VARIABLES, SET_FOR_TORCH, names_of, place_variables

_LOWEST_PORT = 10000
_ATTEMPTS = 20
_GIVEN_BY_SYSTEM = Path("/proc/sys/net/ipv4/ip_local_port_range")


def place_of(slot: Slot, node: int, nodes: int) -> dict[str, str]:
    """Return the variables that give other libraries a rank's place.

    node: the number of the rank's host. nodes: how many hosts there are.
    """
    place = slot.rank, slot.size, slot.local_rank, slot.local_size
    return place_variables(*place, node, nodes)


def default_environment(address: str) -> dict[str, str]:
    """Return the variables that a rank gets unless they are set. address: of rank 0's host."""
    return {
        "MASTER_ADDR": address,
        # As set by Horovod's launcher.
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
    }


def complete(
    base: Mapping[str, str], own: Mapping[str, str], defaults: Mapping[str, str]
) -> dict[str, str]:
    """Return a rank's variables besides `base`: its own, and the defaults that are in neither.

    A variable lists those that other programs read, so that they do not pass for the variables of
    another launcher.
    """
    added = {name: value for name, value in defaults.items() if not {**base, **own}.get(name)}
    place = [name for name in PLACE_VARIABLES if name in own]
    return {**own, **added, SET_FOR_TORCH: names_of([*place, *added])}


def free_port() -> int:
    """Return a free port of this machine, outside the ephemeral range.

    The system could give away an ephemeral port before a rank listens on it. Raises OSError when
    there is no free port.
    """
    end = _first_given_port()
    for _ in range(_ATTEMPTS if end > _LOWEST_PORT else 0):
        port = _LOWEST_PORT + int.from_bytes(os.urandom(4), "big") % (end - _LOWEST_PORT)
        try:
            return _listen(port)
        except OSError:
            continue
    return _listen(0)


def _first_given_port() -> int:
    try:
        return int(_GIVEN_BY_SYSTEM.read_text().split()[0])
    except OSError:
        return 0


def _listen(port: int) -> int:
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    with socket.create_server(("", port), family=family, dualstack_ipv6=both) as server:
        return int(server.getsockname()[1])


GLOO_VARIABLE = "GLOO_SOCKET_IFNAME"
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
    from sirtaki.rendezvous.stores.tcp_store import endpoints_of

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

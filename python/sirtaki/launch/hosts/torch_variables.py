"""What torch.distributed reads: set beside our own variables, for programs that use it too."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

from sirtaki.launch.hosts.slots import Slot
from sirtaki.rendezvous.world.started_by import SET_FOR_TORCH

_LOWEST_PORT = 10000
_ATTEMPTS = 20
_GIVEN_BY_SYSTEM = Path("/proc/sys/net/ipv4/ip_local_port_range")


def torch_environment(slot: Slot, node: int, address: str) -> dict[str, str]:
    """Return what one rank has unless it is set already.

    node: the number of the rank's host. address: of rank 0's host.
    """
    return {
        "RANK": str(slot.rank),
        "WORLD_SIZE": str(slot.size),
        "LOCAL_RANK": str(slot.local_rank),
        "LOCAL_WORLD_SIZE": str(slot.local_size),
        # torchrun's word, and that of Lightning and Accelerate.
        "GROUP_RANK": str(node),
        "NODE_RANK": str(node),
        "MASTER_ADDR": address,
    }


def complete(
    base: Mapping[str, str], own: Mapping[str, str], defaults: Mapping[str, str]
) -> dict[str, str]:
    """Return what a rank has besides `base`: its own, and the defaults that are in neither.

    Those are named in a variable, for nobody to take them for the variables of another launcher.
    """
    added = {name: value for name, value in defaults.items() if not {**base, **own}.get(name)}
    return {**own, **added, SET_FOR_TORCH: ",".join(added)}


def free_port() -> int:
    """Return a port on which nobody listens here.

    Not one of those that the system gives to whoever connects or listens anywhere, as we do: one
    of them may be taken before a rank listens on it. Raises OSError when there is none.
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

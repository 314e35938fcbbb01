"""How members choose the transport between their accelerators, and meet there."""

from __future__ import annotations

import logging
import socket
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import TCPStore

from sirtaki.core.world import state
from sirtaki.core.world.world import World
from sirtaki.torch.device.groups import InnerGroup
from sirtaki.torch.device.layer import Device
from sirtaki.torch.device.members import exchange, shared_device

_LOOPBACK = "127.0.0.1"
# Our engine detects missing ranks, so no time limits are needed.
_NO_LIMIT = timedelta(days=1)

_log = logging.getLogger("sirtaki.device")


def meet(world: World, device: Device, ranks: Sequence[int]) -> InnerGroup:
    """Return the runner of the members' operations; each calls this at one point of the order.

    Args:
        world: The world.
        device: This rank's accelerator.
        ranks: The members.

    Raises:
        HorovodInternalError: A member was lost.
        ValueError: The members have accelerators of different kinds.
    """
    hosts = [world.links.joined.host_of[rank] for rank in ranks]
    rank = ranks.index(world.topology.rank)
    server = _listen(hosts) if rank == 0 else None
    try:
        endpoint = server.getsockname()[:2] if server else None
        own = {"backend": device.backend, "device": device.identity(), "store": endpoint}
        records = exchange(world, own, ranks, rank)
        backends = {record["backend"] for record in records}
        if len(backends) > 1:
            raise ValueError(f"ranks {ranks} have accelerators of different kinds: {backends}")
        store = _open(server, records[0]["store"], timedelta(seconds=world.config.start_timeout))
    finally:
        if server is not None:
            server.close()
    shared = shared_device(records, hosts)
    if not shared:
        group = device.make_group(store, rank, len(ranks), _NO_LIMIT)
        return InnerGroup(group, device.averages)
    if rank == 0:
        _log.warning("ranks %s exchange tensors through CPU memory: %s", ranks, shared)
    # Most programs never need it.
    from sirtaki.torch.distributed.group import Group

    staging = Group(store, rank, len(ranks), "device")
    staging.stage_all()
    return InnerGroup(staging, averages=False)


def _listen(hosts: Sequence[int]) -> socket.socket:
    """Return a socket reachable from the members' hosts only."""
    address = _LOOPBACK if len(set(hosts)) == 1 else state.addresses()[0]
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, 0), family=family)


def _open(server: socket.socket | None, endpoint: Sequence[Any], timeout: timedelta) -> TCPStore:
    host, port = endpoint
    if server is None:
        return TCPStore(host, port, is_master=False, timeout=timeout, wait_for_workers=False)
    return TCPStore(
        host,
        port,
        is_master=True,
        timeout=timeout,
        wait_for_workers=False,
        master_listen_fd=server.detach(),
    )

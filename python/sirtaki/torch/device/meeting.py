"""How the members of a process set find out what moves their tensors, and meet there."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import TCPStore

from sirtaki.core import state
from sirtaki.core.collectives import Collectives
from sirtaki.core.process_sets import ProcessSet
from sirtaki.core.world import World
from sirtaki.torch.device.groups import InnerGroup
from sirtaki.torch.device.host_group import HostGroup
from sirtaki.torch.device.layer import Device
from sirtaki.torch.tensors import TorchTensors

_RECORD_BYTES = 512
_LOOPBACK = "127.0.0.1"

_log = logging.getLogger("sirtaki.device")
_collectives: Collectives[torch.Tensor] = Collectives(TorchTensors())


def meet(world: World, device: Device, process_set: ProcessSet) -> InnerGroup | HostGroup:
    """Return what runs the members' operations; every member calls it at one point of the order.

    Args:
        world: The world.
        device: This rank's accelerator.
        process_set: The members.

    Raises:
        HorovodInternalError: A member was lost.
        ValueError: The members have accelerators that do not talk to each other.
    """
    ranks = process_set.ranks or list(range(world.topology.size))
    hosts = [world.links.joined.host_of[rank] for rank in ranks]
    rank = ranks.index(world.topology.rank)
    server = _listen(hosts) if rank == 0 else None
    try:
        endpoint = server.getsockname()[:2] if server else None
        own = {"backend": device.backend, "device": device.identity(), "store": endpoint}
        records = _exchange(own, process_set)
        backends = {record["backend"] for record in records}
        if len(backends) > 1:
            raise ValueError(f"the ranks {ranks} have accelerators of several kinds: {backends}")
        reason = _why_not(records, hosts, world.config.tls)
        if reason:
            if rank == 0:
                _log.warning("ranks %s exchange tensors through CPU memory: %s", ranks, reason)
            return HostGroup(process_set)
        timeout = timedelta(seconds=world.config.start_timeout)
        store = _open(server, records[0]["store"], timeout)
        group = device.make_group(store, rank, len(ranks), timedelta(days=1))
        return InnerGroup(group, device.averages)
    finally:
        if server is not None:
            server.close()


def _listen(hosts: Sequence[int]) -> socket.socket:
    """Return a socket that only the members' hosts can reach."""
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


def _exchange(own: dict[str, Any], process_set: ProcessSet) -> list[dict[str, Any]]:
    """Return the records of all members, in their order."""
    data = json.dumps(own).encode().ljust(_RECORD_BYTES)
    mine = torch.frombuffer(bytearray(data), dtype=torch.uint8)[None]
    handle = _collectives.allgather_async([mine], name="device.meeting", process_set=process_set)
    (records,) = _collectives.synchronize(handle)
    return [json.loads(bytes(record.tolist())) for record in records]


def _why_not(records: Sequence[dict[str, Any]], hosts: Sequence[int], tls: bool) -> str:
    """Return why the members' accelerators cannot talk to each other, "" where they can."""
    if tls and len(set(hosts)) > 1:
        return (
            f"{records[0]['backend']} cannot encrypt what goes between hosts, as SIRTAKI_TLS asks"
        )
    found: dict[tuple[int, str], int] = {}
    for member, record in enumerate(records):
        other = found.setdefault((hosts[member], record["device"]), member)
        if other != member:
            return (
                f"members {other} and {member} use one device, {record['device']}; where there are "
                "enough of them, call torch.cuda.set_device(hvd.local_rank()) before tensors are "
                "made"
            )
    return ""

"""How members find out what moves tensors between their accelerators, and meet there."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import TCPStore

from sirtaki.core.world import state
from sirtaki.core.world.world import World
from sirtaki.torch.device.groups import InnerGroup
from sirtaki.torch.device.layer import Device

_RECORD_BYTES = 512
_LOOPBACK = "127.0.0.1"
_WORLD = 0
# Of the messages by which members meet; no script has that many tags.
_TAG = 1 << 62
# What does not come is found out by our engine, not by limits of time.
_NO_LIMIT = timedelta(days=1)

_log = logging.getLogger("sirtaki.device")


def meet(world: World, device: Device, ranks: Sequence[int]) -> InnerGroup:
    """Return what runs the members' operations; each of them calls it at one point of the order.

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


def exchange(
    world: World, own: dict[str, Any], ranks: Sequence[int], rank: int
) -> list[dict[str, Any]]:
    """Return the records of all members, in their order.

    By messages through the first of them: collectives are not for ranks that have joined.

    Args:
        world: Whose engine carries them.
        own: This member's, JSON of few words.
        ranks: The members.
        rank: This one's place among them.
    """
    records = torch.zeros(len(ranks), _RECORD_BYTES, dtype=torch.uint8, device="cpu")
    data = json.dumps(own).encode().ljust(_RECORD_BYTES)
    records[rank] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    engine = world.engine

    def move(transfer: Any, tensor: torch.Tensor, peer: int) -> None:
        transfer(tensor.data_ptr(), tensor.nbytes, peer, _TAG, _WORLD, tensor)

    if rank > 0:
        move(engine.send_and_wait, records[rank], ranks[0])
        move(engine.receive_and_wait, records, ranks[0])
    else:
        for member, peer in list(enumerate(ranks))[1:]:
            move(engine.receive_and_wait, records[member], peer)
        for peer in ranks[1:]:
            move(engine.send_and_wait, records, peer)
    return [json.loads(bytes(record.tolist())) for record in records]


def shared_device(records: Sequence[dict[str, Any]], hosts: Sequence[int]) -> str:
    """Say which device two members use, which no process group can serve; "" if there is none."""
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

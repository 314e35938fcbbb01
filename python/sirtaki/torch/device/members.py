"""Exchange of accelerator information among the members of a group."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import torch

from sirtaki.core.world.world import World

_RECORD_BYTES = 512
_WORLD = 0
# Tag of the messages by which members meet; scripts use no such large tags.
_TAG = 1 << 62


def exchange(
    world: World, own: dict[str, Any], ranks: Sequence[int], rank: int
) -> list[dict[str, Any]]:
    """Return the records of all members, in their order.

    Uses messages through the first member, since ranks that have joined run no collectives.

    Args:
        world: The world whose engine carries the messages.
        own: This member's record, a short JSON value.
        ranks: The members.
        rank: This rank's index among them.
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
    """Return which device two members share, which no process group supports, or ""."""
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

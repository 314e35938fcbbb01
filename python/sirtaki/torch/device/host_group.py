"""The collectives of some ranks whose accelerators cannot talk to each other: through the hosts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from sirtaki.core import kinds
from sirtaki.core.collectives import Collectives
from sirtaki.core.process_sets import ProcessSet
from sirtaki.torch.device.operation import Agreed
from sirtaki.torch.tensors import TorchTensors

_collectives: Collectives[torch.Tensor] = Collectives(TorchTensors())


class HostGroup:
    """Runs operations on copies in CPU memory.

    Args:
        process_set: The members.
    """

    def __init__(self, process_set: ProcessSet) -> None:
        self._set = process_set
        self._runs = 0

    def run(self, batch: Sequence[Agreed]) -> None:
        """Do the operations, and put the way back to the accelerator on the current stream."""
        with torch.no_grad():
            started = [(agreed.operation, self._start(agreed)) for agreed in batch]
            for operation, handle in started:
                results = _collectives.synchronize(handle)
                for target, result in zip(operation.outputs, results, strict=False):
                    target.copy_(result)

    def abort(self) -> None:
        """Do nothing: what is under way ends with the world."""

    def close(self) -> None:
        """Do nothing: it has nothing of its own."""

    def _start(self, agreed: Agreed) -> int:
        launch = agreed.launch
        copies = [tensor.cpu() for tensor in agreed.operation.inputs]
        self._runs += 1
        name = f"device.{launch.set}.{self._runs}"
        where: dict[str, Any] = {"name": name, "process_set": self._set}
        if launch.kind == kinds.ALLGATHER:
            return _collectives.allgather_async(copies, **where)
        if launch.kind == kinds.BROADCAST:
            return _collectives.broadcast_async(copies[0], None, launch.root, **where)
        if launch.kind == kinds.ALLTOALL:
            return _collectives.alltoall_async(copies[0], agreed.sent_rows(), **where)
        reduction: dict[str, Any] = {
            "op": launch.reduce,
            "prescale_factor": launch.prescale,
            "postscale_factor": launch.postscale,
        }
        if launch.kind == kinds.REDUCESCATTER:
            return _collectives.reducescatter_async(copies, **reduction, **where)
        return _collectives.allreduce_async(copies, None, **reduction, **where)

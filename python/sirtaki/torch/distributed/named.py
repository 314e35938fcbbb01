"""Operations that match by name, in whatever order the ranks start them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch._C import _distributed_c10d as c10d

from sirtaki.core.operations import codes
from sirtaki.core.operations.reduce_ops import Average
from sirtaki.torch.distributed import buffers
from sirtaki.torch.distributed.operations import Operations
from sirtaki.torch.distributed.works import Work


class NamedOperations(Operations):
    """A group's operations, and those that `torch.distributed` does not have."""

    # How many communication hooks use the group.
    hooks = 0

    def average(
        self, tensors: Sequence[torch.Tensor], name: str, codec: int = codes.NO_CODEC
    ) -> Work:
        """Average tensors of one dtype over all ranks, in place.

        Args:
            tensors: What the ranks average.
            name: Of the operation, which no other one in flight has.
            codec: The format in which float32 numbers are sent.
        """
        parts = [buffers.in_place(buffers.reducible(tensor, Average)) for tensor in tensors]
        opts = c10d.AllreduceOptions()
        request = self._request(
            codes.ALLREDUCE,
            opts,
            name=name,
            dtype=parts[0].dtype,
            reduce=Average,
            codec=codec,
            shapes=[tuple(part.memory.shape) for part in parts],
            inputs=[part.address for part in parts],
            outputs=[part.address for part in parts],
        )
        return self._start(request, opts, tensors, parts, parts)

    def gather_rows(self, row: torch.Tensor, name: str) -> Work:
        """Give every rank the rows of all ranks, which are equally long; see `average`."""
        own = buffers.source(row)
        result = torch.empty(self._group_size, row.numel(), dtype=row.dtype, device="cpu")
        room = buffers.target(result)
        opts = c10d.AllgatherOptions()
        request = self._request(
            codes.ALLGATHER,
            opts,
            name=name,
            dtype=own.dtype,
            shapes=[(1, own.elements)],
            inputs=[own.address],
            results=[room.place],
        )
        return self._start(request, opts, [result], (own, room), [])

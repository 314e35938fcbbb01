"""Reductions of sparse tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from sirtaki import _core
from sirtaki.core.operations import kinds, reduce_ops
from sirtaki.torch.distributed import buffers
from sirtaki.torch.distributed.reductions import GroupReduction
from sirtaki.torch.distributed.works import Works

if TYPE_CHECKING:
    from sirtaki.torch.distributed.operations import Operations


def allreduce(group: Operations, tensor: torch.Tensor, reduction: GroupReduction) -> dist.Work:
    """Sum a sparse tensor over all ranks, in place; each may have another number of elements.

    Raises:
        ValueError: It is not in coordinate format, or the operator is not the sum.
    """
    if tensor.layout is not torch.sparse_coo:
        raise ValueError(f"all_reduce takes dense tensors and sparse COO, not {tensor.layout}")
    if reduction != GroupReduction(reduce_ops.Sum):
        raise ValueError("all_reduce of sparse tensors can only sum")
    own = tensor.coalesce()
    gathered: dict[str, torch.Tensor] = {}

    def gather(name: str, part: torch.Tensor) -> dist.Work:
        """Collect the rows of all ranks."""
        source = buffers.source(part)
        opts = c10d.AllgatherOptions()
        request = group._request(
            kinds.ALLGATHER,
            opts,
            dtype=source.dtype,
            shapes=[tuple(source.memory.shape)],
            inputs=[source.address],
        )

        def take(done: _core.Handle) -> None:
            ((data, shape),) = done.outputs()
            rows = torch.empty(shape, dtype=part.dtype)
            if rows.numel():
                rows = torch.frombuffer(data, dtype=part.dtype).view(shape).clone()
            gathered[name] = rows
            if len(gathered) == 2:
                _add_up(tensor, **gathered)

        return group._start(request, opts, [tensor], source, [], checked=take)

    return Works([gather("indices", own.indices().t()), gather("values", own.values())])


def _add_up(tensor: torch.Tensor, indices: torch.Tensor, values: torch.Tensor) -> None:
    summed = torch.sparse_coo_tensor(indices.t(), values, tensor.shape).coalesce()
    with torch.no_grad():
        tensor.copy_(summed)

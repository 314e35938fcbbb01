"""Allreduce of sparse tensors: their entries are gathered and added up."""

from __future__ import annotations

import torch

from sirtaki.core.operations.reduce_ops import Average, Sum
from sirtaki.core.world.participants import size_of
from sirtaki.core.world.process_sets import ProcessSet, global_process_set
from sirtaki.torch.ops import integers
from sirtaki.torch.ops.exchange import allgather_async
from sirtaki.torch.ops.handles import SparseHandle, synchronize
from sirtaki.torch.ops.tracing import untraced


def sparse_zeros_like(tensor: torch.Tensor, sparse_dim: int) -> torch.Tensor:
    """Return a sparse tensor without entries; the gradient of an embedding has sparse_dim 1."""
    indices = torch.empty(sparse_dim, 0, dtype=torch.int64, device=tensor.device)
    values = tensor.new_empty((0, *tensor.shape[sparse_dim:]), requires_grad=False)
    return torch.sparse_coo_tensor(
        indices, values, tensor.shape, device=tensor.device, check_invariants=False
    )


@untraced
def sparse_allreduce_async(
    tensor: torch.Tensor,
    name: str | None,
    op: int,
    process_set: ProcessSet = global_process_set,
) -> SparseHandle:
    """Start the sum or average of sparse COO tensors of one shape over all ranks.

    Args:
        tensor: a sparse COO tensor; of the same shape and dtype on all ranks.
        name: matches the call with those of the other ranks; None: by the order of calls.
        op: Average or Sum.
        process_set: the ranks that take part.

    Returns:
        A function that waits and returns the coalesced sparse result; `synchronize` accepts it too.

    Raises:
        ValueError: the tensor is not sparse, or op is neither Average nor Sum.
    """
    if op not in (Average, Sum):
        raise ValueError("sparse_allreduce_async: op must be Average or Sum")
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.sparse_coo:
        raise ValueError("sparse_allreduce_async: expected a sparse COO tensor")
    mine = tensor.detach().coalesce()
    members = size_of(process_set)
    averages_integers = op == Average and not (mine.is_floating_point() or mine.is_complex())
    indices = allgather_async(
        mine.indices().t(), None if name is None else f"{name}.indices", process_set
    )
    values = allgather_async(mine.values(), None if name is None else f"{name}.values", process_set)

    def result() -> torch.Tensor:
        all_indices = synchronize(indices).t()
        all_values = synchronize(values)
        shape: tuple[int, ...] = tuple(mine.shape)
        if averages_integers:
            all_values = integers.shares(all_values, members)
            shape = (*shape, 2)
        total = torch.sparse_coo_tensor(
            all_indices, all_values, shape, device=mine.device, check_invariants=False
        ).coalesce()
        # Divided once, after the sum, as for dense tensors.
        if averages_integers:
            averages = integers.average(total.values(), members, 1.0, mine.dtype)
            return torch.sparse_coo_tensor(
                total.indices(), averages, mine.shape, is_coalesced=True, check_invariants=False
            )
        return total / members if op == Average else total

    return result

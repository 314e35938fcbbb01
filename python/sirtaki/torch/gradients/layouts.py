"""Agreement of the ranks on which gradients are sparse."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sirtaki.core.errors import MismatchError
from sirtaki.core.operations.reduce_ops import Max
from sirtaki.core.operations.reduction import Reduction
from sirtaki.core.world.process_sets import ProcessSet
from sirtaki.torch.gradients.slots import Bucket, GradientSlot
from sirtaki.torch.ops import allreduce as allreduce_ops


def agree_on_layouts(buckets: Sequence[Bucket], process_set: ProcessSet, mixed: bool) -> None:
    """Learn from the other ranks whether gradients are sparse of which this rank has none yet.

    Ranks that have no gradient of a layer take part with zeros, in the layout that the others
    have. All ranks know the same parameters, so all of them ask, or none does.

    Args:
        buckets: of all parameters.
        process_set: the ranks that take part.
        mixed: whether a gradient may be sparse on some ranks and dense on others.

    Raises:
        MismatchError: a gradient is sparse on some ranks and dense on others.
    """
    slots = [slot for bucket in buckets for slot in bucket.slots]
    if all(slot.sparse_dim is not None or not slot.param.requires_grad for slot in slots):
        return
    slots.sort(key=lambda slot: slot.name)  # ranks may have put them together in another order
    mine = torch.tensor([_layout(slot) for slot in slots], dtype=torch.uint8, device="cpu")
    (everywhere,) = allreduce_ops.run(
        [mine], f"layouts of {slots[0].name} ...", Reduction(Max, 1.0, 1.0, process_set)
    )
    both = set()
    for slot, (dense, sparse_dim) in zip(slots, everywhere.tolist(), strict=True):
        if dense and sparse_dim and not mixed:
            both.add(slot)
        elif dense or sparse_dim:
            slot.sparse_dim = 0 if dense else sparse_dim
    if both:
        raise _refused(buckets, both)


def _layout(slot: GradientSlot) -> tuple[int, int]:
    """Return whether there is a dense gradient, and the sparse dimensions of a sparse one."""
    grad = slot.param.grad
    if slot.sparse_dim is not None:
        return int(slot.sparse_dim == 0), slot.sparse_dim
    if grad is None:
        return 0, 0
    return (1, 0) if grad.layout is torch.strided else (0, grad.sparse_dim())


def _refused(buckets: Sequence[Bucket], both: set[GradientSlot]) -> MismatchError:
    """Let nobody wait for gradients that are dense on some ranks and sparse on others."""
    names = ", ".join(sorted(slot.name for slot in both))
    error = MismatchError(
        f"gradients are dense on some ranks and sparse on others: {names}; use the layer in the "
        "same way on all ranks, or set sparse_as_dense=True"
    )
    for bucket in buckets:
        if not both.isdisjoint(bucket.slots):
            bucket.failure = error
    return error

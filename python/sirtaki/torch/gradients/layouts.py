"""Agreement of the ranks on existing gradients, which of them are sparse, and compression."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import torch

from sirtaki.core.errors import MismatchError
from sirtaki.core.operations.reduce_ops import Max
from sirtaki.core.operations.reduction import Reduction
from sirtaki.core.world.process_sets import ProcessSet
from sirtaki.torch.gradients.slots import Bucket, GradientSlot
from sirtaki.torch.ops import allreduce as allreduce_ops


def agree_on_layouts(
    buckets: Sequence[Bucket], process_set: ProcessSet, mixed: bool, compression: str
) -> None:
    """Learn the layouts of gradients that this rank does not have yet from the other ranks.

    Ranks without a gradient of a layer contribute zeros in the others' layout. All ranks have the
    same parameters, so either all of them ask or none does.

    Args:
        buckets: the buckets of all parameters.
        process_set: the ranks that take part.
        mixed: whether a gradient may be sparse on some ranks and dense on others.
        compression: a transformation with its arguments; "" if operations tell what differs.

    Raises:
        MismatchError: a gradient is sparse on some ranks and dense on others, or the ranks compress
            in different ways.
    """
    if all(
        slot.sparse_dim is not None or not slot.param.requires_grad
        for bucket in buckets
        if not bucket.only_dense
        for slot in bucket.slots
    ):
        return
    slots = _in_order(buckets)
    code = zlib.crc32(compression.encode()).to_bytes(4, "big")
    rows = [*(_layout(slot) for slot in slots), *((byte, 255 - byte) for byte in code)]
    mine = torch.tensor(rows, dtype=torch.uint8, device="cpu")
    (everywhere,) = allreduce_ops.run(
        [mine], f"layouts of {slots[0].name} ...", Reduction(Max, 1.0, 1.0, process_set)
    )
    found = everywhere.tolist()
    if any(most + rest > 255 for most, rest in found[len(slots) :]):
        raise _refused_compression(buckets, compression)
    both = set()
    for slot, (dense, sparse_dim) in zip(slots, found, strict=False):
        if dense and sparse_dim and not mixed:
            both.add(slot)
        elif dense or sparse_dim:
            slot.sparse_dim = 0 if dense else sparse_dim
    for bucket in buckets:
        bucket.only_dense = all(slot.sparse_dim == 0 for slot in bucket.slots)
    if both:
        raise _refused(buckets, both)


def unused_everywhere(buckets: Sequence[Bucket], process_set: ProcessSet) -> set[GradientSlot]:
    """Return the parameters for which no rank has a gradient.

    Args:
        buckets: the buckets of all parameters.
        process_set: the ranks that take part; all of them call this.
    """
    slots = _in_order(buckets)
    if not slots:
        return set()
    mine = torch.tensor(
        [slot.param.grad is not None for slot in slots], dtype=torch.bool, device="cpu"
    )
    (used,) = allreduce_ops.run(
        [mine], f"uses of {slots[0].name} ...", Reduction(Max, 1.0, 1.0, process_set)
    )
    return {slot for slot, anywhere in zip(slots, used.tolist(), strict=True) if not anywhere}


def _in_order(buckets: Sequence[Bucket]) -> list[GradientSlot]:
    """Return all parameters by name; ranks may have bucketed them in different orders."""
    slots = [slot for bucket in buckets for slot in bucket.slots]
    return sorted(slots, key=lambda slot: slot.name)


def _layout(slot: GradientSlot) -> tuple[int, int]:
    """Return whether there is a dense gradient, and the sparse dimensions of a sparse one."""
    grad = slot.param.grad
    if slot.sparse_dim is not None:
        return int(slot.sparse_dim == 0), slot.sparse_dim
    if grad is None:
        return 0, 0
    return (1, 0) if grad.layout is torch.strided else (0, grad.sparse_dim())


def _refused_compression(buckets: Sequence[Bucket], own: str) -> MismatchError:
    """Fail on all ranks for ranks that compress in different ways."""
    error = MismatchError(
        "the ranks compress gradients in different ways, this one with "
        f"{own or 'Compression.none, or one that only rounds'}: all ranks need the same compression"
    )
    for bucket in buckets:
        bucket.failure = error
    return error


def _refused(buckets: Sequence[Bucket], both: set[GradientSlot]) -> MismatchError:
    """Fail on all ranks for gradients that are dense on some ranks and sparse on others."""
    names = ", ".join(sorted(slot.name for slot in both))
    error = MismatchError(
        f"gradients are dense on some ranks and sparse on others: {names}; use the layer in the "
        "same way on all ranks, or set sparse_as_dense=True"
    )
    for bucket in buckets:
        if not both.isdisjoint(bucket.slots):
            bucket.failure = error
    return error

"""Reducescatter: reduce over the ranks, and leave each rank one block of the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch.compiler import is_compiling

from sirtaki.core.operations import codes
from sirtaki.core.operations.compression import compress_all, decompress_all
from sirtaki.core.operations.reduce_ops import Average, Sum
from sirtaki.core.operations.reduction import Reduction, check_scattered
from sirtaki.core.world.participants import size_of
from sirtaki.core.world.process_sets import ProcessSet, global_process_set
from sirtaki.torch.compression import Compression, Compressor
from sirtaki.torch.ops.exchange import grouped_allgather
from sirtaki.torch.ops.handles import (
    return_outputs,
    runner_of,
    stage_inputs,
    start_group,
    synchronize,
)
from sirtaki.torch.ops.tensors import check_reducible
from sirtaki.torch.ops.tracing import batch_at, check_one_device, untraced, wants_grad


def _checked(tensor: object, op: int) -> torch.Tensor:
    check_scattered(op)
    return check_reducible(tensor, op)


def _submit(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    reduction: Reduction,
    *,
    single: bool,
    waits: bool = False,
) -> int:
    for tensor in tensors:
        if _checked(tensor, reduction.op).dim() == 0:
            raise ValueError("reducescatter: a tensor without dimensions cannot be scattered")
    check_one_device(tensors)
    runner = runner_of(tensors, "reducescatter", reduction.op)

    def start(part: Sequence[torch.Tensor], part_name: str | None) -> int:
        return runner.reducescatter_async(part, part_name, reduction, waits)

    handle = start_group(stage_inputs(tensors, runner), name, start)
    return return_outputs(handle, tensors, single=single)


def run(
    tensors: Sequence[torch.Tensor], name: str | None, reduction: Reduction
) -> list[torch.Tensor]:
    """Reduce and scatter a group of tensors, with autograd support."""
    handle = _submit(tensors, name, reduction, single=False, waits=True)
    return cast("list[torch.Tensor]", synchronize(handle))


class _Reducescatter(torch.autograd.Function):
    """The gradient is gathered and scaled; by Horovod's rule Sum scales by the set's size."""

    @staticmethod
    def forward(
        name: str | None, reduction: Reduction, *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return tuple(run(tensors, name, reduction))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.reduction = inputs[1]

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        op, prescale_factor, postscale_factor, process_set = ctx.reduction
        scale = prescale_factor * postscale_factor
        if op == Sum:
            scale *= size_of(process_set)
        gathered = grouped_allgather([grad * scale for grad in grads], process_set=process_set)
        return None, None, *gathered

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[torch.Tensor, ...]:
        return tuple(_reduce(tangents[2:], None, ctx.reduction))

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], name: str | None, reduction: Reduction, *tensors: Any
    ) -> tuple[Any, Any]:
        moved, out_dims = batch_at(1, tensors, in_dims[2:])
        return _Reducescatter.apply(name, reduction, *moved), out_dims


def _reduce(
    tensors: Sequence[torch.Tensor], name: str | None, reduction: Reduction
) -> list[torch.Tensor]:
    if is_compiling():
        ranks = size_of(reduction.process_set)
        own = cast("int", reduction.process_set.rank())
        rows = [(tensor.shape[0] + ranks - 1 - own) // ranks for tensor in tensors]
        outputs = torch.ops.sirtaki.reducescatter(
            list(tensors), rows, ranks, name, *reduction.numbers()
        )
        return cast("list[torch.Tensor]", outputs)
    if wants_grad(tensors):
        return list(_Reducescatter.apply(name, reduction, *tensors))
    return run(tensors, name, reduction)


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Return this rank's block, along the first dimension, of the reduction over all ranks.

    Differentiable: the gradient is the ranks' gradients gathered, times both factors, and for Sum
    times the number of ranks.

    Args:
        tensor: at least one dimension; of the same shape and dtype on all ranks. The rows are
            divided as evenly as possible, in order of rank; if they do not divide evenly, the first
            ranks get one extra row.
        name: matches the call with those of the other ranks; without a name, calls match in the
            order in which they are made.
        compression: form of the tensor on the wire, from `Compression`.
        op: Average, Sum, Min, Max or Product.
        process_set: the ranks that take part.
        prescale_factor: multiplies the tensor before the reduction.
        postscale_factor: multiplies the result.

    Returns:
        A new tensor of the same dtype, with this rank's rows.

    Raises:
        TypeError: `tensor` is not a plain tensor.
        ValueError: an argument is wrong, or an operation with this name is still in flight.
        HorovodInternalError: the ranks disagree on shape, dtype or op, or a rank was lost.
    """
    reduction = Reduction(op, prescale_factor, postscale_factor, process_set)
    compressed, ctx = compression.compress(tensor)
    (output,) = _reduce([_checked(compressed, reduction.op)], name, reduction)
    whole: torch.Tensor = compression.decompress(output, ctx)
    return whole


@untraced
def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Start `reducescatter` and return a handle for `poll` and `synchronize`.

    Not differentiable.

    Args:
        tensor: as for `reducescatter`; do not change it before the operation has completed.
        name, op, process_set, prescale_factor, postscale_factor: as for `reducescatter`.

    Returns:
        A handle; `synchronize(handle)` returns this rank's rows.

    Raises:
        TypeError, ValueError: an argument is wrong; nothing was sent.
    """
    reduction = Reduction(op, prescale_factor, postscale_factor, process_set)
    return _submit((tensor,), name, reduction, single=True)


def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """Return the result of `reducescatter` for each of several tensors, as one operation.

    Args:
        tensors: at least one; each as for `reducescatter`.
        name, compression, op: as for `reducescatter`.
        process_set, prescale_factor, postscale_factor: as for `reducescatter`.

    Returns:
        This rank's rows of each of `tensors`, in the same order.

    Raises:
        TypeError, ValueError, HorovodInternalError: as `reducescatter`.
    """
    reduction = Reduction(op, prescale_factor, postscale_factor, process_set)
    compressed, contexts = compress_all(codes.NO_CODEC, compression, tensors)
    checked = [_checked(tensor, reduction.op) for tensor in compressed]
    return decompress_all(compression, _reduce(checked, name, reduction), contexts)


@untraced
def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Start `grouped_reducescatter` and return one handle for the group; not differentiable.

    Args:
        tensors: as for `grouped_reducescatter`.
        name, op, process_set, prescale_factor, postscale_factor: as for `reducescatter`.

    Returns:
        A handle; `synchronize(handle)` returns a list of this rank's rows.

    Raises:
        TypeError, ValueError: an argument is wrong; nothing was sent.
    """
    reduction = Reduction(op, prescale_factor, postscale_factor, process_set)
    return _submit(tensors, name, reduction, single=False)

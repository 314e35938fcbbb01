"""Allreduce: of one tensor and of groups of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch.autograd.graph import increment_version
from torch.compiler import is_compiling

from sirtaki.core.errors import OverlapError
from sirtaki.core.operations import codes
from sirtaki.core.operations.collectives import Collectives
from sirtaki.core.operations.compression import compress_all, compress_for, decompress_all
from sirtaki.core.operations.reduce_ops import Adasum, Average, Sum
from sirtaki.core.operations.reduction import Combination, Reduction, resolve_op
from sirtaki.core.world.process_sets import ProcessSet, global_process_set
from sirtaki.torch.compression import Compression, Compressor, codec_of
from sirtaki.torch.device.layer import devices
from sirtaki.torch.ops.handles import (
    collectives,
    finish_with,
    return_inputs,
    return_outputs,
    runner_of,
    stage_in_place,
    stage_inputs,
    start_group,
    synchronize,
)
from sirtaki.torch.ops.tensors import REDUCIBLE, check_reducible, is_plain
from sirtaki.torch.ops.tracing import batch_at, check_one_device, untraced, wants_grad


def start_allreduce(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    reduction: Combination,
    *,
    in_place: bool,
    runner: Collectives[torch.Tensor],
    waits: bool = False,
    codec: int = codes.NO_CODEC,
) -> int:
    """Start the reduction of tensors staged for the runner; for `handles.wait`.

    codec: the format in which the engine sends float32 tensors.
    """

    def start(part: Sequence[torch.Tensor], part_name: str | None) -> int:
        part_codec = codec if part[0].dtype == torch.float32 else codes.NO_CODEC
        rest = part_name, reduction, waits, part_codec
        if not in_place:
            return runner.allreduce_async(part, None, *rest)
        try:
            return runner.allreduce_async(part, part, *rest)
        except OverlapError:  # for example, with tied weights
            copies = [tensor.clone() for tensor in part]
            return runner.allreduce_async(copies, copies, *rest)

    return start(tensors, name) if len(tensors) == 1 else start_group(tensors, name, start)


def _submit(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    reduction: Reduction,
    *,
    single: bool,
    waits: bool = False,
    codec: int = codes.NO_CODEC,
) -> int:
    for tensor in tensors:
        check_reducible(tensor, reduction.op)
    check_one_device(tensors)
    runner = runner_of(tensors, "allreduce", reduction.op)
    staged = stage_inputs(tensors, runner)
    handle = start_allreduce(
        staged, name, reduction, in_place=False, runner=runner, waits=waits, codec=codec
    )
    return return_outputs(handle, tensors, single=single)


def _submit_in_place(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    reduction: Combination,
    *,
    single: bool,
    waits: bool = False,
) -> int:
    op = reduction[0]
    for tensor in tensors:
        check_reducible(tensor, op)
    check_one_device(tensors)
    runner = runner_of(tensors, "allreduce", op)
    staged = stage_in_place(tensors, runner)
    for tensor, worked_on in zip(tensors, staged, strict=True):
        if worked_on is tensor:
            increment_version(tensor)
    handle = start_allreduce(staged, name, reduction, in_place=True, runner=runner, waits=waits)
    return return_inputs(handle, tensors, single=single)


def _submit_one(
    tensor: torch.Tensor,
    name: str | None,
    reduction: Reduction,
    *,
    codec: int = codes.NO_CODEC,
    waits: bool = False,
) -> int:
    """Do the same as `_submit`, with as little Python as possible in the common case."""
    if not isinstance(tensor, torch.Tensor) or not (
        tensor.is_cpu and tensor.dtype in REDUCIBLE and devices["cpu"] is None
    ):
        return _submit((tensor,), name, reduction, single=True, waits=waits, codec=codec)
    codec = codec if tensor.dtype == torch.float32 else codes.NO_CODEC
    return collectives.allreduce_async((tensor,), None, name, reduction, waits, codec)


def _submit_one_in_place(
    tensor: torch.Tensor, name: str | None, reduction: Combination, *, waits: bool = False
) -> int:
    """Do the same as `_submit_in_place`, with as little Python as possible in the common case."""
    alone = [tensor]
    if devices["cpu"] is None:
        handle = collectives.allreduce_again(alone, name, reduction, waits)
        if handle is not None:
            # So that autograd notices, as for any in-place operation; as `increment_version` does.
            torch._C._increment_version(alone)
            return handle
        if isinstance(tensor, torch.Tensor) and is_plain(tensor) and tensor.dtype in REDUCIBLE:
            increment_version(tensor)
            return collectives.allreduce_async(alone, alone, name, reduction, waits)
    return _submit_in_place(alone, name, reduction, single=True, waits=waits)


def _submit_group_in_place(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    reduction: Combination,
    *,
    waits: bool = False,
) -> int:
    if devices["cpu"] is None:
        handle = collectives.allreduce_again(list(tensors), name, reduction, waits)
        if handle is not None:
            torch._C._increment_version(tensors)
            return finish_with(handle, list)
    return _submit_in_place(tensors, name, reduction, single=False, waits=waits)


def run(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    reduction: Reduction,
    codec: int = codes.NO_CODEC,
) -> list[torch.Tensor]:
    """Return the reductions of a group of tensors, with autograd support."""
    handle = _submit(tensors, name, reduction, single=False, waits=True, codec=codec)
    return cast("list[torch.Tensor]", synchronize(handle))


class _Allreduce(torch.autograd.Function):
    """The gradient of a reduction is the same reduction of the gradient."""

    @staticmethod
    def forward(
        name: str | None, reduction: Reduction, codec: int, *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return tuple(run(tensors, name, reduction, codec))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _, ctx.reduction, ctx.codec, *_ = inputs

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return None, None, None, *_reduce(grads, None, ctx.reduction, ctx.codec)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[torch.Tensor, ...]:
        if ctx.reduction.op not in (Average, Sum):
            raise NotImplementedError(
                "allreduce: only op=Average and op=Sum have forward-mode derivatives"
            )
        return tuple(_reduce(tangents[3:], None, ctx.reduction, ctx.codec))

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Any, ...],
        name: str | None,
        reduction: Reduction,
        codec: int,
        *tensors: Any,
    ) -> tuple[Any, Any]:
        if reduction.op == Adasum:
            raise NotImplementedError("allreduce: torch.vmap cannot map op=Adasum")
        moved, out_dims = batch_at(0, tensors, in_dims[3:])
        return _Allreduce.apply(name, reduction, codec, *moved), out_dims


def _reduce(
    tensors: Sequence[torch.Tensor], name: str | None, reduction: Reduction, codec: int
) -> list[torch.Tensor]:
    if is_compiling():
        return cast(
            "list[torch.Tensor]",
            torch.ops.sirtaki.allreduce(list(tensors), name, *reduction.numbers(), codec),
        )
    if wants_grad(tensors):
        return list(_Allreduce.apply(name, reduction, codec, *tensors))
    return run(tensors, name, reduction, codec)


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Return the reduction of a tensor over all ranks: their average unless `op` says otherwise.

    Every rank gives a tensor of the same shape and dtype, and gets the same result, bit for bit.
    Differentiable: the gradient is reduced in the same way.

    Args:
        tensor: any shape; bool, integers, float16, bfloat16, float32, float64 or complex.
        average: deprecated; True means op=Average, False means op=Sum.
        name: matches the call with those of the other ranks; without a name, calls match in the
            order in which they are made.
        compression: form of the tensor on the wire, from `Compression`.
        op: Average (default), Sum, Min, Max, Product or Adasum. Averages of integers are
            truncated toward zero. Complex numbers have no Min and Max, and only floats Adasum.
        prescale_factor: multiplies the tensor before the reduction.
        postscale_factor: multiplies the result.
        process_set: the ranks that take part.

    Returns:
        A new tensor of the same shape and dtype, on the same device.

    Raises:
        TypeError: `tensor` is not a plain tensor, or another argument has a wrong type.
        ValueError: an argument is wrong, or an operation with this name is still in flight.
        HorovodInternalError: the ranks disagree on shape, dtype or op, or a rank was lost.
    """
    reduction = Reduction(resolve_op(op, average), prescale_factor, postscale_factor, process_set)
    codec = codec_of(compression, (tensor,), reduction.op)
    compressed, ctx = compress_for(codec, compression, tensor)
    if is_compiling() or wants_grad((check_reducible(compressed, reduction.op),)):
        (output,) = _reduce((compressed,), name, reduction, codec)
    else:
        output = synchronize(_submit_one(compressed, name, reduction, codec=codec, waits=True))
    whole: torch.Tensor = compression.decompress(output, ctx)
    return whole


@untraced
def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `allreduce` and return a handle for `poll` and `synchronize`; not differentiable.

    Args:
        tensor: as for `allreduce`; do not change it before the operation has completed.
        average, name, op, prescale_factor, postscale_factor, process_set: as for `allreduce`.

    Returns:
        A handle; `synchronize(handle)` returns a new tensor of the same shape and dtype.

    Raises:
        TypeError, ValueError: an argument is wrong; nothing was sent.
    """
    reduction = Reduction(resolve_op(op, average), prescale_factor, postscale_factor, process_set)
    return _submit_one(tensor, name, reduction)


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Do `allreduce` in place and return the tensor; not differentiable.

    Args:
        tensor: as for `allreduce`; it gets the result.
        average, name, op, prescale_factor, postscale_factor, process_set: as for `allreduce`.

    Returns:
        `tensor`.

    Raises:
        TypeError, ValueError, HorovodInternalError: as `allreduce`.
    """
    reduction = Reduction(resolve_op(op, average), prescale_factor, postscale_factor, process_set)
    if is_compiling():
        (output,) = torch.ops.sirtaki.allreduce(
            [tensor], name, *reduction.numbers(), codes.NO_CODEC
        )
        return tensor.copy_(output)
    handle = _submit_one_in_place(tensor, name, reduction, waits=True)
    return cast("torch.Tensor", synchronize(handle))


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `allreduce_` and return a handle for `poll` and `synchronize`.

    A tensor that is not contiguous, or that goes through CPU memory, is reduced in a copy and
    filled by `synchronize`. If it shares memory with a tensor of another operation in flight, the
    call waits for that one.

    Args:
        tensor: as for `allreduce`; neither read nor change it before `synchronize`.
        average, name, op, prescale_factor, postscale_factor, process_set: as for `allreduce`.

    Returns:
        A handle; `synchronize(handle)` returns `tensor`.

    Raises:
        TypeError, ValueError: an argument is wrong; nothing was sent.
    """
    op = Average if op is average is None else resolve_op(op, average)
    reduction = op, prescale_factor, postscale_factor, process_set
    if is_compiling():  # as `untraced`, which takes longer
        handle: int = torch.compiler.disable(_submit_one_in_place)(tensor, name, reduction)
        return handle
    return _submit_one_in_place(tensor, name, reduction)


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Return the reductions of several tensors, done together as one operation.

    No tensor of the group is reduced before all ranks have passed all of it. Differentiable.

    Args:
        tensors: at least one; each as for `allreduce`, with any shapes and dtypes.
        average, name, compression, op: as for `allreduce`.
        prescale_factor, postscale_factor, process_set: as for `allreduce`.

    Returns:
        A new tensor for each of `tensors`, in the same order.

    Raises:
        TypeError, ValueError, HorovodInternalError: as `allreduce`.
    """
    reduction = Reduction(resolve_op(op, average), prescale_factor, postscale_factor, process_set)
    codec = codec_of(compression, tensors, reduction.op)
    compressed, contexts = compress_all(codec, compression, tensors)
    checked = [check_reducible(tensor, reduction.op) for tensor in compressed]
    return decompress_all(compression, _reduce(checked, name, reduction, codec), contexts)


@untraced
def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `grouped_allreduce` and return one handle for the group; not differentiable.

    Args:
        tensors: as for `grouped_allreduce`; do not change them before the operation has completed.
        average, name, op, prescale_factor, postscale_factor, process_set: as for `allreduce`.

    Returns:
        A handle; `synchronize(handle)` returns a list of new tensors.

    Raises:
        TypeError, ValueError: an argument is wrong; nothing was sent.
    """
    reduction = Reduction(resolve_op(op, average), prescale_factor, postscale_factor, process_set)
    return _submit(tensors, name, reduction, single=False)


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Do `grouped_allreduce` in place and return the tensors; not differentiable.

    Args:
        tensors: as for `grouped_allreduce`; they get the results.
        average, name, op, prescale_factor, postscale_factor, process_set: as for `allreduce`.

    Returns:
        A list of `tensors`.

    Raises:
        TypeError, ValueError, HorovodInternalError: as `allreduce`.
    """
    reduction = Reduction(resolve_op(op, average), prescale_factor, postscale_factor, process_set)
    if is_compiling():
        outputs = torch.ops.sirtaki.allreduce(
            list(tensors), name, *reduction.numbers(), codes.NO_CODEC
        )
        return [t.copy_(output) for t, output in zip(tensors, outputs, strict=True)]
    handle = _submit_group_in_place(tensors, name, reduction, waits=True)
    return cast("list[torch.Tensor]", synchronize(handle))


@untraced
def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `grouped_allreduce_` and return one handle for the group.

    Args:
        tensors: as for `grouped_allreduce`; neither read nor change them before `synchronize`.
        average, name, op, prescale_factor, postscale_factor, process_set: as for `allreduce`.

    Returns:
        A handle; `synchronize(handle)` returns a list of `tensors`.

    Raises:
        TypeError, ValueError: an argument is wrong; nothing was sent.
    """
    reduction = Reduction(resolve_op(op, average), prescale_factor, postscale_factor, process_set)
    return _submit_group_in_place(tensors, name, reduction)

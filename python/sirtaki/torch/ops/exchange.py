"""Allgather, broadcast and alltoall: tensors move between ranks unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch.autograd.graph import increment_version
from torch.compiler import is_compiling

from sirtaki.core.operations.reduce_ops import Average
from sirtaki.core.world import state
from sirtaki.core.world.participants import number_of, size_of
from sirtaki.core.world.process_sets import ProcessSet, global_process_set
from sirtaki.torch.ops.allreduce import grouped_allreduce
from sirtaki.torch.ops.handles import (
    finish_with,
    return_inputs,
    return_outputs,
    runner_of,
    stage_in_place,
    stage_inputs,
    start_group,
    synchronize,
)
from sirtaki.torch.ops.tensors import check_dense
from sirtaki.torch.ops.tracing import batch_at, check_one_device, untraced, wants_grad


def allgather_back(
    grads: Sequence[torch.Tensor], rows: Sequence[int], process_set: ProcessSet
) -> list[torch.Tensor]:
    """Return this rank's rows, given per tensor, of the average of the ranks' gradients."""
    averages = grouped_allreduce(grads, op=Average, process_set=process_set)
    mine = torch.tensor([rows], dtype=torch.int64, device="cpu")
    (counts,) = _gather([mine], None, process_set)
    first = counts[: process_set.rank()].sum(dim=0).tolist()
    return [
        average.narrow(0, begin, count)
        for average, begin, count in zip(averages, first, rows, strict=True)
    ]


class _Allgather(torch.autograd.Function):
    """The gradient is this rank's rows of the average over the ranks' gradients."""

    @staticmethod
    def forward(
        name: str | None, process_set: ProcessSet, *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return tuple(run_allgather(tensors, name, process_set))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _, ctx.process_set, *tensors = inputs
        ctx.rows = [tensor.shape[0] for tensor in tensors]

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return None, None, *allgather_back(grads, ctx.rows, ctx.process_set)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[torch.Tensor, ...]:
        return tuple(_gather(tangents[2:], None, ctx.process_set))

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Any, ...],
        name: str | None,
        process_set: ProcessSet,
        *tensors: Any,
    ) -> tuple[Any, Any]:
        moved, out_dims = batch_at(1, tensors, in_dims[2:])
        return _Allgather.apply(name, process_set, *moved), out_dims


def _submit_gather(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    process_set: ProcessSet,
    *,
    single: bool,
    waits: bool = False,
) -> int:
    for tensor in tensors:
        check_dense(tensor)
    check_one_device(tensors)
    runner = runner_of(tensors, "allgather")

    def start(part: Sequence[torch.Tensor], part_name: str | None) -> int:
        return runner.allgather_async(part, part_name, process_set, waits)

    handle = start_group(stage_inputs(tensors, runner), name, start)
    return return_outputs(handle, tensors, single=single)


def run_allgather(
    tensors: Sequence[torch.Tensor], name: str | None, process_set: ProcessSet
) -> list[torch.Tensor]:
    """Gather a group of tensors, with autograd support."""
    handle = _submit_gather(tensors, name, process_set, single=False, waits=True)
    return cast("list[torch.Tensor]", synchronize(handle))


def _gather(
    tensors: Sequence[torch.Tensor], name: str | None, process_set: ProcessSet
) -> list[torch.Tensor]:
    if is_compiling():
        return cast(
            "list[torch.Tensor]",
            torch.ops.sirtaki.allgather(list(tensors), name, number_of(process_set)),
        )
    if wants_grad(tensors):
        return list(_Allgather.apply(name, process_set, *tensors))
    return run_allgather(tensors, name, process_set)


def allgather(
    tensor: torch.Tensor,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Return the ranks' tensors concatenated along the first dimension, in order of rank.

    Differentiable: the gradient is this rank's rows of the average of the ranks' gradients.

    Args:
        tensor: any dtype; at least one dimension. First dimensions may differ between ranks and may
            be zero; the others must agree.
        name: matches the call with those of the other ranks; without a name, calls match in the
            order in which they are made.
        process_set: the ranks that take part.

    Returns:
        A new tensor of the same dtype, with the sum of the ranks' first dimensions.

    Raises:
        TypeError: `tensor` is not a plain tensor.
        ValueError: an argument is wrong, or an operation with this name is still in flight.
        HorovodInternalError: the ranks disagree on dtype or on a dimension other than the first,
            or a rank was lost.
    """
    return _gather([check_dense(tensor)], name, process_set)[0]


@untraced
def allgather_async(
    tensor: torch.Tensor,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `allgather` and return a handle for `poll` and `synchronize`; not differentiable.

    Args:
        tensor, name, process_set: as for `allgather`.

    Returns:
        A handle; `synchronize(handle)` returns the new tensor.

    Raises:
        TypeError, ValueError: an argument is wrong; nothing was sent.
    """
    return _submit_gather((tensor,), name, process_set, single=True)


def grouped_allgather(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Return the result of `allgather` for each of several tensors, as one operation.

    Args:
        tensors: at least one; each as for `allgather`.
        name, process_set: as for `allgather`.

    Returns:
        A new tensor for each of `tensors`, in the same order.

    Raises:
        TypeError, ValueError, HorovodInternalError: as `allgather`.
    """
    return _gather([check_dense(tensor) for tensor in tensors], name, process_set)


@untraced
def grouped_allgather_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `grouped_allgather` and return one handle for the group; not differentiable.

    Args:
        tensors, name, process_set: as for `grouped_allgather`.

    Returns:
        A handle; `synchronize(handle)` returns a list of new tensors.

    Raises:
        TypeError, ValueError: an argument is wrong; nothing was sent.
    """
    return _submit_gather(tensors, name, process_set, single=False)


def broadcast_back(grad: torch.Tensor, root_rank: int, process_set: ProcessSet) -> torch.Tensor:
    """Return the average of the ranks' gradients on the root, zeros elsewhere."""
    (average,) = grouped_allreduce([grad], op=Average, process_set=process_set)
    return average if state.rank() == root_rank else torch.zeros_like(average)


class _Broadcast(torch.autograd.Function):
    """The gradient is the average of the ranks' gradients on the root, zero elsewhere."""

    @staticmethod
    def forward(
        tensor: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet
    ) -> torch.Tensor:
        handle = broadcast_async(tensor, root_rank, name, process_set)
        return cast("torch.Tensor", synchronize(handle))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _, ctx.root_rank, _, ctx.process_set = inputs

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        own = broadcast_back(grad, ctx.root_rank, ctx.process_set)
        return own, None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor, *_: Any) -> torch.Tensor:
        return broadcast(tangent, ctx.root_rank, None, ctx.process_set)

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Any, ...],
        tensor: torch.Tensor,
        root_rank: int,
        name: str | None,
        process_set: ProcessSet,
    ) -> tuple[Any, Any]:
        (moved,), (out_dim,) = batch_at(0, [tensor], in_dims[:1])
        return _Broadcast.apply(moved, root_rank, name, process_set), out_dim


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Return the root's tensor on every rank; the tensors must agree in shape and dtype.

    Differentiable: the root's gradient is the average of the ranks' gradients, the others' zero.

    Args:
        tensor: any shape and dtype.
        root_rank: the rank, counted among all ranks, whose tensor is sent.
        name: matches the call with those of the other ranks; without a name, calls match in the
            order in which they are made.
        process_set: the ranks that take part; the root must be among them.

    Returns:
        A new tensor of the same shape and dtype.

    Raises:
        TypeError: `tensor` is not a plain tensor.
        ValueError: an argument is wrong, or an operation with this name is still in flight.
        HorovodInternalError: the ranks disagree on shape, dtype or root, or a rank was lost.
    """
    if is_compiling():
        number = number_of(process_set)
        return cast("torch.Tensor", torch.ops.sirtaki.broadcast(tensor, root_rank, name, number))
    if wants_grad((check_dense(tensor),)):
        return cast("torch.Tensor", _Broadcast.apply(tensor, root_rank, name, process_set))
    return cast("torch.Tensor", synchronize(broadcast_async(tensor, root_rank, name, process_set)))


@untraced
def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `broadcast` and return a handle for `poll` and `synchronize`; not differentiable.

    Args:
        tensor, root_rank, name, process_set: as for `broadcast`.

    Returns:
        A handle; `synchronize(handle)` returns the new tensor.

    Raises:
        TypeError, ValueError: an argument is wrong; nothing was sent.
    """
    runner = runner_of((check_dense(tensor),), "broadcast")
    (staged,) = stage_inputs((tensor,), runner)
    handle = runner.broadcast_async(staged, None, root_rank, name, process_set)
    return return_outputs(handle, (tensor,), single=True)


def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Do `broadcast` in place and return the tensor; not differentiable.

    Args:
        tensor: as for `broadcast`; it gets the root's values.
        root_rank, name, process_set: as for `broadcast`.

    Returns:
        `tensor`.

    Raises:
        TypeError, ValueError, HorovodInternalError: as `broadcast`.
    """
    if is_compiling():
        output = torch.ops.sirtaki.broadcast(tensor, root_rank, name, number_of(process_set))
        return tensor.copy_(output)
    handle = broadcast_async_(tensor, root_rank, name, process_set)
    return cast("torch.Tensor", synchronize(handle))


@untraced
def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `broadcast_` and return a handle for `poll` and `synchronize`.

    A tensor that is not contiguous, or that goes through CPU memory, is received in a copy and
    filled by `synchronize`.

    Args:
        tensor: as for `broadcast`; neither read nor change it before `synchronize`.
        root_rank, name, process_set: as for `broadcast`.

    Returns:
        A handle; `synchronize(handle)` returns `tensor`.

    Raises:
        TypeError, ValueError: an argument is wrong; nothing was sent.
    """
    runner = runner_of((check_dense(tensor),), "broadcast")
    (staged,) = stage_in_place((tensor,), runner)
    handle = runner.broadcast_async(staged, staged, root_rank, name, process_set)
    if staged is not tensor:
        return return_inputs(handle, (tensor,), single=True)
    increment_version(tensor)
    return handle


def run_alltoall(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None,
    name: str | None,
    process_set: ProcessSet,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return received rows and their counts, with autograd support."""
    handle = alltoall_async(tensor, splits, name, process_set)
    return cast("tuple[torch.Tensor, torch.Tensor]", synchronize(handle))


def alltoall_back(
    grad: torch.Tensor, received: torch.Tensor, rows: int, process_set: ProcessSet
) -> torch.Tensor:
    """Send rows of the gradient back; rows of `rows` that were not sent get zeros."""
    own, _ = alltoall(grad, received, process_set=process_set)
    ignored = rows - own.shape[0]
    return torch.cat([own, own.new_zeros((ignored, *own.shape[1:]))]) if ignored else own


class _Alltoall(torch.autograd.Function):
    """The gradient goes back the way the tensor came."""

    @staticmethod
    def forward(
        tensor: torch.Tensor, splits: Any, name: str | None, process_set: ProcessSet
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return run_alltoall(tensor, splits, name, process_set)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        tensor, ctx.splits, _, ctx.process_set = inputs
        ctx.rows = tensor.shape[0]
        ctx.save_for_backward(output[1])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (received,) = ctx.saved_tensors
        own = alltoall_back(grad, received, ctx.rows, ctx.process_set)
        return own, None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor, *_: Any) -> tuple[torch.Tensor, None]:
        output, _ = _Alltoall.apply(tangent, ctx.splits, None, ctx.process_set)
        return output, None

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Any, ...],
        tensor: torch.Tensor,
        splits: Any,
        name: str | None,
        process_set: ProcessSet,
    ) -> tuple[Any, Any]:
        (moved,), (out_dim,) = batch_at(1, [tensor], in_dims[:1])
        return _Alltoall.apply(moved, splits, name, process_set), (out_dim, None)


def alltoall(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Send a part of the tensor to each rank, and return the parts received, in order of rank.

    Differentiable: the gradient's rows are sent back to the ranks that sent the rows.

    Args:
        tensor: at least one dimension; cut along the first. The other dimensions must agree.
        splits: how many rows go to each rank of the set: a 1-D int32 tensor, or integers. Rows
            beyond their sum are not sent. Without splits all parts are equal.
        name: matches the call with those of the other ranks; without a name, calls match in the
            order in which they are made.
        process_set: the ranks that take part.

    Returns:
        Without splits the received rows. With splits a pair: the received rows, and how many came
        from each rank (int32, on the device of `splits`).

    Raises:
        ValueError: the splits do not fit the tensor or the number of ranks, another argument is
            wrong, or an operation with this name is still in flight.
        HorovodInternalError: the ranks disagree on dtype or dimensions, or a rank was lost.
    """
    if is_compiling():
        if splits is not None and not isinstance(splits, torch.Tensor):
            splits = torch.tensor(splits, dtype=torch.int32, device="cpu")
        output, received = torch.ops.sirtaki.alltoall(
            tensor, splits, name, number_of(process_set), size_of(process_set)
        )
    elif wants_grad((check_dense(tensor),)):
        output, received = _Alltoall.apply(tensor, splits, name, process_set)
    else:
        output, received = run_alltoall(tensor, splits, name, process_set)
    return output if splits is None else (output, received)


@untraced
def alltoall_async(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `alltoall` and return a handle for `poll` and `synchronize`; not differentiable.

    Args:
        tensor, splits, name, process_set: as for `alltoall`.

    Returns:
        A handle; `synchronize(handle)` always returns the pair, with or without `splits`.

    Raises:
        TypeError, ValueError: an argument is wrong; nothing was sent.
    """
    device = check_dense(tensor).device
    runner = runner_of((tensor,), "alltoall")
    (staged,) = stage_inputs((tensor,), runner)
    handle = runner.alltoall_async(staged, splits, name, process_set)

    def finish(outputs: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        output, received = outputs
        return output.to(device), received

    return finish_with(handle, finish)

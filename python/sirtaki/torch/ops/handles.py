"""Handles of operations on tensors of any device, staged through CPU memory."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from sirtaki.core.operations.collectives import Collectives
from sirtaki.core.operations.groups import Groups
from sirtaki.core.world.process_sets import ProcessSet, global_process_set
from sirtaki.torch.device.routes import is_reduced, joining, route
from sirtaki.torch.ops.tensors import TorchTensors, host_copy, is_plain

# What `sparse_allreduce_async` returns: call it for the result.
SparseHandle = Callable[[], torch.Tensor]


_tensors = TorchTensors()
collectives: Collectives[torch.Tensor] = Collectives(_tensors)
_groups: Groups[torch.Tensor] = Groups(collectives, operator.attrgetter("dtype"))
start_group = _groups.start
wait = _groups.wait
finish_with = _groups.finish_with


def runner_of(
    tensors: Sequence[torch.Tensor], operation: str, op: int | None = None
) -> Collectives[torch.Tensor]:
    """Return what runs an operation, named as the switches have it, on these tensors."""
    if not tensors:
        return collectives
    runner = route(tensors[0], operation, op)
    if runner is None or any(tensor.device != tensors[0].device for tensor in tensors):
        return collectives
    if op is not None and not all(is_reduced(tensor.dtype) for tensor in tensors):
        return collectives
    return runner


def stage_inputs(
    tensors: Sequence[torch.Tensor], runner: Collectives[torch.Tensor]
) -> Sequence[torch.Tensor]:
    """Return the tensors where the runner wants them: themselves if they are there already."""
    if runner is not collectives:
        return tensors
    for tensor in tensors:
        if not tensor.is_cpu:
            return [host_copy(tensor) for tensor in tensors]
    return tensors


def stage_in_place(
    tensors: Sequence[torch.Tensor], runner: Collectives[torch.Tensor]
) -> Sequence[torch.Tensor]:
    """Return, for each tensor, one for the runner to work on in place: itself, or a copy."""
    if runner is not collectives:
        return [_tensors.contiguous(tensor) for tensor in tensors]
    for tensor in tensors:
        if not is_plain(tensor):
            return [_tensors.contiguous(host_copy(tensor)) for tensor in tensors]
    return tensors


def return_outputs(handle: int, inputs: Sequence[torch.Tensor], *, single: bool) -> int:
    """Have `synchronize(handle)` return new tensors, each on the device of its input."""
    on_cpu = all(tensor.is_cpu for tensor in inputs)
    if single and on_cpu:
        return handle
    devices = [tensor.device for tensor in inputs]

    def finish(outputs: list[torch.Tensor]) -> Any:
        if not on_cpu:
            outputs = [t.to(device) for t, device in zip(outputs, devices, strict=True)]
        return outputs[0] if single else outputs

    return finish_with(handle, finish)


def return_inputs(
    handle: int,
    inputs: Sequence[torch.Tensor],
    staged: Sequence[torch.Tensor],
    *,
    single: bool,
) -> int:
    """Have `synchronize(handle)` return the inputs, filled from the copies worked on."""
    kept = list(inputs)

    def finish(_: list[torch.Tensor]) -> Any:
        with torch.no_grad():
            for tensor, copy in zip(kept, staged, strict=True):
                if tensor is not copy:
                    tensor.copy_(copy)
        return kept[0] if single else kept

    return finish_with(handle, finish)


def poll(handle: int) -> bool:
    """Say whether an asynchronous operation has completed, so that `synchronize` returns at once.

    Raises:
        ValueError: the handle is unknown, or its operation was synchronized already.
    """
    return _groups.poll(handle)


def synchronize(handle: int | SparseHandle) -> Any:
    """Wait for an asynchronous operation and return its result.

    That is one tensor; a list of tensors for a grouped operation; the pair (output, received
    splits) for alltoall. An in-place operation returns the tensors it was given. After this the
    handle is no longer valid. Accepts what `sparse_allreduce_async` returns, too.

    Raises:
        ValueError: the handle is unknown, or was synchronized already.
        HorovodInternalError: the operation failed; the message names the tensor and the reason.
    """
    if not isinstance(handle, int):
        return handle()
    return _groups.synchronize(handle)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Wait until every rank of the process set has called `barrier`.

    Raises:
        ValueError: this rank is not in the process set, or that is not registered.
        HorovodInternalError: a rank was lost.
    """
    collectives.barrier(process_set)


def join(device: int = -1) -> int:
    """Say that this rank has no more data, and wait until every rank has said so.

    Until then this rank contributes zeros to the allreduces of the others, and operations other
    than allreduce fail on the ranks that try them. `device` is accepted for compatibility.

    Returns:
        The rank that joined last, the same on all ranks.

    Raises:
        HorovodInternalError: a rank was lost.
    """
    return collectives.join(global_process_set, on_device=joining())

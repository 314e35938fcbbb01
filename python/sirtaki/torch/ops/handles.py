"""Handles of operations on tensors of any device, staged through CPU memory."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.compiler import is_compiling

from sirtaki.core.operations.collectives import Collectives
from sirtaki.core.operations.groups import Groups
from sirtaki.core.world.process_sets import ProcessSet, global_process_set
from sirtaki.torch.device.routes import is_reduced, joining, route
from sirtaki.torch.ops.tensors import PLACES, TorchTensors, check_writable, host_copy, is_plain

# The result of `sparse_allreduce_async`: call it for the tensor.
SparseHandle = Callable[[], torch.Tensor]


_tensors = TorchTensors()
collectives: Collectives[torch.Tensor] = Collectives(_tensors, places=PLACES)
_groups: Groups[torch.Tensor] = Groups(collectives, operator.attrgetter("dtype"))
start_group = _groups.start
wait = _groups.wait
finish_with = _groups.finish_with


def runner_of(
    tensors: Sequence[torch.Tensor], operation: str, op: int | None = None
) -> Collectives[torch.Tensor]:
    """Return the runner of an operation, by its name in the switches, on these tensors."""
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
    """Return the tensors in the runner's memory: unchanged if they are there already."""
    if runner is not collectives:
        return tensors
    for tensor in tensors:
        if not tensor.is_cpu:
            return [host_copy(tensor) for tensor in tensors]
    return tensors


def stage_in_place(
    tensors: Sequence[torch.Tensor], runner: Collectives[torch.Tensor]
) -> Sequence[torch.Tensor]:
    """Return, for each tensor, one for the runner's in-place work: itself, or a copy."""
    if runner is not collectives:
        return [_tensors.contiguous(check_writable(tensor)) for tensor in tensors]
    for tensor in tensors:
        if not is_plain(tensor):
            return [_tensors.contiguous(host_copy(check_writable(each))) for each in tensors]
    return tensors


def return_outputs(handle: int, inputs: Sequence[torch.Tensor], *, single: bool) -> int:
    """Make `synchronize(handle)` return new tensors, each on the device of its input."""
    on_cpu = all(tensor.is_cpu for tensor in inputs)
    if single and on_cpu:
        return handle
    devices = [tensor.device for tensor in inputs]

    def finish(outputs: list[torch.Tensor]) -> Any:
        if not on_cpu:
            outputs = [t.to(device) for t, device in zip(outputs, devices, strict=True)]
        return outputs[0] if single else outputs

    return finish_with(handle, finish)


def return_inputs(handle: int, inputs: Sequence[torch.Tensor], *, single: bool) -> int:
    """Make `synchronize(handle)` return the inputs, filled from the processed copies."""
    kept = list(inputs)

    def finish(outputs: list[torch.Tensor]) -> Any:
        with torch.no_grad():
            for tensor, copy in zip(kept, outputs, strict=True):
                if tensor is not copy:
                    tensor.copy_(copy)
        return kept[0] if single else kept

    return finish_with(handle, finish)


def poll(handle: int) -> bool:
    """Return whether an asynchronous operation is complete; `synchronize` then returns at once.

    Args:
        handle: from a function whose name ends in `_async` or `_async_`.

    Raises:
        ValueError: the handle is unknown, or its operation was synchronized already.
    """
    return _groups.poll(handle)


def synchronize(handle: int | SparseHandle) -> Any:
    """Wait for an asynchronous operation and return its result.

    After this the handle is no longer valid.

    Args:
        handle: from a function whose name ends in `_async` or `_async_`, also from
            `sparse_allreduce_async`.

    Returns:
        One tensor; a list of tensors for a grouped operation; the pair (output, received splits)
        for alltoall. An in-place operation returns the tensors it was given.

    Raises:
        ValueError: the handle is unknown, or was synchronized already.
        HorovodInternalError: the operation failed; the message names the tensor and the reason.
    """
    if is_compiling():  # as `untraced`, which takes longer
        return torch.compiler.disable(synchronize)(handle)
    if not isinstance(handle, int):
        return handle()
    return _groups.synchronize(handle)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Wait until every rank of the process set has called `barrier`.

    Args:
        process_set: the ranks that wait for each other.

    Raises:
        ValueError: this rank is not in the process set, or the set is not registered.
        HorovodInternalError: a rank was lost.
    """
    collectives.barrier(process_set)


def join(device: int = -1) -> int:
    """Signal that this rank has no more data, and wait until every rank has done so.

    Until then this rank contributes zeros to the others' allreduces, and other operations fail on
    the ranks that start them.

    Args:
        device: accepted for compatibility with Horovod.

    Returns:
        The rank that joined last, the same on all ranks.

    Raises:
        HorovodInternalError: a rank was lost.
    """
    return collectives.join(global_process_set, on_device=joining())

"""Handles of operations on their way, and what remains to be done when they complete.

The core knows a handle as an integer and returns a list of tensors for it. What PyTorch's caller
expects may be one tensor, a list, a pair, or the tensor that was given, on its own device: that
last step is kept here until `synchronize`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from sirtaki.core.collectives import Collectives
from sirtaki.core.errors import HorovodInternalError
from sirtaki.core.process_sets import ProcessSet, global_process_set
from sirtaki.torch.device.routes import joining, route
from sirtaki.torch.tensors import TorchTensors, host_copy, is_plain

Finish = Callable[[list[torch.Tensor]], Any]
# Starts an operation on tensors of one dtype under a name, and returns its handle.
Start = Callable[[Sequence[torch.Tensor], str | None], int]
# What `sparse_allreduce_async` returns: call it for the result.
SparseHandle = Callable[[], torch.Tensor]


class _Part(NamedTuple):
    """One operation of several that serve a group, and which of its tensors it has."""

    handle: int
    members: list[int]


_tensors = TorchTensors()
collectives: Collectives[torch.Tensor] = Collectives(_tensors)
_finish: dict[int, Finish] = {}
_parts: dict[int, list[_Part]] = {}


def start_group(tensors: Sequence[torch.Tensor], name: str | None, start: Start) -> int:
    """Start one operation, or one for each dtype there is; return a handle for `wait`."""
    by_dtype: dict[torch.dtype, list[int]] = {}
    for i, tensor in enumerate(tensors):
        by_dtype.setdefault(tensor.dtype, []).append(i)
    if len(by_dtype) <= 1:
        return start(tensors, name)
    parts = []
    for dtype, members in by_dtype.items():
        part_name = None if name is None else f"{name}.{str(dtype).removeprefix('torch.')}"
        parts.append(_Part(start([tensors[i] for i in members], part_name), members))
    _parts[parts[0].handle] = parts
    return parts[0].handle


def wait(handle: int) -> list[torch.Tensor]:
    """Wait for an operation of `start_group` and return the tensors the core has for it."""
    parts = _parts.pop(handle, None)
    if parts is None:
        return collectives.synchronize(handle)
    outputs: dict[int, torch.Tensor] = {}
    failure: HorovodInternalError | None = None
    for part in parts:
        try:
            outputs.update(zip(part.members, collectives.synchronize(part.handle), strict=True))
        except HorovodInternalError as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return [outputs[i] for i in range(len(outputs))]


def finish_with(handle: int, finish: Finish) -> int:
    """Have `synchronize(handle)` return `finish(outputs)` rather than the only output."""
    _finish[handle] = finish
    return handle


def runner_of(
    tensors: Sequence[torch.Tensor], operation: str, op: int | None = None
) -> Collectives[torch.Tensor]:
    """Return what runs an operation, named as the switches have it, on these tensors."""
    if not tensors:
        return collectives
    runner = route(tensors[0], operation, op)
    if runner is None or any(tensor.device != tensors[0].device for tensor in tensors):
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
    parts = _parts.get(handle)
    if parts is not None:
        return all(collectives.poll(part.handle) for part in parts)
    return collectives.poll(handle)


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
    finish = _finish.pop(handle, None)
    if finish is None:
        return collectives.synchronize(handle)[0]
    return finish(wait(handle))


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

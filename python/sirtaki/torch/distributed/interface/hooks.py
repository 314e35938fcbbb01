"""Hooks of PyTorch 2.14 and newer, which run before and after each operation of a group.

PyTorch keeps them in a group of its own, whose operations call them. Once one of our groups has a
hook, a PyTorch group wraps it and forwards every operation.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

_OPERATIONS = (
    *("allreduce", "allreduce_coalesced", "reduce", "broadcast", "barrier", "send", "recv"),
    *("recv_anysource", "allgather", "allgather_coalesced", "all_gather_single"),
    *("all_gather_single_coalesced", "gather", "scatter", "reduce_scatter"),
    *("reduce_scatter_single", "reduce_scatter_single_coalesced", "all_to_all_single", "alltoall"),
    *("_allgather_base", "_reduce_scatter_base", "alltoall_base", "gather_single"),
    *("allgather_into_tensor_coalesced", "reduce_scatter_tensor_coalesced"),
)
_DEVICES = ("cpu", "cuda", "xpu")
_ATTACHED = ("FlightRecorderHook", "NanCheckHook")
_RECORDER_SIZES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")

# Its stubs do not declare it as a base class.
_Backend: Any = c10d.Backend


class _Behind(_Backend):  # type: ignore[misc]
    """One of our groups as the backend of the group that wraps it."""

    def __init__(self, group: Any) -> None:
        super().__init__(group.getRank(), group.getSize())
        self._group = group
        self._made = threading.local()

    def getBackendName(self) -> str:
        """Return the name of the group's backend."""
        return str(self._group.getBackendName())

    def take(self) -> Any:
        """Return the Python work of this thread's last operation."""
        made, self._made.work = self._made.work, None
        return made


def _handed_on(name: str) -> Callable[..., Any]:
    def operation(self: Any, *arguments: Any, **options: Any) -> Any:
        self._made.work = getattr(type(self._group), name)(self._group, *arguments, **options)
        return self._made.work

    return operation


for _name in (*_OPERATIONS, "allreduce_sparse"):
    setattr(_Behind, _name, _handed_on(_name))


class Hooks:
    """The hooks of a group."""

    _before: Any = None

    def register_pre_hook(self, hook_id: int, hook: Callable[[Any], None]) -> None:
        """Add a hook that is called before each operation."""
        self._front().register_pre_hook(hook_id, hook)

    def unregister_pre_hook(self, hook_id: int) -> None:
        """Remove a hook."""
        self._front().unregister_pre_hook(hook_id)

    def register_post_hook(self, hook_id: int, hook: Callable[[Any], None]) -> None:
        """Add a hook that is called after each operation has begun."""
        self._front().register_post_hook(hook_id, hook)

    def unregister_post_hook(self, hook_id: int) -> None:
        """Remove a hook."""
        self._front().unregister_post_hook(hook_id)

    def _front(self) -> Any:
        """Return the PyTorch group that wraps this one from now on."""
        if self._before is None:
            self._before = self._make_front()
        return self._before

    def _make_front(self) -> Any:
        group: Any = self
        kind = dist.ProcessGroup.BackendType.CUSTOM
        front = dist.ProcessGroup(group._store, group.getRank(), group.getSize())
        front._set_default_backend(kind)
        behind = _Behind(group)
        for device in _DEVICES:
            front._register_backend(torch.device(device), kind, behind)
        front._set_group_name(group.getGroupName())
        front._set_group_desc(group.getGroupDesc())
        for name in _OPERATIONS:
            if hasattr(front, name):
                setattr(group, name, _through(front, behind, name))
        return front


def _through(front: Any, behind: _Behind, name: str) -> Callable[..., Any]:
    theirs = getattr(front, name)

    def operation(*arguments: Any, **options: Any) -> Any:
        theirs(*arguments, **options)
        return behind.take()

    return operation


def attach_before(kind: type[Hooks]) -> None:
    """Attach PyTorch's own hooks to the group that wraps one of ours."""
    for name in _ATTACHED:
        theirs = getattr(c10d, name, None)
        if theirs is not None:
            theirs.attach = staticmethod(_attaching(theirs.attach, kind))


def _attaching(attach: Callable[..., Any], kind: type[Hooks]) -> Callable[..., Any]:
    def attached(pg: Any, *ranks: Any) -> Any:
        if not isinstance(pg, kind):
            return attach(pg, *ranks)
        # PyTorch 2.15 itself records every new group, and passes the ranks. Ours have records of
        # their own, and a group in front takes time, so it records them only on request.
        if ranks and not any(os.environ.get(name) for name in _RECORDER_SIZES):
            return None
        return attach(pg._front(), *ranks)

    return attached

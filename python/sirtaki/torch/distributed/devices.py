"""Accelerator tensors in a group, moved by one of PyTorch's process groups."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import PrefixStore, Store

from sirtaki.core.world.world import World
from sirtaki.stand_in import NAME
from sirtaki.torch.device.layer import Device, device_of
from sirtaki.torch.device.members import exchange, shared_device

# Our name of each operation, and its names in backends.
_NAMES = {
    "allreduce": ("allreduce",),
    "allreduce_coalesced": ("allreduce_coalesced",),
    "reduce": ("reduce",),
    "reduce_scatter": ("reduce_scatter",),
    "reduce_scatter_single": ("reduce_scatter_single", "_reduce_scatter_base"),
    "broadcast": ("broadcast",),
    "allgather": ("allgather",),
    "all_gather_single": ("all_gather_single", "_allgather_base"),
    "gather": ("gather",),
    "scatter": ("scatter",),
    "all_to_all_single": ("all_to_all_single", "alltoall_base"),
    "alltoall": ("alltoall",),
    "send": ("send",),
    "recv": ("recv",),
}

_log = logging.getLogger("sirtaki.device")


class Devices:
    """Delegates operations on accelerator tensors to an inner group, made on first use.

    As with every group of `torch.distributed`, the members call them in the same order. If two
    members share one device, all operations go through CPU memory.
    """

    _world: World
    _group_rank: int
    _group_size: int
    _device_store: Store
    _timeout: float | None
    _inner: Any = None
    _stages = False

    def stage_all(self) -> None:
        """Send all tensors through CPU memory."""
        self._stages = True

    def mover(self, device: torch.device) -> str:
        """Return the name of the backend for a device's tensors: ours, or an inner group's."""
        found = None if self._stages else device_of(torch.empty(0, device=device))
        return NAME if found is None else found.backend

    def _inner_for(self, tensor: torch.Tensor | None) -> Any:
        """Return the backend for a tensor; None: use CPU memory."""
        if tensor is None or self._stages:
            return None
        device = device_of(tensor)
        if device is None:
            return None
        if self._inner is None:
            self._inner = self._make_inner(device)
        return self._inner

    def _make_inner(self, device: Device) -> Any:
        ranks = range(self._group_size)
        own = {"backend": device.backend, "device": device.identity()}
        records = exchange(self._world, own, ranks, self._group_rank)
        shared = shared_device(records, self._world.links.joined.host_of)
        if shared:
            self._stages = True
            if self._group_rank == 0:
                _log.warning("the group exchanges tensors through CPU memory: %s", shared)
            return None
        store = PrefixStore(f"sirtaki/device/{device.backend}", self._device_store)
        limit = timedelta(days=1) if self._timeout is None else timedelta(seconds=self._timeout)
        return device.make_group(store, self._group_rank, self._group_size, limit)

    def _leave_inner(self, how: str) -> None:
        """Call "shutdown" or "abort" of the inner group, if it has that method."""
        inner, self._inner = self._inner, None
        self._stages = True
        getattr(inner, how, _nothing)()


def _serve(name: str) -> Callable[..., Any]:
    def operation(self: Any, *arguments: Any, **options: Any) -> Any:
        inner = self._inner_for(_first_tensor((*arguments, *options.values())))
        if inner is None:
            return getattr(super(Devices, self), name)(*arguments, **options)
        method = next(getattr(inner, n) for n in _NAMES[name] if hasattr(inner, n))
        given = [argument for argument in arguments if argument is not None]
        return method(*given, **{k: v for k, v in options.items() if v is not None})

    operation.__name__ = name
    operation.__doc__ = f"Do `{name}` where the tensors are."
    return operation


for _name in _NAMES:
    setattr(Devices, _name, _serve(_name))


def _first_tensor(arguments: Sequence[Any]) -> torch.Tensor | None:
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            return argument
        if isinstance(argument, (list, tuple)):
            found = _first_tensor(argument)
            if found is not None:
                return found
    return None


def _nothing() -> None:
    """Finish an operation with nothing left to do."""

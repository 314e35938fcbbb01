"""The interface to an accelerator: its tensors, streams, events and process groups."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol

import torch
import torch.distributed as dist

from sirtaki.core.world import state

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

_HIGH_PRIORITY = -1
# NCCL's groups read these at creation: by default they end the process when an operation fails or
# one of their threads is late, and sleep for a minute, with the tensors, before they report an
# error. Our engine detects lost ranks and raises an error instead.
_CALM = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "0",
}


# PyTorch's process groups for accelerators; ROCm's devices are also called cuda.
_BACKENDS: Final = {"cuda": "nccl", "xpu": "xccl"}


class Device(Protocol):
    """The accelerator that holds all tensors of this process."""

    backend: str
    """The process group's name, for people."""
    averages: bool
    """Whether the group divides sums of floats by the number of members itself."""

    def holds(self, tensor: torch.Tensor) -> bool:
        """Return whether the tensor is on this device; ValueError if on another one of its kind."""

    def identity(self) -> str:
        """Return an identity unique among the devices of this host."""

    def make_group(self, store: Store, rank: int, size: int, timeout: timedelta) -> Any:
        """Return a backend of `torch.distributed` for these members."""

    def capturing(self) -> bool:
        """Return whether the calling thread's stream captures a graph and runs nothing."""

    def current(self) -> Any:
        """Return the stream on which the calling thread computes."""

    def side(self) -> Any:
        """Return the stream on which everything is launched."""

    def record(self, stream: Any) -> Any:
        """Record an event that completes when all current work of the stream has completed."""

    def completed(self, event: Any) -> bool:
        """Return whether the work before the event has completed."""

    def wait(self, stream: Any, event: Any) -> None:
        """Make later work on the stream wait for the event."""

    def launch(self, work: Callable[[], None]) -> None:
        """Put the work of `work` on the side stream."""

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return a new tensor for use on the side stream."""

    def share(self, tensors: Sequence[torch.Tensor], stream: Any) -> None:
        """Keep the tensors' memory until the stream's current work has used it."""

    def finish(self) -> None:
        """Block this thread until the side stream is empty."""


class TorchDevice:
    """An accelerator supported by a module of PyTorch.

    Args:
        kind: The `device.type` of its tensors.
        backend: The process group for it: "nccl" or "xccl".
    """

    def __init__(self, kind: str, backend: str) -> None:
        self.backend = backend
        self.averages = backend == "nccl"
        self._kind = kind
        self._module: Any = getattr(torch, kind)
        self._index: int | None = None
        self._side: Any = None

    def holds(self, tensor: torch.Tensor) -> bool:
        """Return whether the tensor is on this device."""
        if tensor.device.type != self._kind:
            return False
        if self._index is None:
            self._index = tensor.device.index
        if tensor.device.index != self._index:
            raise ValueError(
                f"a tensor is on {tensor.device}, but this process has used "
                f"{self._kind}:{self._index}: each process uses one device; call "
                f"torch.{self._kind}.set_device(hvd.local_rank()) before tensors are made"
            )
        return True

    @property
    def _place(self) -> torch.device:
        if self._index is None:
            self._index = self._chosen()
        return torch.device(self._kind, self._index)

    def _chosen(self) -> int:
        if self._module.is_initialized():
            return int(self._module.current_device())
        return state.local_rank() % int(self._module.device_count())

    def identity(self) -> str:
        """Return the device's UUID if PyTorch provides it, and the host that NCCL sees."""
        properties = self._module.get_device_properties(self._place)
        uuid = getattr(properties, "uuid", None)
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        place = str(uuid) if uuid is not None else f"{visible}/{self._place.index}"
        # NCCL connects ranks on one device if they have different values of this variable.
        host = os.environ.get("NCCL_HOSTID", "")
        return f"{place} {hashlib.sha256(host.encode()).hexdigest()[:16]}" if host else place

    def make_group(self, store: Store, rank: int, size: int, timeout: timedelta) -> Any:
        """Return a backend of `torch.distributed` for these members."""
        group_class: Any = getattr(dist, f"ProcessGroup{self.backend.upper()}")
        options = group_class.Options()
        options._timeout = timeout
        with _environment(_CALM):
            group = group_class(store, rank, size, options)
        group._set_sequence_number_for_group()
        return group

    def capturing(self) -> bool:
        """Return whether the calling thread's stream captures a graph and runs nothing."""
        is_capturing = getattr(self._module, "is_current_stream_capturing", None)
        return is_capturing is not None and bool(is_capturing())

    def current(self) -> Any:
        """Return the stream on which the calling thread computes."""
        return self._module.current_stream(self._place)

    def side(self) -> Any:
        """Return the stream on which everything is launched."""
        if self._side is None:
            self._side = self._module.Stream(device=self._place, priority=_HIGH_PRIORITY)
        return self._side

    def record(self, stream: Any) -> Any:
        """Record an event that completes when all current work of the stream has completed."""
        event = self._module.Event()
        event.record(stream)
        return event

    def completed(self, event: Any) -> bool:
        """Return whether the work before the event has completed."""
        return bool(event.query())

    def wait(self, stream: Any, event: Any) -> None:
        """Make later work on the stream wait for the event."""
        stream.wait_event(event)

    def launch(self, work: Callable[[], None]) -> None:
        """Put the work of `work` on the side stream."""
        with self._module.stream(self.side()):
            work()

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return a new tensor for use on the side stream."""
        with self._module.stream(self.side()):
            return torch.empty(tuple(shape), dtype=dtype, device=self._place)

    def share(self, tensors: Sequence[torch.Tensor], stream: Any) -> None:
        """Keep the tensors' memory until the stream's current work has used it."""
        for tensor in tensors:
            tensor.record_stream(stream)

    def finish(self) -> None:
        """Block this thread until the side stream is empty."""
        self.side().synchronize()


@contextmanager
def _environment(defaults: Mapping[str, str]) -> Iterator[None]:
    """Set variables that the user has not set, and unset them afterwards."""
    added = {name: value for name, value in defaults.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


class GlooOnCpu:
    """The CPU as a device with PyTorch's Gloo, for `sirtaki bench compare`.

    It is synchronous: it has no streams.
    """

    backend = "gloo"
    averages = False

    def holds(self, tensor: torch.Tensor) -> bool:
        """Return whether the tensor is in CPU memory."""
        return tensor.device.type == "cpu"

    def identity(self) -> str:
        """Return an identity that no other process has."""
        return f"cpu of process {os.getpid()}"

    def make_group(self, store: Store, rank: int, size: int, timeout: timedelta) -> Any:
        """Return a backend of `torch.distributed` for these members."""
        return dist.ProcessGroupGloo(store, rank, size, timeout=timeout)

    def capturing(self) -> bool:
        """Return False: there are no graphs."""
        return False

    def current(self) -> None:
        """Return None: there are no streams."""

    def side(self) -> None:
        """Return None: there are no streams."""

    def record(self, stream: None) -> None:
        """Return None: all calls have completed."""

    def completed(self, event: None) -> bool:
        """Return True: all calls have completed."""
        return True

    def wait(self, stream: None, event: None) -> None:
        """Do nothing."""

    def launch(self, work: Callable[[], None]) -> None:
        """Do the work."""
        work()

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return a new tensor."""
        return torch.empty(tuple(shape), dtype=dtype)

    def share(self, tensors: Sequence[torch.Tensor], stream: None) -> None:
        """Do nothing: a reference to a tensor keeps its memory."""

    def finish(self) -> None:
        """Do nothing."""


# By `tensor.device.type`; None: served through CPU memory. Filled on demand.
devices: dict[str, Device | None] = {
    "cpu": GlooOnCpu() if os.environ.get("SIRTAKI_BENCH_GLOO") == "1" else None
}


def device_of(tensor: torch.Tensor) -> Device | None:
    """Return the accelerator of a tensor, if it has a process group; otherwise None.

    Raises:
        ValueError: The tensor is on a different device than earlier tensors.
    """
    kind = tensor.device.type
    device = devices[kind] if kind in devices else _find(kind)
    return device if device is not None and device.holds(tensor) else None


def _find(kind: str) -> Device | None:
    devices[kind] = None
    backend = _BACKENDS.get(kind)
    if backend is not None and is_available(kind):
        devices[kind] = TorchDevice(kind, backend)
    return devices[kind]


def is_available(kind: str) -> bool:
    """Return whether there is a device of this kind with a PyTorch process group."""
    module = getattr(torch, kind, None)
    if module is None or not dist.is_available():
        return False
    has_backend = getattr(dist, f"is_{_BACKENDS[kind]}_available", None)
    return has_backend is not None and bool(has_backend()) and bool(module.is_available())


def all_devices() -> list[Device]:
    """Return this process's accelerators that have a process group."""
    kinds = dict.fromkeys((*devices, *_BACKENDS))
    found = [devices[kind] if kind in devices else _find(kind) for kind in kinds]
    return [device for device in found if device is not None]

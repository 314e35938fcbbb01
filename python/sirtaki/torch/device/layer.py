"""What the adapter needs of an accelerator: whose tensors are its, streams, events, a group."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.distributed as dist

from sirtaki.core.world import state

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

_HIGH_PRIORITY = -1
# NCCL's groups read these when they are made: by default they end the process when an operation
# fails or a thread of theirs is late. Our engine finds lost ranks, and raises an error.
_CALM = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0", "TORCH_NCCL_ENABLE_MONITORING": "0"}


class Device(Protocol):
    """One accelerator, which all tensors of this process are on."""

    backend: str
    """The process group's name, for people."""
    averages: bool
    """Whether the group divides sums of floats by the number of members itself."""

    def holds(self, tensor: torch.Tensor) -> bool:
        """Say whether the tensor is on this kind of device; ValueError if on another of them."""

    def identity(self) -> str:
        """Return what tells the device apart from all others of its host."""

    def make_group(self, store: Store, rank: int, size: int, timeout: timedelta) -> Any:
        """Return a backend of `torch.distributed` for these members."""

    def current(self) -> Any:
        """Return the stream on which the calling thread computes."""

    def side(self) -> Any:
        """Return the stream on which everything is launched."""

    def record(self, stream: Any) -> Any:
        """Return an event: all that is on the stream by now has been done."""

    def wait(self, stream: Any, event: Any) -> None:
        """Let what is put on the stream from now on begin after the event."""

    def launch(self, work: Callable[[], None]) -> None:
        """Put what `work` does on the side stream."""

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return a new tensor for use on the side stream."""

    def share(self, tensors: Sequence[torch.Tensor], stream: Any) -> None:
        """Keep the tensors' memory until what is on the stream by then has used it."""

    def finish(self) -> None:
        """Block this thread until the side stream is empty."""


class TorchDevice:
    """An accelerator that PyTorch has a module for.

    Args:
        kind: What its tensors' `device.type` is.
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
        """Say whether the tensor is on this device."""
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
        """Return the device's UUID where PyTorch tells it."""
        properties = self._module.get_device_properties(self._place)
        uuid = getattr(properties, "uuid", None)
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        return str(uuid) if uuid is not None else f"{visible}/{self._place.index}"

    def make_group(self, store: Store, rank: int, size: int, timeout: timedelta) -> Any:
        """Return a backend of `torch.distributed` for these members."""
        group_class: Any = getattr(dist, f"ProcessGroup{self.backend.upper()}")
        options = group_class.Options()
        options._timeout = timeout
        with _environment(_CALM):
            group = group_class(store, rank, size, options)
        group._set_sequence_number_for_group()
        return group

    def current(self) -> Any:
        """Return the stream on which the calling thread computes."""
        return self._module.current_stream(self._place)

    def side(self) -> Any:
        """Return the stream on which everything is launched."""
        if self._side is None:
            self._side = self._module.Stream(device=self._place, priority=_HIGH_PRIORITY)
        return self._side

    def record(self, stream: Any) -> Any:
        """Return an event: all that is on the stream by now has been done."""
        event = self._module.Event()
        event.record(stream)
        return event

    def wait(self, stream: Any, event: Any) -> None:
        """Let what is put on the stream from now on begin after the event."""
        stream.wait_event(event)

    def launch(self, work: Callable[[], None]) -> None:
        """Put what `work` does on the side stream."""
        with self._module.stream(self.side()):
            work()

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return a new tensor for use on the side stream."""
        with self._module.stream(self.side()):
            return torch.empty(tuple(shape), dtype=dtype, device=self._place)

    def share(self, tensors: Sequence[torch.Tensor], stream: Any) -> None:
        """Keep the tensors' memory until what is on the stream by then has used it."""
        for tensor in tensors:
            tensor.record_stream(stream)

    def finish(self) -> None:
        """Block this thread until the side stream is empty."""
        self.side().synchronize()


@contextmanager
def _environment(defaults: Mapping[str, str]) -> Iterator[None]:
    """Set variables that the user has not set, and unset them again."""
    added = {name: value for name, value in defaults.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)

"""The route of a tensor: through CPU memory, or through its accelerator's process group."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import torch

from sirtaki.core.operations.reduce_ops import Adasum
from sirtaki.core.world import state
from sirtaki.core.world.world import World
from sirtaki.torch.device.layer import Device, all_devices, device_of

if TYPE_CHECKING:
    from sirtaki.torch.device.dispatcher import DeviceCollectives

# Types that no process group reduces; complex types have only some operators.
_UNREDUCED: Final = (torch.uint16, torch.uint32, torch.uint64)

# The runner of each world, until the world ends.
_of_worlds: dict[World, DeviceCollectives] = {}
_lock = threading.Lock()


def route(tensor: torch.Tensor, operation: str, op: int | None = None) -> DeviceCollectives | None:
    """Return the runner of an operation on the tensor's device; None: CPU memory serves it.

    Args:
        tensor: One of the operation's tensors.
        operation: Its name in the switches.
        op: The reduction operator.

    Raises:
        RuntimeError: A graph is being captured.
        ValueError: The tensor is on a different device than earlier tensors.
    """
    device = device_of(tensor)
    if device is None or not state.is_initialized():
        return None
    if device.capturing():
        raise RuntimeError(
            f"{operation.lower()} was called while a CUDA graph is captured, but a replay could "
            "not agree with other ranks; call it before or after the captured part"
        )
    world = state.current_world()
    if op == Adasum or operation in world.config.staged or _must_encrypt(world):
        return None
    return _collectives(device)


def is_reduced(dtype: torch.dtype) -> bool:
    """Return whether process groups of accelerators reduce tensors of this type."""
    return not dtype.is_complex and dtype not in _UNREDUCED


def joining() -> bool:
    """Return whether this rank can take part on an accelerator after it has joined."""
    if not state.is_initialized():
        return False
    for device in all_devices():
        if not _must_encrypt(state.current_world()):
            _collectives(device)
            return True
    return False


def _must_encrypt(world: World) -> bool:
    """Return whether data goes between hosts that no accelerator's group would encrypt."""
    return world.config.tls and max(world.links.joined.host_of) > 0


def _collectives(device: Device) -> DeviceCollectives:
    # Needed only with an accelerator, and missing from some builds of PyTorch.
    from sirtaki.torch.device.dispatcher import DeviceCollectives, Dispatcher

    world = state.current_world()
    with _lock:
        if world not in _of_worlds:
            _of_worlds[world] = DeviceCollectives(Dispatcher(world, device))
            world.at_close.append(lambda: _forget(world))
        return _of_worlds[world]


def _forget(world: World) -> None:
    _of_worlds.pop(world, None)

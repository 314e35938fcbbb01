"""Which way a tensor goes: through CPU memory, or by a process group of its accelerator."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import torch
import torch.distributed as dist

from sirtaki.core.operations.reduce_ops import Adasum
from sirtaki.core.world import state
from sirtaki.core.world.world import World
from sirtaki.torch.device.layer import Device, TorchDevice

if TYPE_CHECKING:
    from sirtaki.torch.device.collectives import DeviceCollectives

# The process groups that PyTorch has for accelerators; ROCm's devices are called cuda, too.
_BACKENDS: Final = {"cuda": "nccl", "xpu": "xccl"}

# Numbers that no process group reduces; complex ones are reduced by some operators alone.
_UNREDUCED: Final = (torch.uint16, torch.uint32, torch.uint64)

# By `tensor.device.type`; None: nothing but CPU memory serves it. Filled when first asked for.
devices: dict[str, Device | None] = {"cpu": None}


class _Current:
    """What serves the current world."""

    collectives: DeviceCollectives | None = None
    lock = threading.Lock()


def route(tensor: torch.Tensor, operation: str, op: int | None = None) -> DeviceCollectives | None:
    """Return what runs an operation on the tensor's device; None: CPU memory serves it.

    Args:
        tensor: One of those that it is about.
        operation: Its name, as the switches have it.
        op: How it reduces.

    Raises:
        ValueError: The tensor is on another device than this process has used.
    """
    device = device_of(tensor)
    if device is None or not state.is_initialized():
        return None
    world = state.current_world()
    if op == Adasum or operation in world.config.staged or _must_encrypt(world):
        return None
    return _collectives(device)


def is_reduced(dtype: torch.dtype) -> bool:
    """Say whether process groups of accelerators reduce tensors of this type."""
    return not dtype.is_complex and dtype not in _UNREDUCED


def device_of(tensor: torch.Tensor) -> Device | None:
    """Return the accelerator that a tensor is on, if it has a process group; None otherwise.

    Raises:
        ValueError: The tensor is on another device than this process has used.
    """
    kind = tensor.device.type
    device = devices[kind] if kind in devices else _find(kind)
    return device if device is not None and device.holds(tensor) else None


def joining() -> bool:
    """Say whether this rank can take part on an accelerator after it has joined."""
    if not state.is_initialized():
        return False
    for kind in (*devices, *_BACKENDS):
        device = devices[kind] if kind in devices else _find(kind)
        if device is not None and not _must_encrypt(state.current_world()):
            _collectives(device)
            return True
    return False


def _must_encrypt(world: World) -> bool:
    """Say whether something goes between hosts that no group of an accelerator would encrypt."""
    return world.config.tls and max(world.links.joined.host_of) > 0


def _find(kind: str) -> Device | None:
    devices[kind] = None
    backend = _BACKENDS.get(kind)
    if backend is not None and is_available(kind):
        devices[kind] = TorchDevice(kind, backend)
    return devices[kind]


def is_available(kind: str) -> bool:
    """Say whether there is a device of this kind and PyTorch has a process group for it."""
    module = getattr(torch, kind, None)
    if module is None or not dist.is_available():
        return False
    has_backend = getattr(dist, f"is_{_BACKENDS[kind]}_available", None)
    return has_backend is not None and bool(has_backend()) and bool(module.is_available())


def _collectives(device: Device) -> DeviceCollectives:
    # Not needed without an accelerator, nor to be had in every build of PyTorch.
    from sirtaki.torch.device.collectives import DeviceCollectives
    from sirtaki.torch.device.dispatcher import Dispatcher

    world = state.current_world()
    with _Current.lock:
        if _Current.collectives is None:
            _Current.collectives = DeviceCollectives(Dispatcher(world, device))
            world.at_close.append(_forget)
        return _Current.collectives


def _forget() -> None:
    _Current.collectives = None

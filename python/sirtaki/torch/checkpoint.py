"""Checkpoints of PyTorch's objects: `hvd.checkpoint.save`, `latest`, `load` and `wait`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from sirtaki.checkpoint import Checkpoint, CheckpointError, Checkpoints
from sirtaki.checkpoint.codec import (
    Array,
    numpy_from_array,
    numpy_to_array,
    python_random_state,
    set_python_random_state,
)
from sirtaki.torch.elastic.state import TorchState

__all__ = ["Checkpoint", "CheckpointError", "latest", "load", "save", "wait"]

_OBJECT = "state_dict"


class _Codec:
    """See `sirtaki.checkpoint.Codec`."""

    framework = "torch"

    def capture(self, value: Any) -> Any:
        """Return an object's `state_dict`, or the value itself."""
        return {_OBJECT: value.state_dict()} if _has_state(value) else value

    def restore(self, value: Any, tree: Any) -> Any:
        """Load an object's `state_dict`; other values are replaced."""
        if not _has_state(value):
            return tree
        value.load_state_dict(tree[_OBJECT])
        return value

    def to_array(self, value: Any) -> Array | None:
        """Take tensors, and NumPy's arrays."""
        if not isinstance(value, torch.Tensor):
            return numpy_to_array(value)
        if value.is_quantized or value.layout != torch.strided:
            return None
        data = value.detach().cpu().contiguous()
        name = str(data.dtype).removeprefix("torch.")
        flat = (
            data.reshape(-1).view(torch.uint8)
            if data.numel()
            else data.new_empty(0, dtype=torch.uint8)
        )
        return "torch", name, tuple(value.shape), flat.numpy()

    def from_array(self, kind: str, dtype: str, shape: tuple[int, ...], data: bytearray) -> Any:
        """Return a tensor on the CPU, or what NumPy had."""
        if kind != "torch":
            return numpy_from_array(kind, dtype, shape, data)
        wanted = getattr(torch, dtype)
        if not data:
            return torch.empty(shape, dtype=wanted)
        return torch.from_numpy(np.frombuffer(data, np.uint8)).view(wanted).reshape(shape)

    def members(self, state: Any) -> dict[str, Any]:
        """Return what a `TorchState` looks after."""
        handled = state._handlers if isinstance(state, TorchState) else {}
        objects = {name: getattr(state, name) for name in state._saved_state}
        return {**{name: handler.value for name, handler in handled.items()}, **objects}

    def assign(self, state: Any, values: Mapping[str, Any]) -> None:
        """Set the plain objects, and commit without looking for other hosts."""
        for name in state._saved_state:
            setattr(state, name, values[name])
        state.save()

    def random_state(self) -> dict[str, Any]:
        """Return the state of Python's, NumPy's and PyTorch's generators."""
        found = {**python_random_state(), "torch": torch.get_rng_state()}
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            found["cuda"] = torch.cuda.get_rng_state()
        return found

    def set_random_state(self, tree: Mapping[str, Any]) -> None:
        """Set them."""
        set_python_random_state(tree)
        torch.set_rng_state(tree["torch"])
        if "cuda" in tree and torch.cuda.is_available():
            torch.cuda.set_rng_state(tree["cuda"])


def _has_state(value: Any) -> bool:
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


_checkpoints = Checkpoints(_Codec())
save = _checkpoints.save
latest = _checkpoints.latest
load = _checkpoints.load
wait = _checkpoints.wait

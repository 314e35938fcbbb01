"""Python objects without the tensors in them."""

from __future__ import annotations

import io
import pickle
from typing import Any

import torch


class TensorPickler(pickle.Pickler):
    """Pickles an object without its tensors, which are set aside in `tensors` in order."""

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, protocol=pickle.HIGHEST_PROTOCOL)
        self.tensors: list[torch.Tensor] = []

    def persistent_id(self, obj: Any) -> Any:
        """Set a tensor aside, and say what is needed to make one like it."""
        if not isinstance(obj, torch.Tensor):
            return None
        self.tensors.append(obj.detach())
        return tuple(obj.shape), obj.dtype, obj.is_cpu


class TensorUnpickler(pickle.Unpickler):
    """Unpickles what `TensorPickler` wrote, with new tensors, listed in `tensors`, to be filled.

    Tensors that were not in CPU memory are made on `device`, which may be set for each object.
    """

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream)
        self.device = torch.device("cpu")
        self.tensors: list[torch.Tensor] = []

    def persistent_load(self, pid: Any) -> torch.Tensor:
        """Make a tensor like the one set aside."""
        shape, dtype, on_cpu = pid
        tensor = torch.empty(shape, dtype=dtype, device="cpu" if on_cpu else self.device)
        self.tensors.append(tensor)
        return tensor

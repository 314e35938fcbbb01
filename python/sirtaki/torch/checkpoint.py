"""Checkpoints with PyTorch: `hvd.checkpoint`; see `sirtaki.checkpoint.Checkpoints`."""

from __future__ import annotations

from typing import Any

import torch

from sirtaki.checkpoint import Array, CheckpointError, Checkpoints, Framework, Loaded

__all__ = ["CheckpointError", "Loaded", "latest", "load", "save", "wait"]


class TorchFramework(Framework):
    """PyTorch's tensors, modules and optimizers."""

    name = "PyTorch"

    def is_array(self, leaf: Any) -> bool:
        """See `Framework`.

        Raises:
            CheckpointError: No single rank holds the whole tensor.
        """
        if not isinstance(leaf, torch.Tensor):
            return super().is_array(leaf)
        if type(leaf) not in (torch.Tensor, torch.nn.Parameter) or leaf.layout != torch.strided:
            raise CheckpointError(
                f"a {type(leaf).__name__} of layout {leaf.layout} can be no part of a checkpoint: "
                "save dense tensors, or use torch.distributed.checkpoint for shards of DTensors"
            )
        return True

    def is_finite(self, leaf: Any) -> bool:
        """See `Framework`."""
        is_tensor = isinstance(leaf, torch.Tensor)
        return bool(torch.isfinite(leaf).all()) if is_tensor else super().is_finite(leaf)

    def to_host(self, leaf: Any) -> Array:
        """See `Framework`."""
        if not isinstance(leaf, torch.Tensor):
            return super().to_host(leaf)
        flat = leaf.detach().cpu().contiguous().reshape(-1)
        dtype = str(leaf.dtype).removeprefix("torch.")
        return Array("tensor", dtype, tuple(leaf.shape), flat.view(torch.uint8).numpy())

    def from_host(self, array: Array) -> Any:
        """See `Framework`."""
        if array.kind != "tensor":
            return super().from_host(array)
        tensor = torch.empty(array.shape, dtype=getattr(torch, array.dtype))
        if array.data.size:
            tensor.view(-1).view(torch.uint8).copy_(torch.from_numpy(array.data.copy()))
        return tensor

    def random(self) -> dict[str, Any]:
        """See `Framework`."""
        states = super().random() | {"torch": torch.get_rng_state(), "cuda": []}
        if torch.cuda.is_initialized():
            states["cuda"] = torch.cuda.get_rng_state_all()
        return states

    def set_random(self, states: dict[str, Any]) -> None:
        """See `Framework`."""
        super().set_random(states)
        torch.set_rng_state(states["torch"])
        if len(states["cuda"]) == torch.cuda.device_count() > 0:
            torch.cuda.set_rng_state_all(states["cuda"])


_checkpoints = Checkpoints(TorchFramework())
save = _checkpoints.save
latest = _checkpoints.latest
load = _checkpoints.load
wait = _checkpoints.wait

"""The order of images and weights in memory that PyTorch's kernels are quickest in."""

from __future__ import annotations

import torch


def channels_last(x: torch.Tensor) -> torch.Tensor:
    """Images with the channels of a pixel side by side, where this device's kernels want them so.

    On CPUs pooling is many times as quick in this order, and convolution no slower. What a layer
    returns stays in it, so that a net's images are put in this order once. Only the memory's order
    changes: shapes and indices do not.
    """
    if x.dim() != 4 or x.device.type != "cpu":
        return x
    if x.shape[1] == 1:  # either order is both; strides tell PyTorch which one is meant
        items, _, height, width = x.shape
        return x.reshape(items, height, width, 1).permute(0, 3, 1, 2)
    return x.contiguous(memory_format=torch.channels_last)


def same_order(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether dense tensors of one shape have their elements in one order."""
    orders = (torch.contiguous_format, torch.channels_last)
    return any(
        x.is_contiguous(memory_format=order) and y.is_contiguous(memory_format=order)
        for order in (orders if x.dim() == 4 else orders[:1])
    )

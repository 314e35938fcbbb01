"""Compression of tensors for transmission."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.compiler import is_compiling

from sirtaki.core.operations import codecs
from sirtaki.core.operations import compression as core
from sirtaki.core.operations.compression import (
    CastCompressor,
    Compressions,
    Compressor,
    derive,
    feeds_back,
)
from sirtaki.torch.device.layer import devices

__all__ = ["Compression", "Compressor", "codec_of", "feeds_back"]


class _Cast(CastCompressor):
    float32 = torch.float32

    @staticmethod
    def is_floating(tensor: Any) -> bool:
        """See `CastCompressor`."""
        return bool(tensor.dtype.is_floating_point)

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        """See `CastCompressor`."""
        return tensor.to(dtype)


class Compression(Compressions):
    """The available compressions; any class with the methods of `Compressor` works as well."""


derive(Compression, _Cast, torch)
FP16Compressor = Compression.fp16
NoneCompressor = Compression.none


def codec_of(compression: type[Compressor], tensors: Sequence[torch.Tensor], op: int) -> int:
    """Return the engine's codec of float32 tensors for this compression."""
    codec = core.codec_of(compression, op)
    if codec == codecs.NONE:
        return codecs.NONE
    served = is_compiling() or devices["cpu"] is None
    return codec if served and all(tensor.is_cpu for tensor in tensors) else codecs.NONE

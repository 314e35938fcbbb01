"""Compression of arrays for transmission."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from sirtaki.core.operations.compression import CastCompressor, Compressions, Compressor, derive

__all__ = ["Compression", "Compressor"]


class _Cast(CastCompressor):
    float32 = jnp.float32

    @staticmethod
    def is_floating(tensor: Any) -> bool:
        """See `CastCompressor`."""
        return bool(jnp.issubdtype(tensor.dtype, jnp.floating))

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        """See `CastCompressor`."""
        return tensor.astype(dtype)


class Compression(Compressions):
    """The available compressions; any class with the methods of `Compressor` works as well."""


derive(Compression, _Cast, jnp)

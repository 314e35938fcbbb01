"""The collectives on PyTorch tensors, and `torch.ops.sirtaki`."""

from __future__ import annotations

from typing import Any

import torch
from torch import _ops


class _Operators(_ops._OpNamespace):
    """`torch.ops.sirtaki`, whose operators are created on first use."""

    __module__ = _ops.__name__  # by which torch.export finds them again

    def __getattr__(self, name: str) -> Any:
        from sirtaki.torch.ops import operators  # noqa: F401

        return self.__dict__.get(name) or super().__getattr__(name)


torch.ops.sirtaki = _Operators("sirtaki")  # type: ignore[attr-defined]

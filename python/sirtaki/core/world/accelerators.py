"""What this process's PyTorch has to move tensors between GPUs."""

from __future__ import annotations

import sys
from typing import Any


def _torch() -> Any:
    """Return PyTorch if the script has imported it, a GPU is visible and NCCL can serve it."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available():
        return None
    served = torch.distributed.is_nccl_available() and torch.cuda.is_available()
    return torch if served else None


def nccl_version() -> int:
    """Return NCCL's version code, as NCCL counts since 2.9; 0 without NCCL or a GPU."""
    torch = _torch()
    if torch is None:
        return 0
    major, minor, patch = torch.cuda.nccl.version()[:3]
    return int(major * 10000 + minor * 100 + patch)


def serves_cuda() -> bool:
    """Tell whether tensors on NVIDIA's GPUs are reduced there."""
    torch = _torch()
    return torch is not None and torch.version.cuda is not None


def serves_rocm() -> bool:
    """Tell whether tensors on AMD's GPUs are reduced there."""
    torch = _torch()
    return torch is not None and torch.version.hip is not None

"""What PyTorch has moved: names of the tests from where this version has them."""

from __future__ import annotations

try:
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
except ImportError:  # before 2.5
    from torch.distributed._tensor import DTensor, Replicate, Shard, distribute_tensor
try:
    from torch.distributed.fsdp import fully_shard
except ImportError:  # before 2.6
    from torch.distributed._composable.fsdp import fully_shard

__all__ = ["DTensor", "Replicate", "Shard", "distribute_tensor", "fully_shard"]

"""`torch.distributed` on our engine: `init_process_group("sirtaki")`.

Where Sirtaki is installed nothing else is needed; importing this module registers the backend where
PyTorch's own discovery is off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sirtaki.autoload import register
from sirtaki.torch.distributed.functions import monitored_barrier, moved_by, split_group
from sirtaki.torch.distributed.started import init

if TYPE_CHECKING:
    from sirtaki.torch.distributed.gradient_hooks import CompressionState, compression_hook

__all__ = [
    "CompressionState",
    "compression_hook",
    "init",
    "monitored_barrier",
    "moved_by",
    "register",
    "split_group",
]

register()


def __getattr__(name: str) -> Any:
    if name in ("CompressionState", "compression_hook"):
        from sirtaki.torch.distributed import gradient_hooks

        return getattr(gradient_hooks, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Makes `torch.distributed` know the backend; called whenever PyTorch is imported.

An exception here would come out of `import torch` in every program of the environment, so nothing
is imported that could fail, and nothing that takes time.
"""

from __future__ import annotations

from typing import Any

_NAME = "sirtaki"
_DEVICES = ["cpu", "cuda", "xpu"]


def register() -> None:
    """Register the backend, unless PyTorch cannot have any or has it already."""
    try:
        import torch.distributed as dist

        if dist.is_available() and _NAME.upper() not in dist.Backend._plugins:
            dist.Backend.register_backend(_NAME, _create, extended_api=True, devices=_DEVICES)
    except Exception as error:
        import warnings

        warnings.warn(f"sirtaki is no backend of torch.distributed here: {error!r}", stacklevel=2)


def _create(options: Any, backend_options: Any = None) -> Any:
    from sirtaki.torch.distributed.group import create

    return create(options, backend_options)

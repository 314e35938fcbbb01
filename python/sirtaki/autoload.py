"""Makes `torch.distributed` know the backend; called whenever PyTorch is imported.

An exception here would come out of `import torch` in every program of the environment, so nothing
is imported that could fail, and nothing that takes time.
"""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from sirtaki.stand_in import NAME, stand_in

_DEVICES = ["cpu", "cuda", "xpu"]
_TRUE = frozenset(("1", "true", "yes", "on"))
_ENV_RENDEZVOUS = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")
# One of these is set by every starter that sets none of PyTorch's; see started_by.py.
_STARTED = (
    *("OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"),
    *("PALS_RANKID", "JSM_NAMESPACE_RANK", "SLURM_STEP_ID", "FLUX_TASK_RANK"),
)


def register() -> None:
    """Register the backend, unless PyTorch cannot have any or has it already."""
    try:
        import torch.distributed as dist

        if not dist.is_available() or NAME.upper() in dist.Backend._plugins:
            return
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=_DEVICES)
    except Exception as error:
        warnings.warn(f"sirtaki is no backend of torch.distributed here: {error!r}", stacklevel=2)
        return
    try:
        _complete(dist)
    except Exception as error:
        warnings.warn(
            f"sirtaki is a backend of torch.distributed, but is not all it should be: {error!r}",
            stacklevel=2,
        )


def _create(options: Any, backend_options: Any = None) -> Any:
    _open_functions()
    from sirtaki.torch.distributed.group import create

    return create(options, backend_options)


def _complete(dist: Any) -> None:
    """Change what PyTorch does only where the user has asked for it."""
    by_default = os.environ.get("SIRTAKI_TORCH_DEFAULT", "").strip().lower() in _TRUE
    if by_default or any(map(os.environ.get, _STARTED)):
        handlers = sys.modules["torch.distributed.rendezvous"]._rendezvous_handlers
        handlers["env"] = _env_rendezvous(handlers["env"])
    if by_default:
        stand_in(dist)


@functools.cache
def _open_functions() -> None:
    """Open to our groups, once there is one, what PyTorch keeps for its own."""
    import torch.distributed as dist

    _serve(dist, "monitored_barrier", "group")
    _serve(dist, "split_group", "parent_pg")


def _serve(dist: Any, name: str, parameter: str) -> None:
    """Let a function that refuses our groups hand them over; `parameter` is where it takes one."""
    theirs = getattr(dist, name, None)
    if theirs is None:
        return

    @functools.wraps(theirs)
    def function(*args: Any, **kwargs: Any) -> Any:
        group = args[0] if args else kwargs.get(parameter)
        # Whoever has a group of ours has loaded this.
        ours = sys.modules.get("sirtaki.torch.distributed.group")
        if ours is not None and isinstance(group or dist.group.WORLD, ours.Group):
            from sirtaki.torch.distributed import functions

            return getattr(functions, name)(*args, **kwargs)
        return theirs(*args, **kwargs)

    for module in (dist, dist.distributed_c10d):
        setattr(module, name, function)


def _env_rendezvous(theirs: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """Let `env://` do where an mpirun or srun has set none of PyTorch's variables."""

    @functools.wraps(theirs)
    def rendezvous(url: str, **kwargs: Any) -> Iterator[Any]:
        if all(map(os.environ.get, _ENV_RENDEZVOUS)) and "world_size=0" not in url:
            return theirs(url, **kwargs)
        try:
            from sirtaki.torch.distributed import started
        except ImportError:  # a program that does not use us needs none of this
            return theirs(url, **kwargs)
        return started.rendezvous(url, theirs, **kwargs)

    return rendezvous

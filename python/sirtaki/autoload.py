"""Registers the `torch.distributed` backend; called whenever PyTorch is imported.

An exception here would escape from `import torch` in every program of the environment, so this
module imports nothing that may fail or take long.
"""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from sirtaki import timed_steps
from sirtaki.importing import uncollected
from sirtaki.schedulers.table import is_started
from sirtaki.stand_in import NAME, stand_in

_DEVICES = ["cpu", "cuda", "xpu"]
_TRUE = frozenset(("1", "true", "yes", "on"))
_ENV_RENDEZVOUS = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")


def register() -> None:
    """Register the backend, unless PyTorch supports none or has it already."""
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
    with uncollected():
        from sirtaki.torch.distributed.group import create
    return create(options, backend_options)


def _complete(dist: Any) -> None:
    """Modify PyTorch only if the user has requested it."""
    if folder := os.environ.get(timed_steps.FOLDER):
        timed_steps.note_steps(folder)
    by_default = os.environ.get("SIRTAKI_TORCH_DEFAULT", "").strip().lower() in _TRUE
    if by_default or is_started(os.environ):
        handlers = sys.modules["torch.distributed.rendezvous"]._rendezvous_handlers
        handlers["env"] = _env_rendezvous(handlers["env"])
    if by_default:
        stand_in(dist)


@functools.cache
def _open_functions() -> None:
    """Let PyTorch's functions for its own backends accept our groups, once one exists."""
    import torch.distributed as dist

    _serve(dist, "monitored_barrier", "group")
    _serve(dist, "split_group", "parent_pg")


def _serve(dist: Any, name: str, parameter: str) -> None:
    """Make a function that refuses our groups delegate to them; `parameter` names the group."""
    theirs = getattr(dist, name, None)
    if theirs is None:
        return

    @functools.wraps(theirs)
    def function(*args: Any, **kwargs: Any) -> Any:
        group = args[0] if args else kwargs.get(parameter)
        # A program with one of our groups has loaded this.
        ours = sys.modules.get("sirtaki.torch.distributed.group")
        if ours is not None and isinstance(group or dist.group.WORLD, ours.Group):
            from sirtaki.torch.distributed import functions

            return getattr(functions, name)(*args, **kwargs)
        return theirs(*args, **kwargs)

    for module in (dist, dist.distributed_c10d):
        setattr(module, name, function)


def _env_rendezvous(theirs: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """Make `env://` work where mpirun or srun has set none of PyTorch's variables."""

    @functools.wraps(theirs)
    def rendezvous(url: str, **kwargs: Any) -> Iterator[Any]:
        if all(map(os.environ.get, _ENV_RENDEZVOUS)) and "world_size=0" not in url:
            return theirs(url, **kwargs)
        try:
            from sirtaki.torch.distributed import started
        except ImportError:  # a program that does not use Sirtaki needs none of this
            return theirs(url, **kwargs)
        return started.rendezvous(url, theirs, **kwargs)

    return rendezvous

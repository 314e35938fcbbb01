"""Lets our groups replace PyTorch's backends for CPU tensors, under those backends' names.

A program that requests Gloo must see Gloo wherever it asks later, because libraries compare the
name with those that they know. So only the implementation of a group changes. Like
`sirtaki.autoload`, this module is imported with PyTorch itself.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from typing import Any

NAME = "sirtaki"

# The requested backend of each device, for the group that PyTorch is making.
_asked: ContextVar[dict[str, str] | None] = ContextVar("_asked", default=None)
# The program's backend name where PyTorch receives another one.
_given: ContextVar[str | None] = ContextVar("_given", default=None)


def asked_names() -> Mapping[str, str]:
    """Return the requested backends by device, for the group that is being made.

    Empty if the program requested ours.
    """
    return _asked.get() or {}


def stand_in(dist: Any) -> None:
    """Make our groups wherever a backend for CPU tensors is requested, by name or by default."""
    meant = {"gloo"} if dist.is_mpi_available() else {"gloo", "mpi"}
    _make_ours(dist.distributed_c10d, meant)
    if "mpi" in meant:
        _start_as_gloo_does(dist, "mpi")


def _make_ours(c10d: Any, meant: Iterable[str]) -> None:
    """Make PyTorch use our backend for a device while it makes a group, and only then."""
    config = c10d.BackendConfig
    their_map, their_helper = config.get_device_backend_map, c10d._new_process_group_helper

    @functools.wraps(their_map)
    def get_device_backend_map(self: Any) -> dict[str, str]:
        names: dict[str, str] = their_map(self)
        asked = _asked.get()
        if asked is None or not any(name in meant for name in names.values()):
            return names
        given = _given.get()
        asked.update({device: given or name for device, name in names.items()})
        return {device: NAME if name in meant else name for device, name in names.items()}

    @functools.wraps(their_helper)
    def new_process_group_helper(*arguments: Any, **named: Any) -> Any:
        token = _asked.set({})
        try:
            return their_helper(*arguments, **named)
        finally:
            _asked.reset(token)

    config.get_device_backend_map = get_device_backend_map
    c10d._new_process_group_helper = new_process_group_helper


def _start_as_gloo_does(dist: Any, name: str) -> None:
    """Start a backend named `name` as PyTorch starts Gloo, so that its ranks meet at a store."""
    c10d = dist.distributed_c10d
    theirs = dist.init_process_group

    @functools.wraps(theirs)
    def init_process_group(backend: str | None = None, *arguments: Any, **named: Any) -> None:
        if not isinstance(backend, str) or backend.lower() != name:
            theirs(backend, *arguments, **named)
            return
        token = _given.set(name)
        try:
            theirs("gloo", *arguments, **named)
        finally:
            _given.reset(token)
        world = c10d._world
        world.pg_map[dist.group.WORLD] = (name, world.pg_map[dist.group.WORLD][1])
        world.pg_backend_config[dist.group.WORLD] = str(c10d.BackendConfig(name))
        c10d._backend = name

    for module in (dist, c10d):
        module.init_process_group = init_process_group

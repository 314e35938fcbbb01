"""Methods of PyTorch's groups and backends other than operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch._C._distributed_c10d import PrefixStore, Store

from sirtaki.torch.distributed.works import seconds_of

_HALF_AN_HOUR = timedelta(minutes=30)
# Methods that no group for CPU tensors supports, including PyTorch's own.
_UNSUPPORTED = (
    *("new_window", "register_abort_hook", "unregister_abort_hook", "_wait_for_pending_works"),
    "_register_on_completion_hook",
)


class Methods:
    """The methods of a group beside its operations; the derived class is the group."""

    supports_window = False
    _store: Store
    _timeout: float | None
    _group_rank: int
    _sequence: int

    def get_group_store(self) -> Store:
        """Return the store at which the members have met."""
        return self._store

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the time after which an operation not called by all members fails."""
        self._timeout = seconds_of(timeout)

    _set_default_timeout = set_timeout

    def _add_ephemeral_timeout(self, timeout: timedelta) -> None:
        """Do nothing, like every backend that cannot extend the time limit of later operations."""

    def _get_sequence_number_for_group(self) -> int:
        """Return the number of operations of all members that this rank has started."""
        return self._sequence

    def _set_sequence_number_for_group(self) -> None:
        """Do nothing: all members count from 0."""

    def _has_hooks(self) -> bool:
        """Return that no hooks run at the end of operations."""
        return False

    def split_group(
        self,
        ranks: Sequence[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Sequence[torch.device] | None = None,
    ) -> dist.ProcessGroup | None:
        """Create a group of some members, which call this method, in the given order.

        Args:
            ranks: The members' ranks in this group.
            timeout: The time limit of the new group; default: this group's.
            opts: Unused: our groups have no options.
            group_name: A name for the new group.
            group_desc: A description of it.
            device_types: Unused: all devices are supported.

        Returns:
            The new group, None where this process is not in it.

        Raises:
            ValueError: `ranks` are not members, or contain duplicates.
        """
        group: Any = self
        chosen = [int(rank) for rank in ranks]
        if len(set(chosen)) != len(chosen) or not set(chosen) <= set(range(group.getSize())):
            raise ValueError(
                f"split_group: {chosen} must be ranks of 0 to {group.getSize() - 1}, each once"
            )
        if self._group_rank not in chosen:
            return None
        part = type(group)(
            self._store,
            chosen.index(self._group_rank),
            len(chosen),
            timeout=timeout or _limit(self._timeout),
            asked=group._asked,
            part_of=(group, chosen),
        )
        return _named(part, group, f"split:{chosen}", group_name, group_desc)

    def merge_remote_group(
        self,
        store: Store,
        size: int,
        timeout: timedelta = _HALF_AN_HOUR,
        group_name: str | None = None,
        group_desc: str | None = None,
    ) -> dist.ProcessGroup:
        """Create a group of this group's members and others, which all call this method.

        Args:
            store: The store where they meet.
            size: The number of members.
            timeout: The time limit of the new group.
            group_name: A name for it.
            group_desc: A description of it.

        Returns:
            The new group, with ranks in the order of arrival.
        """
        group: Any = self
        name = group_name or "merge"
        place = PrefixStore(f"sirtaki/{name}", store)
        rank = place.add("arrivals", 1) - 1
        if rank >= size:
            raise ValueError(f"merge_remote_group: more than {size} processes came to the store")
        merged = type(group)(place, rank, size, name, timeout, group._asked)
        return _named(merged, group, "merge", group_name, group_desc)

    splitGroup = split_group
    mergeRemoteGroup = merge_remote_group


def _named(
    made: Any, parent: Any, what: str, name: str | None, description: str | None
) -> dist.ProcessGroup:
    made.setGroupName(name or f"{parent.getGroupName()}:{what}")
    made.setGroupDesc(description or f"{parent.getGroupDesc()}:{what.partition(':')[0]}")
    group: dist.ProcessGroup = made
    return group


def _limit(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


def _unsupported(name: str) -> Callable[..., Any]:
    def method(self: Any, *arguments: Any, **options: Any) -> Any:
        raise RuntimeError(f"Backend {self.name()} does not support {name}")

    method.__name__ = name
    method.__doc__ = "Raise RuntimeError, as Gloo does."
    return method


for _name in _UNSUPPORTED:
    setattr(Methods, _name, _unsupported(_name))


class Face:
    """The interface of a device's backend, which is the group itself."""

    supports_splitting = False
    supports_coalescing = False
    supports_time_estimate = False
    supports_shrinking = False
    options = None
    mem_allocator = None
    bound_device_id = None

    def __init__(self, group: dist.ProcessGroup, name: str) -> None:
        self._group = group
        self._name = name

    def name(self) -> str:
        """Return the name of the backend that the program requested for this device."""
        return self._name

    def __getattr__(self, name: str) -> Any:
        if hasattr(self._group, name) or not hasattr(c10d.Backend, name):
            return getattr(self._group, name)
        return _unsupported(name).__get__(self)

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        """Return that tensors are allocated as usual."""
        return False

    def get_error(self) -> Any:
        """Return that there is no error: operations raise theirs."""
        return c10d.ErrorType.SUCCESS

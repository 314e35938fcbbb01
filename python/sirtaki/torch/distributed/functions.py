"""Replacements for PyTorch functions that refuse every backend but PyTorch's own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from sirtaki.stand_in import NAME
from sirtaki.torch.distributed.group import Group


def monitored_barrier(
    group: dist.ProcessGroup | None = None,
    timeout: timedelta | float | None = None,
    wait_all_ranks: bool = False,
) -> None:
    """Wait until all ranks of a group have arrived, or name those that have not.

    Args:
        group: One of ours; default: the group of all ranks.
        timeout: The time limit, in seconds if it is a number; default: the group's.
        wait_all_ranks: Whether rank 0 names all missing ranks, or only the first.

    Raises:
        CollectiveTimeoutError: Some ranks did not arrive.
    """
    if not isinstance(timeout, timedelta | None):
        timeout = timedelta(seconds=timeout)
    ours(group, "monitored_barrier").monitored_barrier(timeout, wait_all_ranks)


def moved_by(group: dist.ProcessGroup | None = None, device: torch.device | str = "cpu") -> str:
    """Return the backend that moves a group's tensors, whatever name the program requested.

    Args:
        group: Any group; default: the group of all ranks.
        device: The device of the tensors.

    Returns:
        "sirtaki", or the name of PyTorch's backend that moves them.
    """
    found = group or _default()
    if isinstance(found, Group):
        return found.mover(torch.device(device))
    return str(found._get_backend(torch.device(device)).name())


def split_group(
    parent_pg: dist.ProcessGroup | None = None,
    split_ranks: Sequence[Sequence[int]] | None = None,
    timeout: timedelta | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
    backend: str | None = None,
) -> dist.ProcessGroup | None:
    """Divide a group; all of its members call it with the same lists.

    Args:
        parent_pg: One of ours; default: the group of all ranks.
        split_ranks: The members of each new group, by their numbers in `parent_pg`.
        timeout: The time after which an operation not called by all members fails.
        pg_options: Unused: our groups have no options.
        group_desc: A description of the new groups.
        backend: The backend of `parent_pg`, the only valid value.

    Returns:
        The new group of this rank, or None if it is in none.

    Raises:
        ValueError: The lists do not divide the group, or another backend is requested.
    """
    parent = ours(parent_pg, "split_group")
    made_as = dist.get_backend(parent)
    if backend is not None and dist.Backend(backend) not in (made_as, parent.name()):
        raise ValueError(f"split_group cannot make a group of {backend} from one of {made_as}")
    if pg_options is not None:
        raise ValueError(f"split_group: groups of {parent.name()} take no pg_options")
    own = _own_part(split_ranks or [], parent.getRank(), parent.getSize())
    everyone = dist.get_process_group_ranks(parent)
    part: dist.ProcessGroup | None = None
    with parent.dividing(own or []):
        if own is not None:
            part = dist.new_group(
                [everyone[rank] for rank in own],
                timeout,
                # PyTorch does not let only the new members create a group of MPI.
                backend=NAME if made_as == "mpi" else made_as,
                use_local_synchronization=True,
                group_desc=group_desc,
            )
    return part


def ours(group: dist.ProcessGroup | None, what: str) -> Group:
    """Return the group, by default that of all ranks.

    Raises:
        ValueError: It is of another backend.
    """
    found = group or _default()
    if not isinstance(found, Group):
        raise ValueError(f"{what} needs a group of the backend sirtaki, not {found}")
    return found


def _default() -> dist.ProcessGroup:
    return dist.distributed_c10d._get_default_group()


def _own_part(split_ranks: Sequence[Sequence[int]], rank: int, size: int) -> list[int] | None:
    """Return the sorted members of the part that a rank is in."""
    named = [member for part in split_ranks for member in part]
    if not all(split_ranks) or not named:
        raise ValueError(f"split_ranks={split_ranks} has an empty group, or none")
    if len(set(named)) != len(named) or min(named) < 0 or max(named) >= size:
        raise ValueError(
            f"split_ranks={split_ranks} must name ranks of 0 to {size - 1} of the group that is "
            "divided, each at most once"
        )
    return next((sorted(part) for part in split_ranks if rank in part), None)

"""The participants of an operation: process sets and ranks, checked before anything is sent."""

from __future__ import annotations

from sirtaki.core import elastic
from sirtaki.core.world import state
from sirtaki.core.world.process_sets import ProcessSet, global_process_set


def number_of(process_set: ProcessSet) -> int:
    """Return the number of a registered process set; ValueError if it is not registered."""
    number = process_set.process_set_id
    if number is None:
        raise ValueError(
            f"{process_set} is not registered; call add_process_set() or pass it to init()"
        )
    if number:  # other sets have other numbers in the next world
        state.note_read()
    return number


def process_set_of(number: int) -> ProcessSet:
    """Return the process set with this number.

    Raises:
        ValueError: There is none, or `init` was not called.
    """
    if number == 0:
        return global_process_set
    ranks = state.current_world().engine.process_sets().get(number)
    if ranks is None:
        raise ValueError(f"there is no process set {number}")
    found = ProcessSet(ranks)
    found.process_set_id = number
    return found


def size_of(process_set: ProcessSet) -> int:
    """Return the number of ranks in a process set.

    Raises:
        ValueError: `init` was not called, or the set is not registered.
    """
    state.size()  # raises if init() was not called
    number_of(process_set)
    return len(process_set.ranks or [])


def reduces(process_set: ProcessSet) -> bool:
    """Return whether this rank shares its gradients with others of a process set.

    A function compiled while an elastic job has one rank must stay valid when it has more.

    Raises:
        ValueError: `init` was not called, or the set is not registered.
    """
    number_of(process_set)
    return bool(process_set.included()) and (elastic.is_elastic() or size_of(process_set) > 1)


def rank_of(name: str, rank: int, process_set: ProcessSet) -> int:
    """Return the world rank that an argument names; TypeError or ValueError if it is none."""
    if type(rank) is not int:
        if isinstance(rank, bool) or not hasattr(rank, "__index__"):
            raise TypeError(f"{name} must be an int, not {type(rank).__name__}")
        rank = int(rank)
    if process_set.process_set_id:  # all ranks are in the global set
        members = process_set.ranks
        if members is not None and rank not in members:
            raise ValueError(f"{name} {rank} is not in the process set {members}")
    return rank

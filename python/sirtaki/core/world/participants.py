"""Who takes part in an operation: process sets and ranks, checked before anything is sent."""

from __future__ import annotations

from sirtaki.core.world import state
from sirtaki.core.world.process_sets import ProcessSet, global_process_set


def number_of(process_set: ProcessSet) -> int:
    """Return the number of a registered process set; ValueError if it is not registered."""
    number = process_set.process_set_id
    if number is None:
        raise ValueError(
            f"{process_set} is not registered; call add_process_set() or pass it to init()"
        )
    return number


def process_set_of(number: int) -> ProcessSet:
    """Return the process set with this number."""
    if number == 0:
        return global_process_set
    found = ProcessSet(state.current_world().engine.process_sets()[number])
    found.process_set_id = number
    return found


def size_of(process_set: ProcessSet) -> int:
    """Return the number of ranks in a process set.

    Raises:
        ValueError: `init` was not called, or the set is not registered.
    """
    state.size()  # says that init() was not called, if that is it
    number_of(process_set)
    return len(process_set.ranks or [])


def rank_of(name: str, rank: int, process_set: ProcessSet) -> int:
    """Return the rank of the world that an argument says; TypeError, ValueError if it is none."""
    if type(rank) is not int:
        if isinstance(rank, bool) or not hasattr(rank, "__index__"):
            raise TypeError(f"{name} must be an int, not {type(rank).__name__}")
        rank = int(rank)
    if process_set.process_set_id:  # all ranks are in the global set
        members = process_set.ranks
        if members is not None and rank not in members:
            raise ValueError(f"{name} {rank} is not in the process set {members}")
    return rank

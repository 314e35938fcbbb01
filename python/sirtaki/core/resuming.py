"""Distribution of a checkpoint that rank 0 alone has read, in an elastic job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

Random = Sequence[Any] | None


class _Process:
    """State that this process keeps until it shares a state with all ranks."""

    # On rank 0: the random states of the ranks at the checkpoint.
    random: Random = None
    # On the others: loads the checkpoint if rank 0 is lost; sets the random state.
    loads: ClassVar[list[Callable[[], object]]] = []
    set_random: Callable[[Any], None] | None = None


def has_loaded(random: Sequence[Any]) -> None:
    """Record on rank 0 the checkpoint's random states, by rank."""
    _Process.random = random


def leaves_to_first(load: Callable[[], object], set_random: Callable[[Any], None]) -> None:
    """Record on another rank that rank 0 loads a checkpoint.

    Args:
        load: Called if this process becomes rank 0 before it has received a state.
        set_random: Sets the random state of this rank.
    """
    _Process.loads.append(load)
    _Process.set_random = set_random


def become_first() -> None:
    """Load the checkpoint in place of a rank 0 that was lost."""
    while _Process.loads:
        _Process.loads.pop(0)()


def random_to_tell() -> Random:
    """Return on rank 0 the random states for the other ranks."""
    return _Process.random


def end(rank: int, random: Random) -> None:
    """Record that this process shares the state of rank 0, and apply its random state.

    Args:
        rank: This process's rank.
        random: The random states from rank 0.
    """
    if random is not None and _Process.set_random is not None and rank < len(random):
        _Process.set_random(random[rank])
    _Process.random = _Process.set_random = None
    _Process.loads.clear()

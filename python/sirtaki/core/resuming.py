"""What the ranks of an elastic job get of a checkpoint, which rank 0 alone has read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

Random = Sequence[Any] | None


class _Process:
    """What this process has to remember until it has a state that all ranks share."""

    # Of the ranks that there were, on rank 0.
    random: Random = None
    # On the others: how rank 0's work is done should rank 0 be lost, and what takes its numbers.
    loads: ClassVar[list[Callable[[], object]]] = []
    set_random: Callable[[Any], None] | None = None


def has_loaded(random: Sequence[Any]) -> None:
    """Note on rank 0 which random states the checkpoint has, by rank."""
    _Process.random = random


def leaves_to_first(load: Callable[[], object], set_random: Callable[[Any], None]) -> None:
    """Note on another rank that rank 0 loads a checkpoint.

    Args:
        load: Called if this process becomes rank 0 before it has got a state.
        set_random: Takes the random state of this rank.
    """
    _Process.loads.append(load)
    _Process.set_random = set_random


def become_first() -> None:
    """Load what a lost rank 0 was to give to this process, which takes its place."""
    while _Process.loads:
        _Process.loads.pop(0)()


def random_to_tell() -> Random:
    """Return on rank 0 what the others wait for."""
    return _Process.random


def end(rank: int, random: Random) -> None:
    """Note that this process shares the state of rank 0, and take the random state from there.

    Args:
        rank: Of this process.
        random: What rank 0 has told.
    """
    if random is not None and _Process.set_random is not None and rank < len(random):
        _Process.set_random(random[rank])
    _Process.random = _Process.set_random = None
    _Process.loads.clear()

"""Whether compiled functions of a framework contain values of the world, which changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar


class _Process:
    """State of this process that outlives its worlds."""

    tracers: ClassVar[list[Callable[[], bool]]] = []
    has_value = False


def watch(is_tracing: Callable[[], bool]) -> None:
    """Watch a framework that cannot itself tell when a compiled function is out of date.

    Args:
        is_tracing: Returns whether this thread is tracing a function.
    """
    _Process.tracers.append(is_tracing)


def note_read() -> None:
    """Record that a value of the world is being read, which a traced function keeps."""
    for is_tracing in _Process.tracers:
        if is_tracing():
            _Process.has_value = True


def note_changes() -> None:
    """Record that the program changes values in each new world, which traced functions may keep."""
    _Process.has_value = True


def depends_on_world() -> bool:
    """Return whether a compiled function may contain a value of a world."""
    return _Process.has_value

"""A registry of objects that threads may iterate while others add and remove objects."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Living(Generic[T]):
    """A set of weakly referenced objects, by identity.

    Unlike `weakref.WeakSet` it may change during an iteration, which yields the objects that were
    in it at the start.
    """

    def __init__(self) -> None:
        self._all: tuple[weakref.ref[T], ...] = ()
        self._lock = threading.Lock()

    def add(self, item: T) -> None:
        """Add an object."""
        self._replace(item, (weakref.ref(item),))

    def discard(self, item: T) -> None:
        """Remove an object if it is in the set."""
        self._replace(item, ())

    def _replace(self, item: T, added: tuple[weakref.ref[T], ...]) -> None:
        with self._lock:
            others = [ref for ref in self._all if ref() is not None and ref() is not item]
            self._all = (*others, *added)

    def __iter__(self) -> Iterator[T]:
        return iter([item for ref in self._all if (item := ref()) is not None])

"""A queue from other threads to a loop that polls descriptors."""

from __future__ import annotations

import contextlib
import queue
import socket
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Inbox(Generic[T]):
    """A queue that a selector can wait on: `fileno` is readable when `take` has something."""

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[T] = queue.SimpleQueue()
        # Sockets, because `put` after `close` could write to a reused descriptor of a pipe.
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor that is readable when `take` has something."""
        return self._reader.fileno()

    def put(self, item: T) -> None:
        """Add an item, from any thread; it is lost once the inbox is closed."""
        self._items.put(item)
        with contextlib.suppress(OSError):  # full, and so readable, or closed
            self._writer.send(b"!")

    def take(self) -> Iterator[T]:
        """Yield the items."""
        with contextlib.suppress(BlockingIOError):
            self._reader.recv(1 << 16)
        while not self._items.empty():
            yield self._items.get()

    def close(self) -> None:
        """Close the sockets."""
        self._reader.close()
        self._writer.close()

"""A store inside one process."""

from __future__ import annotations

import threading

from sirtaki.rendezvous.stores.wire import checked


class MemoryStore:
    """A store inside one process, for ranks that are threads."""

    address = "memory:"

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._changed = threading.Condition()

    def set(self, key: str, value: bytes, timeout: float | None = None) -> None:
        """See `Store.set`."""
        checked(key, value)
        with self._changed:
            self._values[key] = bytes(value)
            self._changed.notify_all()

    def get(self, key: str, timeout: float) -> bytes:
        """See `Store.get`."""
        checked(key)
        with self._changed:
            if not self._changed.wait_for(lambda: key in self._values, timeout):
                raise TimeoutError(f"nobody set {key!r} within {timeout:g} s")
            return self._values[key]

    def peek(self, key: str) -> bytes | None:
        """See `Store.peek`."""
        return self._values.get(key)

    def close(self) -> None:
        """See `Store.close`; the values stay for the other threads."""
